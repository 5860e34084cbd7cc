"""NVIDIA GPUs through NVML: what is read, and how often.

NVML calls queue behind one another and behind the driver's own work, so they are few: utilisation at every look, the
rest once a second or less. `PcieThroughput` and `FanSpeed` are never called (20 ms and
0.1 ms of blocking), the list of processes rarely (4 ms).

This has run against a fake driver only, not yet on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pynvml

from ...record.sampled_devices import SampledDevice
from ...record.schema import DEVICE
from .critical import CriticalErrors
from .gpm import Gpm
from .nvml import MEMORY, POWER, PROCESSES, RATES, Gateway, bits, number
from .row import Row, row
from .schedule import NS_PER_S, Cadence

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
