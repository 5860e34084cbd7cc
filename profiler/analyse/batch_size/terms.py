"""What one run contributes to a sweep: the parts of its time per sample, their pieces, and what goes with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ...record.schema import NOT_MEASURED, StepFlag
from ..facts import Facts
from ..partition import PARTS
from .result import TOTAL, Work

STARTING, FILLING, HANDED, SLOW, READING, MAKING = (
    "input starting",
    "input filling",
    "input handed",
    "input slow",
    "input reading",
    "input making",
)
COLLATING = "collating"
"""By workers, side by side: over as many samples as they make at a time."""
RETRYING, NEW_SHAPES = "retrying", "new shapes"


def terms_of(facts: Facts) -> dict[str, float]:
    """µs per sample: the six parts, their sum, and pieces of them."""
    per_sample = 1e-3 / facts.samples
    waits = facts.waits
    times: dict[str, float] = {part: getattr(facts.parts, f"{part}_ns") for part in PARTS}
    times[TOTAL] = facts.parts.wall_ns
    times |= {
        STARTING: waits.starting_ns,
        FILLING: waits.filling_ns,
        HANDED: waits.handed_ns,
        SLOW: waits.slow_ns,
        READING: waits.reading_ns,
        MAKING: waits.making_ns,
        RETRYING: 0.0 if facts.memory_pressure is None else facts.memory_pressure.total_ns,
        NEW_SHAPES: 0.0 if facts.shape_churn is None else facts.shape_churn.total_ns,
    }
    terms = {name: ns * per_sample for name, ns in times.items()}
    return terms | {COLLATING: _collating(facts)}


def medians_of(runs: Sequence[Facts], names: Sequence[str]) -> dict[str, float]:
    """Of these terms over the runs of a size."""
    each = [terms_of(run) for run in runs]
    return {name: float(np.median([terms[name] for terms in each])) for name in names}


def _collating(facts: Facts) -> float:
    loader = facts.loader
    if loader.collate_pct is None or loader.make_ms_per_sample is None:
        return 0.0
    return 1e3 * loader.make_ms_per_sample * loader.collate_pct / 100 / max(1, loader.workers)


def elements_per_sample(facts: Facts) -> float | None:
    """Elements of a batch over its samples: with padding, what computing and moving a sample is in proportion to."""
    steps = facts.window.steps
    known = ((steps["flags"] & StepFlag.SHAPE_KNOWN) != 0) & (steps["samples"] != NOT_MEASURED)
    samples = int(steps["samples"][known].sum())
    elements = (steps["flags"][known] >> StepFlag.ELEMENTS_SHIFT) & StepFlag.MOST_ELEMENTS
    return float(elements.sum()) / samples if samples else None


def batches_per_epoch(facts: Facts) -> float:
    """Of a run of one pass over the data: all its steps."""
    several = facts.waits.batches_per_epoch
    return several if several is not None else float(facts.window.count + facts.window.warmup_steps)


def workers(facts: Facts) -> int:
    """Set, or seen at work."""
    return max(facts.set_workers or 0, facts.loader.workers)


def new_pages_per_sample(facts: Facts) -> float | None:
    """Pages of memory that the makers of batches touched for the first time."""
    faults = facts.loader.minor_faults_per_batch
    return None if faults is None or not facts.batch_size else faults / facts.batch_size


def disk_faults_per_sample(facts: Facts) -> float | None:
    """Pages that had to be read from the disk while batches were made."""
    return None if facts.loader.major_faults is None else facts.loader.major_faults / facts.samples


def usual_gap_ms(facts: Facts) -> float | None:
    """How long the device stands still at a time; `None` where it never does."""
    return float(np.median(facts.parts.gaps_ns)) / 1e6 if facts.parts.gaps_ns else None


def steps_of(runs: Sequence[Facts]) -> int:
    return int(np.median([run.window.count for run in runs]))


def work_of(runs: Sequence[Facts]) -> Work:
    return Work(
        int(np.median([run.samples for run in runs])),
        float(np.median([run.parts.wall_ns for run in runs])) / 1e9,
    )


def median(values: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
