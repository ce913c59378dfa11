"""Profiles from tables of step times by model, accelerator, engine and tensor parallel degree.

The tables are those of aiconfigurator-core, one CSV each (or .csv.gz): `prefill_latency_ms`, `decode_itl_ms`,
`mixed_step_ms` and `kv_capacity`; rows exist also where the weights do not fit, so they count only where `fits` is 1.
"""

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tidegate.app.profiles.host import Latencies, host_costs
from tidegate.perf.fit import StepFit, StepTable, fit_steps
from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.terms.errors import BadInputError

MOST_ERROR_RATIO = 0.06  # a profile whose own table it misses by more on average is not written
LEAST_KV_TOKENS = 16_384  # below, a handful of chats fill the replica
_LONGEST_STEP_TOKENS = 16_384  # longer prefills never happen in one step
_BLOCK_TOKENS = 16
_MS = 1e-3
_COLUMNS = {
    "prefill_latency_ms": ("batch", "isl_total", "prefix_cached", "prefill_ms"),
    "decode_itl_ms": ("batch", "context", "itl_ms"),
    "mixed_step_ms": ("ctx_tokens", "gen_requests", "context", "step_ms"),
    "kv_capacity": ("kv_tokens_total", "fits"),
}
_KEY_COLUMNS = ("model", "system", "backend", "backend_version", "tp")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Build:
    """What one set of rows is about."""

    model: str
    system: str
    backend: str
    version: str
    tensor_parallel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What the tables do not say of a model."""

    short: str  # in a profile's name
    served: str  # as clients name it
    max_context_tokens: int
    host_fixed_ps: int  # where nothing is measured
    front_end_ps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What the tables do not say of an accelerator: its name and the engines' default token budgets on it."""

    short: str
    accelerator: str
    vllm_budget_tokens: int
    sglang_budget_tokens: int  # chunked_prefill_size
    host_fixed_ps: int | None = None  # None: the model's; logs of A100 show none beside the launch cost


MODELS = {
    "meta-llama/Meta-Llama-3.1-8B": Model(
        short="llama8b",
        served="meta-llama/Llama-3.1-8B-Instruct",
        max_context_tokens=131_072,
        host_fixed_ps=190_000_000,
        front_end_ps=12_000_000_000,
    ),
    "meta-llama/Meta-Llama-3.1-70B": Model(
        short="llama70b",
        served="meta-llama/Llama-3.1-70B-Instruct",
        max_context_tokens=131_072,
        host_fixed_ps=300_000_000,
        front_end_ps=15_000_000_000,
    ),
    "nvidia/Llama-3.1-70B-Instruct-FP8": Model(
        short="llama70b-fp8",
        served="nvidia/Llama-3.1-70B-Instruct-FP8",
        max_context_tokens=131_072,
        host_fixed_ps=300_000_000,
        front_end_ps=15_000_000_000,
    ),
    "Qwen/Qwen3-32B": Model(
        short="qwen32b",
        served="Qwen/Qwen3-32B",
        max_context_tokens=40_960,
        host_fixed_ps=300_000_000,
        front_end_ps=15_000_000_000,
    ),
}
GPUS = {
    "a100_sxm": Gpu(
        short="a100",
        accelerator="nvidia-a100-80gb",
        vllm_budget_tokens=2048,
        sglang_budget_tokens=8192,
        host_fixed_ps=0,
    ),
    "h100_sxm": Gpu(short="h100", accelerator="nvidia-h100-80gb", vllm_budget_tokens=8192, sglang_budget_tokens=8192),
    "h200_sxm": Gpu(short="h200", accelerator="nvidia-h200-141gb", vllm_budget_tokens=8192, sglang_budget_tokens=8192),
    "b200_sxm": Gpu(short="b200", accelerator="nvidia-b200-180gb", vllm_budget_tokens=8192, sglang_budget_tokens=16384),
    "l40s": Gpu(short="l40s", accelerator="nvidia-l40s-48gb", vllm_budget_tokens=2048, sglang_budget_tokens=4096),
}


