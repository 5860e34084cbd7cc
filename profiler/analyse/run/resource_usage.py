"""What the sampler saw during the window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...record.reader import Records, measured
from ...record.schema import NOT_MEASURED
from .device_state import OncePerLooks, by_device, inside
from .window import Window

LATE_NS = 100_000_000
"""A sample this much later than planned is called late: half of the default period."""

BUDGET_USED = 0.80
"""Share of the CPUs it may use that a job keeps busy, from which none is left over for it."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sampled:
    """Means over the window; `None` where nothing was measured. Of several devices the worst, where it says so."""

    utilisation_pct: float | None
    """NVML's: share of time in which any kernel ran. Of an emulated device, computed the same way."""
    utilisation_window_ms: float | None
    """Length of one of the windows behind `utilisation_pct`; `None` where the driver does not say (1/6 s to 1 s)."""
    sm_active_pct: float | None
    """Multiprocessors with work (GPM)."""
    sm_active_window_ms: float | None
    """Length of one of the windows behind `sm_active_pct`."""
    memory_peak_bytes: int | None
    """Most device memory that was in use, whoever used it."""
    steal_pct: float | None
    """Share of the machine's CPU time that the hypervisor took."""
    machine_busy_pct: float | None
    """Share of the machine's CPU time in use, whoever used it."""
    tree_cpus: float | None
    """CPUs the training's process tree kept busy on average."""
    cpu_budget: float | None
    """CPUs the job may use (affinity and quota)."""
    late_samples_pct: float | None
    """Share of the host's samples that came later than planned by more than `LATE_NS`."""
    samples: int
    """Records of host and devices together."""

    host_samples: int
    device_samples: int
    unseen_begin_s: float | None
    """From the beginning of the window to the first sample of the host; `None` without one."""
    unseen_end_s: float | None
    """From the last sample of the host to the end of the window."""
    device_unseen_end_s: float | None
    """From the last sample of the device whose samples end first to the end of the window."""
    sampler_cpus: float | None
    """CPUs the sampler itself kept busy."""
    throttled_s: float | None
    """Time in which a CPU quota held the job back, summed over CPUs."""
    power_capped_pct: float | None
    """Share of the time in which the power cap held clocks down; of the worst device."""
    thermal_pct: float | None
    """Share of the time in which temperature held clocks down; of the worst device."""
    gpu_processes: int | None
    """Most processes that had a context on one device at a time, the training among them."""
    others_least_bytes: int | None
    """Device memory that processes other than the training hold at least: that of all but the largest. No process
    ids are compared, which in a container may be those of the host."""
    beyond_training_bytes: int | None
    """Device memory in use beyond what the training's allocator holds: that of others, and the training's own context
    and libraries. `None` with several devices: the steps of a rank do not say which is theirs."""


def sampled(window: Window, device: Records, host: Records) -> Sampled:
    """Summarise the samples taken inside the window."""
    device, host = inside(device, window), inside(host, window)
    each = by_device(device)
    return Sampled(
        **_told_of_devices(device),
        **_told_of_host(host),
        samples=len(device) + len(host),
        unseen_begin_s=(int(host["t_ns"].min()) - window.begin_ns) / 1e9 if len(host) else None,
        unseen_end_s=_until_end_s(host, window),
        device_unseen_end_s=_worst([_until_end_s(records, window) for records in each]),
        beyond_training_bytes=_beyond_training(window, device) if len(each) == 1 else None,
    )


def _of_devices(device: Records) -> dict[str, Any]:
    """What looks at devices say by themselves."""
    # A ring of windows and the slower look at other values share the file; weigh each window by its length.
    utilisation, utilisation_window_ns = _weighted(device, "utilisation_pct")
    sm_active, sm_active_window_ns = _weighted(device, "sm_active_pct")
    memory, processes = _known(device, "memory_used_bytes"), _known(device, "processes")
    each = by_device(device)
    return {
        "utilisation_pct": utilisation,
        "utilisation_window_ms": None if utilisation_window_ns is None else utilisation_window_ns / 1e6,
        "sm_active_pct": sm_active,
        "sm_active_window_ms": None if sm_active_window_ns is None else sm_active_window_ns / 1e6,
        "memory_peak_bytes": int(memory.max()) if len(memory) else None,
        "device_samples": len(device),
        "power_capped_pct": _worst([_share_pct(records, "power_capped_ns") for records in each]),
        "thermal_pct": _worst([_share_pct(records, "thermal_ns") for records in each]),
        "gpu_processes": int(processes.max()) if len(processes) else None,
        "others_least_bytes": _others_least(device),
    }


