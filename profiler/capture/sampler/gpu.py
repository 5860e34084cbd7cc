"""NVIDIA GPUs through NVML: what is read, and how often.

NVML calls queue behind one another and behind the driver's own work, so they are few: utilisation at every look, the
rest once a second or less. `PcieThroughput` and `FanSpeed` are never called (20 ms and
0.1 ms of blocking), the list of processes rarely (4 ms).

This has run against a fake driver only, not yet on a GPU.

Critical errors that the driver reports about the GPUs of a run: Xid, ECC, a GPU that falls out. The driver queues
them for whoever has registered, so polling seldom loses none. Each is one sentence.

This has run against a fake driver only, not yet on a GPU.

GPM: what the multiprocessors of a Hopper or newer GPU did between two samples. Two samples at least 100 ms apart
give exact averages over the time between them; each sample ends one window and begins the next, so windows neither
overlap nor leave gaps.

This has run against a fake driver only, not yet on a GPU.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pynvml

from ...record.run import SampledDevice
from ...record.schema import DEVICE
from .nvml import DRIVER_GONE, GPM, GPM_MARK, MEMORY, POWER, PROCESSES, RATES, Gateway, bits, number, words
from .row import Row, row
from .schedule import NS_PER_S, Cadence

METRICS = {2: "sm_active_pct", 3: "sm_occupancy_pct", 5: "tensor_active_pct", 10: "dram_active_pct"}
"""NVML_GPM_METRIC_… number → DEVICE field."""
SHORTEST_WINDOW_NS = 100_000_000
"""The driver refreshes its counters this often."""


class Gpm:
    """GPM windows of one GPU."""

    def __init__(self, gateway: Gateway, device: int, handle: Any) -> None:
        self._gateway = gateway
        self._device = device
        self._handle = handle
        self._since_ns: int | None = None
        """When the older of the two samples was taken."""
        support = gateway.read(device, GPM, lambda: pynvml.nvmlGpmQueryDeviceSupport(handle), prepares=True)
        self._older = self._newer = None
        if support is not None and support.isSupportedDevice:
            self._older = gateway.read(device, GPM, pynvml.nvmlGpmSampleAlloc, prepares=True)
            self._newer = gateway.read(device, GPM, pynvml.nvmlGpmSampleAlloc, prepares=True)
        # Large, so made once.
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(METRICS)

    def sample(self) -> dict[str, float | None] | None:
        """DEVICE fields of the window that ends now; `None` where there is none yet, or GPM is not to be had."""
        now_ns = time.monotonic_ns()
        since_ns = self._since_ns
        if self._newer is None or (since_ns is not None and now_ns - since_ns < SHORTEST_WINDOW_NS):
            return None
        newer = self._newer
        if self._gateway.read(self._device, GPM, lambda: pynvml.nvmlGpmSampleGet(self._handle, newer)) is None:
            return None
        window = None if since_ns is None else self._compare(since_ns, now_ns)
        self._older, self._newer = self._newer, self._older
        self._since_ns = now_ns
        return window

    def _compare(self, begin_ns: int, end_ns: int) -> dict[str, float | None] | None:
        request = self._request
        request.sample1, request.sample2 = self._older, self._newer
        for place, metric in enumerate(METRICS):
            request.metrics[place].metricId = metric
        if self._gateway.read(self._device, GPM, lambda: pynvml.nvmlGpmMetricsGet(request)) is None:
            return None
        window: dict[str, float | None] = {"t_ns": end_ns, "window_ns": end_ns - begin_ns}
        for place, field in enumerate(METRICS.values()):
            metric = request.metrics[place]
            if metric.nvmlReturn != pynvml.NVML_SUCCESS:
                self._refused(field, metric.nvmlReturn)
            elif math.isfinite(metric.value):
                self._gateway.answered(self._device, f"{field} {GPM_MARK}")
                window[field] = metric.value
        return window if any(field in window for field in METRICS.values()) else None

    def _refused(self, field: str, code: int) -> None:
        name = f"{field} {GPM_MARK}"
        if self._gateway.readable(self._device, name):
            self._gateway.failed(self._device, name, code)


ECC, XID, POISON, UNAVAILABLE, RECOVERY = 0x2, 0x8, 0x2000, 0x4000, 0x8000
"""nvmlEventType… bits; `nvidia-ml-py` names only some of them in its older releases."""
ALL_KINDS = ECC | XID | POISON | UNAVAILABLE | RECOVERY
MEANINGS = {
    ECC: "an uncorrectable memory error (ECC)",
    POISON: "poisoned data that it could not contain",
    UNAVAILABLE: "that it is no longer available",
    RECOVERY: "that it needs a reset or a reboot",
}
XIDS = {
    13: "exception in a kernel",
    31: "memory page fault of a kernel",
    43: "a program's channel was stopped",
    48: "uncorrectable memory error (ECC)",
    63: "memory row or page retired",
    64: "memory row or page could not be retired",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    94: "memory error contained to one program",
    95: "memory error that was not contained",
    119: "the GPU's own processor (GSP) does not answer",
    120: "error of the GPU's own processor (GSP)",
}
"""The commonest of the numbers in NVIDIA's list of Xid errors."""
MOST_AT_ONCE = 16
MOST_SENTENCES = 20


