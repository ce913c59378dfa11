import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.perf.calibrate import MAX_RATIO, MIN_RATIO, QUEUE_REQUESTS, STEP_RATIO, Evidence, corrected


def _evidence(
    finished_per_s: float,
    *,
    offered_per_s: float | None = None,
    waiting: float = 0.0,
    held: bool = False,
    missed: bool = False,
) -> Evidence:
    return Evidence(
        offered_per_s=finished_per_s if offered_per_s is None else offered_per_s,
        finished_per_s=finished_per_s,
        waiting=waiting,
        objectives_held=held,
        objective_missed=missed,
    )


def test_correction_rises_when_more_is_carried_inside_the_objectives() -> None:
    assert corrected(1.0, _evidence(2.4, held=True), modelled_per_s=2.0) == pytest.approx(1.0 + STEP_RATIO * 0.2)


def test_correction_falls_when_less_is_carried_with_a_queue_and_a_miss() -> None:
    found = corrected(1.0, _evidence(1.6, waiting=QUEUE_REQUESTS, missed=True), modelled_per_s=2.0)
    assert found == pytest.approx(1.0 - STEP_RATIO * 0.2)


@pytest.mark.parametrize(
    "evidence",
    [
        None,  # a needed signal is unknown
        _evidence(0.0, held=True),  # idle proves nothing
        _evidence(1.0, held=True),  # below what is believed: no limit was touched
        _evidence(1.0, waiting=1.9, missed=True),  # a miss without a queue has another cause
        _evidence(1.6, offered_per_s=6.0, waiting=9.0, missed=True),  # a miss that overload explains
        _evidence(2.4, waiting=5.0, missed=True),  # overloaded beyond belief: not proof of less
    ],
)
def test_correction_stays_when_nothing_is_proved(evidence: Evidence | None) -> None:
    assert corrected(1.1, evidence, modelled_per_s=2.0) == 1.1


@given(
    start=st.floats(MIN_RATIO, MAX_RATIO),
    rates=st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 10.0), st.booleans()), max_size=50),
)
def test_correction_never_leaves_its_bounds(start: float, rates: list[tuple[float, float, bool]]) -> None:
    ratio = start
    for finished, waiting, held in rates:
        ratio = corrected(ratio, _evidence(finished, waiting=waiting, held=held, missed=not held), modelled_per_s=2.0)
        assert MIN_RATIO <= ratio <= MAX_RATIO
