"""NVIDIA GPUs through NVML: what is read and how often, and the one gateway that every call goes through.

NVML calls queue behind one another and behind the driver's own work, so they are few: utilisation at every look, the
rest once a second or less. `PcieThroughput` and `FanSpeed` are never called (20 ms and 0.1 ms of blocking), the list of
processes rarely (4 ms). Which failure means what, and what other tools do about it, is in `docs/sampler.md`.

This has run against a fake driver only, not yet on a GPU.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import pynvml

from ...record.run import SampledDevice
from ...record.schema import DEVICE, Row
from .schedule import NS_PER_S, Cadence

Say = Callable[[str], None]
SM = pynvml.NVML_CLOCK_SM
Values = dict[str, float | None]
Call = Callable[[Any], Any]
"""A question to the driver about the device whose handle it is given."""

MEMORY, POWER = "device memory", "power draw"
ERRORS = "critical errors of the GPU (Xid, ECC), which the kernel log has"
GPM_MARK = "(GPM)"
"""How the name of every metric ends that comes from the performance monitors."""
GPM = f"multiprocessor activity {GPM_MARK}"

NOT_READY, GPU_NOT_FOUND = 27, 28
"""Errors that `nvidia-ml-py` has no names for before 12.550."""
NOTHING_NEW = {
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
    pynvml.NVML_ERROR_TIMEOUT,
    pynvml.NVML_ERROR_IN_USE,
    pynvml.NVML_ERROR_NO_DATA,
    NOT_READY,
}
NEVER_HERE = {
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_DEPRECATED,
}
LOST = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, GPU_NOT_FOUND}
DRIVER_GONE = {
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}
DOUBTFUL = {pynvml.NVML_ERROR_OPERATING_SYSTEM, pynvml.NVML_ERROR_UNKNOWN}
"""One metric's trouble, or the loss of `/dev/nvidia*`: a second call tells."""
_STOPPED = (
    "stopped answering ({}): {}. A container loses its /dev/nvidia* this way when systemd "
    "reloads on the host; restart the container."
)
DRIVER_FAILED = dict.fromkeys(DOUBTFUL, _STOPPED) | {
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "was replaced while its old kernel module is still loaded ({}): no accelerator figures "
        "from here on. Running CUDA programs go on; reload the module or reboot."
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "refuses this user ({}): {}.",
}
"""Error → what is said of the driver when it fails with it; others: it is not there, or was unloaded."""


