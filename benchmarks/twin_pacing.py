"""How truly the engine twin paces: inter-token latency at the client against the model's, in one run.

Starts a twin on one core, opens N streams against it from this process, and simulates the very same arrivals in virtual
time. Prints one JSON row per figure; exits 1 when the median or the mean is more than 10 % off.

    python benchmarks/twin_pacing.py --streams 200
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import cast

import uvloop

from tidegate.app.config_profile import load_profile
from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.sim.events import SimRequest
from tidegate.sim.replica import ReplicaSim

TOLERANCE_RATIO = 0.10
SPACING_S = 0.002  # between two requests, so that arrivals have an order
TOKEN = b'"delta":{"content":"tide'


class Stream(asyncio.Protocol):
    """One request; keeps when each token came."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.came_ns: list[int] = []
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def send(self) -> None:
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        # Loopback segments hold whole events: the twin writes each with one call.
        self.came_ns += [time.monotonic_ns()] * data.count(TOKEN)
        if data.endswith(b"0\r\n\r\n"):
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.done.set_result(None)


def cpu_s(pid: int) -> float:
    """Return user and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def quantile(values: list[float], level: float) -> float:
    """Return an order statistic."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(level * len(ordered)))]


async def measured(port: int, model: str, args: argparse.Namespace) -> tuple[list[list[int]], list[int]]:
    """Return when each token of each stream came, and when each request was sent, in nanoseconds."""
    body = json.dumps(
        {
            "model": model,
            "stream": True,
            "max_tokens": args.output_tokens,
            "messages": [{"role": "user", "content": "tide " * args.prompt_tokens}],
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: twin\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    streams = []
    for _ in range(args.streams):
        _, stream = await loop.create_connection(lambda: Stream(head.encode() + body), "127.0.0.1", port)
        streams.append(stream)
    sent_ns = []
    for stream in streams:
        sent_ns.append(time.monotonic_ns())
        stream.send()
        await asyncio.sleep(SPACING_S)
    await asyncio.gather(*(stream.done for stream in streams))
    return [stream.came_ns for stream in streams], sent_ns


def modelled(profile: EngineProfile, sent_ns: list[int], args: argparse.Namespace) -> list[list[float]]:
    """Return when each token of each stream comes in the model, in seconds, for the same arrivals."""
    sim = ReplicaSim(profile)
    for key, at_ns in enumerate(sent_ns):
        request = SimRequest(key=key, prompt_tokens=args.prompt_tokens, output_tokens=args.output_tokens)
        if not sim.submit(request, at_ns * 1000):
            sys.exit(f"request of {args.prompt_tokens} + {args.output_tokens} tokens does not fit the KV budget")
    came_s: list[list[float]] = [[] for _ in sent_ns]
    for step in sim.step_until(1 << 90):
        for key in step.emitted:
            came_s[key].append(step.ended_at_ps / PS_PER_S)
    return came_s


def gaps(came_s: list[list[float]]) -> list[float]:
    """Return every gap between two tokens of one stream, in seconds."""
    return [later - earlier for came in came_s for earlier, later in pairwise(came)]


def start(args: argparse.Namespace, cores: list[int]) -> tuple[subprocess.Popen[str], int]:
    """Return a running twin on the first core, and its port."""
    command = [sys.executable, "-m", "tidegate", "engine", "--profile", args.profile, "--port", "0"]
    twin = subprocess.Popen([*command, "--owner-pid", str(os.getpid())], stderr=subprocess.PIPE, text=True)
    os.sched_setaffinity(twin.pid, {cores[0]})
    if twin.stderr is None:
        raise AssertionError
    for line in twin.stderr:
        found = re.search(r"http://[^:]+:(\d+)", line)
        if found:
            return twin, int(found[1])
    sys.exit("the twin did not start")


def main() -> int:
    """Run and print the rows; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--prompt-tokens", type=int, default=200)
    parser.add_argument("--output-tokens", type=int, default=400)
    parser.add_argument("--profile", default="a100-llama8b-tp1")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})  # the client may not slow the twin, where there are two cores
    profile = load_profile(args.profile)
    twin, port = start(args, cores)
    try:
        time.sleep(0.3)
        before_s = cpu_s(twin.pid)
        came_ns, sent_ns = uvloop.run(measured(port, profile.model, args))
        used_s = cpu_s(twin.pid) - before_s
        memory = resident_bytes(twin.pid)
    finally:
        twin.terminate()
        twin.wait(10)
    tokens = sum(len(came) for came in came_ns)
    if tokens != args.streams * args.output_tokens:
        sys.exit(f"expected {args.streams * args.output_tokens} tokens, got {tokens}")
    return report(
        gaps([[ns / 1e9 for ns in came] for came in came_ns]),
        gaps(modelled(profile, sent_ns, args)),
        {"cpu_us_per_token": used_s / tokens * 1e6, "memory_mib": memory / 2**20},
        args,
    )


def report(client_s: list[float], model_s: list[float], costs: dict[str, float], args: argparse.Namespace) -> int:
    """Print the rows and return 1 when the pace is off."""
    figures = {
        "itl_p50": (quantile(client_s, 0.5), quantile(model_s, 0.5)),
        "itl_p99": (quantile(client_s, 0.99), quantile(model_s, 0.99)),
        "itl_mean": (sum(client_s) / len(client_s), sum(model_s) / len(model_s)),
    }
    off = False
    for name, (client, model) in figures.items():
        ratio = client / model
        off |= name != "itl_p99" and abs(ratio - 1.0) > TOLERANCE_RATIO
        row = {"client_ms": round(client * 1e3, 3), "model_ms": round(model * 1e3, 3), "ratio": round(ratio, 4)}
        print(json.dumps({"benchmark": "twin_pacing", "streams": args.streams, "figure": name, **row}))
    for name, value in costs.items():
        row_value = {"figure": name, "value": round(value, 2)}
        print(json.dumps({"benchmark": "twin_pacing", "streams": args.streams, **row_value}))
    return int(off)


if __name__ == "__main__":
    sys.exit(main())
