"""Recordings of one training process each: one for every cause that can be told, and what else a run may be.

Longer than other modules: it is a catalogue, in which whoever adds a cause looks for those it is to be told from.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from support.crafted import add, add_events, amend, steps_of, train_on_cpu
from support.long_run import make as long_run
from support.planted_runs import H200, Making, batch, happened, hosted, looked, pooled, serial, told, trained, until
from support.planted_stacks import plant_stacks
from support.stacks import FETCH, WORKER
from whyidle.devices.conditions import Conditions
from whyidle.devices.emulated import EmulatedSpec
from whyidle.record.reader import Records
from whyidle.record.run import SampledDevice, note_devices, open_run, update_run
from whyidle.record.schema import (
    BATCH,
    CONTENT,
    EVENT,
    HEADER_BYTES,
    HOST,
    NOT_MEASURED,
    STACK,
    STEP,
    TRANSFORM,
    EventKind,
    LoaderFlag,
    StepFlag,
    ThreadState,
)
from whyidle.record.stacks import Call, Names, StackNames
from whyidle.scenarios.planted import MS, START, PlantedWorkers, Step

DATA = Path(__file__).parents[1] / "data"
COMPUTE = 10 * MS
QUEUING = Making(cpu=0.25, queued=0.7)


def healthy(at: Path) -> None:
    run = trained(at / "run", [[Step(fetch_ns=2 * MS)] * 60] * 2)
    hosted(run, 1.0, 4)


def too_few_steps(at: Path) -> None:
    trained(at / "run", [[Step(fetch_ns=50 * MS)] * 20])


def no_training(at: Path) -> None:
    trained(at / "run", [])


def made_in_training(at: Path) -> None:
    run = serial(at / "run", 100, 20, Making(stages=(0.6, 0.3)))
    hosted(run, 1.0, 4)


def made_in_training_crowded(at: Path) -> None:
    run = serial(at / "run", 100, 20, Making(cpu=0.3, queued=0.65))
    update_run(run, {"host": {"cpus": 2}})
    hosted(run, 0.3, 2, 100.0, queued=0.4)


def too_few_workers(at: Path) -> None:
    run = pooled(at / "run", [[Step(fetch_ns=40 * MS)] * 60] * 2, PlantedWorkers(2, 2), Making(stages=(0.6, 0.3)))
    hosted(run, 2.0, 8)


def with_stacks(at: Path) -> None:
    """Workers open an archive for each sample; the training's own code is seen in each part of its steps."""
    run = pooled(
        at / "run", [[Step(fetch_ns=40 * MS, before_ns=4 * MS, host_ns=3 * MS)] * 60] * 2, PlantedWorkers(2, 2)
    )
    hosted(run, 2.0, 8)
    plant_stacks(run, end_ns=until(run))


def waiting_workers(at: Path) -> None:
    """Samples come over a network."""
    run = pooled(at / "run", [[Step(fetch_ns=40 * MS)] * 100], PlantedWorkers(2, 2), Making(cpu=0.03, queued=0.01))
    hosted(run, 0.4, 4)


def cpu_exhausted(at: Path) -> None:
    run = pooled(at / "run", [[Step(fetch_ns=40 * MS)] * 100], PlantedWorkers(2, 2), Making(stages=(0.7, 0.2)))
    update_run(run, {"host": {"cpus": 2}})
    hosted(run, 1.95, 2, 99.0)


def oversubscribed(at: Path) -> None:
    run = pooled(at / "run", [[Step(fetch_ns=160 * MS)] * 100], PlantedWorkers(8, 2), QUEUING)
    update_run(run, {"host": {"cpus": 2}})
    hosted(run, 1.95, 2, 99.0)


def worker_threads(at: Path) -> None:
    making = Making(cpu=0.25, queued=0.6, process_cpu=1.8)
    run = pooled(at / "run", [[Step(fetch_ns=40 * MS)] * 100], PlantedWorkers(2, 2), making)
    update_run(run, {"host": {"cpus": 2}})
    hosted(run, 1.95, 2, 99.0)


def cpu_quota(at: Path) -> None:
    run = pooled(at / "run", [[Step(fetch_ns=80 * MS)] * 100], PlantedWorkers(4, 2), QUEUING)
    hosted(run, 1.45, 1.5, 40.0, throttled=0.8)