class Gateway:
    """Reads metrics of devices and remembers what cannot be read. A failure becomes a sentence, never a 0.

    A metric that is not supported is asked for once, a lost device is left alone, and so is a driver that has
    gone. `say` gets one sentence for each of these.
    """

    def __init__(self, say: Say) -> None:
        self.say = say
        self.ended = False
        """Whether the driver failed: it is asked no more."""
        self._handles: dict[int, Any] = {}
        self._lost: set[int] = set()
        self._never: set[tuple[int, str]] = set()
        self._answered: set[tuple[int, str]] = set()
        """Metrics that could be read at least once."""
        self._started = False
        try:
            pynvml.nvmlInit()
            self._started = True
        except pynvml.NVMLError as error:
            self._driver_failed(error.value)

    def count(self) -> int:
        """How many GPUs the driver shows."""
        if self.ended:
            return 0
        try:
            count = int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            self._driver_failed(error.value)
            return 0
        if count == 0:
            self.say("The NVIDIA driver shows no GPU here, so there are no accelerator figures.")
        return count

    def open(self, device: int, uuid: str | None) -> Any | None:
        """NVML's handle of the run's device number `device`, by UUID or else by NVML's own number."""
        if self.ended:
            return None
        try:
            by_number, by_uuid = pynvml.nvmlDeviceGetHandleByIndex, pynvml.nvmlDeviceGetHandleByUUID
            self._handles[device] = by_number(device) if uuid is None else by_uuid(uuid)
        except pynvml.NVMLError as error:
            name = f"number {device}" if uuid is None else uuid
            self.say(f"The driver does not show the GPU {name} ({error}), so it is not recorded.")
            return None
        return self._handles[device]

    def read(self, device: int, metric: str, *calls: Call, prepares: bool = False) -> Any | None:
        """What the first call returns that the driver knows; `None` where the metric cannot be read (now).

        Several calls are the same question to newer and older drivers, each given the device's handle. One that only
        `prepares` yields no figure yet.
        """
        if not self.readable(device, metric):
            return None
        code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        for call in calls:
            try:
                value = call(self._handles[device])
            except AttributeError:
                # This nvidia-ml-py is older than the call.
                code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
            except pynvml.NVMLError as error:
                code = error.value
                if code != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                    break
            else:
                if not prepares:
                    self.answered(device, metric)
                return value
        self.failed(device, metric, code)
        return None

    def readable(self, device: int, metric: str) -> bool:
        """Whether it makes sense to ask for a metric."""
        return not (self.ended or device in self._lost or (device, metric) in self._never)

    def answered(self, device: int, metric: str) -> None:
        """Take note that a metric could be read."""
        self._answered.add((device, metric))

    def failed(self, device: int, metric: str, code: int) -> None:
        """Take note that a metric failed with an NVML error code, and say it, as the code deserves."""
        if code in NOTHING_NEW:
            return
        if code in DRIVER_GONE or self._refuses_all(device, metric, code):
            self._driver_failed(code)
        elif code in LOST:
            self._lost.add(device)
            self.say(
                f"GPU {device} of the run no longer answers ({words(code)}): its figures end here. "
                "The kernel log names the Xid."
            )
        elif code in NEVER_HERE | DOUBTFUL:
            self._never.add((device, metric))
            verb = "No longer" if (device, metric) in self._answered else "Not"
            why = f"This GPU or its driver does not give it ({words(code)})"
            if code == pynvml.NVML_ERROR_NO_PERMISSION:
                why = f"The driver refuses it to this user ({words(code)}); run as root"
                if metric.endswith(GPM_MARK):
                    why += ", or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
            self.say(f"{verb} measured: {metric}. {why}.")
        else:
            self.say(f"Reading {metric} failed at least once ({words(code)}); those samples lack it.")

    def _refuses_all(self, device: int, metric: str, code: int) -> bool:
        """Whether it is not this metric that cannot be read, but the driver: what every driver tells fails as well."""
        if code not in DOUBTFUL and code != pynvml.NVML_ERROR_NO_PERMISSION:
            return False
        others = {MEMORY: pynvml.nvmlDeviceGetMemoryInfo, POWER: pynvml.nvmlDeviceGetPowerUsage}
        others.pop(metric, None)
        for call in others.values():
            try:
                call(self._handles[device])
                return False
            except pynvml.NVMLError as error:
                if error.value not in (DOUBTFUL if code in DOUBTFUL else {code}):
                    return False
        return True

    def _driver_failed(self, code: int) -> None:
        self.ended = True
        here = "no accelerator figures" + " from here on" * self._started
        if self._started or code in DRIVER_FAILED:
            says = DRIVER_FAILED.get(code, "was unloaded ({}): {}.").format(words(code), here)
            self.say(f"The NVIDIA driver {says}")
        else:
            self.say(f"No NVIDIA driver here ({words(code)}): {here}.")


def words(code: int) -> str:
    """What NVML calls an error code."""
    return str(pynvml.NVMLError(code))


METRICS = {2: "sm_active_pct", 5: "tensor_active_pct", 10: "dram_active_pct"}
"""NVML_GPM_METRIC_… number → DEVICE field."""
SHORTEST_WINDOW_NS = 100_000_000
"""The driver refreshes its counters this often."""


class Gpm:
    """What the multiprocessors of a Hopper or newer GPU did between two samples (GPM).

    Two samples at least 100 ms apart give exact averages over the time between them; each sample ends one window and
    begins the next, so windows neither overlap nor leave gaps.
    """

    def __init__(self, gateway: Gateway, device: int) -> None:
        self._gateway = gateway
        self._device = device
        self._since_ns: int | None = None
        """When the older of the two samples was taken."""
        support = gateway.read(device, GPM, lambda h: pynvml.nvmlGpmQueryDeviceSupport(h), prepares=True)
        self._older = self._newer = None
        if support is not None and support.isSupportedDevice:
            self._older, self._newer = (
                gateway.read(device, GPM, lambda _: pynvml.nvmlGpmSampleAlloc(), prepares=True) for _ in range(2)
            )
        # Large, so made once.
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(METRICS)

    def sample(self) -> Values | None:
        """DEVICE fields of the window that ends now; `None` where there is none yet, or GPM is not to be had."""
        now_ns, since_ns, newer = time.monotonic_ns(), self._since_ns, self._newer
        if newer is None or (since_ns is not None and now_ns - since_ns < SHORTEST_WINDOW_NS):
            return None
        if self._gateway.read(self._device, GPM, lambda h: pynvml.nvmlGpmSampleGet(h, newer)) is None:
            return None
        window = None if since_ns is None else self._compare(since_ns, now_ns)
        self._older, self._newer, self._since_ns = self._newer, self._older, now_ns
        return window

    def _compare(self, begin_ns: int, end_ns: int) -> Values | None:
        request, gateway = self._request, self._gateway
        request.sample1, request.sample2 = self._older, self._newer
        for place, number in enumerate(METRICS):
            request.metrics[place].metricId = number
        if gateway.read(self._device, GPM, lambda _: pynvml.nvmlGpmMetricsGet(request)) is None:
            return None
        found: Values = {}
        for place, field in enumerate(METRICS.values()):
            metric, name = request.metrics[place], f"{field} {GPM_MARK}"
            if metric.nvmlReturn == pynvml.NVML_SUCCESS:
                if math.isfinite(metric.value):
                    gateway.answered(self._device, name)
                    found[field] = metric.value
            elif gateway.readable(self._device, name):
                gateway.failed(self._device, name, metric.nvmlReturn)
        return {"t_ns": end_ns, "window_ns": end_ns - begin_ns} | found if found else None


