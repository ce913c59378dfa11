"""What was wanted within the stabilisation window, in bounded space."""

import math
from dataclasses import dataclass

# The window is kept in this many buckets, each with its highest wanted number and newest time.
_BUCKETS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the stabilisation window knows."""

    length_s: float
    highest_replicas: int | None  # None: nothing was wanted within it
    covered: bool  # False: it has not been watched from end to end, so nothing may shrink
    covered_at_s: float  # when it will be, if watching goes on


def remember(
    history: tuple[tuple[float, int], ...], wanted: int | None, *, now_s: float, length_s: float
) -> tuple[tuple[float, int], ...]:
    """Return the history with `wanted` added and what has left the window dropped.

    One entry older than the window stays: it proves that the window's beginning was watched. Entries of the future
    (the clock was set back) are dropped. At most about 32 entries stay, so that a journal line does not grow with the
    length of the window.
    """
    kept = [(at, n) for at, n in history if at <= now_s]
    if wanted is not None:
        width_s = length_s / _BUCKETS
        same_bucket = kept and width_s > 0.0 and kept[-1][0] // width_s == now_s // width_s
        if same_bucket and len(kept) > 1:
            kept[-1] = (now_s, max(kept[-1][1], wanted))
        else:
            kept.append((now_s, wanted))
    oldest_needed = max((i for i, (at, _) in enumerate(kept) if at <= now_s - length_s), default=0)
    return tuple(kept[oldest_needed:])


def look_back(history: tuple[tuple[float, int], ...], *, now_s: float, length_s: float, stale_after_s: float) -> Window:
    """Return the highest number wanted in the window and whether the whole window was watched.

    A gap longer than `stale_after_s` and a quarter of the window means nobody knows what was wanted in it: watching
    starts again after the gap.
    """
    longest_gap_s = max(stale_after_s, length_s / 4.0)
    watched_since_s = math.inf
    previous_s = now_s
    for at, _ in reversed(history):
        if previous_s - at > longest_gap_s:
            break
        watched_since_s = previous_s = at
    inside = [n for at, n in history if at > now_s - length_s]
    covered = length_s <= 0.0 or watched_since_s <= now_s - length_s
    return Window(
        length_s=length_s,
        highest_replicas=max(inside, default=None),
        covered=covered,
        covered_at_s=now_s if covered else min(watched_since_s, now_s) + length_s,
    )
