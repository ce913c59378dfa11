import pytest

from tidegate.app.demo.load import Answer, Arrival, Outcome
from tidegate.app.demo.score import RequestTimes, met, row, table, times_of
from tidegate.terms.slo import Indicator, Slo

TTFT = Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.95, threshold_s=1.0, window_s=3600.0)
TPOT = Slo(name="tpot", indicator=Indicator.TPOT, objective_ratio=0.95, threshold_s=0.05, window_s=3600.0)
UP = Slo(name="up", indicator=Indicator.AVAILABILITY, objective_ratio=0.999, threshold_s=None, window_s=3600.0)


def _times(ttft_s: float | None, tpot_s: float | None, *, tokens: int = 10, answered: bool = True) -> RequestTimes:
    return RequestTimes(ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=2.0, output_tokens=tokens, answered=answered)


@pytest.mark.parametrize(
    ("times", "slo", "expected"),
    [
        (_times(1.0, 0.04), TTFT, True),
        (_times(1.001, 0.04), TTFT, False),
        (_times(0.5, 0.05), TPOT, True),
        (_times(0.5, 0.051), TPOT, False),
        (_times(0.5, None, tokens=1), TPOT, True),
        (_times(0.5, 0.04, answered=False), TTFT, False),
        (_times(0.5, 0.04, answered=False), UP, False),
        (_times(None, None, answered=False), TPOT, False),
    ],
)
def test_met_judges_one_request_by_one_objective(times: RequestTimes, slo: Slo, expected: bool) -> None:  # noqa: FBT001
    assert met(times, slo) is expected


def test_row_counts_joint_attainment_over_all_requests_sent() -> None:
    times = [_times(0.5, 0.04), _times(2.0, 0.04), _times(0.5, 0.09), _times(None, None, answered=False)]
    found = row("x", "live", times, slos=(TTFT, TPOT, UP), replica_seconds=10.0, replicas_peak=2)
    assert dict(found.attained_ratio) == {"ttft": 0.5, "tpot": 0.5, "up": 0.75}
    assert found.joint_ratio == 0.25
    assert found.failed == 1


def test_times_of_an_answer_that_was_cut_is_not_answered() -> None:
    answer = Answer(
        arrival=Arrival(at_s=0.0, prompt_tokens=1, output_tokens=5),
        sent_s=0.0, outcome=Outcome.CUT, status=200, ttft_s=0.1, finished_s=0.5, output_tokens=2,
    )  # fmt: skip
    (times,) = times_of([answer])
    assert not times.answered


def test_table_shows_every_row_and_survives_a_run_without_answers() -> None:
    nothing = row("none", "live", [], slos=(TTFT,), replica_seconds=0.0, replicas_peak=0)
    text = table([nothing])
    assert "none answered" in text
    assert "ttft met" in text
