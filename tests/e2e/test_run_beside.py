"""A controller beside another, and beside what another left: nothing that serves is taken away."""

import json
import os
from pathlib import Path

import pytest
from tests.e2e.command import NOWHERE, Controller, refused, run_words, tidegate

from tidegate.actuate.local_process import identity_of
from tidegate.app.journal_read import read

SOON_READY = ("coldStart: 20s", "coldStart: 1s")

pytestmark = [pytest.mark.e2e]


def test_dry_run_beside_a_controller_touches_neither_its_files_nor_a_gateway(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Controller(tmp_path, dry_run=False, edit=SOON_READY) as real:
        real.wait("a replica", lambda: '"ready"' in (state / "fleet.json").read_text() if real.sequence() else False)
        with Controller(tmp_path) as one:
            one.wait("two decisions", lambda: one.sequence() >= 2)
            assert not one.listens("--ads-listen")
            assert real.listens("--ads-listen")
            assert "dry run: no replica is touched and no gateway served" in one.log()
            assert one.stop() == 0
        decided = list(read(one.journal))
        assert {p.writes for record in decided for p in record.decision.pools} == {False}
        # It sees the other's replica, and so would order none.
        assert decided[-1].decision.pools[0].ready_replicas == 1
        assert "would warm" not in one.log()
        sequence = real.sequence()
        real.wait("the controller going on", lambda: real.sequence() > sequence)
        assert real.stop() == 0
    numbers = [record.decision.sequence for record in read(real.journal)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert all(p.writes for record in read(real.journal) for p in record.decision.pools)
    assert "Aborting" not in real.log()
    assert "answers are synthetic text" in real.log()


def test_dry_run_tells_what_it_would_do_and_leaves_only_its_journal(tmp_path: Path) -> None:
    with Controller(tmp_path) as one:
        one.wait("two decisions", lambda: one.sequence() >= 2)
        assert one.stop() == 0
    assert one.log().count("would warm chat.main.1.0 of chat/main") == 1
    assert "would warm chat.main.2.0" not in one.log()
    left = {path.name for path in (tmp_path / "state").iterdir()}
    assert left == {"journal.dry-run.jsonl", "journal.dry-run.jsonl.lock"}


def test_replicas_of_a_pool_that_was_renamed_are_refused_until_told_to_end(tmp_path: Path) -> None:
    owned = ("--owner-pid", str(os.getpid()))
    fleet = tmp_path / "state" / "fleet.json"
    with Controller(tmp_path, dry_run=False, edit=SOON_READY, more=owned) as before:
        before.wait("a replica", lambda: fleet.exists() and '"ready"' in fleet.read_text())
        assert before.stop() == 0
    ((name, left),) = json.loads(fleet.read_text())["replicas"].items()
    renamed = ("- name: main", "- name: other")
    line = refused(1, tidegate(*run_words(tmp_path, NOWHERE, *renamed), cwd=tmp_path))
    assert line == (
        f"replicas run whose pool no policy names: chat/main ({name}); put the pool back into a policy, "
        "or give --end-unnamed to drain and end them"
    )
    assert identity_of(left["pid"]) is not None
    with Controller(tmp_path, dry_run=False, edit=renamed, more=("--end-unnamed",)) as after:
        after.wait("the drain", lambda: json.loads(fleet.read_text())["replicas"][name]["state"] == "draining")
        assert after.stop() == 0
    assert json.loads(fleet.read_text())["replicas"] == {}
    assert identity_of(left["pid"]) is None
