"""`tidegate profile from-tables`: every profile the tables are good enough for, as files."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

from tidegate.app.profiles.host import Latencies
from tidegate.app.profiles.tables import GPUS, MODELS, Build, Made, Measured, made, name_of
from tidegate.app.profiles.write import write_profile

_ENGINES = ("vllm", "sglang")


def make_all(
    tables: Mapping[Build, Measured], *, latencies: Latencies, out: Path, only: Sequence[str], dated: str
) -> Iterator[str]:
    """Write the profiles whose names match and yield one line each, also for those refused.

    Raises:
        BadInputError: A file cannot be written.
    """
    for build in sorted(tables):
        if build.model not in MODELS or build.system not in GPUS or build.backend not in _ENGINES:
            continue
        name = name_of(build)
        if not any(fnmatch(name, pattern) for pattern in only):
            continue
        one = made(build, tables[build], latencies=latencies, dated=dated)
        if one.profile is None:
            yield f"{name}: refused: {one.refusal}"
            continue
        write_profile(out / f"{name}.yaml", one.profile, _notes(one))
        yield f"{name}: mean error over its table {one.profile.fit_error_ratio:.1%}"


def _notes(one: Made) -> tuple[str, ...]:
    profile, fit = one.profile, one.fit
    if profile is None or fit is None:
        raise AssertionError
    held = "FP8 weights" if "fp8" in profile.name else "bf16"
    what = f"{profile.accelerator}, {profile.model}, tensor parallel {profile.tensor_parallel}, {held}"
    notes = [
        f"{what}. Times in picoseconds (1 ms = 1000000000 ps).",
        (
            "Step coefficients: fitted to aiconfigurator-core's tables of steps, which they miss by "
            f"{fit.error_ratio:.1%} on average and {fit.worst_error_ratio:.0%} at worst. KV: of the same tables, in "
            "whole blocks. Front end and token budget: the engine's defaults and logs of other accelerators. A prior: "
            "calibrate it with `tidegate profile fit` before you rely on it."
        ),
    ]
    if profile.engine == "sglang":
        notes.append(
            "The simulator schedules as vLLM does, decodes and prompt chunks in one step; SGLang by default computes "
            "prompts in steps of their own, so its TPOT tails under long prompts are rougher than simulated."
        )
    return tuple(notes)
