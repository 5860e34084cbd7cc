"""Faults of the host: what the training process does while the device waits."""

from __future__ import annotations

from itertools import chain

from .case import (
    GARBAGE,
    GIL,
    LAUNCH,
    PLANTED,
    Band,
    Between,
    Case,
    Data,
    Loader,
    Plan,
    PlannedDevice,
    PlannedHost,
    PlannedStep,
)
from .device_cases import HEALTHY, cost_ms
from .input_cases import COMPUTE_MS, SHARES, STEPS, fault, step_ms

EPOCHS = 5
AHEAD_MS = 3 * COMPUTE_MS
"""So much work may be queued on the device (`PlannedStep.kernels`): shorter pauses cost it nothing."""
PROCESSOR = "cpu"


def _sync() -> list[Case]:
    plans = [
        Plan(*HEALTHY, PlannedStep(reads=reads, read_ms=cost_ms(share) / reads), batches=batches)
        for share, reads, batches in zip(SHARES, (1, 2, 4), STEPS, strict=True)
    ]
    return fault("host.sync", plans, "results read in the midst of each step, and put to use there", part="sync")


def _launch() -> list[Case]:
    shares = (0.22, 0.35, 0.60)
    bands: tuple[Band, ...] = ((0.16, 0.30), (0.28, 0.45), (0.52, 0.68))
    plans = [
        Plan(
            *HEALTHY,
            PlannedStep(kernels=KERNELS),
            accelerator=PlannedDevice(launch_us=1e3 * step_ms(share) / KERNELS - CALL_US),
            batches=batches,
        )
        for share, batches in zip(shares, STEPS, strict=True)
    ]
    note = "kernels that are shorter than it takes to launch them"
    return fault("host.launch", plans, note, part="host", hit=LAUNCH, bands=bands)


KERNELS = 80
CALL_US = 8.0
"""What a launch on the emulated device takes by itself."""


def _gc() -> list[Case]:
    processor = [Plan(*HEALTHY, host=PlannedHost(s, 20_000), batches=n, device=PROCESSOR) for s, n in _SHARED]
    # The loss is read at each step, as many loops do: no queue hides what comes then.
    device = [Plan(*HEALTHY, PlannedStep(sync_every=1), host=PlannedHost(s, 20_000), batches=n) for s, n in _SHARED]
    return [
        *fault("host.gc", processor, "full collections of many live objects", part="host", hit=GARBAGE),
        *fault("host.gc", device, "the same between steps on a device", part="host", hit=GARBAGE, variant="emulated"),
    ]


_SHARED = tuple(zip(SHARES, STEPS, strict=True))


def _gil() -> list[Case]:
    # With the loss read at each step, what comes after it costs the device time: each release up to a switch interval.
    plans = [
        Plan(
            *HEALTHY,
            PlannedStep(compute_ms=ms, sync_every=1),
            host=PlannedHost(threads=1, releases=8, switch_ms=1.0),
            batches=n,
        )
        for ms, n in zip((120.0, 32.0, 9.0), (48, 60, 80), strict=True)
    ]
    # Here all of the step's releases do, torch's own among them, as soon as they take longer than it computes.
    spread = [
        Plan(*HEALTHY, PlannedStep(compute_ms=ms), host=PlannedHost(threads=1, releases_within=8), batches=n)
        for ms, n in zip((60.0, 48.0, 27.0), STEPS, strict=True)
    ]
    note = "a thread that runs Python beside the training"
    # How long it takes to get the lock back varies with what else runs, so these bands are wide.
    bands: tuple[Band, ...] = ((0.05, 0.45), (0.20, 0.60), (0.45, 0.75))
    return [
        *fault("host.gil", plans, note, part="host", hit=GIL, bands=bands),
        *fault("host.gil", spread, f"{note}, between launches", part="host", hit=GIL, bands=bands, variant="within"),
    ]


def _step_gap() -> list[Case]:
    every = [Plan(*HEALTHY, PlannedStep(host_ms=step_ms(s)), batches=n) for s, n in _SHARED]
    tenth = [
        Plan(*HEALTHY, PlannedStep(host_ms=AHEAD_MS + 10 * cost_ms(s), host_every=10), batches=n)
        for s, n in zip(SHARES, (100, 80, 60), strict=True)
    ]
    processor = [Plan(*HEALTHY, PlannedStep(host_burn_ms=cost_ms(s)), batches=n, device=PROCESSOR) for s, n in _SHARED]
    return [
        *fault("host.step_gap", every, "logging after each step", part="host", hit=PLANTED),
        *fault("host.step_gap", tenth, "logging after every tenth step", part="host", hit=PLANTED, variant="tenth"),
        *fault("host.step_gap", processor, "work of the loop's own", part="host", hit=PLANTED, variant="cpu"),
    ]


def _main_process() -> list[Case]:
    # The loss is read at each step, so that no queue hides what comes before the next one.
    stage = [Plan(*HEALTHY, PlannedStep(stage_ms=cost_ms(s), sync_every=1), batches=n) for s, n in _SHARED]
    burning = [Plan(*HEALTHY, PlannedStep(stage_burn_ms=cost_ms(s)), batches=n, device=PROCESSOR) for s, n in _SHARED]
    around = [
        Plan(
            Data(),
            Loader(workers=0),
            PlannedStep(stage_burn_ms=cost_ms(s), stage_in_generator=True),
            batches=n,
            device=PROCESSOR,
        )
        for s, n in _SHARED
    ]
    return [
        case
        for plans, variant, note in (
            (stage, "", "packing between fetch and model"),
            (burning, "cpu", "augmenting there"),
            (around, "generator", "a generator around the loader that augments, and no workers"),
        )
        for case in fault("input.main_process", plans, note, part="host", hit=PLANTED, variant=variant)
    ]


def _boundary() -> list[Case]:
    lost = [16 * cost_ms(share) for share in SHARES]  # in each epoch of 16 steps
    waiting = [Between(validation_batches=8, validation_ms=ms / 8 / 4) for ms in lost]
    saving = [Between(save_ms=ms) for ms in lost]
    pausing = [Between(pause_ms=ms) for ms in lost]
    return [
        case
        for kind, variant, note in (
            (waiting, "", "validation that waits for its loader"),
            (saving, "save", "checkpoints on a slow medium"),
            (pausing, "pause", "something else between the epochs"),
        )
        for case in fault(
            "host.boundary",
            [Plan(*HEALTHY, between=between, epochs=EPOCHS, batches=16) for between in kind],
            note,
            part="boundary",
            variant=variant,
        )
    ]


def _straggler() -> list[Case]:
    data = [
        Plan(Data(sleep_ms=cost_ms(s) / 4), Loader(workers=0), ranks=2, batches=n, device=PROCESSOR) for s, n in _SHARED
    ]
    host = [
        Plan(loader=Loader(workers=0), step=PlannedStep(host_ms=cost_ms(s)), ranks=2, batches=n, device=PROCESSOR)
        for s, n in _SHARED
    ]
    return [
        *fault("rank.straggler", data, "one of two ranks waits for its data"),
        *fault("rank.straggler", host, "one of two ranks logs", part="host", hit=PLANTED, variant="host"),
    ]


CASES: tuple[Case, ...] = tuple(
    chain(_sync(), _launch(), _gc(), _gil(), _main_process(), _step_gap(), _boundary(), _straggler())
)
