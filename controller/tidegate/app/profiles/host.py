"""Host costs of a step (scheduler, sampler, detokeniser) from published inter-token latencies against batch size."""

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidegate.perf.fit import FloatArray, StepFit, Unknown, solve
from tidegate.perf.profile import PS_PER_S
from tidegate.terms.errors import BadInputError

CONTEXT_TOKENS = 400.0  # mean context of the published runs: not published, assumed
MOST_ERROR_RATIO = 0.10
_MOST_BATCH = 256.0
_LEAST_POINTS = 4
_COLUMNS = ("model", "gpu_model", "num_gpus", "avg_batch_size", "median_itl_ms")
_MODELS = {
    "Llama-3.1-8B-Instruct": "llama8b",
    "Llama-3.1-70B-Instruct": "llama70b",
    "Qwen3-32B": "qwen32b",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCosts:
    """What a step costs beside its kernels."""

    fixed_ps: int
    ps_per_sequence: int
    error_ratio: float  # mean relative error of the inter-token latencies


Latencies = dict[tuple[str, str, int], list[tuple[float, float]]]  # (model, GPU, degree): (batch, seconds)


def read_latencies(path: Path) -> Latencies:
    """Return the inter-token latencies of ML.ENERGY's leaderboard by short model, short GPU and degree.

    Raises:
        BadInputError: The file cannot be read, lacks a column, or a number is none.
    """
    found: Latencies = defaultdict(list)
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines)
            missing = [c for c in _COLUMNS if c not in (reader.fieldnames or ())]
            if missing:
                msg = f"{path}: must have the columns {', '.join(missing)}, got {', '.join(reader.fieldnames or ())}"
                raise BadInputError(msg)
            for row in reader:
                batch = float(row["avg_batch_size"])
                if row["model"] in _MODELS and batch <= _MOST_BATCH:
                    key = (_MODELS[row["model"]], row["gpu_model"].lower(), int(row["num_gpus"]))
                    found[key].append((batch, float(row["median_itl_ms"]) / 1e3))
    except (OSError, UnicodeDecodeError, ValueError) as exc:
        msg = f"{path}: cannot be read: {exc}"
        raise BadInputError(msg) from exc
    return dict(found)


def host_costs(points: Sequence[tuple[float, float]], fit: StepFit) -> HostCosts | None:
    """Return the host costs that the latencies show beyond the kernels, or None when they fit badly or are too few.

    Args:
        points: (batch, seconds) of decode steps.
        fit: The kernels.
    """
    if len(points) < _LEAST_POINTS:
        return None
    batch = np.array([b for b, _ in points])
    seconds = np.array([s for _, s in points])
    compute = fit.compute_ps_per_token * batch
    low, high = np.minimum(compute, fit.weight_read_ps), np.maximum(compute, fit.weight_read_ps)
    dense = high * (1.0 + (low / high) ** fit.smooth_max_power) ** (1.0 / fit.smooth_max_power)
    kernels: FloatArray = (fit.step_base_ps + dense + fit.kv_read_ps_per_token * CONTEXT_TOKENS * batch) / PS_PER_S

    def residuals(values: Sequence[float]) -> FloatArray:
        logs: FloatArray = np.log((kernels + values[0] + values[1] * batch) / seconds)
        return logs

    found = solve(
        residuals,
        [
            Unknown(name="fixed", start=2e-4, low=0.0, high=5e-3, step=1e-6),
            Unknown(name="each", start=5e-5, low=0.0, high=1e-3, step=1e-7),
        ],
    ).values
    error = float(np.mean(np.abs(np.expm1(residuals(found)))))
    if error > MOST_ERROR_RATIO:
        return None
    return HostCosts(fixed_ps=round(found[0] * PS_PER_S), ps_per_sequence=round(found[1] * PS_PER_S), error_ratio=error)
