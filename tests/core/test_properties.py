"""What must hold for every fleet, load and loss."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.core.decide import decide
from tidegate.terms.decision import Decision, Memory, Reason, Verdict
from tidegate.terms.observation import Observation, PoolObservation, ServiceObservation
from tidegate.terms.signal import Signal, Unknown, UnknownReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.core.conftest import Case, Fleet

SERVICE_SIGNALS = ("arrivals_per_s",)
POOL_SIGNALS = ("running_requests", "waiting_requests", "finished_per_s", "gateway_pending_requests")
LOSSES = [r for r in UnknownReason if r not in {UnknownReason.NOT_OFFERED, UnknownReason.NOT_CONFIGURED}]
EXAMPLES = settings(max_examples=100, deadline=None)

loads = st.floats(min_value=0.0, max_value=40.0)
anything = st.floats(allow_nan=True, allow_infinity=True)


@pytest.fixture(scope="session")
def cases(fleet: "type[Fleet]") -> "Callable[[st.DrawFn], Case]":
    """Return a maker of random one-pool cases that draws from hypothesis."""

    def make(draw: st.DrawFn) -> "Case":
        least = draw(st.integers(0, 3))
        most = least + draw(st.integers(1, 8))
        pool = fleet.pool_policy(min_replicas=least, max_replicas=most)
        ready = draw(st.integers(0, 8))
        seen = fleet.pool_seen(
            ready=ready,
            starting=draw(st.integers(0, 3)),
            draining=draw(st.integers(0, 2)),
            failed=draw(st.integers(0, 2)),
            running=draw(loads),
            waiting=draw(st.one_of(st.just(0.0), loads)),
            finished=draw(loads),
            pending=draw(st.one_of(st.just(0.0), loads)),
            ready_at_s=draw(st.sampled_from([0.0, fleet.NOW_S - 5.0])),
        )
        wanted = draw(st.lists(st.integers(0, 8), min_size=0, max_size=9))
        return fleet.Case(
            arrivals=draw(loads),
            forecast=draw(st.one_of(st.none(), loads)),
            pools=[pool],
            seen=[seen],
            capacity={"main": draw(st.floats(0.1, 10.0))},
            attained=draw(st.floats(0.0, 1.0)),
            asked=draw(st.one_of(st.none(), st.integers(0, 10).map(lambda n: {"main": n}))),
            history=fleet.window(*wanted),
            ever_observed=draw(st.booleans()),
            waiting_before=draw(st.one_of(st.none(), loads)),
            max_grow=draw(st.integers(1, 5)),
            max_shrink=draw(st.integers(1, 3)),
            stabilisation_s=draw(st.sampled_from([None, 0.0, 60.0])),
        )

    return make


def run(case: "Case", observation: Observation | None = None) -> tuple[Decision, Memory]:
    return decide(
        observation or case.observation(),
        case.forecasts(),
        case.capacities(),
        (case.policy(),),
        case.memory(),
        now_s=case.now_s,
    )


def without(observation: Observation, names: set[str], reason: UnknownReason) -> Observation:
    """Return the observation with the named signals of its only service and pool lost."""

    def lose(signal: Signal) -> Unknown:
        return Unknown(reason=reason, sampled_at_s=signal.sampled_at_s, coverage_ratio=0.0, source=signal.source)

    service: ServiceObservation = observation.services[0]
    pool: PoolObservation = service.pools[0]
    gone: dict[str, Any] = {n: lose(getattr(pool, n)) for n in names if n in POOL_SIGNALS}
    of_service: dict[str, Any] = {n: lose(getattr(service, n)) for n in names if n in SERVICE_SIGNALS}
    slis = tuple(replace(s, attained_ratio=lose(s.attained_ratio)) if "slis" in names else s for s in service.slis)
    service = replace(service, pools=(replace(pool, **gone),), slis=slis, **of_service)
    return replace(observation, services=(service,))


@EXAMPLES
@given(data=st.data())
def test_asked_is_never_outside_the_bounds(cases: "Callable[..., Case]", data: st.DataObject) -> None:
    case = cases(data.draw)
    pool = case.pools[0]
    assert pool.min_replicas <= run(case)[0].pools[0].asked_replicas <= pool.max_replicas


@EXAMPLES
@given(data=st.data(), more=st.floats(1.0, 5.0))
def test_more_load_never_asks_for_fewer_replicas(
    cases: "Callable[..., Case]", data: st.DataObject, more: float
) -> None:
    case = cases(data.draw)
    before = run(case)[0].pools[0].asked_replicas
    service = case.observation().services[0]
    assert not isinstance(service.arrivals_per_s, Unknown)
    case.arrivals = service.arrivals_per_s.number * more
    case.forecast = None if case.forecast is None else case.forecast * more
    assert run(case)[0].pools[0].asked_replicas >= before


@EXAMPLES
@given(
    data=st.data(),
    names=st.sets(st.sampled_from((*SERVICE_SIGNALS, *POOL_SIGNALS, "slis"))),
    reason=st.sampled_from(LOSSES),
)
def test_losing_signals_never_widens_a_move(
    cases: "Callable[..., Case]", data: st.DataObject, names: set[str], reason: UnknownReason
) -> None:
    case = cases(data.draw)
    full = run(case)[0].pools[0]
    less = run(case, without(case.observation(), names, reason))[0].pools[0]
    hold = min(max(full.asked_before_replicas, case.pools[0].min_replicas), case.pools[0].max_replicas)
    if full.asked_replicas >= hold:
        assert hold <= less.asked_replicas <= full.asked_replicas
    else:
        assert full.asked_replicas <= less.asked_replicas <= hold


@EXAMPLES
@given(data=st.data())
def test_losing_the_forecast_never_widens_a_move(cases: "Callable[..., Case]", data: st.DataObject) -> None:
    case = cases(data.draw)
    full = run(case)[0].pools[0]
    case.forecast = None
    less = run(case)[0].pools[0]
    hold = min(max(full.asked_before_replicas, case.pools[0].min_replicas), case.pools[0].max_replicas)
    assert abs(less.asked_replicas - hold) <= abs(full.asked_replicas - hold)
    assert (less.asked_replicas - hold) * (full.asked_replicas - hold) >= 0


@EXAMPLES
@given(data=st.data())
def test_the_same_inputs_give_the_same_decision(cases: "Callable[..., Case]", data: st.DataObject) -> None:
    case = cases(data.draw)
    assert run(case) == run(case)


@EXAMPLES
@given(data=st.data())
def test_every_decision_has_a_binding_reason_among_its_notes(cases: "Callable[..., Case]", data: st.DataObject) -> None:
    decided = run(cases(data.draw))[0].pools[0]
    assert decided.binding in {n.reason for n in decided.notes}
    asked, before = decided.asked_replicas, decided.asked_before_replicas
    assert decided.verdict is (Verdict.GROW if asked > before else Verdict.SHRINK if asked < before else Verdict.HOLD)


@EXAMPLES
@given(data=st.data())
def test_what_leaves_is_exactly_the_excess_and_never_named_twice(
    cases: "Callable[..., Case]", data: st.DataObject
) -> None:
    decided = run(cases(data.draw))[0].pools[0]
    excess = max(0, decided.ready_replicas + decided.starting_replicas - decided.asked_replicas)
    assert len(decided.drain_first) == len(set(decided.drain_first)) == excess


@EXAMPLES
@given(
    data=st.data(),
    rows=st.lists(st.lists(anything, max_size=3), max_size=3).map(lambda rows: tuple(tuple(r) for r in rows)),
    numbers=st.tuples(anything, anything, anything),
)
def test_bad_numbers_hold_and_never_raise(
    cases: "Callable[..., Case]",
    data: st.DataObject,
    rows: tuple[tuple[float, ...], ...],
    numbers: tuple[float, float, float],
) -> None:
    arrivals, capacity, cold_start_s = numbers
    case = cases(data.draw)
    case.arrivals, case.capacity = arrivals, {"main": capacity}
    case.forecast = 1.0
    bad = replace(case.forecasts()[0], values=rows, levels=tuple(0.1 * i + 0.1 for i in range(len(rows))))
    sized = tuple(replace(c, cold_start_p95_s=cold_start_s) for c in case.capacities())
    decision, memory = decide(case.observation(), (bad,), sized, (case.policy(),), case.memory(), now_s=case.now_s)
    pool, asked = case.pools[0], decision.pools[0].asked_replicas
    assert pool.min_replicas <= asked <= pool.max_replicas
    assert memory.pools[0].asked_replicas == asked


@EXAMPLES
@given(data=st.data(), steps=st.integers(2, 12))
def test_a_chain_of_decisions_never_shrinks_below_what_the_window_wanted(
    cases: "Callable[..., Case]", data: st.DataObject, steps: int
) -> None:
    case = cases(data.draw)
    case.stabilisation_s = 60.0
    memory = case.memory()
    seen: list[tuple[float, int]] = []
    for _ in range(steps):
        case.arrivals = data.draw(loads)
        case.forecast = data.draw(loads)
        case.now_s += 10.0
        decision, memory = decide(
            case.observation(), case.forecasts(), case.capacities(), (case.policy(),), memory, now_s=case.now_s
        )
        decided = decision.pools[0]
        assert decided.wanted_replicas is not None
        seen.append((case.now_s, decided.wanted_replicas))
        wanted = max(n for at, n in seen if at > case.now_s - 60.0)
        if decided.verdict is Verdict.SHRINK and decided.binding is not Reason.AT_MAXIMUM:
            assert decided.asked_replicas >= min(wanted, case.pools[0].max_replicas)


@EXAMPLES
@given(data=st.data(), first=loads, more=st.floats(1.0, 4.0))
def test_more_load_never_asks_for_fewer_replicas_over_two_pools(
    fleet: "type[Fleet]", data: st.DataObject, first: float, more: float
) -> None:
    pools = [
        fleet.pool_policy("a", cost_usd_per_h=data.draw(st.floats(0.0, 5.0)), max_replicas=3),
        fleet.pool_policy("b", cost_usd_per_h=data.draw(st.floats(0.0, 5.0))),
    ]
    asked = {name: data.draw(st.integers(1, 3)) for name in ("a", "b")}
    case = fleet.Case(
        arrivals=first,
        forecast=first,
        pools=pools,
        seen=[fleet.pool_seen(p.key, ready=asked[p.key.pool]) for p in pools],
        capacity={"a": data.draw(st.floats(0.5, 5.0)), "b": data.draw(st.floats(0.5, 5.0))},
        asked=asked,
    )
    less = [p.asked_replicas for p in case.decide()[0]]
    case.arrivals = case.forecast = first * more
    assert all(a >= b for a, b in zip([p.asked_replicas for p in case.decide()[0]], less, strict=True))