ECC, XID, POISON, UNAVAILABLE, RECOVERY = 0x2, 0x8, 0x2000, 0x4000, 0x8000
"""nvmlEventType… bits; `nvidia-ml-py` names only some of them in its older releases."""
ALL_KINDS = ECC | XID | POISON | UNAVAILABLE | RECOVERY
MEANINGS = {
    ECC: "an uncorrectable memory error (ECC)",
    POISON: "poisoned data that it could not contain",
    UNAVAILABLE: "that it is no longer available",
    RECOVERY: "that it needs a reset or a reboot",
}
MOST_AT_ONCE = 16
MOST_SENTENCES = 20


class CriticalErrors:
    """What the driver reports about the GPUs of a run: Xid, ECC, a GPU that falls out. Each is one sentence.

    The driver queues these events for whoever has registered, so polling seldom, without waiting, loses none.
    """

    def __init__(self, gateway: Gateway, handles: Mapping[int, Any], start_ns: int) -> None:
        self._gateway = gateway
        self._start_ns = start_ns
        self._devices = {_address(handle): device for device, handle in handles.items()}
        self._said: set[tuple[int | None, int, int]] = set()
        self._events: Any | None = None
        for device in handles:
            self._register(device)

    def _register(self, device: int) -> None:
        """Ask for as many kinds as the device can report. Some containers refuse it."""
        read = self._gateway.read
        if self._events is None:
            self._events = read(device, ERRORS, lambda _: pynvml.nvmlEventSetCreate(), prepares=True)
        kinds = read(device, ERRORS, lambda h: ALL_KINDS & pynvml.nvmlDeviceGetSupportedEventTypes(h), prepares=True)
        if kinds == 0:
            self._gateway.failed(device, ERRORS, pynvml.NVML_ERROR_NOT_SUPPORTED)
        elif kinds is not None and self._events is not None:
            read(device, ERRORS, lambda h: pynvml.nvmlDeviceRegisterEvents(h, kinds, self._events))

    def look(self, now_ns: int) -> None:
        """Say what the driver has reported since the last look."""
        for _ in range(MOST_AT_ONCE):
            device = next((each for each in self._devices.values() if self._gateway.readable(each, ERRORS)), None)
            if device is None or self._events is None:
                return
            event = self._gateway.read(device, ERRORS, lambda _: pynvml.nvmlEventSetWait_v2(self._events, 0))
            if event is None:
                return
            self._tell(event, now_ns)

    def _tell(self, event: Any, now_ns: int) -> None:
        kind, number = int(event.eventType), int(event.eventData)
        device = self._devices.get(_address(event.device))
        key = device, kind, number
        if key in self._said or len(self._said) >= MOST_SENTENCES:
            return
        self._said.add(key)
        what = MEANINGS.get(kind, f"event {kind:#x}")
        if kind == XID:
            what = f"Xid {number} (NVIDIA's list of Xid errors says what that is)"
        name = "A GPU of the run" if device is None else f"GPU {device} of the run"
        seconds = (now_ns - self._start_ns) / NS_PER_S
        self._gateway.say(f"{name} reported {what}, {seconds:.0f} s after sampling began.")


def _address(handle: Any) -> int | None:
    """NVML's handles are pointers: the same device has the same."""
    return ctypes.cast(handle, ctypes.c_void_p).value


class Turn(NamedTuple):
    """How often something is read of a GPU."""

    period_ns: int = 0
    first_ns: int = 0
    """When it is read first, ns after the begin of sampling."""


