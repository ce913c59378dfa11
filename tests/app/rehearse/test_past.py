"""A service's history read out of a real Prometheus, filled with hours that were written by hand."""

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.app.rehearse.history import HOURS, OUTPUT_MEAN, PROMPT_MEAN, backfill, rate_at, replicas_at

from tidegate.app import servers
from tidegate.app.config import load_policies
from tidegate.app.rehearse.backtest import filled, notes_of, present_schedule, trace_of_past
from tidegate.app.rehearse.lengths import TokenCounts
from tidegate.app.rehearse.past import Past, Span, read_past
from tidegate.app.rehearse.past_queries import PastQueries
from tidegate.observe.prometheus import PrometheusReader
from tidegate.observe.prometheus_config import PrometheusConfig
from tidegate.observe.settings import ObserveSettings
from tidegate.terms.errors import BadInputError, ServerUnreachableError
from tidegate.terms.policy import ServicePolicy

ROOT = Path(__file__).parents[3]
SETTINGS = ObserveSettings(rate_window_s=60.0, scrape_interval_s=15.0, stale_after_s=60.0)
STEP_S = 60.0


@dataclasses.dataclass(frozen=True)
class History:
    url: str
    start_s: int

    @property
    def span(self) -> Span:
        # The first step has no sample before it.
        return Span(start_s=self.start_s + STEP_S, end_s=self.start_s + HOURS * 3600, step_s=STEP_S)

    def read(self, policy: ServicePolicy, *, span: Span | None = None, **queries: str) -> Past:
        reader = PrometheusReader(PrometheusConfig(url=self.url))
        try:
            return read_past(reader, policy, queries=PastQueries(**queries), settings=SETTINGS, span=span or self.span)
        finally:
            reader.close()


