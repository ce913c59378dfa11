"""What may be done to a trace before it is rehearsed: scaled, spread inside its ticks, laid over another."""

from collections.abc import Sequence

import numpy as np

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.trace import Int64Array, Trace

MAX_JITTER_S = 60.0
_PER_REQUEST = ("reusable_tokens", "prefix_id", "client")


def scaled(trace: Trace, factor: float, rng: np.random.Generator, *, jitter_s: float = MAX_JITTER_S) -> Trace:
    """Return the trace with `factor` times its load.

    Every request is kept as it is and copied; each copy comes up to `jitter_s` earlier or later, inside the trace's
    own span. A fraction thins the last copy, or the trace itself below 1. Copies keep hash ids, prefix and client: the
    same text asked again, as more of the same users would.

    Args:
        trace: Any.
        factor: > 0.
        rng: Draws jitter and thinning.
        jitter_s: Greatest shift of a copy, >= 0.

    Raises:
        ValueError: `factor` is not above 0 or not finite.
    """
    if not 0.0 < factor < float("inf"):
        msg = f"scale: must be a number above 0, got {factor:g}"
        raise ValueError(msg)
    n = len(trace)
    whole = int(factor)
    part = np.flatnonzero(rng.random(n) < factor - whole)
    rows = [np.arange(n, dtype=np.int64)] * whole + ([part.astype(np.int64)] if len(part) else [])
    if not rows:
        return taken(trace, np.zeros(0, dtype=np.int64))
    index = np.concatenate(rows)
    at_ps = trace.arrival_ps[index]
    first_copy = n if whole else len(index)  # below 1 what is left are the originals
    shift = rng.uniform(-jitter_s, jitter_s, len(index) - first_copy) * PS_PER_S
    moved = at_ps[first_copy:] + np.rint(shift).astype(np.int64)
    # Reflected at the ends: clipping would pile up a burst there.
    last_ps = int(trace.arrival_ps[-1]) if n else 0
    moved = np.abs(moved)
    moved = np.clip(np.where(moved > last_ps, 2 * last_ps - moved, moved), 0, last_ps)
    at_ps = np.concatenate([at_ps[:first_copy], moved])
    order = np.argsort(at_ps, kind="stable")
    return taken(trace, index[order], arrival_ps=at_ps[order])


def spread(trace: Trace, tick_s: float, rng: np.random.Generator) -> Trace:
    """Return the trace with each arrival moved into the `tick_s` seconds after it.

    For traces whose times were rounded down to ticks: requests of one tick would otherwise come as a burst that nobody
    sent.

    Raises:
        ValueError: `tick_s` is not above 0.
    """
    if not 0.0 < tick_s < float("inf"):
        msg = f"spread: must be a number of seconds above 0, got {tick_s:g}"
        raise ValueError(msg)
    at_ps = trace.arrival_ps + np.floor(rng.uniform(0.0, tick_s, len(trace)) * PS_PER_S).astype(np.int64)
    order = np.argsort(at_ps, kind="stable")
    return taken(trace, order, arrival_ps=at_ps[order])


def taken(trace: Trace, index: Int64Array, *, arrival_ps: Int64Array | None = None, name: str = "") -> Trace:
    """Return the requests at `index`, in that order; rows may repeat.

    Args:
        trace: Any.
        index: Rows.
        arrival_ps: Their new times, never falling; None keeps the old ones.
        name: New name; empty keeps the old one.
    """
    more = {field: column[index] for field in _PER_REQUEST if len(column := getattr(trace, field))}
    if trace.hash_block_tokens:
        starts = trace.hash_start[:-1][index]
        counts = np.diff(trace.hash_start)[index]
        more["hash_start"] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        before = more["hash_start"][:-1]
        at = np.repeat(starts - before, counts) + np.arange(int(more["hash_start"][-1]), dtype=np.int64)
        more["hashes"] = trace.hashes[at]
    return Trace(
        name=name or trace.name,
        arrival_ps=trace.arrival_ps[index] if arrival_ps is None else arrival_ps,
        prompt_tokens=trace.prompt_tokens[index],
        output_tokens=trace.output_tokens[index],
        hash_block_tokens=trace.hash_block_tokens,
        **more,
    )


def merged(traces: Sequence[Trace]) -> Trace:
    """Return traces on top of each other; what identifies a prefix or a client in one means another in the next.

    A column that some of them lack is left out, except hashes, which may be missing (no hits).

    Raises:
        ValueError: Traces with hash blocks of different sizes.
    """
    sizes = {t.hash_block_tokens for t in traces if t.hash_block_tokens}
    if len(sizes) > 1:
        msg = f"traces: hash blocks must be of one size, got {sorted(sizes)} tokens"
        raise ValueError(msg)
    more: dict[str, Int64Array] = {}
    for field in _PER_REQUEST:
        columns = [getattr(t, field) for t in traces]
        if all(len(c) == len(t) for c, t in zip(columns, traces, strict=True)):
            more[field] = np.concatenate(columns if field == "reusable_tokens" else _apart(columns))
    if sizes:
        counts = [np.diff(t.hash_start) if t.hash_block_tokens else np.zeros(len(t), dtype=np.int64) for t in traces]
        more["hash_start"] = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        more["hashes"] = np.concatenate(_apart([t.hashes for t in traces]))
    whole = Trace(
        name="+".join(t.name for t in traces),
        arrival_ps=np.concatenate([t.arrival_ps for t in traces]),
        prompt_tokens=np.concatenate([t.prompt_tokens for t in traces]),
        output_tokens=np.concatenate([t.output_tokens for t in traces]),
        hash_block_tokens=max(sizes, default=0),
        **more,
    )
    return taken(whole, np.argsort(whole.arrival_ps, kind="stable"))


def _apart(columns: Sequence[Int64Array]) -> list[Int64Array]:
    """Return id columns shifted so that no id of one is an id of another."""
    out, base = [], 0
    for column in columns:
        if not len(column):
            out.append(column)
            continue
        # Ids may be 64-bit hashes: numbered anew from 0, so that a shift cannot overflow.
        known, numbers = np.unique(column, return_inverse=True)
        out.append(numbers.astype(np.int64) + base)
        base += len(known)
    return out


def ticked_s(trace: Trace) -> float | None:
    """Return the seconds between ticks when most requests share their arrival with others, else None."""
    times, counts = np.unique(trace.arrival_ps, return_counts=True)
    if len(times) < 10 or counts[counts > 1].sum() < 0.5 * len(trace):  # noqa: PLR2004  (too short to tell)
        return None
    return float(np.median(np.diff(times))) / PS_PER_S
