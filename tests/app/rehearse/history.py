"""Hours of one service's history in the text format that `promtool` makes blocks of."""

import math
import subprocess
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from tidegate.app.servers import find_binary

SCRAPE_S = 15
HOURS = 4
TIMES = range(0, HOURS * 3600 + 1, SCRAPE_S)
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PROMPT_BOUNDS = (10, 100, 1000, 2000, 5000)
OUTPUT_BOUNDS = (10, 50, 200, 500)
# Share of requests in each bucket, the last beyond all bounds.
PROMPT_SHARES = (0.0, 0.2, 0.5, 0.2, 0.1, 0.0)
OUTPUT_SHARES = (0.1, 0.2, 0.5, 0.15, 0.05)
PROMPT_MEAN = 900.0
OUTPUT_MEAN = 130.0


def rate_at(s: float) -> float:
    """Return requests/s of the whole service `s` seconds into the history."""
    return 4.0 + 3.0 * math.sin(2 * math.pi * s / (HOURS * 3600))


def replicas_at(s: float) -> int:
    return 3 if s < HOURS * 1800 else 2


def done_by() -> list[list[float]]:
    """Return per replica how many requests it had finished at each scrape; one that is gone stands still."""
    done: list[list[float]] = [[], [], []]
    for s in TIMES:
        alive = replicas_at(s)
        for i, counter in enumerate(done):
            before = counter[-1] if counter else 0.0
            counter.append(before + (rate_at(s) * SCRAPE_S / alive if i < alive else 0.0))
    return done


def labels(i: int, more: str = "") -> str:
    return f'{{service="chat",pool="main",replica="chat-{i}",model_name="{MODEL}"{more}}}'


def counter_lines(
    name: str, done: list[list[float]], start_s: int, *, share: float = 1.0, more: str = ""
) -> Iterator[str]:
    for i, counter in enumerate(done):
        for k, s in enumerate(TIMES):
            if i < replicas_at(s):
                yield f"{name}{labels(i, more)} {share * counter[k]:.6f} {start_s + s}\n"


def openmetrics(start_s: int) -> Iterator[str]:
    """Yield the lines of every family; a replica's series end when it does."""
    done = done_by()
    yield "# TYPE up gauge\n"
    for i in range(len(done)):
        yield from (f"up{labels(i)} 1 {start_s + s}\n" for s in TIMES if i < replicas_at(s))
    yield "# TYPE vllm:request_success counter\n"
    yield from counter_lines("vllm:request_success_total", done, start_s)
    for base, bounds, shares, mean in (
        ("vllm:request_prompt_tokens", PROMPT_BOUNDS, PROMPT_SHARES, PROMPT_MEAN),
        ("vllm:request_generation_tokens", OUTPUT_BOUNDS, OUTPUT_SHARES, OUTPUT_MEAN),
    ):
        yield f"# TYPE {base} histogram\n"
        for bound, share in zip((*bounds, "+Inf"), accumulate(shares), strict=True):
            yield from counter_lines(f"{base}_bucket", done, start_s, share=share, more=f',le="{bound}"')
        yield from counter_lines(f"{base}_sum", done, start_s, share=mean)
        yield from counter_lines(f"{base}_count", done, start_s)
    yield "# EOF\n"


def backfill(folder: Path, start_s: int) -> None:
    """Put the history into the data folder a Prometheus will be started on."""
    text = folder / "history.txt"
    text.write_text("".join(openmetrics(start_s)), encoding="utf-8")
    data = folder / "data"
    data.mkdir()
    subprocess.run(
        [find_binary("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, data],
        check=True,
        capture_output=True,
    )