EACH_LOOK, STATE = Turn(), Turn(NS_PER_S)
LINK, PROCESSES = Turn(10 * NS_PER_S, 2 * NS_PER_S), Turn(20 * NS_PER_S, 5 * NS_PER_S)


def ask(name: str, *more: Any) -> Call:
    """Make a question of the function `nvmlDeviceGet…`. An `nvidia-ml-py` that is older has none when it is asked."""
    return lambda handle: getattr(pynvml, f"nvmlDeviceGet{name}")(handle, *more)


def _processes(found: Sequence[Any]) -> Values:
    """How many there are and what they hold. Their pids may be those of another namespace and are not used."""
    held = [process.usedGpuMemory for process in found]
    told = {"processes_bytes": sum(held), "largest_process_bytes": max(held)} if held and None not in held else {}
    return {"processes": len(found)} | told


class GpuFigures(NamedTuple):
    """Figures of a GPU that one question to the driver gives."""

    turn: Turn
    metric: str
    gives: str | Callable[[Any], Values]
    """The DEVICE field that the answer is, or how several come from it. One with `max` in its name does not change: it
    is asked once, where the field without that is measured."""
    call: Call
    older: Call | None = None
    """The same question as older drivers know it, if they do."""


FIGURES = (
    GpuFigures(EACH_LOOK, "utilisation rates", lambda rates: {"utilisation_pct": rates.gpu}, ask("UtilizationRates")),
    GpuFigures(
        STATE,
        MEMORY,
        lambda memory: {"memory_used_bytes": memory.used, "memory_total_bytes": memory.total},
        ask("MemoryInfo", pynvml.nvmlMemory_v2),
        ask("MemoryInfo"),
    ),
    GpuFigures(STATE, "the multiprocessor clock", "sm_clock_mhz", ask("ClockInfo", SM)),
    GpuFigures(STATE, POWER, "power_mw", ask("PowerUsage")),
    GpuFigures(STATE, "the highest multiprocessor clock", "sm_clock_max_mhz", ask("MaxClockInfo", SM)),
    GpuFigures(STATE, "temperature", "temperature_c", ask("Temperature", pynvml.NVML_TEMPERATURE_GPU)),
    GpuFigures(
        STATE,
        "clock event reasons",
        "throttle_reasons",
        ask("CurrentClocksEventReasons"),
        ask("CurrentClocksThrottleReasons"),
    ),
    GpuFigures(LINK, "PCIe generation", "pcie_generation", ask("CurrPcieLinkGeneration")),
    GpuFigures(LINK, "PCIe width", "pcie_width", ask("CurrPcieLinkWidth")),
    GpuFigures(LINK, "the highest PCIe generation", "pcie_max_generation", ask("MaxPcieLinkGeneration")),
    GpuFigures(LINK, "the greatest PCIe width", "pcie_max_width", ask("MaxPcieLinkWidth")),
    GpuFigures(
        PROCESSES,
        "processes on the device",
        _processes,
        ask("ComputeRunningProcesses_v3"),
        ask("ComputeRunningProcesses_v2"),
    ),
)

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
VALUE_TYPES = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: ("uiVal", 32),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: ("ulVal", 64),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: ("ullVal", 64),
}
"""Type of a counter → the member of the union that it is, and its width: the modulus at which it wraps."""


class NvmlSource:
    """All GPUs of a run: those with the UUIDs given, in that order, or else all that the driver shows."""

    def __init__(self, gateway: Gateway, uuids: Sequence[str], start_ns: int) -> None:
        wanted: list[str | None] = list(uuids) or [None] * gateway.count()
        opened = {device: gateway.open(device, uuid) for device, uuid in enumerate(wanted)}
        handles = {device: handle for device, handle in opened.items() if handle is not None}
        self._gpus = [Gpu(gateway, device, start_ns) for device in handles]
        self.devices = [_described(gateway, device) for device in handles]
        self.driver: str | None = None
        """The version of the driver, asked once; `None`: not told."""
        for device in [*handles][:1]:
            version = gateway.read(device, "the version of the driver", lambda _: pynvml.nvmlSystemGetDriverVersion())
            self.driver = version
        self._critical = CriticalErrors(gateway, handles, start_ns)
        self._look_for_errors = Cadence(STATE.period_ns)

    def sample(self, now_ns: int, last: bool = False) -> list[Row]:
        """Bodies of DEVICE records. `last` reads what would otherwise have waited for its turn."""
        if self._look_for_errors.due(now_ns) or last:
            # Before the figures: what the driver reports may be why they end.
            self._critical.look(now_ns)
        return [record for gpu in self._gpus for record in gpu.sample(now_ns, last)]


