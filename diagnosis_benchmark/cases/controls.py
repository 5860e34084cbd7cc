"""Healthy trainings: there is nothing worth changing in any of them."""

from __future__ import annotations

from .case import CONTROL, Between, Case, Data, Loader, Machine, Plan, PlannedSampler, PlannedStep, Start


def _control(name: str, plan: Plan, note: str, needs: tuple[str, ...] = (), stacks: bool = False) -> Case:
    return Case(f"control.{name}", (), CONTROL, plan, note=note, needs=needs, stacks=stacks)


CASES: tuple[Case, ...] = (
    _control("compute", Plan(Data(sleep_ms=2.0), Loader(workers=2)), "bound by the device, two workers in good time"),
    _control("text", Plan(Data(burn_ms=0.2), Loader(workers=2, batch=8)), "a text model's cheap samples, two workers"),
    _control("in-memory", Plan(Data(), Loader(workers=0, batch=16)), "samples in memory, no workers"),
    _control(
        "cold-first-epoch",
        Plan(Data(sleep_ms=1.0, cold_ms=12.0), Loader(workers=2), epochs=12, batches=25),
        "the first epoch waits for data that the others find in memory",
    ),
    _control(
        "light-validation",
        Plan(
            Data(sleep_ms=1.0),
            Loader(workers=2),
            between=Between(validation_batches=2, validation_ms=1.0),
            epochs=3,
            batches=40,
        ),
        "two batches of validation after each epoch",
    ),
    _control(
        "warm-up",
        Plan(Data(sleep_ms=1.0), step=PlannedStep(slow_start=3)),
        "the first three steps take ten times as long",
    ),
    _control(
        "accumulation", Plan(Data(sleep_ms=1.0), step=PlannedStep(accumulate=4)), "four batches for each optimizer step"
    ),
    _control(
        "small-steps",
        Plan(Data(sleep_ms=0.5), Loader(workers=2), PlannedStep(compute_ms=4.0, sync_every=50), batches=400),
        "steps of 4 ms, as small nets have on a GPU",
    ),
    _control(
        "noisy-neighbour",
        Plan(Data(burn_ms=1.0), Loader(workers=2), machine=Machine(foreign=1, foreign_rests=True)),
        "another program is busy for half of the time",
    ),
    _control(
        "hidden-variance",
        Plan(Data(sleep_ms=2.0, sigma=0.8), Loader(workers=4, prefetch=4)),
        "samples of uneven cost, all of it behind the device",
    ),
    _control(
        "varied-lengths",
        Plan(Data(sleep_ms=1.0, floats=128, width_sigma=0.7), Loader(workers=2), batches=120),
        "batches of many lengths, each computed for as long as it is",
    ),
    _control("idle-workers", Plan(Data(sleep_ms=0.5), Loader(workers=8)), "far more workers than are needed"),
    _control(
        "epochs", Plan(Data(sleep_ms=1.0), Loader(workers=2), epochs=4, batches=30), "workers kept from epoch to epoch"
    ),
    _control(
        "latency",
        Plan(Data(sleep_ms=20.0), Loader(workers=6), batches=120),
        "six workers that wait long for each sample, each by itself, in good time together",
        stacks=True,
    ),
    _control(
        "shared-lock",
        Plan(Data(sleep_ms=3.0, shared="lock"), Loader(workers=4)),
        "four workers that wait one at a time, for a lock, in good time",
        stacks=True,
    ),
    _control(
        "computing-workers",
        Plan(Data(native_burn_ms=4.0), Loader(workers=2), machine=Machine(cpus=2), batches=120),
        "two workers that compute, on two CPUs, in good time",
        stacks=True,
    ),
    _control(
        "sampler",
        Plan(Data(sleep_ms=1.0), Loader(sampler=PlannedSampler(epoch_ms=10.0, batch_ms=5.0)), epochs=3, batches=40),
        "a sampler that takes a quarter of each step, behind the device",
    ),
    _control(
        "stage",
        Plan(Data(sleep_ms=1.0), step=PlannedStep(stage_ms=5.0)),
        "a stage behind the loader that takes a quarter of each step, behind the device",
    ),
    _control(
        "own-part",
        Plan(Data(sleep_ms=2.0, streamed="chosen"), Loader(workers=2), batches=160),
        "an iterable dataset of which each worker goes through all and makes its own part",
    ),
    _control(
        "packed",
        Plan(Data(sleep_ms=1.0, streamed="packed"), Loader(workers=2)),
        "an iterable dataset that puts two samples together to one",
    ),
    _control(
        "few-left-out",
        Plan(Data(sleep_ms=2.0, left_out=0.03), Loader(workers=2, batch=8)),
        "a few broken samples are left out",
    ),
    _control(
        "cache",
        Plan(Data(sleep_ms=2.0, kept_mb=0.5, kept_most=60), Loader(workers=2), machine=Machine(memory_mb=90)),
        "workers keep the first samples they make, and then no more",
    ),
    _control(
        "cpu-compute",
        Plan(Data(sleep_ms=2.0), Loader(workers=2), PlannedStep(compute_ms=25.0), device="cpu"),
        "bound by the processor, which is the device",
    ),
    _control(
        "cpu-in-memory",
        Plan(Data(), Loader(workers=0, batch=16), PlannedStep(compute_ms=25.0), device="cpu"),
        "samples in memory, the processor is the device",
    ),
    _control(
        "cpu-sampler",
        Plan(
            Data(sleep_ms=1.0),
            Loader(sampler=PlannedSampler(epoch_ms=10.0, batch_burn_ms=0.3)),
            PlannedStep(compute_ms=25.0),
            epochs=3,
            batches=40,
            device="cpu",
        ),
        "a batch sampler that sorts a little, the processor is the device",
    ),
    _control(
        "cpu-stage",
        Plan(Data(sleep_ms=1.0), Loader(workers=1), PlannedStep(compute_ms=25.0, stage_burn_ms=0.5), device="cpu"),
        "a batch is normalised before the forward pass, the processor is the device",
    ),
    _control(
        "cpu-varied-lengths",
        Plan(
            Data(sleep_ms=1.0, floats=128, width_sigma=0.7),
            Loader(workers=1),
            PlannedStep(compute_ms=20.0),
            batches=120,
            device="cpu",
        ),
        "batches of many lengths, the processor is the device",
    ),
    _control(
        "cpu-accumulation",
        Plan(Data(sleep_ms=1.0), Loader(workers=1), PlannedStep(compute_ms=25.0, accumulate=4), device="cpu"),
        "four batches for each optimizer step, the processor is the device",
    ),
    _control(
        "unfreezing",
        Plan(Data(sleep_ms=1.0), step=PlannedStep(compute_ms=15.0, later=1.6), epochs=4, batches=40),
        "later epochs train more of the net, at the same shapes",
    ),
    _control(
        "cpu-unfreezing",
        Plan(
            Data(sleep_ms=1.0),
            Loader(workers=1),
            PlannedStep(compute_ms=15.0, later=1.6),
            epochs=4,
            batches=40,
            device="cpu",
        ),
        "the same, the processor is the device",
    ),
    _control(
        "curriculum",
        Plan(Data(sleep_ms=1.0, floats=128, longer=2.0), Loader(workers=2), PlannedStep(compute_ms=12.0), batches=140),
        "batches that get longer, each computed for as long as it is",
    ),
    _control(
        "logging",
        Plan(Data(sleep_ms=1.0), step=PlannedStep(host_ms=30.0, host_every=10), batches=150),
        "logging after every tenth step, behind the device's queue",
    ),
    _control(
        "set-up",
        Plan(Data(sleep_ms=1.0), start=Start(index_s=1.5), batches=150),
        "a second and a half of set-up, as programs of a few seconds have",
    ),
)