def held_back(at: Path) -> None:
    """As by a quota that nobody tells of."""
    run = pooled(at / "run", [[Step(fetch_ns=40 * MS)] * 100], PlantedWorkers(2, 2), QUEUING)
    hosted(run, 0.8, 2, 40.0)


def affinity(at: Path) -> None:
    run = pooled(at / "run", [[Step(fetch_ns=80 * MS)] * 100], PlantedWorkers(4, 2), replace(QUEUING, cpus=1))
    hosted(run, 4.0, 8, 80.0)


def foreign_load(at: Path) -> None:
    run = pooled(at / "run", [[Step(fetch_ns=40 * MS)] * 100], PlantedWorkers(2, 2), QUEUING)
    update_run(run, {"host": {"cpus": 2}})
    hosted(run, 0.5, 2, 99.0)


def storage(at: Path) -> None:
    making = Making(cpu=0.15, read=0.8, read_bytes=7_200_000, read_chars_bytes=8_000_000, batch_bytes=4_800_000)
    run = pooled(at / "run", [[Step(fetch_ns=40 * MS)] * 100], PlantedWorkers(2, 2), making)
    hosted(run, 0.5, 8, read_storage_bytes=10**9)


def straggler(at: Path) -> None:
    plan = [Step(fetch_ns=(400 if n % 25 == 12 else 15) * MS) for n in range(150)]
    run = pooled(at / "run", [plan], PlantedWorkers(4, 2), Making(slowest=0.9))
    hosted(run, 2.0, 8)


def prefetch_depth(at: Path) -> None:
    source = np.random.default_rng(0)
    plan = [Step(fetch_ns=round(ms * MS), sync=True) for ms in source.lognormal(2.0, 1.0, 200)]
    run = pooled(at / "run", [plan], PlantedWorkers(2, 1))
    hosted(run, 1.6, 8)


def worker_restart(at: Path) -> None:
    epochs = [[Step(fetch_ns=12 * MS)] * 25] * 6
    flags = LoaderFlag.STARTS_PYTHON
    run = pooled(at / "run", epochs, PlantedWorkers(2, 2, start_ns=400 * MS), flags=flags, persistent=False)
    hosted(run, 1.5, 8)


def pipeline_fill(at: Path) -> None:
    epochs = [[Step(fetch_ns=(900 if n == 0 else 8) * MS) for n in range(20)]] * 6
    run = pooled(at / "run", epochs, PlantedWorkers(2, 2), flags=LoaderFlag.PERSISTENT_WORKERS)
    hosted(run, 1.0, 8)


def few_batches(at: Path) -> None:
    """Epochs of fewer batches than there are workers."""
    epochs = [[Step(fetch_ns=60 * MS)] * 4] * 20
    run = pooled(at / "run", epochs, PlantedWorkers(8, 2), flags=LoaderFlag.PERSISTENT_WORKERS)
    hosted(run, 2.0, 8)


def _handed(at: Path, making: Making, made_ms: float) -> Path:
    """Batches come 25 ms after they were finished."""
    run = trained(at / "run", [[Step(fetch_ns=25 * MS)] * 120])
    told(run, 2, 2, LoaderFlag.PIN_MEMORY)
    rows = []
    for number, step in enumerate(steps_of(run)):
        end = int(step["fetch_begin_ns"]) + MS
        rows.append(batch(making, number % 2, end - round(made_ms * MS), end, 0, number, True))
    add(run, BATCH, rows)

    def change(steps: Records) -> None:
        steps["loader"], steps["batch"] = 1, np.arange(len(steps))
        steps["queue_ready"], steps["queue_capacity"] = 1, 4

    amend(run, change)
    return hosted(run, 0.6, 8)


def handoff(at: Path) -> None:
    _handed(at, Making(batch_bytes=20_000_000, sent_bytes=20_000_000), 10)


def handoff_many_tensors(at: Path) -> None:
    update_run(_handed(at, Making(batch_bytes=20_000_000, sent_bytes=300), 10), {"device": H200})


