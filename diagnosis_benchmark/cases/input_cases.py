"""Faults of the input: for each cause three severities.

The device computes 20 ms a step. A loader that takes `step_ms(share)` for each of its batches leaves it idle for that
share of the time. What burns CPU is sized for two of them, and confined to two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from .case import (
    EVERY,
    FIRST,
    SAMPLER,
    SEVERITIES,
    SLOW,
    Band,
    Case,
    Data,
    Hit,
    Loader,
    Machine,
    Plan,
    PlannedReads,
    PlannedSampler,
    PlannedStep,
)

COMPUTE_MS = 20.0
USUAL: tuple[Band, ...] = ((0.07, 0.19), (0.22, 0.40), (0.50, 0.72))
"""Bands of the three severities."""
STEPS = (90, 70, 60)

HANDING_OVER = (0.05, 0.27, 0.58)
"""The same where batches are handed over without pause: what the training does meanwhile comes on top."""


def step_ms(share: float) -> float:
    """How long a step takes of which the device idles for this share."""
    return COMPUTE_MS / (1 - share)


SHARES = (0.13, 0.30, 0.60)
WAITING = (0.11, 0.29, 0.59)
"""The same where what is planted is slept: every sleep lasts a little longer than it should."""
COMPUTING = (0.08, 0.27, 0.58)
"""The same where workers take all the CPU there is: the training and the sampler need a little of it too."""


def fault(
    cause: str,
    plans: Sequence[Plan],
    note: str,
    hit: Hit = EVERY,
    bands: Sequence[Band] = USUAL,
    needs: tuple[str, ...] = (),
    part: str = "fetch",
    variant: str = "",
    stacks: bool = False,
) -> list[Case]:
    """A cause with its three severities. `variant`: another way to plant the same; `stacks`: they are looked at."""
    return [
        Case(
            f"{cause}{variant and '.'}{variant}-{severity}",
            (cause,),
            severity,
            plan,
            part,
            hit,
            band,
            note,
            needs,
            stacks,
        )
        for severity, plan, band in zip(SEVERITIES, plans, bands, strict=True)
    ]


def _plans(make: Iterator[tuple[Data, Loader]]) -> list[Plan]:
    return [Plan(data, loader, batches=steps) for (data, loader), steps in zip(make, STEPS, strict=True)]


def _sampler() -> list[Case]:
    drawing = _plans((Data(sleep_ms=1.0), Loader(sampler=PlannedSampler(batch_ms=step_ms(s)))) for s in WAITING)
    sorting = [
        Plan(
            loader=Loader(workers=0, sampler=PlannedSampler(batch_burn_ms=step_ms(s) - COMPUTE_MS)),
            batches=steps,
            device="cpu",
        )
        for s, steps in zip(SHARES, STEPS, strict=True)
    ]
    # In each epoch of 16 steps; workers are kept, so that it is asked once.
    reading = [
        Plan(
            Data(sleep_ms=1.0),
            Loader(sampler=PlannedSampler(epoch_ms=16 * (step_ms(s) - COMPUTE_MS))),
            epochs=5,
            batches=16,
        )
        for s in SHARES
    ]
    return [
        case
        for plans, variant, note in (
            (drawing, "", "a batch sampler that searches for each batch, and two workers that keep up"),
            (sorting, "cpu", "a batch sampler that sorts for each batch, without workers"),
            (reading, "epoch", "a sampler that reads the data set before each epoch"),
        )
        for case in fault("input.sampler", plans, note, hit=SAMPLER, variant=variant)
    ]


def _serial() -> list[Case]:
    plans = _plans((Data(sleep_ms=step_ms(s) / 4), Loader(workers=0)) for s in WAITING)
    burning = _confined(_plans((Data(native_burn_ms=step_ms(s) / 4), Loader(workers=0)) for s in WAITING))
    return [
        *fault("input.serial", plans, "samples made in the training, by waiting"),
        *fault("input.serial", burning, "samples made in the training, by computing", variant="cpu"),
    ]


def _too_few_workers() -> list[Case]:
    plans = _plans((Data(sleep_ms=2 * step_ms(s) / 4), Loader(workers=2)) for s in WAITING)
    one = _confined(_plans((Data(native_burn_ms=step_ms(s) / 4), Loader(workers=1)) for s in WAITING))
    python = _confined(_plans((Data(burn_ms=step_ms(s) / 4), Loader(workers=1)) for s in WAITING))
    return [
        *fault("input.too_few_workers", plans, "two workers that wait for something slow"),
        *fault("input.too_few_workers", one, "one worker that computes, with a CPU left over", variant="cpu"),
        *fault(
            "input.too_few_workers",
            python,
            "the same in Python: the thread that hands batches over waits for the interpreter's lock",
            variant="python",
        ),
    ]


def _cpu_exhausted() -> list[Case]:
    plans = _confined(_plans((Data(native_burn_ms=2 * step_ms(s) / 4), Loader(workers=2)) for s in COMPUTING))
    return fault("input.cpu_exhausted", plans, "two workers that compute, on two CPUs")


def _oversubscribed() -> list[Case]:
    plans = _confined(_plans((Data(native_burn_ms=2 * step_ms(s) / 4), Loader(workers=12)) for s in COMPUTING))
    return fault("input.oversubscribed", plans, "twelve workers that compute, on two CPUs")


def _worker_threads() -> list[Case]:
    # Three busy threads beside each of two workers leave these a quarter of a CPU each.
    plans = _confined(
        _plans((Data(native_burn_ms=2 * step_ms(s) / 4 / 4), Loader(workers=2, threads=3)) for s in (0.04, 0.24, 0.57))
    )
    return fault("input.worker_threads", plans, "two workers with three spinning threads each, on two CPUs")


def _cpu_quota() -> list[Case]:
    plans = [
        replace(plan, machine=Machine(cpus=2, quota=0.8))
        for plan in _plans((Data(native_burn_ms=0.7 * step_ms(s) / 4), Loader(workers=2)) for s in COMPUTING)
    ]
    return fault("input.cpu_quota", plans, "two workers that compute, with a quota of 0.8 CPUs", needs=("cgroup",))


def _affinity() -> list[Case]:
    plans = _confined(_plans((Data(native_burn_ms=step_ms(s) / 4), Loader(workers=3, cpus=1)) for s in COMPUTING))
    return fault("input.affinity", plans, "three workers that compute, all on one CPU", needs=("cpus",))


def _foreign_load() -> list[Case]:
    # Alone the two workers would keep up. Beside four processes of others they get 0.7 to 1 CPU together: workers that
    # rest now and then are given more than their share.
    plans = [
        replace(plan, machine=Machine(cpus=2, foreign=4))
        for plan in _plans((Data(native_burn_ms=batch_ms / 4), Loader(workers=2)) for batch_ms in (23.0, 29.0, 35.0))
    ]
    bands = ((0.05, 0.48), (0.15, 0.60), (0.30, 0.75))
    note = "two workers that would keep up, beside four busy processes of others"
    return fault("input.foreign_load", plans, note, bands=bands)


def _confined(plans: Sequence[Plan]) -> list[Plan]:
    """The same on two CPUs, so that what computes finds as many of them on any machine."""
    return [replace(plan, machine=Machine(cpus=2)) for plan in plans]


def _storage() -> list[Case]:
    # Of two workers, each of which makes four samples for a batch.
    times = [2 * step_ms(share) / 4 for share in WAITING]
    slow = _reading(*(PlannedReads(65536, cold=False, bytes_per_s=65536e3 / ms) for ms in times))
    cold = _reading(*(PlannedReads(256 * 1024, ms=ms) for ms in times))
    random = _reading(*(PlannedReads(4096, ms=ms) for ms in times))
    return [
        *fault("input.storage", slow, "files on a medium that is slow: real reads, and the rest of the time asleep"),
        *fault("input.storage", cold, "files that are not in memory", variant="cold", needs=("disk",)),
        *fault(
            "input.storage",
            random,
            "small requests all over files that are not in memory",
            variant="random",
            needs=("disk",),
        ),
    ]


def _reading(*readings: PlannedReads) -> list[Plan]:
    return _plans((Data(reading=reading), Loader(workers=2)) for reading in readings)


def _straggler() -> list[Case]:
    plans = [
        Plan(
            Data(sleep_ms=2.0, slow_every=every, slow_first=8, slow_ms=ms),
            Loader(workers=4, batch=8),
            batches=steps,
        )
        for every, ms, steps in ((36, 300.0, 80), (20, 380.0, 80), (11, 480.0, 70))
    ]
    return fault("input.straggler", plans, "single samples that take hundreds of milliseconds", hit=SLOW)


def _prefetch_depth() -> list[Case]:
    # The host is at most one step ahead of the device: its own queue would hide what the loader's does not.
    plans = [
        Plan(
            Data(sleep_ms=workers * mean, sigma=sigma),
            Loader(workers=workers, batch=1, prefetch=prefetch),
            PlannedStep(kernels=1000),
            batches=110,
        )
        for mean, sigma, workers, prefetch in ((16.5, 1.0, 1, 2), (17.0, 1.1, 1, 1), (16.5, 1.1, 2, 1))
    ]
    bands = ((0.05, 0.19), (0.11, 0.28), (0.18, 0.45))
    return fault("input.prefetch_depth", plans, "samples of very uneven cost, fast enough on average", bands=bands)


def _worker_restart() -> list[Case]:
    plans = [
        Plan(
            Data(sleep_ms=1.0),
            Loader(workers=2, persistent=False, start_ms=ms),
            epochs=epochs,
            batches=batches,
        )
        for ms, epochs, batches in ((20.0, 5, 20), (80.0, 7, 11), (350.0, 7, 11))
    ]
    return fault("input.worker_restart", plans, "workers started anew for each short epoch", hit=FIRST)


def _pipeline_fill() -> list[Case]:
    plans = [
        Plan(Data(sleep_ms=ms / 8), Loader(workers=workers, batch=8), epochs=epochs, batches=batches)
        for ms, workers, epochs, batches in ((40.0, 4, 5, 16), (100.0, 8, 6, 12), (300.0, 10, 7, 10))
    ]
    return fault("input.pipeline_fill", plans, "few batches in an epoch, each of which takes a worker long", hit=FIRST)


def _handoff() -> list[Case]:
    # Samples cost enough that making them in the training would be slower.
    # Large arrays are tried one after another, and go faster when there is time between them.
    big, many = (
        [
            Plan(
                replace(data, handover_ms=slack * step_ms(share)),
                Loader(workers=3),
                machine=Machine(cpus=2),
                batches=steps,
            )
            for share, steps in zip(HANDING_OVER, STEPS, strict=True)
        ]
        for slack, data in (
            (1.25, Data(sleep_ms=8.0, floats=800_000, arrays=True)),
            (1.0, Data(sleep_ms=8.0, floats=16 * 100, tensors=100)),
        )
    )
    # What else the machine copies in memory meanwhile counts too, and changes from one second to the next.
    bands = ((0.04, 0.35), (0.08, 0.50), (0.45, 0.78))
    return [
        *fault("input.handoff", big, "large NumPy batches, pickled through a pipe", bands=bands),
        *fault("input.handoff", many, "batches of many small tensors", variant="many", bands=bands),
    ]


def _sharding() -> list[Case]:
    plans = _plans((Data(sleep_ms=step_ms(s) / 4, first_worker_only=True), Loader(workers=4)) for s in WAITING)
    return fault("input.sharding", plans, "an iterable dataset that feeds the first of four workers only")


def _exclusive() -> list[Case]:
    # Four workers deliver what one would. What they share serves a batch in `step_ms`.
    # Workers are looked at some ten times a second in all, so these are longer than other cases.
    lock = [
        Plan(Data(sleep_ms=step_ms(s) / 4, shared="lock"), Loader(workers=4), batches=3 * steps)
        for s, steps in zip(WAITING, STEPS, strict=True)
    ]
    # Of 30 batches in an epoch the last two are made by two workers; its first ones come late besides.
    rate = [
        Plan(Data(sleep_ms=step_ms(s) / 4, shared="rate"), Loader(workers=4), epochs=4, batches=30)
        for s in (0.05, 0.24, 0.57)
    ]
    return [
        *fault("input.exclusive", lock, "four workers that wait one at a time, for a lock", stacks=True),
        *fault("input.exclusive", rate, "four workers that share a rate", variant="rate"),
    ]


def _overkill() -> list[Case]:
    # Samples of 40 small fields: to slice them takes less time than to map each tensor that a worker sends.
    fields = Data(floats=16 * 40, tensors=40)
    plans = [
        Plan(fields, Loader(batch=8), PlannedStep(of_handover=of_handover), machine=Machine(cpus=2), batches=300)
        for of_handover in (0.80, 0.62, 0.30)
    ]
    # Handing over takes as long as it takes to wake a process, which is never the same.
    bands = ((0.03, 0.35), (0.15, 0.50), (0.45, 0.75))
    return fault("input.overkill", plans, "tiny samples in memory, and workers that hand them over", bands=bands)


CASES: tuple[Case, ...] = tuple(
    chain(
        _sampler(),
        _serial(),
        _too_few_workers(),
        _cpu_exhausted(),
        _oversubscribed(),
        _worker_threads(),
        _cpu_quota(),
        _affinity(),
        _foreign_load(),
        _storage(),
        _straggler(),
        _prefetch_depth(),
        _worker_restart(),
        _pipeline_fill(),
        _handoff(),
        _sharding(),
        _overkill(),
        _exclusive(),
    )
)