@pytest.fixture(scope="module", name="history")
def filled_prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    folder = tmp_path_factory.mktemp("past")
    start_s = int(time.time() // 3600 - HOURS - 1) * 3600
    backfill(folder, start_s)
    port = servers.free_port()
    with servers.start_prometheus(folder, port=port, scrape_interval_s=60.0, jobs=()):
        yield History(url=f"http://127.0.0.1:{port}", start_s=start_s)


@pytest.fixture(scope="module", name="policy")
def chat() -> ServicePolicy:
    return load_policies([ROOT / "examples" / "policies" / "chat.yaml"])[0]


@pytest.fixture(scope="module", name="past")
def read(history: History, policy: ServicePolicy) -> Past:
    return history.read(policy)


def test_arrivals_are_those_of_the_history(past: Past, history: History) -> None:
    assert len(past.arrivals_per_s) == HOURS * 60 - 1
    assert past.known_ratio > 0.97
    middle_s = past.start_s - history.start_s + (np.arange(len(past.arrivals_per_s)) + 0.5) * STEP_S
    expected = np.array([rate_at(s) for s in middle_s])
    # Around the change of replicas the counters of one end; elsewhere it is the rate, to the scrape.
    away = np.abs(middle_s - HOURS * 1800) > 120.0
    known = np.isfinite(past.arrivals_per_s) & away
    assert past.arrivals_per_s[known] == pytest.approx(expected[known], rel=0.03)


def test_lengths_have_the_buckets_and_the_mean_of_the_history(past: Past) -> None:
    assert isinstance(past.prompt, TokenCounts)
    shares = past.prompt.counts.sum(axis=0) / past.prompt.counts.sum()
    assert shares == pytest.approx([0.0, 0.2, 0.5, 0.2, 0.1, 0.0], abs=0.01)
    trace = trace_of_past(past, np.random.default_rng(0), name="past")
    assert trace.prompt_tokens.mean() == pytest.approx(PROMPT_MEAN, rel=0.03)
    assert trace.output_tokens.mean() == pytest.approx(OUTPUT_MEAN, rel=0.03)
    assert (trace.prompt_tokens <= 100).mean() == pytest.approx(0.2, abs=0.02)


def test_load_follows_the_history_hour_by_hour(past: Past) -> None:
    trace = trace_of_past(past, np.random.default_rng(1), name="past")
    counts = np.histogram(trace.arrival_ps / 1e12, bins=np.arange(0, HOURS * 3600 + 1, 3600))[0]
    assert counts[0] > 5.3 * 3600
    assert counts[2] < 2.7 * 3600
    assert len(trace) == pytest.approx(4.0 * HOURS * 3600, rel=0.03)
    assert len(trace_of_past(past, np.random.default_rng(1), name="past", factor=0.5)) == pytest.approx(
        len(trace) / 2, rel=0.03
    )


def test_replicas_are_those_that_were_up(past: Past, history: History, policy: ServicePolicy) -> None:
    (seen,) = past.replicas.values()
    assert list(past.replicas) == [policy.pools[0].key]
    for i in (0, 60, 110, 130, 200):
        at_s = past.start_s + (i + 1) * STEP_S - history.start_s
        assert seen[i] == replicas_at(at_s), i


def test_notes_say_where_it_came_from_and_what_finished_requests_hide(past: Past) -> None:
    told = "\n".join(notes_of(past))
    assert 'requests finished by engines with service="chat"' in told
    assert "what really came was more" in told
    assert 'targets up with service="chat"' in told
    assert "5.0 % of the output lengths lie beyond the histogram's last bound" in told


def test_own_queries_win(history: History, policy: ServicePolicy) -> None:
    past = history.read(
        policy,
        arrivals="vector(2.5)",
        replicas='2 * count(up{service="chat"})',
        prompt_buckets='sum by (le) (increase({__name__="vllm:request_generation_tokens_bucket"}[1h]))',
    )
    assert np.nanmax(past.arrivals_per_s) == 2.5
    assert np.nanmax(next(iter(past.replicas.values()))) == 6.0
    assert isinstance(past.prompt, TokenCounts)
    assert past.prompt.bounds.tolist() == [10.0, 50.0, 200.0, 500.0]


def test_history_that_prometheus_does_not_have_is_named_with_the_flag_to_give(
    history: History, policy: ServicePolicy
) -> None:
    other = dataclasses.replace(policy, name="other", model="acme/none")
    with pytest.raises(BadInputError, match=r"knows no arrivals .*\(tried: .*give --query-arrivals"):
        history.read(other)
    with pytest.raises(BadInputError, match=r"knows no prompt lengths .*give --query-prompt-buckets"):
        history.read(other, arrivals="vector(1)")


def test_model_name_is_tried_where_no_service_label_is(history: History, policy: ServicePolicy) -> None:
    past = history.read(dataclasses.replace(policy, name="other"))
    assert past.known_ratio > 0.97
    assert f'with model_name="{policy.model}"' in dict(past.sources)["arrivals"]


def test_history_that_is_mostly_unknown_is_refused(history: History, policy: ServicePolicy) -> None:
    span = Span(start_s=history.start_s - 40 * 3600.0, end_s=history.start_s + HOURS * 3600, step_s=STEP_S)
    with pytest.raises(BadInputError, match=r"known for 9 % of the time .*, must be 50 %: give a shorter"):
        history.read(policy, span=span)


def test_refused_query_is_bad_input_and_names_itself(history: History, policy: ServicePolicy) -> None:
    with pytest.raises(BadInputError, match=r"backtest: rate\(: .*parse error"):
        history.read(policy, arrivals="rate(")


def test_prometheus_that_is_away_is_unreachable(policy: ServicePolicy) -> None:
    with pytest.raises(ServerUnreachableError):
        History(url=f"http://127.0.0.1:{servers.free_port()}", start_s=0).read(policy)


def test_schedule_orders_a_cold_start_ahead_and_removes_on_time(past: Past) -> None:
    schedule = present_schedule(past, cold_start_s=120.0)
    assert schedule is not None
    (key,) = schedule.counts
    assert (schedule.at(key, 0.0), schedule.at(key, HOURS * 3600.0)) == (3, 2)
    # Without a stale marker a target counts as up for five more minutes.
    assert schedule.at(key, HOURS * 1800 + 360.0) == 2


def test_schedule_rises_before_the_replicas_were_there(past: Past) -> None:
    key = next(iter(past.replicas))
    rising = dataclasses.replace(past, replicas={key: np.array([1.0] * 10 + [4.0] * 10)})
    schedule = present_schedule(rising, cold_start_s=120.0)
    assert schedule is not None
    assert [schedule.at(key, i * STEP_S) for i in (6, 7, 8, 10)] == [1, 1, 4, 4]


def test_gap_is_drawn_straight_never_zero() -> None:
    nan = np.nan
    assert filled(np.array([nan, 2.0, nan, nan, 8.0, nan])).tolist() == [2.0, 2.0, 4.0, 6.0, 8.0, 8.0]
    with pytest.raises(ValueError, match="at least one known value"):
        filled(np.array([nan]))