class CriticalErrors:
    """Polls the driver's events, without waiting for any."""

    def __init__(self, gateway: Gateway, handles: Mapping[int, Any], start_ns: int) -> None:
        self._gateway = gateway
        self._start_ns = start_ns
        self._devices = {_address(handle): device for device, handle in handles.items()}
        self._said: set[tuple[int | None, int, int]] = set()
        self._events: Any | None = None
        if handles and not gateway.ended:
            self._register(list(handles.values()))

    def look(self, now_ns: int) -> None:
        """Say what the driver has reported since the last look."""
        for _ in range(MOST_AT_ONCE):
            if self._events is None or self._gateway.ended:
                return
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    self._events = None
                    self._unwatched("No longer watched", error.value)
                return
            self._tell(event, now_ns)

    def _tell(self, event: Any, now_ns: int) -> None:
        kind, number = int(event.eventType), int(event.eventData)
        device = self._devices.get(_address(event.device))
        what = f"Xid {number}{_meaning(number)}" if kind == XID else MEANINGS.get(kind, f"event {kind:#x}")
        key = device, kind, number
        if key in self._said or len(self._said) >= MOST_SENTENCES:
            return
        self._said.add(key)
        name = "A GPU of the run" if device is None else f"GPU {device} of the run"
        seconds = (now_ns - self._start_ns) / NS_PER_S
        self._gateway.say(f"{name} reported {what}, {seconds:.0f} s after sampling began.")

    def _register(self, handles: list[Any]) -> None:
        """Ask for as many kinds as each GPU can report. Some containers refuse it."""
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            self._unwatched("Not watched", error.value)
            return
        for handle in handles:
            try:
                kinds = ALL_KINDS & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                if not kinds:
                    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
                pynvml.nvmlDeviceRegisterEvents(handle, kinds, events)
                self._events = events
            except pynvml.NVMLError as error:
                self._unwatched("Not watched", error.value)

    def _unwatched(self, verb: str, code: int) -> None:
        if code not in DRIVER_GONE:
            # Of a driver that has gone, whoever reads the next figure says so.
            self._gateway.say(
                f"{verb}: critical errors of the GPU (Xid, ECC). The driver does not report them here "
                f"({words(code)}); the kernel log has them."
            )


