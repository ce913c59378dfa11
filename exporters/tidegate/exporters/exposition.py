"""The Prometheus text format 0.0.4, written: immutable samples in, text out.

prometheus_client cannot write it for us: it appends `_total` to every counter's name, and DCGM's counters have none.
Source: Prometheus documentation, "Exposition formats", text-based format.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line. `suffix` is for histograms: `_bucket`, `_sum` or `_count`."""

    value: float
    labels: Labels = ()
    suffix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All samples of one name. Without samples it is not written at all: absent, never 0."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    samples: tuple[Sample, ...]


def render(families: Iterable[Family]) -> str:
    """Return the page, families in the order given."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {_escape_help(family.meaning)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines.extend(_line(family.name, sample) for sample in family.samples)
    return "\n".join(lines) + "\n" if lines else ""


def _line(name: str, sample: Sample) -> str:
    labels = ",".join(f'{key}="{_escape_label(value)}"' for key, value in sample.labels)
    return (
        f"{name}{sample.suffix}{{{labels}}} {_number(sample.value)}"
        if labels
        else (f"{name}{sample.suffix} {_number(sample.value)}")
    )


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    # Whole numbers without exponent, exact up to 2^53: counters of bytes stay readable.
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _escape_label(text: str) -> str:
    return _escape_help(text).replace('"', r"\"")
