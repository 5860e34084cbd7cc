"""Trainings with two faults at once, as users have them."""

from __future__ import annotations

from .case import (
    COLD,
    CONTROL,
    EVERY,
    FIRST,
    GARBAGE,
    PLANTED,
    SLOW,
    Band,
    Between,
    Case,
    Data,
    Hit,
    Loader,
    Machine,
    Plan,
    PlannedHost,
    PlannedReads,
    PlannedStep,
)
from .device_cases import HEALTHY, PAGEABLE_BYTES_PER_MS, PINNED_BYTES_PER_MS, cost_ms
from .host_cases import AHEAD_MS, PROCESSOR
from .input_cases import COMPUTE_MS, step_ms

BAND: Band = (0.10, 0.55)
"""Of either cause: enough to be worth changing by itself."""


def _later(tag: str) -> bool:
    """Any batch but an epoch's first."""
    return tag != FIRST


def _usual(tag: str) -> bool:
    """Any batch without a slow sample."""
    return tag != SLOW


def _warm(tag: str) -> bool:
    """Any batch but those that are read from the medium."""
    return tag != COLD


def _compound(first: str, second: str, parts: tuple[str, str], hits: tuple[Hit, Hit], plan: Plan, note: str) -> Case:
    short = "+".join(cause.partition(".")[2] for cause in (first, second))
    return Case(f"compound.{short}", (first, second), "both", plan, parts, hits, BAND, note, shares=(BAND, BAND))


CASES: tuple[Case, ...] = (
    _compound(
        "input.too_few_workers",
        "input.worker_restart",
        ("fetch", "fetch"),
        (_later, FIRST),
        Plan(Data(sleep_ms=2 * step_ms(0.35) / 4), Loader(persistent=False, start_ms=150.0), epochs=6, batches=14),
        "two workers that wait for something slow, started anew for each epoch",
    ),
    _compound(
        "input.worker_threads",
        "host.step_gap",
        ("fetch", "host"),
        (EVERY, PLANTED),
        Plan(
            Data(native_burn_ms=step_ms(0.4) / 2 / 4),
            Loader(threads=3),
            PlannedStep(host_ms=AHEAD_MS + 10 * cost_ms(0.35), host_every=10),
        ),
        "workers with spinning threads, and logging after every tenth step",
    ),
    _compound(
        "input.straggler",
        "host.sync",
        ("fetch", "sync"),
        (SLOW, EVERY),
        Plan(
            Data(sleep_ms=2.0, slow_every=20, slow_first=8, slow_ms=450.0),
            Loader(workers=4, batch=8),
            PlannedStep(reads=2, read_ms=cost_ms(0.25) / 2),
        ),
        "single slow samples, and results read in the midst of each step",
    ),
    _compound(
        "input.storage",
        "input.cpu_exhausted",
        ("fetch", "fetch"),
        (COLD, _warm),
        Plan(
            Data(
                burn_ms=2 * step_ms(0.4) / 4,
                reading=PlannedReads(
                    64 * 1024, cold=False, bytes_per_s=64 * 1024 / (5 * COMPUTE_MS / 4 / 1e3), once=True
                ),
            ),
            epochs=4,
            batches=24,
        ),
        "samples come from a slow medium in the first epoch, and take all CPUs from then on",
    ),
    _compound(
        "input.serial",
        "host.boundary",
        ("fetch", "boundary"),
        (EVERY, "validation"),
        Plan(
            Data(sleep_ms=step_ms(0.35) / 4),
            Loader(workers=0),
            between=Between(validation_batches=8, validation_ms=16 * cost_ms(0.35) / 8 / 4),
            epochs=5,
            batches=16,
        ),
        "samples made in the training, and a validation that waits for its own",
    ),
    _compound(
        "copy.pageable",
        "input.too_few_workers",
        ("copying", "fetch"),
        (EVERY, EVERY),
        Plan(
            Data(sleep_ms=2 * 1.6 * (COMPUTE_MS + cost_ms(0.25)) / 4),
            Loader(workers=2),
            PlannedStep(copy_bytes=round(cost_ms(0.25) * PAGEABLE_BYTES_PER_MS), pinned=False),
            batches=60,
        ),
        "pageable copies, and two workers that wait for something slow",
    ),
    _compound(
        "host.gc",
        "host.step_gap",
        ("host", "host"),
        (GARBAGE, PLANTED),
        Plan(*HEALTHY, PlannedStep(host_burn_ms=cost_ms(0.25)), host=PlannedHost(0.3, 20_000), device=PROCESSOR),
        "full collections, and work of the loop's own",
    ),
    _compound(
        "host.sync",
        "host.step_gap",
        ("sync", "host"),
        (EVERY, PLANTED),
        Plan(*HEALTHY, PlannedStep(reads=2, read_ms=cost_ms(0.3) / 2, sync_every=1, host_ms=cost_ms(0.3))),
        "results read in the midst of each step and at its end, and logging then",
    ),
    _compound(
        "input.straggler",
        "input.too_few_workers",
        ("fetch", "fetch"),
        (SLOW, _usual),
        Plan(
            Data(sleep_ms=2 * step_ms(0.3) / 8, slow_every=15, slow_first=8, slow_ms=450.0),
            Loader(workers=2, batch=8),
        ),
        "two workers that wait for something slow, and now and then for something slower",
    ),
    _compound(
        "input.pipeline_fill",
        "copy.serial",
        ("fetch", "copying"),
        (FIRST, EVERY),
        Plan(
            Data(sleep_ms=200.0 / 8),
            Loader(workers=10, batch=8),
            PlannedStep(copy_bytes=round(cost_ms(0.3) * PINNED_BYTES_PER_MS)),
            epochs=7,
            batches=12,
        ),
        "short epochs whose first batch takes a worker long, and copies between the computations",
    ),
    Case(
        "control.foreign-load",
        (),
        CONTROL,
        Plan(Data(burn_ms=1.0), Loader(workers=2), machine=Machine(foreign=1)),
        note="another program is busy all the time, and the loader keeps up",
    ),
)
