"""The end of a controller that owns its replicas: their answers are waited for, up to a limit."""

import asyncio
import logging
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.actuate.local_rules import LocalPoolSpec
from tidegate.app import outlets
from tidegate.app.servers import free_port
from tidegate.gateway.envoy import ListenerSettings
from tidegate.terms.fleet import PoolKey, ReplicaState
from tidegate.terms.plan import Step, StepKind

KEY = PoolKey(service="chat", pool="main")
ENGINE = str(Path(__file__).parents[1] / "actuate" / "fake_engine.py")
SPEC = LocalPoolSpec(key=KEY, profile="p", served_model="m", cold_start_s=0.0, command=(sys.executable, "-S", ENGINE))


async def ended(folder: Path, *engine: str, grace_s: float, hurry_at_once: bool = False) -> None:
    """Start one replica, wait until it is ready and end everything in the normal way."""
    hurry = asyncio.Event()
    ending = outlets.Ending(grace_s=grace_s, hurry=hurry, owner_pid=None, unnamed=False)
    async with outlets.local(
        folder,
        {KEY: replace(SPEC, extra_args=engine)},
        own_pid=os.getpid(),
        ending=ending,
        ads_at=("127.0.0.1", free_port()),
        listening=ListenerSettings(host="127.0.0.1", port=free_port(), access_log_path="/dev/null"),
    ) as outlet:
        outlet.actuator.apply(Step(kind=StepKind.WARM, pool=KEY, replica="a"), time.time())
        ends_s = time.monotonic() + 20.0
        while outlet.actuator.membership(time.time()).replicas[0].state is not ReplicaState.READY:
            assert time.monotonic() < ends_s, "it did not become ready"
            await asyncio.sleep(0.05)
        if hurry_at_once:
            hurry.set()


@pytest.fixture(autouse=True)
def _every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tidegate.controller")


async def test_stop_waits_for_running_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await ended(tmp_path, "--drain-for", "0.6", grace_s=60.0)
    assert "waiting up to 60 s for running answers of replicas=a" in caplog.text
    assert "cutting" not in caplog.text


async def test_stop_cuts_what_is_not_done_after_the_grace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await ended(tmp_path, "--deaf", grace_s=0.3)
    assert "stopping: not done after 0.3 s, cutting the answers of replicas=a" in caplog.text


async def test_stop_cuts_at_once_when_told_to_hurry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await ended(tmp_path, "--deaf", grace_s=3600.0, hurry_at_once=True)
    assert "stopping: told to hurry, cutting the answers of replicas=a" in caplog.text