def sampler(at: Path) -> None:
    """Of the 25 ms that a batch takes to come, its workers' next one is chosen in 22."""
    run = _handed(at, Making(), 10)
    happened(
        run,
        EventKind.SAMPLER,
        8,
        lambda s: ((int(b) + 2 * MS, int(e)) for b, e in zip(s["fetch_begin_ns"], s["fetch_end_ns"], strict=True)),
    )


def sampler_of_epochs(at: Path) -> None:
    """Its iterator is made twice, since workers are not kept."""
    run = trained(at / "run", [[Step(fetch_ns=(400 if n == 0 else 2) * MS) for n in range(20)]] * 6)
    told(run, 2, 2, 0)
    for after in (5 * MS, 200 * MS):
        happened(
            run,
            EventKind.SAMPLER,
            0,
            lambda s, after=after: (  # type: ignore[misc]
                (int(b) + after, int(b) + after + 190 * MS)
                for b in s["fetch_begin_ns"][s["epoch"].searchsorted(range(6))]
            ),
        )
    hosted(run, 1.0, 8)


def sharding(at: Path) -> None:
    run = pooled(
        at / "run", [[Step(fetch_ns=20 * MS)] * 100], PlantedWorkers(1, 2), flags=LoaderFlag.ITERABLE, persistent=True
    )
    add_events(run, [(START + 1, EventKind.LOADER_WORKERS, 4, NOT_MEASURED)])
    hosted(run, 1.0, 8)


def exclusive(at: Path) -> None:
    """Of four workers one copies a shard, while the others wait for the lock of a file."""
    run = pooled(at / "run", [[Step(fetch_ns=80 * MS)] * 100], PlantedWorkers(4, 2), Making(cpu=0.02, queued=0.01))
    hosted(run, 0.4, 4)
    lines = {35: "fcntl.flock(handle, fcntl.LOCK_EX)", 52: "shutil.copy(remote, local)"}
    names = StackNames(run, lambda _file, line: lines.get(line, ""))
    making = [Call("_worker_loop", WORKER.rpartition(":")[0], 9), Call("fetch", FETCH.rpartition(":")[0], 8)]
    waits = names.number([*making, Call("FileCache.lock", "/home/me/data.py", 35)])
    copies = names.number([*making, Call("FileCache.copy", "/home/me/data.py", 52)])
    rows = []
    for number, at_ns in enumerate(range(START, until(run), 50 * MS)):
        worker, holds = 50 + number % 4, number % 5 == 0
        row = {"t_ns": at_ns, "process": worker, "thread": worker, "parent": os.getpid(), "flags": 1}
        row |= {"stack": copies if holds else waits, "state": ThreadState.SLEEP if holds else ThreadState.FILE_LOCK}
        rows.append(row)
    add(run, STACK, rows)


def wasted(at: Path) -> None:
    """Three in ten samples are left out by collate_fn, the loop passes nothing over."""
    run = pooled(at / "run", [[Step(fetch_ns=40 * MS)] * 100], PlantedWorkers(2, 2))
    counts = {"training": os.getpid(), "loader": 1, "made": 8}
    rows = [
        counts | {"worker": number % 2, "batch": number, "present": 8 - number % 5, "kept": 8 - number % 5}
        for number in range(40)
    ]
    add(run, CONTENT, [row | {"present": row["present"] - 1, "kept": row["kept"] - 1} for row in rows])
    hosted(run, 2.0, 8)


def memory_grows(at: Path) -> None:
    """Pages of workers are copied, 0.2 GB of them a second, until the machine swaps."""
    run = pooled(at / "run", [[Step(fetch_ns=40 * MS)] * 300], PlantedWorkers(2, 2))
    rows = []
    for at_ns in range(START, until(run) + 200 * MS, 200 * MS):
        passed_s, grown = (at_ns - START) / 1e9, (at_ns - START) // 5
        rows.append(
            {
                "t_ns": at_ns,
                "late_ns": 0,
                "cpus": 8000,
                "tree_cpu_ns": 2 * (at_ns - START),
                "machine_busy_pct": 30.0,
                "tree_rss_bytes": 3 * 10**9,
                "main_rss_bytes": 10**9,
                "tree_private_bytes": 5 * 10**8 + grown,
                "memory_available_bytes": max(5 * 10**7, 5 * 10**8 - grown),
                "swap_used_bytes": max(0, grown - 5 * 10**8),
                "memory_pressure_us": round(3e5 * passed_s),
            }
        )
    add(run, HOST, rows)


