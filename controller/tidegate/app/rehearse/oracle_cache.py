"""Schedules of the fair oracle, kept from run to run: finding one plays the load hundreds of times.

A schedule is found again only for the same load, policy, engines, cold starts, target and simulator: all of them, the
code included, make its name. A file that cannot be read is no schedule.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np

from tidegate.app.servers_find import cache_dir
from tidegate.baselines.oracle import Oracle
from tidegate.baselines.schedule import Schedule
from tidegate.baselines.search import Tried
from tidegate.sim.rehearse import Conditions
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import PoolKey
from tidegate.terms.policy import PoolPolicy

_MODELS = Path(__file__).parents[4] / "models" / "tidegate"
_CODE = ("sim", "perf", "baselines")
_OWN = ("fair.py", "plays.py")  # how they are put together


def name_of(trace: Trace, conditions: Conditions, *, target_ratio: float, capacity_per_s: float) -> str:
    """Return what a schedule is kept under."""
    digest = hashlib.sha256(_code())
    for field in fields(trace):
        value = getattr(trace, field.name)
        # With its length, so that no column runs into the next.
        said = f"{field.name} {len(value)}" if isinstance(value, np.ndarray) else f"{field.name} {value!r}"
        digest.update(said.encode())
        if isinstance(value, np.ndarray):
            digest.update(value.tobytes())
    digest.update(repr((conditions.policy, conditions.setup, target_ratio, capacity_per_s)).encode())
    return digest.hexdigest()[:32]


def kept(name: str, pool: PoolPolicy, find: Callable[[], Oracle], *, folder: Path | None = None) -> Oracle:
    """Return the oracle kept under a name, or find it and keep it; nothing is kept when the folder is not writable.

    What is kept under the name and is no schedule for this pool is found again and written over.
    """
    key = pool.key
    path = (folder or cache_dir() / "oracle") / f"{name}.json"
    try:
        return _from_text(path.read_text(encoding="utf-8"), pool)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        oracle = find()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(f".{os.getpid()}")
        half.write_text(_text(oracle, key), encoding="utf-8")
        half.replace(path)
    except OSError:
        pass  # a read-only machine finds it again next time
    return oracle


def _text(oracle: Oracle, key: PoolKey) -> str:
    schedule = oracle.schedule
    return json.dumps(
        {
            "step_s": None if schedule is None else schedule.step_s,
            "counts": None if schedule is None else list(schedule.counts[key]),
            "gpu_hours": oracle.gpu_hours,
            "attainment_ratio": oracle.attainment_ratio,
            "tried": [[t.setting, t.attainment_ratio, t.gpu_hours] for t in oracle.tried],
            "passes": oracle.passes,
            "reason": oracle.reason,
        }
    )


def _from_text(text: str, pool: PoolPolicy) -> Oracle:
    have = json.loads(text)
    schedule = None
    if have["counts"] is not None:
        step_s, counts = float(have["step_s"]), tuple(int(n) for n in have["counts"])
        sound = counts and 0.0 < step_s < math.inf and min(counts) >= 1 and max(counts) <= pool.max_replicas
        if not sound:
            msg = "not a schedule of this pool"
            raise ValueError(msg)
        schedule = Schedule(step_s=step_s, counts={pool.key: counts})
    return Oracle(
        schedule=schedule,
        gpu_hours=have["gpu_hours"],
        attainment_ratio=float(have["attainment_ratio"]),
        tried=tuple(Tried(setting=s, attainment_ratio=a, gpu_hours=h) for s, a, h in have["tried"]),
        passes=int(have["passes"]),
        reason=have["reason"],
    )


def _code() -> bytes:
    """Return a digest of the code that a schedule depends on; an installed wheel has it beside this package."""
    models = _MODELS if _MODELS.is_dir() else Path(__file__).parents[2]
    digest = hashlib.sha256()
    paths = [path for folder in _CODE for path in sorted((models / folder).rglob("*.py"))]
    for path in (*paths, *(Path(__file__).with_name(name) for name in _OWN)):
        digest.update(path.read_bytes())
    return digest.digest()
