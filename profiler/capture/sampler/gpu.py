"""NVIDIA GPUs through NVML: what is read, and how often.

NVML calls queue behind one another and behind the driver's own work, so they are few: utilisation windows from the
ring once a second, the rest once a second or less. `PcieThroughput` and `FanSpeed` are never called (20 ms and
0.1 ms of blocking), the list of processes rarely (4 ms).

This has run against a fake driver only, not yet on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pynvml

from ...record.sampled_devices import SampledDevice
from ...record.schema import DEVICE
from .critical import CriticalErrors
from .gpm import Gpm
from .mig import MEMORY, PCIE_RECEIVED, PCIE_SENT, POWER, PROCESSES, RATES, RING, NvmlTarget
from .nvml import Gateway, bits, number
from .ring import ClockPair, UtilisationRing, UtilisationWindow, WrappingCounter, clock_of
from .row import Row, row
from .schedule import NS_PER_S, Cadence

STATE_PERIOD_NS = NS_PER_S
LINK_PERIOD_NS, LINK_FIRST_NS = 10 * NS_PER_S, 2 * NS_PER_S
PROCESSES_PERIOD_NS, PROCESSES_FIRST_NS = 20 * NS_PER_S, 5 * NS_PER_S
RING_SILENCE_NS = 3 * NS_PER_S
"""After this long without a sample the ring counts as absent, and the current rate is read instead."""

POWER_CAP, THERMAL, SW_THERMAL, HW_THERMAL, PCIE_TX, PCIE_RX = 74, 75, 269, 270, 197, 198
"""NVML_FI_DEV_… numbers; `nvidia-ml-py` names only some of them in its older releases."""
FIELDS = {
    POWER_CAP: "time held down by the power cap",
    SW_THERMAL: "time held down by temperature (software)",
    HW_THERMAL: "time held down by temperature (hardware)",
    PCIE_TX: PCIE_SENT,
    PCIE_RX: PCIE_RECEIVED,
    THERMAL: "time held down by temperature",
}

Values = dict[str, float | None]


class NvmlSource:
    """All GPUs of a run: those with the UUIDs given, in that order, or else all that the driver shows."""

    def __init__(self, gateway: Gateway, uuids: Sequence[str], start_ns: int) -> None:
        wanted: list[str | None] = list(uuids) or [None] * gateway.count()
        opened = {device: gateway.open(device, uuid) for device, uuid in enumerate(wanted)}
        targets = {device: target for device, target in opened.items() if target is not None}
        self._gpus = [Gpu(gateway, device, target, start_ns) for device, target in targets.items()]
        self.devices = [_described(gateway, device, target) for device, target in targets.items()]
        self.driver = _driver(gateway, targets)
        self._critical = CriticalErrors(gateway, targets, start_ns)
        self._look_for_errors = Cadence(STATE_PERIOD_NS)

    def sample(self, now_ns: int, last: bool = False) -> list[Row]:
        """Bodies of DEVICE records. `last` reads what would otherwise have waited for its turn."""
        if self._look_for_errors.due(now_ns) or last:
            # Before the figures: what the driver reports may be why they end.
            self._critical.look(now_ns)
        return [record for gpu in self._gpus for record in gpu.sample(now_ns, last)]


class Gpu:
    """What is read of one GPU.

    Three kinds of record: windows of the utilisation ring, windows of GPM, and states, which have no window.
    """

    def __init__(self, gateway: Gateway, device: int, target: NvmlTarget, start_ns: int) -> None:
        self._gateway = gateway
        self._device = device
        self._handle = target.handle
        self._board = target.board
        self._start_ns = start_ns
        self._ring = UtilisationRing()
        self._ring_silent_ns = 0
        """When the ring counts as absent unless it delivers."""
        self._gpm = Gpm(gateway, device, target)
        self._rx, self._tx = WrappingCounter(), WrappingCounter()
        self._highest: dict[str, float] = {}
        """What the device is capable of: does not change, so it is kept."""
        self._state = Cadence(STATE_PERIOD_NS)
        self._link = Cadence(LINK_PERIOD_NS, start_ns + LINK_FIRST_NS)
        self._processes = Cadence(PROCESSES_PERIOD_NS, start_ns + PROCESSES_FIRST_NS)

    def sample(self, now_ns: int, last: bool) -> list[Row]:
        records: list[Values] = []
        state: Values = {}
        if self._state.due(now_ns) or last:
            records += self._drain(now_ns)
            state |= self._read_state()
        if self._link.due(now_ns):
            state |= self._read_link()
        if self._processes.due(now_ns):
            state |= self._read_processes()
        if now_ns >= self._ring_silent_ns:
            state |= self._read_rates()
        window = self._gpm.sample()
        if window is not None:
            records.append(window)
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

    def _drain(self, now_ns: int) -> list[Values]:
        drained = self._ask(
            RING,
            lambda: pynvml.nvmlDeviceGetSamples(self._handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, self._ring.last_us),
        )
        if drained is None:
            return []
        value_type, samples = drained
        pairs = [(int(s.timeStamp), number(s.sampleValue, value_type)) for s in samples]
        known = [(t, p) for t, p in pairs if p is not None]
        if not known:
            return []
        clock = clock_of(max(known)[0], clock_pairs())
        windows = self._ring.take(known, clock.driver(self._start_ns), clock.driver_us)
        if windows:
            self._ring_silent_ns = now_ns + RING_SILENCE_NS
        return [_ring_values(window, clock) for window in windows]

    def _read_state(self) -> Values:
        h, board = self._handle, self._board
        memory = self._ask(
            MEMORY,
            lambda: pynvml.nvmlDeviceGetMemoryInfo(h, version=pynvml.nvmlMemory_v2),
            lambda: pynvml.nvmlDeviceGetMemoryInfo(h),
        )
        rates = self._ask(RATES, lambda: pynvml.nvmlDeviceGetUtilizationRates(h))
        clock = self._ask(
            "the multiprocessor clock", lambda: pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_SM)
        )
        return {
            "memory_util_pct": None if rates is None else rates.memory,
            "memory_used_bytes": None if memory is None else memory.used,
            "memory_total_bytes": None if memory is None else memory.total,
            "power_mw": self._ask(POWER, lambda: pynvml.nvmlDeviceGetPowerUsage(board)),
            "sm_clock_mhz": clock,
            "sm_clock_max_mhz": self._limit(
                clock,
                "the highest multiprocessor clock",
                lambda: pynvml.nvmlDeviceGetMaxClockInfo(board, pynvml.NVML_CLOCK_SM),
            ),
            "memory_clock_mhz": self._ask(
                "the memory clock", lambda: pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_MEM)
            ),
            "temperature_c": self._ask(
                "temperature", lambda: pynvml.nvmlDeviceGetTemperature(board, pynvml.NVML_TEMPERATURE_GPU)
            ),
            "throttle_reasons": self._ask(
                "clock event reasons",
                lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(board),
                lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(board),
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
        read = self._ask("driver counters", lambda: pynvml.nvmlDeviceGetFieldValues(self._board, wanted))
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
        board = self._board
        generation = self._ask("PCIe generation", lambda: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(board))
        width = self._ask("PCIe width", lambda: pynvml.nvmlDeviceGetCurrPcieLinkWidth(board))
        return {
            "pcie_generation": generation,
            "pcie_width": width,
            "pcie_max_generation": self._limit(
                generation, "the highest PCIe generation", lambda: pynvml.nvmlDeviceGetMaxPcieLinkGeneration(board)
            ),
            "pcie_max_width": self._limit(
                width, "the greatest PCIe width", lambda: pynvml.nvmlDeviceGetMaxPcieLinkWidth(board)
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


def _described(gateway: Gateway, device: int, target: NvmlTarget) -> SampledDevice:
    """What does not change while it is sampled."""
    name = gateway.read(device, "what the GPU is called", lambda: pynvml.nvmlDeviceGetName(target.handle))
    limit = gateway.read(device, "the power limit", lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(target.board))
    return SampledDevice(device, _text(name), limit)


def _driver(gateway: Gateway, devices: Iterable[int]) -> str | None:
    """Its version, which is the same for all devices: asked once."""
    for device in devices:
        return _text(gateway.read(device, "the version of the driver", lambda: pynvml.nvmlSystemGetDriverVersion()))
    return None


def _text(told: Any) -> str | None:
    """Older bindings give bytes."""
    return told.decode(errors="replace") if isinstance(told, bytes) else told


def clock_pairs() -> list[ClockPair]:
    """The clocks since the epoch and since the boot, each with the monotonic one, from the narrowest of three tries."""
    return [_pair(time.time_ns), _pair(lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME))]


def _pair(read: Callable[[], int]) -> ClockPair:
    tries = []
    for _ in range(3):
        before = time.monotonic_ns()
        there = read()
        after = time.monotonic_ns()
        tries.append((after - before, (before + after) // 2, there))
    _, monotonic, there = min(tries)
    return ClockPair(there // 1000, monotonic)


def _ring_values(window: UtilisationWindow, clock: ClockPair) -> Values:
    return {
        "t_ns": clock.monotonic(window.end_us),
        "window_ns": None if window.length_us is None else window.length_us * 1000,
        "utilisation_pct": window.percent,
    }
