"""Which NVML call answers under which DCGM name.

Names, units and help texts follow dcgm-exporter's `default-counters.csv` and DCGM's field identifiers (the vocabulary
before DCGM 4.6, which 4.6 keeps as aliases).
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

MIB = 1 << 20
_BLANK_U32 = 2**32 - 1  # NVML's "not available" in an unsigned 32-bit value

Handle = Any  # an opaque C pointer


class BlankError(Exception):
    """NVML answered with its "not available" number."""


def present(number: float) -> float:
    """Return the number, unless it is NVML's blank.

    Raises:
        BlankError: It is.
    """
    if number == _BLANK_U32:
        raise BlankError
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One metric and how NVML gives it; `read` may raise NVMLError."""

    name: str
    kind: Literal["gauge", "counter"]
    meaning: str
    read: Callable[[ModuleType, Handle], float]


def _memory(nvml: ModuleType, handle: Handle) -> Any:  # noqa: ANN401  (a ctypes structure of an untyped module)
    # Version 2 only: version 1 counts the driver's reserve as used, DCGM does not.
    return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)


READINGS: tuple[Reading, ...] = (
    Reading(
        name="DCGM_FI_DEV_SM_CLOCK",
        kind="gauge",
        meaning="SM clock frequency (in MHz).",
        read=lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
    ),
    Reading(
        name="DCGM_FI_DEV_MEM_CLOCK",
        kind="gauge",
        meaning="Memory clock frequency (in MHz).",
        read=lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM),
    ),
    Reading(
        name="DCGM_FI_DEV_GPU_TEMP",
        kind="gauge",
        meaning="GPU temperature (in C).",
        read=lambda n, h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
    ),
    Reading(
        name="DCGM_FI_DEV_POWER_USAGE",
        kind="gauge",
        meaning="Power draw (in W).",
        read=lambda n, h: present(n.nvmlDeviceGetPowerUsage(h)) / 1000.0,
    ),
    Reading(
        name="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        kind="counter",
        meaning="Total energy consumption since the driver was loaded (in mJ).",
        read=lambda n, h: n.nvmlDeviceGetTotalEnergyConsumption(h),
    ),
    Reading(
        name="DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        kind="counter",
        meaning="Total number of PCIe retries.",
        read=lambda n, h: n.nvmlDeviceGetPcieReplayCounter(h),
    ),
    Reading(
        name="DCGM_FI_DEV_PCIE_TX_THROUGHPUT",
        kind="gauge",
        meaning="PCIe transmit rate over the last 20 ms (in KB/s).",
        read=lambda n, h: n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_TX_BYTES),
    ),
    Reading(
        name="DCGM_FI_DEV_PCIE_RX_THROUGHPUT",
        kind="gauge",
        meaning="PCIe receive rate over the last 20 ms (in KB/s).",
        read=lambda n, h: n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_RX_BYTES),
    ),
    Reading(
        name="DCGM_FI_DEV_GPU_UTIL",
        kind="gauge",
        meaning="GPU utilization (in %).",
        read=lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu,
    ),
    Reading(
        name="DCGM_FI_DEV_MEM_COPY_UTIL",
        kind="gauge",
        meaning="Memory utilization (in %).",
        read=lambda n, h: n.nvmlDeviceGetUtilizationRates(h).memory,
    ),
    Reading(
        name="DCGM_FI_DEV_FB_FREE",
        kind="gauge",
        meaning="Framebuffer memory free (in MiB).",
        read=lambda n, h: _memory(n, h).free // MIB,
    ),
    Reading(
        name="DCGM_FI_DEV_FB_USED",
        kind="gauge",
        meaning="Framebuffer memory used (in MiB).",
        read=lambda n, h: _memory(n, h).used // MIB,
    ),
    Reading(
        name="DCGM_FI_DEV_FB_RESERVED",
        kind="gauge",
        meaning="Framebuffer memory reserved (in MiB).",
        read=lambda n, h: _memory(n, h).reserved // MIB,
    ),
)
XID_NAME = "DCGM_FI_DEV_XID_ERRORS"
UP_NAME = "tidegate_exporter_gpu_up"
READABLE_NAME = "tidegate_exporter_gpu_field_readable"
# NVLink counters: (family, counter, per link, meaning)
NVLINK: tuple[tuple[str, str, bool, str], ...] = (
    ("DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES", "data_tx", False, "Bytes of data sent over all NVLinks."),
    ("DCGM_FI_DEV_NVLINK_COUNT_RX_BYTES", "data_rx", False, "Bytes of data received over all NVLinks."),
    ("tidegate_exporter_nvlink_raw_tx_bytes_total", "raw_tx", False, "Bytes sent over all NVLinks with protocol."),
    ("tidegate_exporter_nvlink_raw_rx_bytes_total", "raw_rx", False, "Bytes received over all NVLinks with protocol."),
    ("tidegate_exporter_nvlink_link_tx_bytes_total", "data_tx", True, "Bytes of data sent over one NVLink."),
    ("tidegate_exporter_nvlink_link_rx_bytes_total", "data_rx", True, "Bytes of data received over one NVLink."),
)
