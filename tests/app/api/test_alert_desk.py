import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate.app.alert_desk import AlertDesk, token_from
from tidegate.terms.errors import BadInputError
from tidegate.terms.fleet import PoolKey
from tidegate.terms.observation import Intervention, InterventionKind

T0 = 1_790_000_000.0
KEY = PoolKey(service="chat", pool="main")
Make = Callable[..., Any]


def test_token_is_read_anew_so_that_it_can_be_rotated(tmp_path: Path, make_record: Make) -> None:
    path = tmp_path / "token"
    path.write_text("first-token-0123456789\n", encoding="ascii")
    desk = AlertDesk(make_record(T0)[0].inputs.policies, token=token_from(path))
    assert desk.admits("Bearer first-token-0123456789")
    path.write_text("second-token-0123456789\n", encoding="ascii")
    assert not desk.admits("Bearer first-token-0123456789")
    assert desk.admits("Bearer second-token-0123456789")


def test_nobody_is_admitted_when_the_token_file_is_gone(tmp_path: Path, make_record: Make) -> None:
    path = tmp_path / "token"
    path.write_text("first-token-0123456789", encoding="ascii")
    desk = AlertDesk(make_record(T0)[0].inputs.policies, token=token_from(path))
    path.unlink()
    assert not desk.admits("Bearer first-token-0123456789")
    assert not desk.admits("Bearer ")


@pytest.mark.parametrize("content", [b"", b"short", b"two words of enough length", b"\xff" * 20, b"x" * 5000])
def test_token_file_without_a_usable_token_is_bad_input_and_never_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match="token") as caught:
        token_from(path)
    assert "two words" not in str(caught.value)
    assert "short" not in str(caught.value)


def test_token_file_that_is_missing_or_a_folder_is_bad_input(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(BadInputError, match="cannot be read"):
            token_from(path)


def test_what_was_in_force_before_a_restart_still_is(make_record: Make) -> None:
    standing = Intervention(kind=InterventionKind.FREEZE, pool=KEY, replicas=None, expires_at_s=T0 + 60.0, origin="x")
    desk = AlertDesk(make_record(T0)[0].inputs.policies, token=lambda: "t" * 16, resumed=(standing,))
    assert desk.in_force(T0) == (standing,)
    desk.receive(json.dumps({"version": "4", "alerts": []}).encode(), T0)
    assert desk.in_force(T0 + 59.0) == (standing,)
    assert desk.in_force(T0 + 60.0) == ()
