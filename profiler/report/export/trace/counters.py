"""Counters of the sampler's figures: for each device, and for the host."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....record.reader import Records, measured
from .events import Stamps, Tracks

_DEVICE = (
    ("utilisation", "%", "utilisation_pct", 1.0),
    ("SM active", "%", "sm_active_pct", 1.0),
    ("tensor cores active", "%", "tensor_active_pct", 1.0),
    ("memory bandwidth", "%", "dram_active_pct", 1.0),
    ("memory in use", "GiB", "memory_used_bytes", 1 << 30),
    ("power", "W", "power_mw", 1e3),
    ("SM clock", "MHz", "sm_clock_mhz", 1.0),
    ("temperature", "degrees C", "temperature_c", 1.0),
)
_DEVICE_RATES = (("PCIe to device", "MB/s", "pcie_rx_bytes", 1e6), ("PCIe from device", "MB/s", "pcie_tx_bytes", 1e6))
_HOST = (
    ("machine CPU", "%", "machine_busy_pct", 1.0),
    ("steal", "%", "steal_pct", 1.0),
    ("waiting for I/O", "%", "machine_iowait_pct", 1.0),
    ("CPUs allowed", "CPUs", "cpus", 1e3),
    ("memory of the training", "GiB", "tree_pss_bytes", 1 << 30),
    ("shared memory in use", "GiB", "shm_used_bytes", 1 << 30),
)
_HOST_RATES = (
    ("CPUs the training uses", "CPUs", "tree_cpu_ns", 1e9),
    ("threads waiting for a CPU", "threads", "run_queue_ns", 1e9),
    ("read from storage", "MB/s", "read_storage_bytes", 1e6),
)


def add_device_counters(tracks: Tracks, pid: int, samples: Records, offset_ns: int, low: int, high: int) -> None:
    """Of every device of the run."""
    for device in np.unique(samples["device"]).tolist():
        mine = samples[samples["device"] == device]
        _add(tracks, pid, f"device {device}: ", mine, offset_ns, (low, high), _DEVICE, _DEVICE_RATES)


def add_host_counters(tracks: Tracks, pid: int, samples: Records, offset_ns: int, low: int, high: int) -> None:
    _add(tracks, pid, "", samples, offset_ns, (low, high), _HOST, _HOST_RATES)


def _add(
    tracks: Tracks,
    pid: int,
    prefix: str,
    samples: Records,
    offset_ns: int,
    stretch: tuple[int, int],
    gauges: tuple[tuple[str, str, str, float], ...],
    rates: tuple[tuple[str, str, str, float], ...],
) -> None:
    for name, unit, field, scale in gauges:
        _counter(
            tracks, pid, prefix + name, unit, samples["t_ns"], measured(samples[field]) / scale, offset_ns, stretch
        )
    for name, unit, field, scale in rates:
        at, values = _rises(samples["t_ns"], measured(samples[field]))
        _counter(tracks, pid, prefix + name, unit, at, values / scale, offset_ns, stretch)


def _rises(at: Stamps, values: npt.NDArray[np.float64]) -> tuple[Stamps, npt.NDArray[np.float64]]:
    """How fast a cumulative counter rose from each of its readings to the next, a second; shown at the earlier one.

    A counter that fell was reset: between those readings nothing is known.
    """
    known = ~np.isnan(values)
    at, values = at[known], values[known]
    if len(at) < 2:
        return at[:0], values[:0]
    seconds, rise = np.diff(at) / 1e9, np.diff(values)
    told = (seconds > 0) & (rise >= 0)
    return at[:-1][told], rise[told] / seconds[told]


def _counter(
    tracks: Tracks,
    pid: int,
    name: str,
    unit: str,
    at: Stamps,
    values: npt.NDArray[np.float64],
    offset_ns: int,
    stretch: tuple[int, int],
) -> None:
    moved = at + offset_ns
    inside = (moved >= max(0, stretch[0])) & (moved < stretch[1])
    tracks.counter(pid, name, unit, moved[inside], values[inside])
