"""Sweeps in which the loader decides what a larger batch does, or in which nothing does but the counting."""

from __future__ import annotations

from ..cases.case import Data, Loader, Plan, PlannedStep
from .sweep import SAMPLES, WORK_MS, Sweep, steps_of

ITERATIONS = 80
"""Of a training that counts these instead of samples."""
SLEEP_MS = 2.0
"""One worker's pace: so long a sample."""


def _accounting(batch: int) -> Plan:
    return Plan(Data(sleep_ms=SLEEP_MS), Loader(workers=1, batch=batch), PlannedStep(0.5 * batch), batches=ITERATIONS)


def _accounting_fast(batch: int) -> Plan:
    step = PlannedStep(4.0 + 1.5 * batch)
    return Plan(Data(sleep_ms=0.5), Loader(workers=2, batch=batch), step, batches=ITERATIONS)


def _loader_floor(batch: int) -> Plan:
    step = PlannedStep(12.0 + 0.25 * batch)
    return Plan(Data(sleep_ms=SLEEP_MS), Loader(workers=1, batch=batch), step, batches=steps_of(SAMPLES, batch))


FILL_EPOCHS = 8
FILL_SAMPLES = 96
"""Of an epoch: at the large size six batches for four workers."""


def _pipeline_fill(batch: int) -> Plan:
    # Four workers together make a sample in 2 ms, which is less than the device takes.
    return Plan(
        Data(sleep_ms=8.0),
        Loader(workers=4, batch=batch),
        PlannedStep(2.6 * batch),
        epochs=FILL_EPOCHS,
        batches=steps_of(FILL_SAMPLES, batch),
    )


FEW_EPOCHS = 11
FEW_SAMPLES = 64
FEW_WORKERS = 8
"""At the small size there are two batches for each of them, at the large one there are four for all."""


def _fewer_batches(batch: int) -> Plan:
    return Plan(
        Data(sleep_ms=12.0),
        Loader(workers=FEW_WORKERS, batch=batch),
        PlannedStep(WORK_MS * batch),
        epochs=FEW_EPOCHS,
        batches=steps_of(FEW_SAMPLES, batch),
    )


def _handoff(batch: int) -> Plan:
    # To unpickle a batch takes 2 ms at batch 4, behind the device, and 48 ms at batch 16.
    return Plan(
        Data(sleep_ms=1.0, unpickling_ms=batch**2 * 3 / 16 - 1.0),
        Loader(workers=2, batch=batch),
        PlannedStep(WORK_MS * batch),
        batches=steps_of(SAMPLES, batch),
    )


PAGES_FLOATS = 700_000
"""Of a sample: 16 of them take 45 MB. The C library gets blocks of more than 32 MiB from the kernel each time."""


def _page_faults(batch: int) -> Plan:
    return Plan(
        Data(sleep_ms=1.0, floats=PAGES_FLOATS),
        Loader(workers=0, batch=batch),
        PlannedStep(1.0 * batch),
        batches=steps_of(SAMPLES, batch),
    )


SWEEPS: tuple[Sweep, ...] = (
    Sweep(
        "accounting",
        "accounting",
        None,
        _accounting,
        "as many iterations whatever the batch: the larger one processes more images, each as fast as before",
        sizes=(8, 16),
    ),
    Sweep(
        "accounting.fast",
        "accounting",
        None,
        _accounting_fast,
        "the same bound by the device, on which a larger batch is a little faster a sample",
    ),
    Sweep(
        "loader_floor",
        "loader_floor",
        "input",
        _loader_floor,
        "one slow worker sets the pace: what a larger batch saves the device is spent waiting, and the sum stays",
        sizes=(8, 16),
    ),
    Sweep(
        "pipeline_fill",
        "pipeline_fill",
        "input",
        _pipeline_fill,
        "short epochs: the first batch of each takes a worker as long as it is large",
    ),
    Sweep(
        "fewer_batches_than_workers",
        "fewer_batches_than_workers",
        "input",
        _fewer_batches,
        "short epochs of 16 batches for eight workers, or of 4",
    ),
    Sweep(
        "handoff_growth",
        "handoff_growth",
        "input",
        _handoff,
        "batches of objects whose unpickling takes longer than in proportion to their number",
    ),
    Sweep(
        "handoff_growth.faults",
        "handoff_growth",
        "input",
        _page_faults,
        "batches put together in the training: small ones in memory that is used again, large ones in new pages",
    ),
)
