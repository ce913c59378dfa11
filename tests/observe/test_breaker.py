"""The breaker's states, by a clock that is a number."""

from tidegate.observe.breaker import Breaker


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(failures_to_open=2, first_pause_s=1.0, longest_pause_s=4.0, monotonic_s=clock)
    breaker.failed()
    breaker.failed()
    return breaker


def test_breaker_is_closed_before_enough_failures() -> None:
    breaker = Breaker(failures_to_open=2, first_pause_s=1.0, longest_pause_s=4.0, monotonic_s=Clock())
    breaker.failed()
    assert breaker.wait_s() is None


def test_breaker_counts_consecutive_failures_only() -> None:
    breaker = Breaker(failures_to_open=2, first_pause_s=1.0, longest_pause_s=4.0, monotonic_s=Clock())
    for _ in range(5):
        breaker.failed()
        breaker.succeeded()
    assert breaker.wait_s() is None


def test_breaker_opens_and_says_how_long() -> None:
    assert opened(Clock()).wait_s() == 1.0


def test_breaker_lets_one_probe_through() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now_s = 1.0
    assert breaker.wait_s() is None
    assert breaker.wait_s() is not None


def test_breaker_doubles_its_pause_up_to_a_limit() -> None:
    clock = Clock()
    breaker = opened(clock)
    pauses = []
    for _ in range(4):
        pause_s = breaker.wait_s()
        assert pause_s is not None
        pauses.append(pause_s)
        clock.now_s += pause_s
        assert breaker.wait_s() is None
        breaker.failed()
    assert pauses == [1.0, 2.0, 4.0, 4.0]


def test_breaker_closes_after_a_good_probe() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now_s = 1.0
    assert breaker.wait_s() is None
    breaker.succeeded()
    assert breaker.wait_s() is None
    breaker.failed()
    assert breaker.wait_s() is None
