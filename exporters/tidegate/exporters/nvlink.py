"""NVLink byte counters of one GPU, from NVML's field values.

The call succeeds even when every field failed; each entry carries its own status, and its value must not be read
unless that status is success. The older utilisation counters are deprecated and dead on Ampere and newer.
Source: NVML API reference, "Field Value Enums": fields 91 (links) and 138 to 141 (KiB; scope = link, all ones = sum).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

ALL_LINKS = 0xFFFFFFFF
KIB = 1024
_BLANK_U64 = 2**64 - 1  # NVML's "not available" in an unsigned 64-bit value
SUCCESS = "ok"

# NVML's value types, as members of its union
_UNION_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReading:
    """One counter. `value_bytes` is None unless `status` is "ok"; `link` is None for the sum of all links."""

    counter: str  # "data_tx", "data_rx", "raw_tx" or "raw_rx"; raw adds the protocol's own bytes
    link: int | None
    value_bytes: float | None
    status: str


def status_names(nvml: ModuleType) -> dict[int, str]:
    """Return NVML's return codes by name, e.g. {3: "not_supported"}."""
    prefix = "NVML_ERROR_"
    names = {int(getattr(nvml, n)): n.removeprefix(prefix).lower() for n in dir(nvml) if n.startswith(prefix)}
    return names | {0: SUCCESS}


def read_nvlink(nvml: ModuleType, handle: Any) -> tuple[LinkReading, ...]:  # noqa: ANN401  (an opaque C pointer)
    """Return the totals, and each link's data counters where the number of links is known.

    A GPU that says it has no links gets status "no_links" instead of the zeros some drivers report for it.

    Raises:
        nvml.NVMLError: The call itself failed, e.g. the GPU is lost.
    """
    fields = {
        "data_tx": int(nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX),
        "data_rx": int(nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX),
        "raw_tx": int(nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX),
        "raw_rx": int(nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX),
    }
    names = status_names(nvml)
    links, status = _entries(nvml, handle, [(int(nvml.NVML_FI_DEV_NVLINK_LINK_COUNT), 0)], names)[0]
    if status == SUCCESS and links == 0:
        return tuple(LinkReading(counter=c, link=None, value_bytes=None, status="no_links") for c in fields)
    count = min(int(links or 0), int(nvml.NVML_NVLINK_MAX_LINKS))
    wanted: list[tuple[str, int | None]] = [(counter, None) for counter in fields]
    wanted += [(counter, link) for link in range(count) for counter in ("data_tx", "data_rx")]
    scoped = [(fields[counter], ALL_LINKS if link is None else link) for counter, link in wanted]
    return tuple(
        LinkReading(counter=counter, link=link, value_bytes=None if value is None else value * KIB, status=status)
        for (counter, link), (value, status) in zip(wanted, _entries(nvml, handle, scoped, names), strict=True)
    )


def _entries(
    nvml: ModuleType,
    handle: Any,  # noqa: ANN401  (an opaque C pointer)
    scoped: Sequence[tuple[int, int]],
    names: dict[int, str],
) -> list[tuple[float | None, str]]:
    """Return (number, "ok") or (None, why not) for each (field, scope), in order."""
    out: list[tuple[float | None, str]] = []
    for entry in nvml.nvmlDeviceGetFieldValues(handle, list(scoped)):
        code, kind = int(entry.nvmlReturn), int(entry.valueType)
        if code != 0:
            out.append((None, names.get(code, f"error_{code}")))
        elif kind >= len(_UNION_MEMBERS):
            out.append((None, f"value_type_{kind}"))
        elif (number := getattr(entry.value, _UNION_MEMBERS[kind])) == _BLANK_U64 or number < 0:
            out.append((None, "not_available"))
        else:
            out.append((float(number), SUCCESS))
    return out
