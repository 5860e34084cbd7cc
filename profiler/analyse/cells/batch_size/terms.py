"""What one run contributes to a sweep: the parts of its time per sample, their pieces, and what goes with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ....record.schema import NOT_MEASURED, StepFlag
from ...run.facts import Facts
from ...run.stall_breakdown import PARTS, TOTAL
from .result import Work

STARTING, FILLING, HANDED, SLOW, READING, MAKING = (
    "input starting",
    "input filling",
    "input handed",
    "input slow",
    "input reading",
    "input making",
)
COLLATING = "collating"
"""Putting samples together, which workers do side by side: their time over as many samples as they make at a time."""
RETRYING, NEW_SHAPES = "retrying", "new shapes"
"""What steps around the allocator's retries, and steps with new input shapes, take longer."""

Terms = dict[str, float]


def terms_of(facts: Facts) -> Terms:
    """µs per sample: the six parts, their sum, and pieces of them. NaN is not known."""
    waits = facts.waits
    # Where no batch is told to a step, nothing is known of what a wait waited for.
    told = 1.0 if waits.told > 0 or waits.total_ns == 0 else np.nan
    times: Terms = {part: getattr(facts.parts, f"{part}_ns") for part in PARTS}
    times |= {
        TOTAL: facts.parts.wall_ns,
        STARTING: waits.starting_ns,
        FILLING: waits.filling_ns,
        HANDED: told * waits.handed_ns,
        SLOW: told * waits.slow_ns,
        READING: told * waits.reading_ns,
        MAKING: told * waits.making_ns,
        RETRYING: 0.0 if facts.memory_pressure is None else facts.memory_pressure.total_ns,
        NEW_SHAPES: 0.0 if facts.shape_churn is None else facts.shape_churn.total_ns,
    }
    per_sample = 1e-3 / facts.samples
    return {name: ns * per_sample for name, ns in times.items()} | {COLLATING: _collating(facts)}


def _collating(facts: Facts) -> float:
    loader = facts.loader
    if loader.collate_pct is None or loader.make_ms_per_sample is None:
        return np.nan
    return 1e3 * loader.make_ms_per_sample * loader.collate_pct / 100 / max(1, loader.workers)


def alike_in_starts(runs: Sequence[Facts]) -> list[Terms]:
    """The terms of runs, in which beginning an epoch counts as often a sample as it happened.

    A window leaves out the first epoch's beginning: a run of one epoch shows none, one of two epochs one of two. That
    is no matter where all runs have the same epochs. Where they do not, each beginning seen stands for those that are
    not; if a run shows none at all, beginnings are left out of all.
    """
    terms = [terms_of(run) for run in runs]
    seen = [(run.waits.epochs, epochs_of(run)) for run in runs]
    if len(set(seen)) == 1:
        return terms
    shown = all(in_window for in_window, _ in seen)
    for one, run, (in_window, epochs) in zip(terms, runs, seen, strict=True):
        factor = epochs / in_window * run.samples / samples_of(run) if shown else 0.0
        for name in (STARTING, FILLING):
            change = (factor - 1) * one[name]
            one[name] += change
            one["input"] += change
            one[TOTAL] += change
    return terms


def epochs_of(facts: Facts) -> int:
    """Passes over the data that began, in the warm-up or after it."""
    return max(1, int(((facts.window.all_steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0).sum()))


def samples_of(facts: Facts) -> int:
    """Samples of a whole run, the warm-up included."""
    warm = facts.window.all_steps[: len(facts.window.all_steps) - len(facts.window.steps)]
    known = warm["samples"][warm["samples"] != NOT_MEASURED]
    between = facts.window.steps["skipped_samples"][:1].sum() + warm["skipped_samples"].sum()
    return facts.samples + int(known.sum() + between)


def batches_per_epoch(facts: Facts) -> float:
    """Mean number of batches of the epochs that began, the last of which may be shorter."""
    window = facts.window
    before = window.warmup_steps + int(window.steps["skipped"][:1].sum())
    return (window.count + before) / epochs_of(facts)


def medians_of(runs: Sequence[Mapping[str, float]], names: Sequence[str]) -> Terms:
    """The median of each of these terms over the runs of a size."""
    return {name: float(np.median([terms[name] for terms in runs])) for name in names}


def elements_per_sample(facts: Facts) -> float | None:
    """Elements of a batch over its samples: with padding, what computing and moving a sample is in proportion to."""
    steps = facts.window.steps
    elements = (steps["flags"] >> StepFlag.ELEMENTS_SHIFT) & StepFlag.MOST_ELEMENTS
    told = ((steps["flags"] & StepFlag.SHAPE_KNOWN) != 0) & (elements > 0) & (elements < StepFlag.MOST_ELEMENTS)
    told &= steps["samples"] > 0
    samples = int(steps["samples"][told].sum())
    return float(elements[told].sum()) / samples if samples else None


def workers(facts: Facts) -> float:
    """Worker processes that are set, or makers that were seen, whichever are more."""
    return float(max(facts.set_workers or 0, facts.loader.makers))


def clock_mhz(facts: Facts) -> float | None:
    """Clock of the multiprocessors while they computed; `None` where it was not measured."""
    return None if facts.device_state is None else facts.device_state.clock_mhz


def new_pages_per_sample(facts: Facts) -> float | None:
    """Pages of memory that the makers of batches touched for the first time, a sample; `None` where not measured."""
    faults = facts.loader.minor_faults_per_batch
    return None if faults is None or not facts.batch_size else faults / facts.batch_size


def batch_megabytes(facts: Facts) -> float | None:
    nbytes = facts.loader.mean_batch_bytes
    return None if nbytes is None else nbytes / 1e6


def disk_faults_per_sample(facts: Facts) -> float | None:
    """Pages that had to be read from the disk while batches were made, a sample; `None` where not measured."""
    return None if facts.loader.major_faults is None else facts.loader.major_faults / facts.samples


def usual_gap_ms(facts: Facts) -> float | None:
    """How long the device stands still at a time; `None` where it never does."""
    return float(np.median(facts.parts.gaps_ns)) / 1e6 if len(facts.parts.gaps_ns) else None


def steps_of(runs: Sequence[Facts]) -> int:
    """Steps in the window of a run, the median over the runs."""
    return int(np.median([run.window.count for run in runs]))


def work_of(runs: Sequence[Facts]) -> Work:
    """What a run did, the median over the runs."""
    return Work(
        int(np.median([run.samples for run in runs])),
        float(np.median([run.parts.wall_ns for run in runs])) / 1e9,
    )