def _described(gateway: Gateway, device: int) -> SampledDevice:
    """What does not change while it is sampled."""
    name = gateway.read(device, "what the GPU is called", lambda h: pynvml.nvmlDeviceGetName(h))
    limit = gateway.read(device, "the power limit", lambda h: pynvml.nvmlDeviceGetEnforcedPowerLimit(h))
    return SampledDevice(device, name, limit)


class Gpu:
    """What is read of one GPU: windows of GPM, and states, which have no window."""

    def __init__(self, gateway: Gateway, device: int, start_ns: int) -> None:
        self._gateway = gateway
        self._device = device
        self._gpm = Gpm(gateway, device)
        self._counters: dict[int, tuple[int, int]] = {}
        """Field of a counter → its last reading, and the sum that continues it past its wraps."""
        self._highest: dict[str, Any] = {}
        """What the device is capable of: does not change, so it is kept."""
        turns = (EACH_LOOK, STATE, LINK, PROCESSES)
        self._turns = {turn: Cadence(turn.period_ns, start_ns + turn.first_ns) for turn in turns}

    def sample(self, now_ns: int, last: bool) -> list[Row]:
        """Bodies of DEVICE records: a window of GPM that ended, and a state where anything could be read."""
        due = {turn for turn, cadence in self._turns.items() if cadence.due(now_ns) or (last and turn is STATE)}
        state = self._read(due)
        if STATE in due:
            state |= self._read_fields()
        window = self._gpm.sample()
        records: list[Values] = [] if window is None else [window]
        if any(value is not None for value in state.values()):
            records.append({"t_ns": now_ns} | state)
        return [DEVICE.row(device=self._device, **values) for values in records]

    def _read(self, due: Set[Turn]) -> Values:
        values: Values = {}
        for turn, metric, gives, call, older in FIGURES:
            of = gives.replace("_max", "") if isinstance(gives, str) and "_max" in gives else ""
            if turn not in due or (of and values.get(of) is None):
                continue
            answer = self._highest.get(metric)
            if answer is None:
                answer = self._gateway.read(self._device, metric, call, *([older] if older else []))
            if answer is not None:
                values |= {gives: answer} if isinstance(gives, str) else gives(answer)
                if of:
                    self._highest[metric] = answer
        return values

    def _read_fields(self) -> Values:
        """Cumulative counters, in one call for all that the driver has not refused."""
        gateway, device = self._gateway, self._device
        readable = [field for field, metric in FIELDS.items() if gateway.readable(device, metric)]
        thermal_is_split = SW_THERMAL in readable and HW_THERMAL in readable
        # Older drivers count both kinds together.
        wanted = [field for field in readable if field != THERMAL or not thermal_is_split]
        if not wanted:
            return {}
        read = gateway.read(device, "driver counters", lambda h: pynvml.nvmlDeviceGetFieldValues(h, wanted))
        values: dict[int, float | None] = {}
        for value in read or ():
            field, code = int(value.fieldId), int(value.nvmlReturn)
            if code != pynvml.NVML_SUCCESS:
                gateway.failed(device, FIELDS[field], code)
                continue
            gateway.answered(device, FIELDS[field])
            member, bits = VALUE_TYPES.get(value.valueType, ("", 0))
            if member:
                counted = int(getattr(value.value, member))
                values[field] = self._continued(field, counted, bits) if field in (PCIE_RX, PCIE_TX) else counted
        soft, hard = values.get(SW_THERMAL), values.get(HW_THERMAL)
        split = None if soft is None or hard is None else soft + hard
        return {
            "power_capped_ns": values.get(POWER_CAP),
            "thermal_ns": split if thermal_is_split else values.get(THERMAL),
            "pcie_rx_bytes": values.get(PCIE_RX),
            "pcie_tx_bytes": values.get(PCIE_TX),
        }

    def _continued(self, field: int, value: int, bits: int) -> int:
        """A counter of so many bits, continued past its wraps; starts with the first reading.

        Bytes beyond one wrap between two readings are lost: 4.3 GB for a counter of 32 bits.
        """
        last, total = self._counters.get(field, (value, value))
        # Drivers hand 32-bit counters out as 64-bit values, too: those never reach 2^32 before they fall.
        if value < last < 2**32:
            bits = min(bits, 32)
        total = int(total + (value - last) % 2**bits)
        self._counters[field] = value, total
        return total