def _address(handle: Any) -> int | None:
    """NVML's handles are pointers: the same device has the same."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def _meaning(number: int) -> str:
    return f" ({XIDS[number]})" if number in XIDS else ""


STATE_PERIOD_NS = NS_PER_S
LINK_PERIOD_NS, LINK_FIRST_NS = 10 * NS_PER_S, 2 * NS_PER_S
PROCESSES_PERIOD_NS, PROCESSES_FIRST_NS = 20 * NS_PER_S, 5 * NS_PER_S

POWER_CAP, THERMAL, SW_THERMAL, HW_THERMAL, PCIE_TX, PCIE_RX = 74, 75, 269, 270, 197, 198
"""NVML_FI_DEV_… numbers; `nvidia-ml-py` names only some of them in its older releases."""
FIELDS = {
    POWER_CAP: "time held down by the power cap",
    SW_THERMAL: "time held down by temperature (software)",
    HW_THERMAL: "time held down by temperature (hardware)",
    PCIE_TX: "PCIe bytes sent",
    PCIE_RX: "PCIe bytes received",
    THERMAL: "time held down by temperature",
}

Values = dict[str, float | None]


class NvmlSource:
    """All GPUs of a run: those with the UUIDs given, in that order, or else all that the driver shows."""

    def __init__(self, gateway: Gateway, uuids: Sequence[str], start_ns: int) -> None:
        wanted: list[str | None] = list(uuids) or [None] * gateway.count()
        opened = {device: gateway.open(device, uuid) for device, uuid in enumerate(wanted)}
        handles = {device: handle for device, handle in opened.items() if handle is not None}
        self._gpus = [Gpu(gateway, device, handle, start_ns) for device, handle in handles.items()]
        self.devices = [_described(gateway, device, handle) for device, handle in handles.items()]
        self.driver = _driver(gateway, handles)
        self._critical = CriticalErrors(gateway, handles, start_ns)
        self._look_for_errors = Cadence(STATE_PERIOD_NS)

    def sample(self, now_ns: int, last: bool = False) -> list[Row]:
        """Bodies of DEVICE records. `last` reads what would otherwise have waited for its turn."""
        if self._look_for_errors.due(now_ns) or last:
            # Before the figures: what the driver reports may be why they end.
            self._critical.look(now_ns)
        return [record for gpu in self._gpus for record in gpu.sample(now_ns, last)]


class WrappingCounter:
    """A counter of limited width, continued past its wraps.

    Bytes beyond one wrap between two readings are lost: 4.3 GB for a counter of 32 bits.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._total = 0

    def read(self, value: int, bits: int) -> int:
        """The cumulative value; starts with the first reading."""
        if self._last is None:
            self._total = value
        else:
            # Drivers hand 32-bit counters out as 64-bit values, too: those never reach 2^32 before they fall.
            if value < self._last < 2**32:
                bits = min(bits, 32)
            self._total += (value - self._last) % 2**bits
        self._last = value
        return self._total


