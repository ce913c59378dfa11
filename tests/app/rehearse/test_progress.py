"""Progress: a bar for people, few lines for logs, nothing when told so; never on stdout."""

import io

import pytest

from tidegate.app.rehearse.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def play(out: io.StringIO, *, quiet: bool = False) -> str:
    with progress(quiet=quiet, out=out) as told:
        told(0, 0, "reading load.csv")
        for i in range(500):
            told(i, 500, "tidegate: seed 0")
        told(500, 500, "hpa-queue: seed 0")
    return out.getvalue()


def test_terminal_gets_a_bar() -> None:
    shown = play(Terminal())
    assert "hpa-queue: seed 0" in shown
    assert "500/500" in shown


def test_log_gets_a_line_for_each_piece_of_work() -> None:
    assert play(io.StringIO()).splitlines() == [
        "tidegate: reading load.csv",
        "tidegate: 0/500 tidegate: seed 0",
        "tidegate: 500/500 hpa-queue: seed 0",
    ]


def test_quiet_says_nothing() -> None:
    assert not play(io.StringIO(), quiet=True)


def test_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as told:
        told(1, 2, "x")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "tidegate: 1/2 x\n")
