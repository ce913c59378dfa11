"""A Prometheus whose clock differs from ours: its old samples must not pass for new ones."""

from email.utils import formatdate

import pytest
from tests.observe.engines import members, policy, ready
from tests.observe.faulty import Faulty, always, answer

from tidegate.observe.observer import Observer
from tidegate.observe.prometheus import PrometheusConfig, PrometheusReader
from tidegate.observe.settings import ObserveSettings
from tidegate.terms.signal import Signal, Unknown, UnknownReason

NOW_S = 1_800_000_000.0
SETTINGS = ObserveSettings(rate_window_s=20.0, scrape_interval_s=5.0, stale_after_s=15.0)
EMPTY = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'


def arrivals(*head: str) -> Signal:
    """Return what is seen of a server that sends these headers."""
    with Faulty(always(answer(EMPTY, "200 OK", "application/json", *head))) as server:
        observer = Observer(PrometheusReader(PrometheusConfig(url=server.url)), settings=SETTINGS)
        seen = observer.observe((policy("chat"),), members(*ready("chat", "r-1", now_s=NOW_S), now_s=NOW_S), NOW_S)
    return seen.services[0].arrivals_per_s


def test_nothing_is_read_of_a_server_whose_clock_is_ahead() -> None:
    signal = arrivals(f"Date: {formatdate(NOW_S + 3600.0, usegmt=True)}")
    assert isinstance(signal, Unknown)
    assert signal.reason is UnknownReason.STALE
    assert "clock is 3600 s ahead" in signal.detail or "clock is 3599 s ahead" in signal.detail


@pytest.mark.parametrize("head", [f"Date: {formatdate(NOW_S + 2.0, usegmt=True)}", "Date: soon", "X: no date"])
def test_a_server_on_our_time_or_without_one_is_read(head: str) -> None:
    signal = arrivals(head)
    assert isinstance(signal, Unknown)
    assert signal.reason is UnknownReason.ABSENT
