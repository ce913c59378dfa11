"""A stack, a load and what the journal says, for the end-to-end tests."""

import asyncio
import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from tidegate.app.demo.load import Answer, Ending, replay
from tidegate.app.demo.stack import Stack, StackSettings
from tidegate.app.journal_read import read
from tidegate.app.record import TickRecord
from tidegate.sim.arrivals import Arrival
from tidegate.terms.decision import PoolDecision
from tidegate.terms.fleet import Replica, ReplicaState

MODEL = "meta-llama/Llama-3.1-70B-Instruct"

# A replica of this profile carries about 2 requests/s of the lengths below inside these objectives, so a handful of
# requests/s needs a handful of replicas, which two cores can stream.
POLICY = """\
apiVersion: tidegate.io/v1alpha1
kind: ServicePolicy
metadata: {name: chat}
spec:
  model: %(model)s
  mode: act
  slos:
    - {name: ttft, indicator: ttft, percentile: 95, threshold: 2s, window: 1h}
    - {name: tpot, indicator: tpot, percentile: 95, threshold: 60ms, window: 1h}
    - {name: available, indicator: availability, objective: 0.999, window: 1h}
  pools:
    - name: main
      role: aggregated
      engine: vllm
      accelerator: nvidia-a100-80gb
      gpusPerReplica: 4
      parallelism: {tensor: 4, pipeline: 1}
      engineProfile: a100-llama70b-tp4
      minReplicas: %(least)d
      maxReplicas: 6
      coldStart: 4s
      costPerHour: 10
      scaleTarget: {kind: Local, name: main}
  scaling: {maxGrowReplicas: 4, maxShrinkReplicas: 2, shrinkStabilisation: 12s, targetUtilisation: 0.85, staleAfter: 8s}
"""

PROMPT_TOKENS = 1000
OUTPUT_TOKENS = 100


def stack_settings(workdir: Path, *, least: int = 1) -> StackSettings:
    workdir.mkdir(parents=True, exist_ok=True)
    policy = workdir / "policy.yaml"
    policy.write_text(POLICY % {"model": MODEL, "least": least})
    return StackSettings(workdir=workdir, policy=policy, scrape_interval_s=1.0, decide_every_s=2.0)


def steady(
    rate_per_s: float, seconds: float, *, start_s: float = 0.0, prompt: int = PROMPT_TOKENS, output: int = OUTPUT_TOKENS
) -> list[Arrival]:
    """Evenly spaced requests."""
    return [
        Arrival(at_s=start_s + i / rate_per_s, prompt_tokens=prompt, output_tokens=output)
        for i in range(int(rate_per_s * seconds))
    ]


class Load:
    """A replay in a thread of its own, so that the test can break things meanwhile."""

    def __init__(self, stack: Stack, arrivals: Sequence[Arrival]) -> None:
        self._answers: list[Answer] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(stack, tuple(arrivals)), daemon=True)
        self._thread.start()

    def _run(self, stack: Stack, arrivals: tuple[Arrival, ...]) -> None:
        try:
            self._answers = asyncio.run(
                replay(arrivals, host="127.0.0.1", port=stack.ports.envoy, model=MODEL, deadline_s=90.0)
            )
        except BaseException as exc:  # noqa: BLE001  (handed to the test's thread)
            self._error = exc

    def join(self, timeout_s: float = 240.0) -> list[Answer]:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the load did not end"
        if self._error is not None:
            raise self._error
        assert self._answers, "nothing was sent"
        return self._answers


def failures(answers: Sequence[Answer], *, cut_is_failure: bool = True) -> list[str]:
    """Every request that did not end well, in words."""
    fine = {Ending.DONE} if cut_is_failure else {Ending.DONE, Ending.CUT}
    return [f"{a.arrival.at_s:.1f} s: {a.ending} {a.status} {a.detail[:200]}" for a in answers if a.ending not in fine]


def records(stack: Stack) -> list[TickRecord]:
    return list(read(stack.journal)) if stack.journal.exists() else []


def pool_of(record: TickRecord) -> PoolDecision:
    (pool,) = record.decision.pools
    return pool


def replicas_of(record: TickRecord, *states: ReplicaState) -> list[Replica]:
    return [
        r.replica
        for s in record.inputs.observation.services
        for p in s.pools
        for r in p.replicas
        if not states or r.replica.state in states
    ]


def wait_for(stack: Stack, what: str, found: Callable[[list[TickRecord]], bool], *, timeout_s: float = 60.0) -> None:
    """Wait until the journal shows it; the error says what it showed last."""
    deadline_s = time.monotonic() + timeout_s
    lines: list[TickRecord] = []
    while time.monotonic() < deadline_s:
        lines = records(stack)
        if lines and found(lines):
            return
        assert stack.controller.alive(), f"controller died:\n{stack.controller.log_tail()}"
        time.sleep(0.5)
    last = pool_of(lines[-1]) if lines else "an empty journal"
    msg = f"{what}: not within {timeout_s:g} s; last: {last}\n{stack.controller.log_tail()}"
    raise AssertionError(msg)


def wait_ready(stack: Stack, count: int, *, timeout_s: float = 60.0) -> None:
    wait_for(stack, f"{count} ready", lambda ls: pool_of(ls[-1]).ready_replicas >= count, timeout_s=timeout_s)


def prometheus_value(stack: Stack, query: str) -> float | None:
    """One instant value, or None when the query matches nothing."""
    url = f"{stack.prometheus_url}/api/v1/query?query={urllib.parse.quote(query)}"
    with urllib.request.urlopen(url, timeout=5.0) as answer:
        result = json.load(answer)["data"]["result"]
    return float(result[0]["value"][1]) if result else None