class Gpu:
    """What is read of one GPU: windows of GPM, and states, which have no window."""

    def __init__(self, gateway: Gateway, device: int, handle: Any, start_ns: int) -> None:
        self._gateway = gateway
        self._device = device
        self._handle = handle
        self._gpm = Gpm(gateway, device, handle)
        self._rx, self._tx = WrappingCounter(), WrappingCounter()
        self._highest: dict[str, float] = {}
        """What the device is capable of: does not change, so it is kept."""
        self._state = Cadence(STATE_PERIOD_NS)
        self._link = Cadence(LINK_PERIOD_NS, start_ns + LINK_FIRST_NS)
        self._processes = Cadence(PROCESSES_PERIOD_NS, start_ns + PROCESSES_FIRST_NS)

    def sample(self, now_ns: int, last: bool) -> list[Row]:
        state = self._read_rates()
        if self._state.due(now_ns) or last:
            state |= self._read_state()
        if self._link.due(now_ns):
            state |= self._read_link()
        if self._processes.due(now_ns):
            state |= self._read_processes()
        window = self._gpm.sample()
        records: list[Values] = [] if window is None else [window]
        if any(value is not None for value in state.values()):
            records.append({"t_ns": now_ns} | state)
        return [row(DEVICE, device=self._device, **values) for values in records]

    def _ask(self, metric: str, *calls: Any) -> Any | None:
        return self._gateway.read(self._device, metric, *calls)

    def _limit(self, current: float | None, metric: str, call: Any) -> float | None:
        """The highest that `current` can be; nothing where that is not measured (any more)."""
        if current is None:
            return None
        if metric not in self._highest and (value := self._ask(metric, call)) is not None:
            self._highest[metric] = value
        return self._highest.get(metric)

    def _read_state(self) -> Values:
        h = self._handle
        memory = self._ask(
            MEMORY,
            lambda: pynvml.nvmlDeviceGetMemoryInfo(h, version=pynvml.nvmlMemory_v2),
            lambda: pynvml.nvmlDeviceGetMemoryInfo(h),
        )
        clock = self._ask("the multiprocessor clock", lambda: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_SM))
        return {
            "memory_used_bytes": None if memory is None else memory.used,
            "memory_total_bytes": None if memory is None else memory.total,
            "power_mw": self._ask(POWER, lambda: pynvml.nvmlDeviceGetPowerUsage(h)),
            "sm_clock_mhz": clock,
            "sm_clock_max_mhz": self._limit(
                clock,
                "the highest multiprocessor clock",
                lambda: pynvml.nvmlDeviceGetMaxClockInfo(h, pynvml.NVML_CLOCK_SM),
            ),
            "memory_clock_mhz": self._ask(
                "the memory clock", lambda: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_MEM)
            ),
            "temperature_c": self._ask(
                "temperature", lambda: pynvml.nvmlDeviceGetTemperature(h, pynvml.NVML_TEMPERATURE_GPU)
            ),
            "throttle_reasons": self._ask(
                "clock event reasons",
                lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(h),
                lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(h),
            ),
        } | self._read_fields()

    def _read_fields(self) -> Values:
        """Cumulative counters, in one call for all that the driver has not refused."""
        wanted = [f for f in FIELDS if f != THERMAL and self._readable(f)]
        thermal_is_split = SW_THERMAL in wanted and HW_THERMAL in wanted
        if not thermal_is_split and self._readable(THERMAL):
            # Older drivers count both kinds together.
            wanted.append(THERMAL)
        if not wanted:
            return {}
        read = self._ask("driver counters", lambda: pynvml.nvmlDeviceGetFieldValues(self._handle, wanted))
        values: dict[int, float | None] = {}
        for value in read or ():
            field, code = int(value.fieldId), int(value.nvmlReturn)
            if code == pynvml.NVML_SUCCESS:
                values[field] = self._decode(field, value)
                self._gateway.answered(self._device, FIELDS[field])
            else:
                self._gateway.failed(self._device, FIELDS[field], code)
        soft, hard = values.get(SW_THERMAL), values.get(HW_THERMAL)
        split = None if soft is None or hard is None else soft + hard
        return {
            "power_capped_ns": values.get(POWER_CAP),
            "thermal_ns": split if thermal_is_split else values.get(THERMAL),
            "pcie_rx_bytes": values.get(PCIE_RX),
            "pcie_tx_bytes": values.get(PCIE_TX),
        }

    def _decode(self, field: int, value: Any) -> float | None:
        counted = number(value.value, value.valueType)
        if counted is None:
            return None
        if field in (PCIE_RX, PCIE_TX):
            counter = self._rx if field == PCIE_RX else self._tx
            return counter.read(int(counted), bits(value.valueType))
        return int(counted)

    def _readable(self, field: int) -> bool:
        return self._gateway.readable(self._device, FIELDS[field])

    def _read_link(self) -> Values:
        h = self._handle
        generation = self._ask("PCIe generation", lambda: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(h))
        width = self._ask("PCIe width", lambda: pynvml.nvmlDeviceGetCurrPcieLinkWidth(h))
        return {
            "pcie_generation": generation,
            "pcie_width": width,
            "pcie_max_generation": self._limit(
                generation, "the highest PCIe generation", lambda: pynvml.nvmlDeviceGetMaxPcieLinkGeneration(h)
            ),
            "pcie_max_width": self._limit(
                width, "the greatest PCIe width", lambda: pynvml.nvmlDeviceGetMaxPcieLinkWidth(h)
            ),
        }

    def _read_processes(self) -> Values:
        """How many there are and what they hold. Their pids may be those of another namespace and are not used."""
        h = self._handle
        processes = self._ask(
            PROCESSES,
            lambda: pynvml.nvmlDeviceGetComputeRunningProcesses_v3(h),
            lambda: pynvml.nvmlDeviceGetComputeRunningProcesses_v2(h),
        )
        if processes is None:
            return {}
        values: Values = {"processes": len(processes)}
        held = [process.usedGpuMemory for process in processes]
        if held and None not in held:
            values |= {"processes_bytes": sum(held), "largest_process_bytes": max(held)}
        return values

    def _read_rates(self) -> Values:
        rates = self._ask(RATES, lambda: pynvml.nvmlDeviceGetUtilizationRates(self._handle))
        return {} if rates is None else {"utilisation_pct": rates.gpu, "memory_util_pct": rates.memory}


def _described(gateway: Gateway, device: int, handle: Any) -> SampledDevice:
    """What does not change while it is sampled."""
    name = gateway.read(device, "what the GPU is called", lambda: pynvml.nvmlDeviceGetName(handle))
    limit = gateway.read(device, "the power limit", lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    return SampledDevice(device, _text(name), limit)


def _driver(gateway: Gateway, devices: Iterable[int]) -> str | None:
    """Its version, which is the same for all devices: asked once."""
    for device in devices:
        return _text(gateway.read(device, "the version of the driver", lambda: pynvml.nvmlSystemGetDriverVersion()))
    return None


def _text(told: Any) -> str | None:
    """Older bindings give bytes."""
    return told.decode(errors="replace") if isinstance(told, bytes) else told
