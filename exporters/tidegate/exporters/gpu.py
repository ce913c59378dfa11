"""GPU metrics by NVML under dcgm-exporter's names, units and labels, so that its boards and rules work.

What cannot be read is absent and named in `tidegate_exporter_gpu_field_readable`; it is never 0. MIG instances are not
read: their parent GPU is.
"""

import contextlib
import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Literal

from tidegate.exporters.exposition import Family, Labels, Sample
from tidegate.exporters.gpu_fields import (
    NVLINK,
    READABLE_NAME,
    READINGS,
    UP_NAME,
    XID_NAME,
    BlankError,
    Handle,
    present,
)
from tidegate.exporters.nvlink import SUCCESS, LinkReading, read_nvlink, status_names

_READABLE_LABELS = ("gpu", "UUID", "Hostname", "nvlink")
MAX_GPUS = 256  # NVML lists 16 on the largest machines known; more is a broken answer
MAX_XIDS_PER_SCRAPE = 64  # a GPU that falls over may repeat one XID without end


@dataclass(slots=True)
class _Page:
    """Samples of one scrape, by family name."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def add(self, name: str, value: float, labels: Labels) -> None:
        self.samples.setdefault(name, []).append(Sample(value=value, labels=labels))

    def readable(self, name: str, labels: Labels, status: str) -> None:
        named = tuple(label for label in labels if label[0] in _READABLE_LABELS)
        self.add(READABLE_NAME, float(status == SUCCESS), (*named, ("field", name), ("status", status)))


class GpuExporter:
    """Reads all GPUs of this machine at each scrape.

    Args:
        nvml: The `pynvml` module, or anything with its functions.
        hostname: Value of the `Hostname` label.
    """

    def __init__(self, nvml: ModuleType, *, hostname: str) -> None:
        self._nvml = nvml
        self._hostname = hostname
        self._statuses = status_names(nvml)
        self._ready = False
        self._identities: dict[int, Labels] = {}  # survive the GPU: a lost one keeps its name
        self._events: Handle = None
        self._watched: dict[int, str] = {}  # device pointer -> status of its XID watch
        self._last_xid: dict[int, int] = {}  # device pointer -> last XID
        self._lock = threading.Lock()  # scrapes may overlap; NVML's handles are ours once

    def collect(self) -> tuple[Family, ...]:
        """Return everything readable now. Never raises for a driver's or a GPU's failure: it names it in a metric."""
        with self._lock:
            page = _Page()
            try:
                self._open()
                count = min(int(self._nvml.nvmlDeviceGetCount()), MAX_GPUS)
                driver = str(self._nvml.nvmlSystemGetDriverVersion())
            except self._nvml.NVMLError as exc:
                self._close()
                page.add(UP_NAME, 0.0, (("reason", self._status(exc)),))
                return _families(page)
            page.add(UP_NAME, 1.0, ())
            self._drain_xids()
            for index in range(count):
                self._read_gpu(page, index, driver)
            return _families(page)

    def close(self) -> None:
        """Let go of the driver; a later `collect` takes it again."""
        with self._lock:
            self._close()

    def _open(self) -> None:
        if self._ready:
            return
        self._nvml.nvmlInit()
        self._ready = True
        # XID errors come as events only; a library without them just has no such metric.
        with contextlib.suppress(self._nvml.NVMLError):
            self._events = self._nvml.nvmlEventSetCreate()

    def _close(self) -> None:
        """Shut NVML down so that the next scrape starts afresh; needed once the driver was reloaded under us."""
        with contextlib.suppress(self._nvml.NVMLError):
            if self._events is not None:
                self._nvml.nvmlEventSetFree(self._events)
        with contextlib.suppress(self._nvml.NVMLError):
            if self._ready:
                self._nvml.nvmlShutdown()
        self._ready, self._events = False, None
        self._watched.clear()

    def _status(self, exc: Exception) -> str:
        """Return the snake-case name of an NVMLError's code."""
        code = int(getattr(exc, "value", -1))
        return self._statuses.get(code, f"error_{code}")

    def _read_gpu(self, page: _Page, index: int, driver: str) -> None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as exc:
            page.readable("handle", self._identities.get(index, (("gpu", str(index)),)), self._status(exc))
            return
        # A GPU may fall off the bus between two of these reads: each one stands alone.
        labels = self._identify(handle, index, driver)
        for reading in READINGS:
            try:
                value = float(present(reading.read(nvml, handle)))
            except nvml.NVMLError as exc:
                page.readable(reading.name, labels, self._status(exc))
            except BlankError:
                page.readable(reading.name, labels, "not_available")
            else:
                page.add(reading.name, value, labels)
                page.readable(reading.name, labels, SUCCESS)
        self._read_nvlink(page, handle, labels)
        self._read_xid(page, handle, labels)

    def _identify(self, handle: Handle, index: int, driver: str) -> Labels:
        """Return dcgm-exporter's labels; what the GPU no longer tells is taken from the last time it did."""
        nvml = self._nvml
        before = dict(self._identities.get(index, ()))
        found = {
            "gpu": str(index),
            "UUID": self._tell(lambda: str(nvml.nvmlDeviceGetUUID(handle)), before.get("UUID", "")),
            "pci_bus_id": self._tell(
                lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId), before.get("pci_bus_id", "")
            ),
            "device": self._tell(
                lambda: f"nvidia{int(nvml.nvmlDeviceGetMinorNumber(handle))}", before.get("device", "")
            ),
            "modelName": self._tell(lambda: str(nvml.nvmlDeviceGetName(handle)), before.get("modelName", "")),
        }
        labels = (*found.items(), ("Hostname", self._hostname), ("DCGM_FI_DRIVER_VERSION", driver))
        self._identities[index] = labels
        return labels

    def _tell(self, read: Callable[[], str], before: str) -> str:
        try:
            return read()
        except self._nvml.NVMLError:
            return before

    def _read_nvlink(self, page: _Page, handle: Handle, labels: Labels) -> None:
        try:
            readings = read_nvlink(self._nvml, handle)
        except self._nvml.NVMLError as exc:
            status = self._status(exc)
            readings = tuple(
                LinkReading(counter=counter, link=None, value_bytes=None, status=status)
                for _, counter, per_link, _ in NVLINK
                if not per_link
            )
        for found in readings:
            name = next(
                n
                for n, counter, per_link, _ in NVLINK
                if (counter, per_link) == (found.counter, found.link is not None)
            )
            named = labels if found.link is None else (*labels, ("nvlink", str(found.link)))
            page.readable(name, named, found.status)
            if found.value_bytes is not None:
                page.add(name, found.value_bytes, named)

    def _read_xid(self, page: _Page, handle: Handle, labels: Labels) -> None:
        """Give the last XID, and a true 0 while the watch is set and none came (DCGM's convention)."""
        key = _pointer(handle)
        if self._events is None:
            page.readable(XID_NAME, labels, "not_supported")
            return
        if self._watched.get(key) != SUCCESS:
            try:
                self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, self._events)
                self._watched[key] = SUCCESS
            except self._nvml.NVMLError as exc:
                self._watched[key] = self._status(exc)
        page.readable(XID_NAME, labels, self._watched[key])
        if self._watched[key] == SUCCESS:
            page.add(XID_NAME, float(self._last_xid.get(key, 0)), labels)

    def _drain_xids(self) -> None:
        """Take the events that came since the last scrape; NVML answers "timeout" when there is none."""
        if self._events is None:
            return
        with contextlib.suppress(self._nvml.NVMLError):
            for _ in range(MAX_XIDS_PER_SCRAPE):
                event = self._nvml.nvmlEventSetWait(self._events, 0)
                if event.eventType == self._nvml.nvmlEventTypeXidCriticalError:
                    self._last_xid[_pointer(event.device)] = int(event.eventData)


def _families(page: _Page) -> tuple[Family, ...]:
    heads: list[tuple[str, Literal["gauge", "counter"], str]] = [
        (UP_NAME, "gauge", "1 when NVML answers; 0 with the reason when it does not."),
        *((r.name, r.kind, r.meaning) for r in READINGS),
        (XID_NAME, "gauge", "Last XID error since this exporter started; 0 when none came."),
        *((name, "counter", meaning) for name, _, _, meaning in NVLINK),
        (READABLE_NAME, "gauge", "1 when this GPU gives the field; 0 with the reason (status) when it does not."),
    ]
    return tuple(
        Family(name=name, kind=kind, meaning=meaning, samples=tuple(page.samples.get(name, ())))
        for name, kind, meaning in heads
    )


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _pointer(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
