"""What the sampler saw of a process that is observed from outside, over time: few enough values to be drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.reader import Records, measured
from ...record.run import Run
from ...record.schema import DEVICE, HOST

MOST_VALUES = 400
LEAST_A_BIN = 3
"""Looks in a bin, at least, where there are more of them than can be drawn: looks are not quite evenly spaced."""
GAP = 5.0
"""Times the usual distance of two looks, from which nothing is known of the time between them."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """Single looks, or means over stretches of equal length where they are many; NaN: not measured."""

    name: str
    unit: str
    seconds: float
    """From the first look to the last."""
    at: Values
    """Seconds after the first look."""
    values: Values

    @property
    def highest(self) -> float:
        return float(np.nanmax(self.values))

    @property
    def mean(self) -> float:
        return float(np.nanmean(self.values))


def series_of(run: Run) -> list[Series]:
    """Those of which anything was measured; none of a recording of a single look."""
    host, device = run.records(HOST), run.records(DEVICE)
    return [series for series in (*_of_host(host), *_of_devices(device)) if np.isfinite(series.values).any()]


def _of_host(host: Records) -> Iterator[Series]:
    host = host[np.argsort(host["t_ns"], kind="stable")]
    if len(host) < 2:
        return
    cumulative = (
        ("tree_cpu_ns", "CPUs this job uses", "CPUs", 1.0),
        ("run_queue_ns", "threads waiting for a CPU", "threads", 1.0),
        ("read_storage_bytes", "read from storage", "MB/s", 1e3),
    )
    for field, name, unit, scale in cumulative:
        # Bytes a ns are GB/s; nanoseconds a ns are CPUs, or threads.
        rates = np.diff(measured(host[field])) / np.maximum(1, np.diff(host["t_ns"]))
        # A process that ended takes its counters along.
        yield _series(name, unit, host["t_ns"][1:], np.where(rates < 0, np.nan, scale * rates))


def _of_devices(device: Records) -> Iterator[Series]:
    for number in np.unique(device["device"]):
        own = device[device["device"] == number]
        own = own[np.argsort(own["t_ns"], kind="stable")]
        if len(own) < 2:
            continue
        for field, name in (("utilisation_pct", "utilisation (NVML)"), ("sm_active_pct", "SM active")):
            yield _series(f"GPU {number}: {name}", "%", own["t_ns"], measured(own[field]))


def _series(name: str, unit: str, t_ns: npt.NDArray[np.int64], values: Values) -> Series:
    at = (t_ns - t_ns[0]) / 1e9
    seconds = float(at[-1])
    if len(at) > MOST_VALUES:
        at, values = _binned(at, values, min(MOST_VALUES, len(at) // LEAST_A_BIN))
    elif len(at) > 2:
        apart = np.diff(at)
        gaps = np.flatnonzero(apart > GAP * np.median(apart)) + 1
        at, values = np.insert(at, gaps, at[gaps]), np.insert(values, gaps, np.nan)
    return Series(name, unit, seconds, at, values)


def _binned(at: Values, values: Values, bins: int) -> tuple[Values, Values]:
    """Means, at the middles of the bins."""
    width = max(float(at[-1]), 1e-9) / bins
    place = np.minimum(bins - 1, at / width).astype(np.intp)
    known = np.isfinite(values)
    counts = np.bincount(place[known], minlength=bins)
    sums = np.bincount(place[known], weights=values[known], minlength=bins)
    middles: Values = width * (np.arange(bins, dtype=np.float64) + 0.5)
    means: Values = np.where(counts > 0, sums / np.maximum(1, counts), np.nan).astype(np.float64)
    return middles, means
