"""What the sampler saw during the window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..record.reader import Records, measured
from .window import Window


@dataclass(frozen=True)
class Sampled:
    """Means over the window; `None` where nothing was measured."""

    utilisation_pct: float | None
    """NVML's: share of time in which any kernel ran. Of an emulated device, computed the same way."""
    utilisation_window_ms: float | None
    sm_active_pct: float | None
    memory_peak_bytes: int | None
    steal_pct: float | None
    machine_busy_pct: float | None
    tree_cpus: float | None
    """CPUs the training's process tree kept busy on average."""
    cpu_budget: float | None
    """CPUs the job may use (affinity and quota)."""
    late_samples_pct: float | None
    samples: int


def sampled(window: Window, device: Records, host: Records) -> Sampled:
    """Summarise the samples taken inside the window."""
    device = _inside(device, window)
    host = _inside(host, window)
    # A ring of windows and the slower look at other values share the file; weigh each window by its length.
    util = measured(device["utilisation_pct"])
    length = measured(device["window_ns"])
    known = ~np.isnan(util)
    windowed = known & ~np.isnan(length) & (length > 0)
    # Where the driver does not say how long its windows are, all weigh the same.
    known, weights = (windowed, length) if windowed.any() else (known, np.ones_like(util))
    memory = measured(device["memory_used_bytes"])
    cpu = _rise(host, "tree_cpu_ns")
    elapsed = float(host["t_ns"][-1] - host["t_ns"][0]) if len(host) > 1 else 0.0
    late = measured(host["late_ns"])
    late = late[~np.isnan(late)]
    return Sampled(
        utilisation_pct=float(np.average(util[known], weights=weights[known])) if known.any() else None,
        utilisation_window_ms=float(np.median(length[windowed])) / 1e6 if windowed.any() else None,
        sm_active_pct=_mean(measured(device["sm_active_pct"])),
        memory_peak_bytes=None if np.isnan(memory).all() else int(np.nanmax(memory)),
        steal_pct=_mean(measured(host["steal_pct"])),
        machine_busy_pct=_mean(measured(host["machine_busy_pct"])),
        tree_cpus=cpu / elapsed if cpu is not None and elapsed else None,
        cpu_budget=_cpus(host),
        late_samples_pct=100 * float(np.mean(late > LATE_NS)) if len(late) else None,
        samples=len(device) + len(host),
    )


LATE_NS = 100_000_000
"""A sample this much later than planned is called late: half of the default period."""


def swings_to_zero_pct(window: Window, device: Records) -> float | None:
    """Share of the utilisation windows that read 0 %, in percent: the study's picture."""
    util = measured(_inside(device, window)["utilisation_pct"])
    util = util[~np.isnan(util)]
    return 100 * float(np.mean(util == 0)) if len(util) else None


def _inside(records: Records, window: Window) -> Records:
    return records[(records["t_ns"] >= window.begin_ns) & (records["t_ns"] <= window.end_ns)]


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    return None if len(values) == 0 or np.isnan(values).all() else float(np.nanmean(values))


def _rise(host: Records, name: str) -> float | None:
    """How much a cumulative counter rose over the window."""
    values = measured(host[name])
    values = values[~np.isnan(values)]
    return float(values[-1] - values[0]) if len(values) > 1 else None


def _cpus(host: Records) -> float | None:
    cpus = measured(host["cpus"])
    cpus = cpus[~np.isnan(cpus)]
    return float(cpus[-1]) / 1000 if len(cpus) else None