def overkill(at: Path) -> None:
    _handed(at, Making(batch_bytes=4000, sent_bytes=300), 0.3)


def _copied(at: Path, pinned: bool) -> Path:
    step = Step(fetch_ns=0, compute_ns=COMPUTE, copy_bytes=40_000_000, pinned=pinned)
    return trained(at / "run", [[step] * 100])


def copy_pageable(at: Path) -> None:
    _copied(at, pinned=False)


def copy_serial(at: Path) -> None:
    update_run(_copied(at, pinned=True), {"device": H200})


def copy_link(at: Path) -> None:
    run = _copied(at, pinned=True)
    looked(
        run,
        {"pcie_generation": 4, "pcie_width": 8, "pcie_max_generation": 4, "pcie_max_width": 16},
        utilisation_pct=90.0,
    )


def sync(at: Path) -> None:
    step = Step(fetch_ns=0, compute_ns=COMPUTE, sync_within=True, within_ns=8 * MS)
    trained(at / "run", [[step] * 120])


def launch(at: Path) -> None:
    run = trained(at / "run", [[Step(fetch_ns=0, compute_ns=COMPUTE, host_ns=COMPUTE)] * 150], device=H200)

    def change(steps: Records) -> None:
        steps["cpu_ns"] = steps["step_end_ns"] - steps["fetch_begin_ns"]
        steps["optimizer_end_ns"] = steps["step_end_ns"] - MS // 10

    amend(run, change)
    looked(run, {"sm_clock_mhz": 1980, "sm_clock_max_mhz": 1980, "throttle_reasons": 0}, utilisation_pct=35.0)
    hosted(run, 1.0, 4)


def garbage(at: Path) -> None:
    run = trained(at / "run", [[Step(fetch_ns=0, compute_ns=COMPUTE, sync=True, host_ns=6 * MS)] * 120])
    happened(run, EventKind.GARBAGE, 2, lambda s: ((int(e) - 5 * MS, int(e)) for e in s["step_end_ns"]))


def gil(at: Path) -> None:
    run = trained(at / "run", [[Step(fetch_ns=0, compute_ns=COMPUTE, sync=True, host_ns=10 * MS)] * 120], cpu_ns=MS)
    looks = range(START, until(run), 20 * MS)
    add_events(run, [(t, EventKind.PYTHON_THREADS, t - START, NOT_MEASURED) for t in looks])
    hosted(run, 1.5, 4, queued=0.05)


def main_process(at: Path) -> None:
    """With a phase that the program marks, and work behind the optimizer besides."""
    step = Step(fetch_ns=0, compute_ns=COMPUTE, sync=True, before_ns=6 * MS, host_ns=2 * MS)
    run = pooled(at / "run", [[step] * 120], PlantedWorkers(2, 2))
    number = Names(run).number("pack")
    happened(run, EventKind.PHASE, number, lambda s: ((int(e), int(e) + 5 * MS) for e in s["fetch_end_ns"]))
    hosted(run, 1.3, 4)


def step_gap(at: Path) -> None:
    """With phases that the program marks."""
    run = trained(at / "run", [[Step(fetch_ns=0, compute_ns=COMPUTE, sync=True, host_ns=COMPUTE)] * 120])
    number = Names(run).number("log images")
    happened(run, EventKind.PHASE, number, lambda s: ((int(e) - 8 * MS, int(e)) for e in s["step_end_ns"]))