def _of_host(host: Records) -> dict[str, Any]:
    """What looks at the host say by themselves."""
    late, throttled_us = _known(host, "late_ns"), _rise(host, "throttled_us")
    return {
        "steal_pct": _mean(host, "steal_pct"),
        "machine_busy_pct": _mean(host, "machine_busy_pct"),
        "tree_cpus": _rate(host, "tree_cpu_ns"),
        "cpu_budget": _cpus(host),
        "late_samples_pct": 100 * float(np.mean(late > LATE_NS)) if len(late) else None,
        "host_samples": len(host),
        "sampler_cpus": _rate(host, "sampler_cpu_ns"),
        "throttled_s": None if throttled_us is None else throttled_us / 1e6,
    }


_told_of_devices, _told_of_host = OncePerLooks(_of_devices), OncePerLooks(_of_host)


def swings_to_zero_pct(window: Window, device: Records) -> float | None:
    """Share of the utilisation windows that read 0 %, in percent; `None` without any."""
    util = _known(inside(device, window), "utilisation_pct")
    return 100 * float(np.mean(util == 0)) if len(util) else None


def _known(records: Records, name: str) -> Values:
    values = measured(records[name])
    return values[~np.isnan(values)]


def _weighted(device: Records, name: str) -> tuple[float | None, float | None]:
    """Mean of a share over its windows, weighed by their lengths, and the median length in ns.

    Where the driver does not say how long its windows are, all weigh the same.
    """
    values, length = measured(device[name]), measured(device["window_ns"])
    known = ~np.isnan(values)
    windowed = known & ~np.isnan(length) & (length > 0)
    if windowed.any():
        return float(np.average(values[windowed], weights=length[windowed])), float(np.median(length[windowed]))
    return (float(values[known].mean()) if known.any() else None), None


def _mean(records: Records, name: str) -> float | None:
    values = _known(records, name)
    return float(values.mean()) if len(values) else None


def _rise(records: Records, name: str) -> float | None:
    """How much a cumulative counter rose over the window."""
    values = _known(records, name)
    return float(values[-1] - values[0]) if len(values) > 1 else None


def _rate(host: Records, name: str) -> float | None:
    """A counter's rise over the time between the first and the last sample, both in ns."""
    rise = _rise(host, name)
    elapsed = int(host["t_ns"][-1] - host["t_ns"][0]) if len(host) > 1 else 0
    return rise / elapsed if rise is not None and elapsed else None


def _share_pct(device: Records, name: str) -> float | None:
    """A counter of nanoseconds as a share of the time between its first and its last reading."""
    read = device[device[name] != NOT_MEASURED]
    elapsed = int(read["t_ns"][-1] - read["t_ns"][0]) if len(read) > 1 else 0
    if elapsed <= 0:
        return None
    # A counter that falls was reset by a new driver or a reset GPU: what it counted before is not known.
    rise = int(read[name][-1] - read[name][0])
    return min(100.0, 100 * rise / elapsed) if rise >= 0 else None


def _until_end_s(records: Records, window: Window) -> float | None:
    return (window.end_ns - int(records["t_ns"].max())) / 1e9 if len(records) else None


def _worst(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _others_least(device: Records) -> int | None:
    """Whichever process is the training, the others hold at least what all but the largest do."""
    told = device[(device["processes_bytes"] != NOT_MEASURED) & (device["largest_process_bytes"] > 0)]
    return int((told["processes_bytes"] - told["largest_process_bytes"]).max()) if len(told) else None


def _beyond_training(window: Window, device: Records) -> int | None:
    """Median over the samples of what is in use beyond the training's own at that time."""
    steps = window.all_steps[window.all_steps["memory_bytes"] != NOT_MEASURED]
    told = device[device["memory_used_bytes"] != NOT_MEASURED]
    place = np.searchsorted(steps["step_end_ns"], told["t_ns"], side="right") - 1
    told, place = told[place >= 0], place[place >= 0]
    if len(told) == 0:
        return None
    return max(0, int(np.median(told["memory_used_bytes"] - steps["memory_bytes"][place])))


def _cpus(host: Records) -> float | None:
    cpus = _known(host, "cpus")
    return float(cpus[-1]) / 1000 if len(cpus) else None
