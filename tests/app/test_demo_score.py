from tidegate.app.demo.load import Answer, Ending
from tidegate.app.demo.score import row, table
from tidegate.sim.arrivals import Arrival
from tidegate.sim.outcome import Outcome
from tidegate.terms.slo import Indicator, Slo

TTFT = Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.95, threshold_s=1.0, window_s=3600.0)
TPOT = Slo(name="tpot", indicator=Indicator.TPOT, objective_ratio=0.95, threshold_s=0.05, window_s=3600.0)
UP = Slo(name="up", indicator=Indicator.AVAILABILITY, objective_ratio=0.999, threshold_s=None, window_s=3600.0)
ARRIVAL = Arrival(at_s=0.0, prompt_tokens=1, output_tokens=10)


def _outcome(ttft_s: float | None, tpot_s: float | None, *, answered: bool = True) -> Outcome:
    return Outcome(arrival=ARRIVAL, answered=answered, ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=2.0)


def test_row_counts_joint_attainment_over_all_requests_sent() -> None:
    outcomes = [
        _outcome(0.5, 0.04),
        _outcome(2.0, 0.04),
        _outcome(0.5, 0.09),
        _outcome(None, None, answered=False),
    ]
    found = row("x", "live", outcomes, slos=(TTFT, TPOT, UP), replica_seconds=10.0, replicas_peak=2)
    assert dict(found.attained_ratio) == {"ttft": 0.5, "tpot": 0.5, "up": 0.75}
    assert found.joint_ratio == 0.25
    assert found.failed == 1
    assert found.ttft_s[0] == 0.5


def test_answer_that_was_cut_is_an_outcome_without_an_answer() -> None:
    answer = Answer(
        arrival=ARRIVAL, sent_s=0.0, ending=Ending.CUT, status=200, ttft_s=0.1, finished_s=0.5, output_tokens=2
    )
    assert not answer.outcome.answered


def test_table_shows_every_row_and_survives_a_run_without_answers() -> None:
    nothing = row("none", "live", [], slos=(TTFT,), replica_seconds=0.0, replicas_peak=0)
    text = table([nothing])
    assert "none answered" in text
    assert "ttft met" in text
