"""Faults of copies and of the device, on the emulated one: for each cause three severities."""

from __future__ import annotations

from itertools import chain

from whyidle.devices.conditions import Conditions

from .case import RETRY, Band, Case, Data, Loader, Plan, PlannedDevice, PlannedStep
from .input_cases import COMPUTE_MS, SHARES, STEPS, fault

PINNED_BYTES_PER_MS = 12_000_000
PAGEABLE_BYTES_PER_MS = 4_000_000
"""What the emulated device copies (`loop.SPEC`)."""
THERMAL = 0x40
POWER_CAP = 0x4
"""NVML's bits for the reasons of a lower clock."""
HEALTHY = Data(sleep_ms=1.0), Loader(workers=2)


def cost_ms(share: float) -> float:
    """What a step has to lose beside its computing, to lose this share of the time."""
    return COMPUTE_MS * share / (1 - share)


LOOKED_AT_MS = 4500.0
"""Clocks and links are looked at once a second: so long a training is looked at several times."""


def _plans(*steps: tuple[PlannedStep, PlannedDevice]) -> list[Plan]:
    return [
        Plan(*HEALTHY, step, accelerator=accelerator, batches=batches)
        for (step, accelerator), batches in zip(steps, STEPS, strict=True)
    ]


def _long_plans(*steps: tuple[PlannedStep, PlannedDevice]) -> list[Plan]:
    """The same, long enough to be looked at."""
    return [
        Plan(*HEALTHY, step, accelerator=accelerator, batches=round(LOOKED_AT_MS / COMPUTE_MS * (1 - share)))
        for (step, accelerator), share in zip(steps, SHARES, strict=True)
    ]


def _pageable() -> list[Case]:
    sizes = [round(cost_ms(share) * PAGEABLE_BYTES_PER_MS) for share in SHARES]
    plans = _plans(*((PlannedStep(copy_bytes=size, pinned=False), PlannedDevice()) for size in sizes))
    return fault("copy.pageable", plans, "batches copied from pageable memory", part="copying")


def _serial() -> list[Case]:
    sizes = [round(cost_ms(share) * PINNED_BYTES_PER_MS) for share in SHARES]
    plans = _plans(*((PlannedStep(copy_bytes=size), PlannedDevice()) for size in sizes))
    return fault("copy.serial", plans, "pinned batches copied between the steps' computations", part="copying")


def _link() -> list[Case]:
    # At the first generation of four bytes take eight times as long, of which seven eighths are the link's.
    link = Conditions(pcie_generation=1)
    sizes = [round(cost_ms(share) * PINNED_BYTES_PER_MS / 7) for share in SHARES]
    narrow = Conditions(pcie_width=4)
    fewer = [round(cost_ms(share) * PINNED_BYTES_PER_MS / 3) for share in SHARES]
    slow = _long_plans(*((PlannedStep(copy_bytes=size), PlannedDevice(link)) for size in sizes))
    thin = _long_plans(*((PlannedStep(copy_bytes=size), PlannedDevice(narrow)) for size in fewer))
    return [
        *fault("copy.link", slow, "a link at its first generation, of four", part="lost copying"),
        *fault("copy.link", thin, "a link of 4 lanes in a slot of 16", part="lost copying", variant="lanes"),
    ]


def _throttled() -> list[Case]:
    hot = _long_plans(
        *((PlannedStep(), PlannedDevice(Conditions(sm_clock=1 - s, throttle_reasons=THERMAL))) for s in SHARES)
    )
    capped = _long_plans(
        *((PlannedStep(), PlannedDevice(Conditions(sm_clock=1 - s, throttle_reasons=POWER_CAP))) for s in CAPPED)
    )
    return [
        *fault("device.throttled", hot, "clocks held down by temperature", part="lost"),
        *fault(
            "device.throttled",
            capped,
            "clocks held down by the power cap, far below what is usual",
            part="lost",
            variant="power",
            bands=((0.20, 0.30), (0.35, 0.45), (0.55, 0.65)),
        ),
    ]


CAPPED = (0.25, 0.40, 0.60)
"""A power cap that costs less is how many devices work all the time."""


def _contended() -> list[Case]:
    # What others take is seen in the device's idle time only: the loop leaves some, less than it loses.
    steps = [PlannedStep(host_ms=COMPUTE_MS / (1 - others) / (1 - idle)) for others, idle in CONTENDED]
    plans = _long_plans(
        *(
            (step, PlannedDevice(Conditions(others=others, processes=2)))
            for step, (others, _) in zip(steps, CONTENDED, strict=True)
        )
    )
    bands: tuple[Band, ...] = ((0.17, 0.27), (0.30, 0.42), (0.50, 0.65))
    return fault("device.contended", plans, "another program's kernels on the same device", part="lost", bands=bands)


CONTENDED = ((0.25, 0.08), (0.40, 0.08), (0.65, 0.08))
"""The others' share of the device, and the device's idle time."""


def _memory_pressure() -> list[Case]:
    # (ms of a retry, each how many steps, from which step on)
    late = ((18.0, 3, 45), (35.0, 2, 35), (60.0, 1, 30))
    steady = ((15.0, 5, 0), (17.0, 2, 0), (30.0, 1, 0))
    plans, always = (
        _plans(
            *(
                (PlannedStep(), PlannedDevice(retry_ms=ms, retry_every=every, retry_from=first))
                for ms, every, first in retries
            )
        )
        for retries in (late, steady)
    )
    return [
        *fault("device.memory_pressure", plans, "batches outgrow the memory half way", part="host", hit=RETRY),
        *fault(
            "device.memory_pressure",
            always,
            "batches never fit into the memory that is free at once",
            part="host",
            hit=RETRY,
            variant="steady",
        ),
    ]


def _shape_churn() -> list[Case]:
    # (ms of a shape's first time, each how many batches)
    churn = ((30.0, 10), (43.0, 5), (60.0, 2))
    plans = [
        Plan(
            Data(sleep_ms=1.0, floats=200, new_shape_every=every),
            Loader(workers=2),
            accelerator=PlannedDevice(first_ms=ms),
            batches=batches,
        )
        for (ms, every), batches in zip(churn, STEPS, strict=True)
    ]
    compiling = [
        Plan(
            Data(sleep_ms=1.0, floats=200, new_shape_every=every),
            Loader(workers=2),
            PlannedStep(compute_ms=ms, compiled=True),
            batches=batches,
            device="cpu",
        )
        for every, ms, batches in ((8, 20.0, 90), (3, 20.0, 80), (1, 12.0, 60))
    ]
    return [
        *fault("device.shape_churn", plans, "shapes that take much longer the first time", part="lost"),
        *fault("device.shape_churn", compiling, "a net compiled for each new shape", part="lost", variant="compile"),
    ]


CASES: tuple[Case, ...] = tuple(
    chain(_pageable(), _serial(), _link(), _throttled(), _contended(), _memory_pressure(), _shape_churn())
)
