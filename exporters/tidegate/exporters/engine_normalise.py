"""An engine's page in canonical names and units, with an account of what was found. Pure.

Which names, units and sentinels: `tidegate.catalogue`. The rules: a name is chosen by presence, the newest alias first;
copies of one truth (one per process) count once; what is not believed is left out and named, never clamped.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidegate.catalogue.canonical import QUANTITIES
from tidegate.catalogue.quantity import Alias, EngineCatalogue, Fold, Kind, Quantity, Unit
from tidegate.exporters.engine_fetch import EnginePage, RawSample
from tidegate.exporters.exposition import Labels, Sample

PREFIX = "tidegate_engine_"
STALE_AFTER_S = 60.0  # for the few pages whose samples carry a time of their own
# A ratio over this is a percentage, not an overshoot: engines round their block counts by less than 5 %.
_RATIO_SLACK = 1.05
_RANK_LABEL = "engine"  # vLLM's data-parallel rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one quantity of one target; `state` and `reason` are label values."""

    quantity: Quantity
    state: str  # found | missing | stale | suspect
    alias: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalised:
    """Samples by canonical family name, and one finding or more per quantity."""

    samples: dict[str, tuple[Sample, ...]]
    findings: tuple[Finding, ...]


def canonical_name(quantity: Quantity) -> str:
    """Return the family's name: unit last, `_total` on counters."""
    if quantity.kind is Kind.COUNTER:
        return f"{PREFIX}{quantity.name}_total"
    if quantity.kind is Kind.HISTOGRAM:
        return f"{PREFIX}{quantity.name}_{quantity.unit}"
    return f"{PREFIX}{quantity.name}"


def normalise(page: EnginePage, catalogue: EngineCatalogue, *, now_s: float) -> Normalised:
    """Return the page in canonical form; labels are `model` and `dp_rank`."""
    samples: dict[str, tuple[Sample, ...]] = {}
    findings: list[Finding] = []
    for quantity in QUANTITIES:
        if not catalogue.aliases.get(quantity.name):
            continue
        chosen = _choose(page, catalogue, quantity)
        if chosen is None:
            findings.append(Finding(quantity=quantity, state="missing"))
            continue
        name, alias = chosen
        doubt = _doubt(page, name, alias, quantity, now_s=now_s)
        if doubt is not None:
            findings.append(Finding(quantity=quantity, state=doubt[0], alias=name, reason=doubt[1]))
            continue
        findings.append(Finding(quantity=quantity, state="found", alias=name))
        samples[canonical_name(quantity)] = tuple(_fold(page, catalogue, name, alias, quantity))
    return Normalised(samples=samples, findings=tuple(findings))


def _parts(name: str, kind: Kind) -> tuple[tuple[str, str], ...]:
    """Return (sample name, suffix in our output) of a family."""
    if kind is Kind.HISTOGRAM:
        return tuple((f"{name}{suffix}", suffix) for suffix in ("_bucket", "_sum", "_count"))
    return ((name, ""),)


def _choose(page: EnginePage, catalogue: EngineCatalogue, quantity: Quantity) -> tuple[str, Alias] | None:
    return next(
        (
            (name, alias)
            for name, alias in catalogue.spellings(quantity.name)
            if all(part in page.samples for part, _ in _parts(name, quantity.kind))
        ),
        None,
    )


def _doubt(page: EnginePage, name: str, alias: Alias, quantity: Quantity, *, now_s: float) -> tuple[str, str] | None:
    """Return (state, reason) when the family is not to be believed."""
    declared = page.types.get(name) or page.types.get(name.removesuffix("_total"), "unknown")
    # Decided by TYPE, not by name: vLLM has a histogram whose name ends in `_total`.
    if declared not in {"unknown", "untyped", quantity.kind.value}:
        return "suspect", f"type_{declared}"
    for part, _ in _parts(name, quantity.kind):
        for sample in page.samples[part]:
            if sample.at_s is not None and now_s - sample.at_s > STALE_AFTER_S:
                return "stale", "old_timestamp"
            reason = _disbelief(sample.value, alias, quantity)
            if reason is not None:
                return "suspect", reason
    return None


def _disbelief(value: float, alias: Alias, quantity: Quantity) -> str | None:
    if value in alias.sentinels:
        return "sentinel"
    if not math.isfinite(value):
        return "not_a_number" if math.isnan(value) else "infinite"
    if value < 0:
        return "negative"
    scaled = value * alias.scale
    slack = _RATIO_SLACK if quantity.unit is Unit.RATIO else 1.0
    if quantity.highest is not None and scaled > quantity.highest * slack:
        return "above_range"
    return None


def _fold(
    page: EnginePage, catalogue: EngineCatalogue, name: str, alias: Alias, quantity: Quantity
) -> Iterable[Sample]:
    join: Callable[[Iterable[float]], float] = max if quantity.fold is Fold.MAX else sum
    for part, suffix in _parts(name, quantity.kind):
        raw = list(page.samples[part])
        for extra in catalogue.additions(name, alias):
            raw += page.samples.get(extra, ())
        # Two steps: of copies the largest, then what is left by model and rank (and bound).
        unique: dict[Labels, float] = {}
        for sample in _totals(raw, catalogue):
            key = tuple(pair for pair in sample.labels if pair[0] not in catalogue.copies)
            unique[key] = max(unique.get(key, -math.inf), sample.value)
        folded: dict[Labels, list[float]] = {}
        for labels, value in unique.items():
            folded.setdefault(_kept(labels, catalogue, bucket=suffix == "_bucket"), []).append(value)
        scaled = 1.0 if suffix in {"_bucket", "_count"} else alias.scale
        for labels, values in folded.items():
            yield Sample(value=join(values) * scaled, labels=labels, suffix=suffix)


def _totals(raw: list[RawSample], catalogue: EngineCatalogue) -> list[RawSample]:
    """Return only the totals where totals and their parts are both exposed."""
    label = catalogue.total_label
    whole = [s for s in raw if label and not dict(s.labels).get(label)]
    return whole or raw


def _kept(labels: Labels, catalogue: EngineCatalogue, *, bucket: bool) -> Labels:
    given = dict(labels)
    kept = [("model", given.get(catalogue.model_label, "")), ("dp_rank", given.get(_RANK_LABEL, ""))]
    return tuple([*kept, ("le", given["le"])] if bucket and "le" in given else kept)