@dataclass(slots=True, kw_only=True)
class Measured:
    """The rows of one build."""

    rows: list[tuple[float, float, float, float]] = field(default_factory=list)  # N, K, A, seconds
    kv_tokens: int = 0
    fits: bool = False

    def table(self) -> StepTable:
        """Return the steps as columns."""
        columns = np.array(self.rows, dtype=np.float64).reshape(-1, 4)
        return StepTable(tokens=columns[:, 0], kv_read_tokens=columns[:, 1], pairs=columns[:, 2], seconds=columns[:, 3])


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A profile made of a table, or why none was."""

    build: Build
    name: str
    fit: StepFit | None
    profile: EngineProfile | None
    refusal: str = ""


def read_tables(folder: Path) -> dict[Build, Measured]:
    """Return the rows of every build.

    Raises:
        BadInputError: A table is missing, cannot be read or lacks a column, or a number is none.
    """
    found: dict[Build, Measured] = defaultdict(Measured)
    for name, columns in _COLUMNS.items():
        for where, row in _rows(folder, name):
            try:
                build = Build(
                    model=row["model"],
                    system=row["system"],
                    backend=row["backend"],
                    version=row["backend_version"],
                    tensor_parallel=int(row["tp"]),
                )
                _take(found[build], name, row)
            except ValueError as exc:
                msg = f"{where}: must hold numbers in {', '.join(columns)}: {exc}"
                raise BadInputError(msg) from exc
    return dict(found)


def _take(into: Measured, name: str, row: dict[str, str]) -> None:
    if name == "kv_capacity":
        into.fits = row["fits"] == "1"
        into.kv_tokens = int(row["kv_tokens_total"] or 0)
        return
    if name == "prefill_latency_ms":
        batch, whole, cached = (int(row[c]) for c in ("batch", "isl_total", "prefix_cached"))
        chunk = whole - cached
        if whole <= _LONGEST_STEP_TOKENS:
            pairs = batch * chunk * (cached + chunk / 2.0)
            into.rows.append((batch * chunk, 0.0, pairs, float(row["prefill_ms"]) * _MS))
        return
    if name == "decode_itl_ms":
        batch, context = int(row["batch"]), int(row["context"])
        into.rows.append((batch, batch * context, 0.0, float(row["itl_ms"]) * _MS))
        return
    chunk, decodes, context = (int(row[c]) for c in ("ctx_tokens", "gen_requests", "context"))
    # The chunk is made of prompts as long as the decoding contexts, so a longer chunk is several prompts.
    pairs = chunk * min(chunk, context) / 2.0
    into.rows.append((chunk + decodes, decodes * context, pairs, float(row["step_ms"]) * _MS))


def _rows(folder: Path, name: str) -> Iterator[tuple[str, dict[str, str]]]:
    path = next((p for p in (folder / f"{name}.csv", folder / f"{name}.csv.gz") if p.is_file()), None)
    if path is None:
        msg = f"{folder}: must hold {name}.csv or {name}.csv.gz"
        raise BadInputError(msg)
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            missing = [c for c in (*_KEY_COLUMNS, *_COLUMNS[name]) if c not in (reader.fieldnames or ())]
            if missing:
                msg = f"{path}: must have the columns {', '.join(missing)}, got {', '.join(reader.fieldnames or ())}"
                raise BadInputError(msg)
            for number, row in enumerate(reader, start=2):
                yield f"{path}:{number}", row
    except (OSError, EOFError, UnicodeDecodeError) as exc:
        msg = f"{path}: cannot be read: {exc}"
        raise BadInputError(msg) from exc


def name_of(build: Build) -> str:
    """Return the profile's name, e.g. `h100-llama8b-tp1`, or with `-sglang` behind it."""
    name = f"{GPUS[build.system].short}-{MODELS[build.model].short}-tp{build.tensor_parallel}"
    return name if build.backend == "vllm" else f"{name}-{build.backend}"


def made(build: Build, measured: Measured, *, latencies: Latencies, dated: str) -> Made:
    """Return the profile of one build, or why there is none.

    Args:
        build: Of a model in MODELS and a system in GPUS.
        measured: Its rows.
        latencies: Published inter-token latencies of vLLM, which show the host costs.
        dated: ISO date the tables were taken over.
    """
    name = name_of(build)
    if not measured.fits or measured.kv_tokens < LEAST_KV_TOKENS:
        return Made(build=build, name=name, fit=None, profile=None, refusal=f"KV for {measured.kv_tokens} tokens only")
    fit = fit_steps(measured.table())
    if fit.error_ratio > MOST_ERROR_RATIO:
        refusal = f"misses its own table by {fit.error_ratio:.1%} on average, more than {MOST_ERROR_RATIO:.0%}"
        return Made(build=build, name=name, fit=fit, profile=None, refusal=refusal)
    model, gpu = MODELS[build.model], GPUS[build.system]
    points = latencies.get((model.short, gpu.short, build.tensor_parallel), [])
    host = host_costs(points, fit) if build.backend == "vllm" else None
    budget = gpu.vllm_budget_tokens if build.backend == "vllm" else gpu.sglang_budget_tokens
    host_source = "host costs fitted to ML.ENERGY" if host else "host costs as of the same model on other accelerators"
    profile = EngineProfile(
        name=name,
        model=model.served,
        accelerator=gpu.accelerator,
        engine=build.backend,
        engine_version=build.version,
        tensor_parallel=build.tensor_parallel,
        source=f"aiconfigurator-core 0.12 step tables ({build.backend} {build.version}); {host_source}",
        dated=dated,
        step_base_ps=fit.step_base_ps,
        weight_read_ps=fit.weight_read_ps,
        compute_ps_per_token=fit.compute_ps_per_token,
        smooth_max_power=fit.smooth_max_power,
        compute_factor_ratio=1.0,
        kv_read_ps_per_token=fit.kv_read_ps_per_token,
        attention_ps_per_pair=fit.attention_ps_per_pair,
        host_fixed_ps=host.fixed_ps
        if host
        else (gpu.host_fixed_ps if gpu.host_fixed_ps is not None else model.host_fixed_ps),
        host_ps_per_sequence=host.ps_per_sequence if host else PS_PER_S // 20_000,
        front_end_ps=model.front_end_ps,
        kv_capacity_tokens=measured.kv_tokens // _BLOCK_TOKENS * _BLOCK_TOKENS,
        block_tokens=_BLOCK_TOKENS,
        token_budget=budget,
        max_sequences=256,
        max_context_tokens=model.max_context_tokens,
        fit_error_ratio=round(fit.error_ratio, 4),
    )
    return Made(build=build, name=name, fit=fit, profile=profile)