def slowing(at: Path) -> None:
    """What the loop does after each step grows; so does the memory of the processes."""
    run = trained(at / "run", [[Step(sync=True, host_ns=n * MS // 10) for n in range(200)]])
    hosted(run, 1.0, 4)


def starting(at: Path) -> None:
    """Four seconds of the program's own and two of imports, before its first step."""
    run = trained(at / "run", [[Step(fetch_ns=2 * MS)] * 120])
    begin = START - 6000 * MS
    add_events(
        run,
        [
            (begin, EventKind.PROCESS_BEGIN, NOT_MEASURED, NOT_MEASURED),
            (begin + 100 * MS, EventKind.IMPORT, NOT_MEASURED, begin + 2000 * MS),
            (START + 5 * MS, EventKind.IMPORTS_TIMED, NOT_MEASURED, NOT_MEASURED),
        ],
    )
    hosted(run, 1.0, 4)


def breakpoint(at: Path) -> None:
    """The program stood still once."""
    plan = [Step(fetch_ns=0, sync=True, host_ns=3000 * MS if n == 100 else 0) for n in range(160)]
    trained(at / "run", [plan])


def _bounded(at: Path, each_ms: int) -> tuple[Path, list[tuple[int, int]]]:
    epoch = [Step(fetch_ns=0)] * 39 + [Step(fetch_ns=0, sync=True, boundary_ns=each_ms * MS)]
    run = trained(at / "run", [epoch] * 4)
    events = open_run(run).records(EVENT)
    spans = events[events["what"] == EventKind.BOUNDARY]
    return run, list(zip(spans["t_ns"].tolist(), spans["end_ns"].tolist(), strict=True))


def validation(at: Path) -> None:
    run, spans = _bounded(at, 300)
    add_events(run, [(begin, EventKind.EVALUATION, 8 * (end - begin) // 10, end) for begin, end in spans])
    add_events(run, [(end, EventKind.EVALUATION_WORKERS, 0, NOT_MEASURED) for _, end in spans])
    hosted(run, 1.0, 8)


def checkpoints(at: Path) -> None:
    run, spans = _bounded(at, 300)
    add_events(run, [(begin, EventKind.SAVE, 0, begin + 9 * (end - begin) // 10) for begin, end in spans])
    hosted(run, 1.0, 8)


def ends_of_epochs(at: Path) -> None:
    run, _ = _bounded(at, 300)
    told(run, 3, 2, 0)
    hosted(run, 1.0, 8)


def memory_pressure(at: Path) -> None:
    odd = range(15, 200, 10)
    plan = [Step(fetch_ns=0, compute_ns=COMPUTE + (40 * MS if n in odd else 0), sync=True) for n in range(200)]
    run = trained(at / "run", [plan], device=H200)
    ends = steps_of(run)["step_end_ns"]
    add_events(
        run, [(int(ends[n]), EventKind.ALLOCATOR_RETRIES, count, NOT_MEASURED) for count, n in enumerate(odd, 1)]
    )
    looked(run, {"memory_used_bytes": 79 * 10**9, "memory_total_bytes": 80 * 10**9}, utilisation_pct=95.0)


def throttled(at: Path) -> None:
    run = trained(at / "run", [[Step(fetch_ns=0, sync=True)] * 200], device=H200)
    slow = {"sm_clock_mhz": 900, "sm_clock_max_mhz": 1500, "throttle_reasons": 0x20, "temperature_c": 88}
    looked(run, {**slow, "power_mw": 650_000}, utilisation_pct=99.0)
    note_devices(run, [SampledDevice(0, "NVIDIA H200", 700_000)], "570.86.15")


def contended(at: Path) -> None:
    conditions = Conditions(others=0.5, processes=2)
    spec = EmulatedSpec("test", "Test", 10**12, 10e9, 5e9, conditions=conditions)
    run = trained(at / "run", [[Step(fetch_ns=10 * MS, sync=True)] * 200], spec=spec)
    looked(run, conditions.state(0), utilisation_pct=84.0)


def shape_churn(at: Path) -> None:
    odd = range(15, 200, 10)
    plan = [Step(fetch_ns=0, compute_ns=COMPUTE + (60 * MS if n in odd else 0), sync=True) for n in range(200)]
    run = trained(at / "run", [plan])

    def change(steps: Records) -> None:
        new = np.isin(steps["step"], list(odd))
        steps["flags"] |= StepFlag.SHAPE_KNOWN | np.where(new, StepFlag.NEW_SHAPE, 0)
        steps["flags"] |= 1000 << StepFlag.ELEMENTS_SHIFT

    amend(run, change)


def compiling(at: Path) -> None:
    run = train_on_cpu(at / "run", [{"flags": StepFlag.SHAPE_KNOWN | StepFlag.NEW_SHAPE}] * 60)
    update_run(run, {"command": ["python", "train.py"]})
    happened(run, EventKind.COMPILE, 0, lambda s: ((int(b), int(b) + 30 * MS) for b in s["forward_begin_ns"]))


def torn(at: Path) -> None:
    """Killed: nothing says how it ended, a file ends within a record, and one record was overwritten."""
    run = trained(at / "run", [[Step(fetch_ns=20 * MS)] * 100], ended=None)
    (path,) = run.glob("step-*.rec")
    whole = path.read_bytes()
    at_byte = 4096 + 50 * STEP.record_bytes + 16
    path.write_bytes((whole[:at_byte] + b"\x5a" * 200 + whole[at_byte + 200 :])[:-100])


def failed(at: Path) -> None:
    run = trained(at / "run", [[Step()] * 50])
    update_run(run, {"ended": {"status": "failed", "error": "ValueError: a broken image", "exit_code": 1}})


def device_silent(at: Path) -> None:
    """The device stamped half of the steps."""
    run = trained(at / "run", [[Step(fetch_ns=MS)] * 80])

    def change(steps: Records) -> None:
        for name in ("device_begin_ns", "device_end_ns"):
            steps[name][20:60:2] = NOT_MEASURED

    amend(run, change)


def on_cpu(at: Path) -> None:
    steps = [{"fetch": 60, "gap": 10, "cpu_ms": 95, "end": 110}] * 60
    run = train_on_cpu(at / "run", steps)
    update_run(run, {"command": ["python", "-m", "train", "--device", "cpu"], "torch": "2.9.0"})
    told(run, 0, None, 0)
    hosted(run, 1.0, 2)


def on_cpu_no_fetch(at: Path) -> None:
    """No fetch was seen, and the samples of a batch are not known."""
    run = train_on_cpu(at / "run", [{}] * 60)
    update_run(run, {"command": ["python", "train.py"]})

    def change(steps: Records) -> None:
        steps["fetch_end_ns"] = NOT_MEASURED
        steps["samples"] = NOT_MEASURED

    amend(run, change)


def long(at: Path) -> None:
    """Three minutes of a made-up training: validation, workers that fall behind, stand-in data."""
    run = long_run(at / "run", hours=0.05, hz=2.0, bad_every=900)
    revision = {"revision": "0123456789abcdef0123456789abcdef01234567", "branch": "main", "changed": True}
    update_run(run, {"code": revision, "torch": "2.9.0+cu130", "cost": None})
    note_devices(run, [SampledDevice(0, "made-up GPU", 700_000)], "570.86.15")


def thinned(at: Path) -> None:
    """Of most steps the hooks looked at none, and at the end some were left out."""
    run = trained(at / "run", [[Step(fetch_ns=4 * MS)] * 120])

    def change(steps: Records) -> None:
        steps["skipped"], steps["skipped_samples"] = 0, 0
        steps["overhead_ns"] = 20_000

    amend(run, change)
    last = until(run)
    add_events(
        run,
        [
            (last, EventKind.SKIPPED_STEPS, 7, NOT_MEASURED),
            (last, EventKind.SKIPPED_SAMPLES, 56, NOT_MEASURED),
            (last, EventKind.DEVICE_RING_FULL, 3, NOT_MEASURED),
            (last, EventKind.CLOCK_UNCERTAINTY, 2_500_000, NOT_MEASURED),
        ],
    )


def several_causes(at: Path) -> None:
    """A loader without workers, copies, reading calls, a slow loop and validation, each of which costs."""
    step = Step(
        fetch_ns=6 * MS,
        copy_bytes=20_000_000,
        pinned=False,
        sync_within=True,
        within_ns=2 * MS,
        sync=True,
        host_ns=3 * MS,
    )
    run = trained(at / "run", [[*[step] * 49, Step(boundary_ns=200 * MS)]] * 3, device=H200)
    told(run, 0, None, 0)
    hosted(run, 1.0, 4, 90.0)
    states = {"memory_used_bytes": 12 * 10**9, "memory_total_bytes": 80 * 10**9, "power_mw": 312_000}
    looked(run, states | {"sm_clock_mhz": 1755, "sm_clock_max_mhz": 1980, "temperature_c": 54}, utilisation_pct=60.0)


def transforms(at: Path) -> None:
    """Transforms that were timed one by one, and slow samples with the names of their files."""
    run = pooled(at / "run", [[Step(fetch_ns=60 * MS)] * 80], PlantedWorkers(2, 2), Making(cpu=0.9))
    names = Names(run)
    told_by = [names.number(name) for name in ("RandomResizedCrop", "ColorJitter", "ToTensor")]
    rows = [
        {
            "training": os.getpid(),
            "worker": number % 2,
            "name": name,
            "position": place,
            "samples": 8,
            "total_ns": (12 - 4 * place) * MS,
            "loader": 1,
        }
        for number in range(12)
        for place, name in enumerate(told_by)
    ]
    add(run, TRANSFORM, rows)
    slow = names.number("photos/large one.jpg")
    (path,) = run.glob("batch-*.rec")
    count = (path.stat().st_size - HEADER_BYTES) // BATCH.record_bytes
    batches = np.memmap(path, BATCH.dtype, "r+", HEADER_BYTES, (count,))
    batches["slowest_name"][::10], batches["slowest_ns"][::10] = slow, 30 * MS
    batches["transform_ns"][:24] = 24 * MS
    batches.flush()
    hosted(run, 1.9, 4)


def odd_words(at: Path) -> None:
    """Names that are markup, control a terminal, or begin a formula."""
    bad = "[red]x[/red] <b>&amp;\x1b[31m\u202e:smile:"
    run = trained(at / "run", [[Step(fetch_ns=20 * MS, host_ns=5 * MS, sync=True)] * 60])
    update_run(
        run,
        {
            "command": ["python", f"{bad}.py"],
            "device": {"kind": "emulated", "title": f"emulated {bad}"},
            "dataset": {"name": bad, "stand_in": f"the photos | of <i>{bad}"},
            "ended": {"status": "failed", "error": bad, "exit_code": 3},
            "settings": {"lr": 0.1, bad: bad, "deep": {"er": [1, 2, None]}, "flag": True},
        },
    )
    number = Names(run).number(f"=HYPERLINK {bad}")
    happened(run, EventKind.PHASE, number, lambda s: ((int(e) - 4 * MS, int(e)) for e in s["step_end_ns"]))


BUILDERS: dict[str, Callable[[Path], None]] = {
    "healthy": healthy,
    "too-few-steps": too_few_steps,
    "no-training": no_training,
    "serial": made_in_training,
    "serial-crowded": made_in_training_crowded,
    "too-few-workers": too_few_workers,
    "with-stacks": with_stacks,
    "waiting-workers": waiting_workers,
    "cpu-exhausted": cpu_exhausted,
    "oversubscribed": oversubscribed,
    "worker-threads": worker_threads,
    "cpu-quota": cpu_quota,
    "held-back": held_back,
    "affinity": affinity,
    "foreign-load": foreign_load,
    "storage": storage,
    "straggler": straggler,
    "prefetch-depth": prefetch_depth,
    "worker-restart": worker_restart,
    "pipeline-fill": pipeline_fill,
    "few-batches": few_batches,
    "handoff": handoff,
    "handoff-many-tensors": handoff_many_tensors,
    "sampler": sampler,
    "sampler-of-epochs": sampler_of_epochs,
    "sharding": sharding,
    "overkill": overkill,
    "exclusive": exclusive,
    "wasted": wasted,
    "memory": memory_grows,
    "copy-pageable": copy_pageable,
    "copy-serial": copy_serial,
    "copy-link": copy_link,
    "sync": sync,
    "launch": launch,
    "gc": garbage,
    "gil": gil,
    "main-process": main_process,
    "step-gap": step_gap,
    "starting": starting,
    "slowing": slowing,
    "breakpoint": breakpoint,
    "validation": validation,
    "checkpoints": checkpoints,
    "ends-of-epochs": ends_of_epochs,
    "memory-pressure": memory_pressure,
    "throttled": throttled,
    "contended": contended,
    "shape-churn": shape_churn,
    "compiling": compiling,
    "torn": torn,
    "failed": failed,
    "device-silent": device_silent,
    "on-cpu": on_cpu,
    "on-cpu-no-fetch": on_cpu_no_fetch,
    "long": long,
    "thinned": thinned,
    "several-causes": several_causes,
    "transforms": transforms,
    "odd-words": odd_words,
}
