"""Durations and byte quantities in the spellings of Prometheus and Kubernetes."""

import re

# Seconds per unit, longest first; a year is 365 days and a week 7 days, as in Prometheus.
_UNIT_S: dict[str, float] = {
    "y": 365 * 86_400.0,
    "w": 7 * 86_400.0,
    "d": 86_400.0,
    "h": 3_600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 0.001,
}
_PREFIX_BYTES: dict[str, int] = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}
_NUMBER = r"[0-9]{1,15}(\.[0-9]{1,9})?"
# Each unit at most once, longest first, at least one: `1h30m`, `28d`, `1.5h`, `500ms`.
DURATION_PATTERN = "^(?=[0-9])" + "".join(rf"({_NUMBER}{unit})?" for unit in _UNIT_S) + "$"
BYTES_PATTERN = rf"^{_NUMBER}(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
_DURATION = re.compile("^(?=[0-9])" + "".join(rf"(?:(?P<{u}>{_NUMBER}){u})?" for u in _UNIT_S) + r"\Z")
_BYTES = re.compile(rf"^(?P<number>{_NUMBER})(?P<prefix>k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?\Z")


def parse_duration_s(text: str) -> float:
    """Return the seconds that a duration such as `500ms`, `90s`, `1h30m` or `28d` stands for.

    Raises:
        ValueError: Another spelling; a bare number has no unit and is refused. The text says what it must be.
    """
    match = _DURATION.match(text)
    if match is None:
        bare = re.fullmatch(_NUMBER, text) is not None
        hint = (
            f"a duration with its unit, such as {text}ms or {text}s"
            if bare
            else "a duration such as 500ms, 90s, 1h30m or 28d"
        )
        raise ValueError(hint)
    groups = match.groupdict()
    # Summed in milliseconds: 1.001 s as 1 + 0.001 would not compare equal to 1.001.
    return sum(float(groups[unit]) * round(factor * 1000) for unit, factor in _UNIT_S.items() if groups[unit]) / 1000


def parse_bytes(text: str) -> int:
    """Return the bytes that a quantity such as `80Gi`, `8Mi`, `1.5G` or `1048576` stands for.

    Raises:
        ValueError: Another spelling, or not a whole number of bytes. The text says what it must be.
    """
    match = _BYTES.match(text)
    if match is None:
        hint = "a number of bytes such as 8Mi, 80Gi, 1.5G or 1048576"
        raise ValueError(hint)
    exact = float(match["number"]) * _PREFIX_BYTES[match["prefix"] or ""]
    if exact != int(exact):
        hint = "a whole number of bytes"
        raise ValueError(hint)
    return int(exact)
