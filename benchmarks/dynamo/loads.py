"""The loads of the comparison: two made shapes with a burst, and a slice of a recorded hour."""

import csv
import gzip
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
AZURE = ROOT / "examples" / "traces" / "azure2023_conv.csv.gz"

# Both shapes: 12 - 10.5 cos(2 pi t / period) requests/s, so 1.5 to 22.5, and a burst on top. Prompts are lognormal of
# mean 2500, answers of mean 152, both with sigma 0.5.
MEAN_PER_S, SWING_PER_S = 12.0, 10.5
PROMPT_MEAN, OUTPUT_MEAN, SIGMA = 2500.0, 152.0, 0.5
PROMPT_MOST, OUTPUT_MOST = 8000, 800
BLOCK_TOKENS = 512  # of the trace's hashes; every id is new, so no prefix is ever reused


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A sinusoid with one burst."""

    seconds: float
    period_s: float
    burst_from_s: float
    burst_s: float
    burst_per_s: float

    def rate(self, at_s: float) -> float:
        """Return requests/s at a time."""
        burst = self.burst_per_s if self.burst_from_s <= at_s < self.burst_from_s + self.burst_s else 0.0
        return MEAN_PER_S - SWING_PER_S * math.cos(2.0 * math.pi * at_s / self.period_s) + burst


SHAPES = {
    "fast": Shape(seconds=3600.0, period_s=2400.0, burst_from_s=2000.0, burst_s=300.0, burst_per_s=17.0),
    "slow": Shape(seconds=14400.0, period_s=14400.0, burst_from_s=10800.0, burst_s=600.0, burst_per_s=9.0),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Load:
    """Requests in order of arrival."""

    name: str
    arrival_s: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.arrival_s)

    def first(self, minutes: float | None) -> "Load":
        """Return the load cut after `minutes`."""
        if minutes is None:
            return self
        kept = self.arrival_s < 60.0 * minutes
        return Load(
            name=f"{self.name}[{minutes:g}min]",
            arrival_s=self.arrival_s[kept],
            prompt_tokens=self.prompt_tokens[kept],
            output_tokens=self.output_tokens[kept],
        )

    def write_mooncake(self, path: Path) -> None:
        """Write the load as the simulator reads it, one JSON row a request."""
        block = 0
        with path.open("w", encoding="utf-8") as file:
            for at_s, prompt, output in zip(self.arrival_s, self.prompt_tokens, self.output_tokens, strict=True):
                blocks = -(-int(prompt) // BLOCK_TOKENS)
                row = {
                    "timestamp": round(1000.0 * float(at_s)),
                    "input_length": int(prompt),
                    "output_length": int(output),
                    "hash_ids": list(range(block, block + blocks)),
                }
                file.write(json.dumps(row) + "\n")
                block += blocks


def made(name: str, seed: int) -> Load:
    """Return a shape's load: a Poisson process of its rate, by thinning."""
    shape, rng = SHAPES[name], np.random.default_rng(seed)
    most = MEAN_PER_S + SWING_PER_S + shape.burst_per_s
    at_s = np.cumsum(rng.exponential(1.0 / most, size=int(1.2 * most * shape.seconds)))
    at_s = at_s[at_s < shape.seconds]
    rates = np.array([shape.rate(float(t)) for t in at_s])
    at_s = at_s[rng.random(len(at_s)) * most < rates]
    return Load(
        name=name,
        arrival_s=at_s,
        prompt_tokens=_lengths(rng, PROMPT_MEAN, PROMPT_MOST, len(at_s)),
        output_tokens=_lengths(rng, OUTPUT_MEAN, OUTPUT_MOST, len(at_s)),
    )


def recorded(path: Path, *, name: str, copies: int, seed: int) -> Load:
    """Return a CSV's load, each request `copies` times, the copies up to 60 s apart from it."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [(float(r["arrival_s"]), int(r["input_tokens"]), int(r["output_tokens"])) for r in csv.DictReader(file)]
    table = np.repeat(np.array(rows), copies, axis=0)
    shift = np.random.default_rng(seed).uniform(0.0, 60.0, size=len(table))
    shift[::copies] = 0.0
    order = np.argsort(table[:, 0] + shift, kind="stable")
    return Load(
        name=name,
        arrival_s=(table[:, 0] + shift)[order],
        prompt_tokens=table[order, 1].astype(np.int64),
        output_tokens=table[order, 2].astype(np.int64),
    )


def load_of(name: str, seed: int) -> Load:
    """Return a load by name: fast, slow, azure, or a path to a CSV of the same columns as azure's."""
    if name in SHAPES:
        return made(name, seed)
    if name == "azure":  # 5.6 requests/s is a load for one engine; six of it are one for a few
        return recorded(AZURE, name="azure2023_conv x6", copies=6, seed=seed)
    return recorded(Path(name), name=Path(name).name, copies=1, seed=seed)


def _lengths(rng: np.random.Generator, mean: float, most: int, count: int) -> np.ndarray:
    drawn = rng.lognormal(math.log(mean) - SIGMA**2 / 2.0, SIGMA, size=count)
    return np.clip(np.rint(drawn), 1, most).astype(np.int64)
