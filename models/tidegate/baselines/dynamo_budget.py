"""The accelerator budget of NVIDIA's planner: a hard ceiling, a floor with one replica of tolerance, and no reversals.

A count below zero switches a bound off. The guard never turns a proposal round: what cannot be met within the asked
direction is held, except that a fleet already outside the band is brought back from where it stands. The proportional
clamp under it is as found: of a pair over the ceiling it may leave the decode side with more than was proposed.

Source: NVIDIA Dynamo planner 1.6.1, budget (Apache-2.0), re-implemented.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Bounds on accelerators; -1 is none."""

    most: int = 8
    least: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One role: accelerators per replica (> 0) and the least replicas it may have."""

    gpus: int
    least: int = 1


Pair = tuple[int, int]  # prefill, decode replicas


def within(total: int, band: Band, tolerance: int) -> bool:
    """Return whether `total` accelerators are in the band; only the floor has a tolerance."""
    return not (0 <= band.most < total) and not (band.least >= 0 and total < band.least - tolerance)


def clamp_pair(pair: Pair, prefill: Side, decode: Side, band: Band) -> Pair:
    """Return the pair brought into the band in proportion; (0, 0) when even the least footprint is over the ceiling."""
    total = _gpus(pair, prefill, decode)
    tolerance = _tolerance(band, prefill.gpus, decode.gpus)
    if within(total, band, tolerance):
        return pair
    if 0 <= band.most < total:
        return _shrunk(pair, prefill, decode, band.most)
    grown_p, grown_d = _grown(pair, prefill, decode, band.least)
    kept_d = max(pair[1], grown_d)  # rounding prefill up must not take from decode
    if band.most >= 0 and _gpus((grown_p, kept_d), prefill, decode) > band.most:
        return fit_pair(pair, (grown_p, pair[1]), prefill, decode, band) if grown_d < pair[1] else pair
    return grown_p, kept_d


def clamp_single(replicas: int, side: Side, band: Band) -> int:
    """Return one role's count brought into the band; 0 when even its least is over the ceiling."""
    total = replicas * side.gpus
    if within(total, band, _tolerance(band, side.gpus)):
        return replicas
    if 0 <= band.most < total:
        return 0 if band.most < side.least * side.gpus else max(side.least, band.most // side.gpus)
    return max(side.least, math.ceil(band.least / side.gpus))


def fit_pair(current: Pair, proposed: Pair, prefill: Side, decode: Side, band: Band) -> Pair:
    """Return the pair nearest to the proposal that lies between it and the present and in the band.

    When one role gives what the other takes, both move or neither.
    """
    tolerance = _tolerance(band, prefill.gpus, decode.gpus)
    opposing = (proposed[0] - current[0]) * (proposed[1] - current[1]) < 0
    if (
        proposed[0] >= prefill.least
        and proposed[1] >= decode.least
        and within(_gpus(proposed, prefill, decode), band, tolerance)
    ):
        return proposed
    asked = (abs(proposed[0] - current[0]), abs(proposed[1] - current[1]))
    best: tuple[tuple[int, int, int, int, int], Pair] | None = None
    for p in _between(current[0], proposed[0], prefill.least):
        for d in _between(current[1], proposed[1], decode.least):
            half = opposing and (p == current[0]) != (d == current[1])
            if half or not within(_gpus((p, d), prefill, decode), band, tolerance):
                continue
            moved = (abs(p - current[0]), abs(d - current[1]))
            distance = abs(proposed[0] - p) + abs(proposed[1] - d)
            score = (distance, abs(moved[0] * asked[1] - moved[1] * asked[0]), -sum(moved), p, d)
            if best is None or score < best[0]:
                best = (score, (p, d))
    return current if best is None else best[1]


def guard_single(current: int, proposed: int, side: Side, band: Band) -> int:
    """Return one role's count under the guard."""
    total = current * side.gpus
    if not within(total, band, _tolerance(band, side.gpus)):
        return clamp_single(current, side, band)
    if (band.least >= 0 and total <= band.least and proposed < current) or (
        0 <= band.most <= total < proposed * side.gpus
    ):
        return current
    final = clamp_single(proposed, side, band)
    return final if min(current, proposed) <= final <= max(current, proposed) else current


def guard_pair(current: Pair, proposed: Pair, prefill: Side, decode: Side, band: Band) -> Pair:
    """Return both roles' counts under the guard."""
    # Unlike the clamp, the guard has its tolerance whenever there is a ceiling.
    tolerance = max(prefill.gpus, decode.gpus) if band.most >= 0 else 0
    total = _gpus(current, prefill, decode)
    if not within(total, band, tolerance):
        return clamp_pair(current, prefill, decode, band)
    up = proposed[0] > current[0] or proposed[1] > current[1]
    down = proposed[0] < current[0] or proposed[1] < current[1]
    at_floor, at_ceiling = total <= band.least, 0 <= band.most <= total
    if at_floor and down and not up:
        return current
    if up and down and (at_floor or at_ceiling):
        return fit_pair(current, proposed, prefill, decode, band)
    if at_ceiling and up:
        return current
    final = clamp_pair(proposed, prefill, decode, band)
    kept = all(min(c, p) <= f <= max(c, p) for c, p, f in zip(current, proposed, final, strict=True))
    return final if kept and within(_gpus(final, prefill, decode), band, tolerance) else current


def _shrunk(pair: Pair, prefill: Side, decode: Side, most: int) -> Pair:
    if most < prefill.least * prefill.gpus + decode.least * decode.gpus:
        return 0, 0
    scale = most / _gpus(pair, prefill, decode)
    room = (most - decode.least * decode.gpus) // prefill.gpus
    p = max(prefill.least, min(room, math.floor(pair[0] * scale)))
    return p, max(decode.least, (most - p * prefill.gpus) // decode.gpus)


def _grown(pair: Pair, prefill: Side, decode: Side, least: int) -> Pair:
    total = _gpus(pair, prefill, decode)
    wanted = math.ceil(pair[0] * (least / total)) if total > 0 else math.ceil(least / 2 / prefill.gpus)
    p = max(prefill.least, wanted)
    return p, max(decode.least, math.ceil(max(0, least - p * prefill.gpus) / decode.gpus))


def _between(current: int, proposed: int, least: int) -> range:
    return range(max(min(current, proposed), least), max(current, proposed) + 1)


def _gpus(pair: Pair, prefill: Side, decode: Side) -> int:
    return pair[0] * prefill.gpus + pair[1] * decode.gpus


def _tolerance(band: Band, *gpus: int) -> int:
    """Return one replica's accelerators, of the wider role, when both bounds are set."""
    return max(gpus) if band.most >= 0 and band.least >= 0 else 0
