"""What the sampler saw of a process that is observed from outside, over time: few enough values to be drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.reader import measured
from ...record.run import Run
from ...record.schema import DEVICE, HOST
from ..timeline.timeline import downsampled, rate

MOST_VALUES = 400

Values = npt.NDArray[np.float64]
Stamps = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Series:
    """A figure over time; where there are many looks some of them, peaks among these."""

    name: str
    unit: str
    seconds: float
    """From the first look to the last."""
    at: Values
    """Seconds after the first look."""
    values: Values
    """NaN where nothing was measured for long."""
    mean: float
    """Mean of all looks."""
    highest: float


def series_of(run: Run) -> list[Series]:
    """Return those of which anything was measured more than once."""
    found = []
    for name, unit, t_ns, looks in _figures(run):
        known = looks[np.isfinite(looks)]
        if len(known) > 1:
            at, values = downsampled(t_ns, looks, MOST_VALUES)
            seconds, mean, highest = float(t_ns[-1] - t_ns[0]) / 1e9, float(known.mean()), float(known.max())
            found.append(Series(name, unit, seconds, (at - t_ns[0]) / 1e9, values, mean, highest))
    return found


def _figures(run: Run) -> Iterator[tuple[str, str, Stamps, Values]]:
    host, device = (records[np.argsort(records["t_ns"], kind="stable")] for records in map(run.records, (HOST, DEVICE)))
    for field, name, unit, scale in (
        ("tree_cpu_ns", "CPUs this job uses", "CPUs", 1.0),
        ("run_queue_ns", "threads waiting for a CPU", "threads", 1.0),
        ("read_storage_bytes", "read from storage", "MB/s", 1e3),
    ):
        # Bytes a ns are GB/s; nanoseconds a ns are CPUs, or threads.
        t_ns, rates = rate(host["t_ns"], measured(host[field]))
        yield name, unit, t_ns, scale * rates
    for number in np.unique(device["device"]):
        own = device[device["device"] == number]
        for field, name in (("utilisation_pct", "utilisation (NVML)"), ("sm_active_pct", "SM active")):
            yield f"GPU {number}: {name}", "%", own["t_ns"], measured(own[field])
