"""Recordings of one training process each: one for every cause that can be told, and what else a run may be.

A catalogue, in which whoever adds a cause looks for those it is to be told from.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from support.crafted import add, add_events, amend, steps_of, train_on_cpu
from support.long_run import make as long_run
from support.planted_runs import (
    COMPUTE,
    H200,
    ODD,
    Making,
    Spans,
    batch,
    boundaries,
    evaluated,
    happened,
    hosted,
    looked,
    pooled,
    retries,
    serial,
    shapes,
    slower_steps,
    threads,
    told,
    trained,
    until,
)
from support.planted_stacks import plant_stacks
from support.stacks import FETCH, WORKER
from whyidle.devices.conditions import Conditions
from whyidle.devices.emulated import EmulatedSpec
from whyidle.record.reader import Records
from whyidle.record.run import SampledDevice, note_devices, update_run
from whyidle.record.schema import (
    BATCH,
    CONTENT,
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
PLAIN = Making()
QUEUING = Making(cpu=0.25, queued=0.7)
READING = Making(cpu=0.15, read=0.8, read_bytes=7_200_000, read_chars_bytes=8_000_000, batch_bytes=4_800_000)
KEPT = LoaderFlag.PERSISTENT_WORKERS
COMMAND = {"command": ["python", "train.py"]}
CODE = {"revision": "0123456789abcdef0123456789abcdef01234567", "branch": "main", "changed": True}

Part = Callable[[Path], object]
"""Makes or completes a run folder."""


def recording(*parts: Part) -> Part:
    """Make a recording in a folder: `run` in it, by each of these in turn."""

    def build(at: Path) -> None:
        for make in parts:
            make(at / "run")

    return build


def part(change: Callable[..., object], *arguments: Any, **more: Any) -> Part:
    return lambda run: change(run, *arguments, **more)


amends, events, host, looks = (partial(part, each) for each in (amend, add_events, hosted, looked))
devices, loader, trains, processor = (partial(part, each) for each in (note_devices, told, trained, train_on_cpu))


def info(**fields: Any) -> Part:
    return part(update_run, fields)


def sets(**fields: Any) -> Part:
    """Change these of all steps."""

    def change(steps: Records) -> None:
        for name, value in fields.items():
            steps[name] = value

    return amends(change)


def cpus(number: int) -> Part:
    """The machine has so many."""
    return info(host={"cpus": number})


def steps(number: int, epochs: int = 1, **each: Any) -> list[list[Step]]:
    """Epochs of equal steps."""
    return [[Step(**each)] * number] * epochs


def computed(number: int, **each: Any) -> list[list[Step]]:
    """Steps whose data takes no time."""
    return steps(number, fetch_ns=0, **each)


def pool(plan: int | list[list[Step]], number: int, making: Making = PLAIN, count: int = 100, **how: Any) -> Part:
    """So many workers take so many milliseconds for each batch, or as planned."""
    epochs = steps(count, how.pop("epochs", 1), fetch_ns=plan * MS) if isinstance(plan, int) else plan
    workers = PlantedWorkers(number, how.pop("prefetch", 2), how.pop("start_ns", 0))
    return part(pooled, epochs, workers, making, **how)


def happens(what: int, value: int, when: Callable[[Records], Any]) -> Part:
    return part(happened, what, value, when)


def ends(after_ms: int, stamp: str = "step_end_ns") -> Callable[[Records], Any]:
    """Spans of that length up to each step's end, or to another stamp of it; negative: from there on."""
    return lambda s: ((min(int(e), int(e) - after_ms * MS), max(int(e), int(e) - after_ms * MS)) for e in s[stamp])


def uneven() -> list[list[Step]]:
    each_ms = np.random.default_rng(0).lognormal(2.0, 1.0, 200)
    return [[Step(fetch_ns=round(ms * MS), sync=True) for ms in each_ms]]


def first_slower(first_ms: int, other_ms: int) -> list[list[Step]]:
    """Six epochs whose first batch takes longer."""
    return [[Step(fetch_ns=(other_ms if n else first_ms) * MS) for n in range(20)]] * 6


def handed(making: Making, made_ms: float) -> Part:
    """Batches come 25 ms after they were finished."""

    def build(run: Path) -> None:
        trained(run, steps(120, fetch_ns=25 * MS))
        told(run, 2, 2, LoaderFlag.PIN_MEMORY)
        rows = []
        for number, step in enumerate(steps_of(run)):
            end = int(step["fetch_begin_ns"]) + MS
            rows.append(batch(making, number % 2, end - round(made_ms * MS), end, 0, number, True))
        add(run, BATCH, rows)
        sets(loader=1, batch=np.arange(120), queue_ready=1, queue_capacity=4)(run)
        hosted(run, 0.6, 8)

    return build


def sampler_of_epochs(run: Path) -> None:
    """Its iterator is made twice, since workers are not kept."""
    trained(run, first_slower(400, 2))
    told(run, 2, 2, 0)
    for after in (5 * MS, 200 * MS):
        made = steps_of(run)
        begins = made["fetch_begin_ns"][made["epoch"].searchsorted(range(6))] + after
        add_events(run, [(int(b), EventKind.SAMPLER, 0, int(b) + 190 * MS) for b in begins])
    hosted(run, 1.0, 8)


def exclusive(run: Path) -> None:
    """Of four workers one copies a shard, while the others wait for the lock of a file."""
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


def wasted(run: Path) -> None:
    """Three in ten samples are left out by collate_fn, the loop passes nothing over."""
    counts = {"training": os.getpid(), "loader": 1, "made": 8}
    rows = [
        counts | {"worker": number % 2, "batch": number, "present": 8 - number % 5, "kept": 8 - number % 5}
        for number in range(40)
    ]
    add(run, CONTENT, [row | {"present": row["present"] - 1, "kept": row["kept"] - 1} for row in rows])


def memory_grows(run: Path) -> None:
    """Pages of workers are copied, 0.2 GB of them a second, until the machine swaps."""
    rows = []
    for at_ns in range(START, until(run) + 200 * MS, 200 * MS):
        passed_ns = at_ns - START
        grown = passed_ns // 5
        row = {"t_ns": at_ns, "late_ns": 0, "cpus": 8000, "tree_cpu_ns": 2 * passed_ns, "machine_busy_pct": 30.0}
        row |= {"tree_rss_bytes": 3 * 10**9, "main_rss_bytes": 10**9, "tree_private_bytes": 5 * 10**8 + grown}
        row |= {"memory_available_bytes": max(5 * 10**7, 5 * 10**8 - grown)}
        row |= {"swap_used_bytes": max(0, grown - 5 * 10**8), "memory_pressure_us": round(3e5 * passed_ns / 1e9)}
        rows.append(row)
    add(run, HOST, rows)


def copied(pinned: bool, **more: Any) -> Part:
    return trains(computed(100, compute_ns=COMPUTE, copy_bytes=40_000_000, pinned=pinned), **more)


def launched(steps: Records) -> None:
    steps["cpu_ns"] = steps["step_end_ns"] - steps["fetch_begin_ns"]
    steps["optimizer_end_ns"] = steps["step_end_ns"] - MS // 10


def phase(name: str, when: Callable[[Records], Any]) -> Part:
    """A phase that the program marks, in each step."""
    return lambda run: happened(run, EventKind.PHASE, Names(run).number(name), when)


def bounded(*parts: Callable[[Path, Spans], None]) -> Part:
    """Epochs that end with 300 ms of something; told what it is by the spans of it."""

    def build(run: Path) -> None:
        epoch = [Step(fetch_ns=0)] * 39 + [Step(fetch_ns=0, sync=True, boundary_ns=300 * MS)]
        trained(run, [epoch] * 4)
        for tell in parts:
            tell(run, boundaries(run))
        hosted(run, 1.0, 8)

    return build


def saved(run: Path, spans: Spans) -> None:
    add_events(run, [(begin, EventKind.SAVE, 0, begin + 9 * (end - begin) // 10) for begin, end in spans])


SLOW_CLOCK = {"sm_clock_mhz": 900, "sm_clock_max_mhz": 1500, "throttle_reasons": 0x20, "temperature_c": 88}
FULL_MEMORY = {"memory_used_bytes": 79 * 10**9, "memory_total_bytes": 80 * 10**9}
NARROW_LINK = {"pcie_generation": 4, "pcie_width": 8, "pcie_max_generation": 4, "pcie_max_width": 16}
OTHERS = Conditions(others=0.5, processes=2)


def torn(run: Path) -> None:
    """Killed: nothing says how it ended, a file ends within a record, and one record was overwritten."""
    trained(run, steps(100, fetch_ns=20 * MS), ended=None)
    (path,) = run.glob("step-*.rec")
    whole = path.read_bytes()
    at_byte = 4096 + 50 * STEP.record_bytes + 16
    path.write_bytes((whole[:at_byte] + b"\x5a" * 200 + whole[at_byte + 200 :])[:-100])


def half_unstamped(steps: Records) -> None:
    for name in ("device_begin_ns", "device_end_ns"):
        steps[name][20:60:2] = NOT_MEASURED


def left_out(run: Path) -> None:
    """At the end some steps, and more that was not recorded."""
    counts = {EventKind.SKIPPED_STEPS: 7, EventKind.SKIPPED_SAMPLES: 56, EventKind.DEVICE_RING_FULL: 3}
    counts[EventKind.CLOCK_UNCERTAINTY] = 2_500_000
    add_events(run, [(until(run), what, count, NOT_MEASURED) for what, count in counts.items()])


def several_causes(run: Path) -> None:
    """A loader without workers, copies, reading calls, a slow loop and validation, each of which costs."""
    step = Step(6 * MS, copy_bytes=20_000_000, pinned=False, sync_within=True, within_ns=2 * MS, sync=True)
    step = replace(step, host_ns=3 * MS)
    trained(run, [[*[step] * 49, Step(boundary_ns=200 * MS)]] * 3, device=H200)
    told(run, 0, None, 0)
    hosted(run, 1.0, 4, 90.0)
    states = {"memory_used_bytes": 12 * 10**9, "memory_total_bytes": 80 * 10**9, "power_mw": 312_000}
    looked(run, states | {"sm_clock_mhz": 1755, "sm_clock_max_mhz": 1980, "temperature_c": 54}, utilisation_pct=60.0)


def transforms(run: Path) -> None:
    """Transforms that were timed one by one, and slow samples with the names of their files."""
    names = Names(run)
    told_by = [names.number(name) for name in ("RandomResizedCrop", "ColorJitter", "ToTensor")]
    of_all = {"training": os.getpid(), "samples": 8, "loader": 1}
    rows = [
        of_all | {"worker": number % 2, "name": name, "position": place, "total_ns": (12 - 4 * place) * MS}
        for number in range(12)
        for place, name in enumerate(told_by)
    ]
    add(run, TRANSFORM, rows)
    slow = names.number("photos/large one.jpg")

    def put_slow_ones(batches: Records) -> None:
        batches["slowest_name"][::10], batches["slowest_ns"][::10] = slow, 30 * MS
        batches["transform_ns"][:24] = 24 * MS

    amend(run, put_slow_ones, BATCH)


BAD = "[red]x[/red] <b>&amp;\x1b[31m\u202e:smile:"
"""A name that is markup and controls a terminal."""
BUILDERS: dict[str, Part] = {
    "healthy": recording(trains(steps(60, 2, fetch_ns=2 * MS)), host(1.0, 4)),
    "too-few-steps": recording(trains(steps(20, fetch_ns=50 * MS))),
    "no-training": recording(trains([])),
    "serial": recording(part(serial, 100, 20, Making(stages=(0.6, 0.3))), host(1.0, 4)),
    "serial-crowded": recording(
        part(serial, 100, 20, Making(cpu=0.3, queued=0.65)), cpus(2), host(0.3, 2, 100.0, queued=0.4)
    ),
    "too-few-workers": recording(pool(40, 2, Making(stages=(0.6, 0.3)), 60, epochs=2), host(2.0, 8)),
    # Workers open an archive for each sample; the training's own code is seen in each part of its steps.
    "with-stacks": recording(
        pool(steps(60, 2, fetch_ns=40 * MS, before_ns=4 * MS, host_ns=3 * MS), 2),
        host(2.0, 8),
        lambda run: plant_stacks(run, end_ns=until(run)),
    ),
    # Samples come over a network.
    "waiting-workers": recording(pool(40, 2, Making(cpu=0.03, queued=0.01)), host(0.4, 4)),
    "cpu-exhausted": recording(pool(40, 2, Making(stages=(0.7, 0.2))), cpus(2), host(1.95, 2, 99.0)),
    "oversubscribed": recording(pool(160, 8, QUEUING), cpus(2), host(1.95, 2, 99.0)),
    "worker-threads": recording(
        pool(40, 2, Making(cpu=0.25, queued=0.6, process_cpu=1.8)), cpus(2), host(1.95, 2, 99.0)
    ),
    "cpu-quota": recording(pool(80, 4, QUEUING), host(1.45, 1.5, 40.0, throttled=0.8)),
    # As by a quota that nobody tells of.
    "held-back": recording(pool(40, 2, QUEUING), host(0.8, 2, 40.0)),
    "affinity": recording(pool(80, 4, replace(QUEUING, cpus=1)), host(4.0, 8, 80.0)),
    "foreign-load": recording(pool(40, 2, QUEUING), cpus(2), host(0.5, 2, 99.0)),
    "storage": recording(pool(40, 2, READING), host(0.5, 8, read_storage_bytes=10**9)),
    "straggler": recording(
        pool([[Step(fetch_ns=(400 if n % 25 == 12 else 15) * MS) for n in range(150)]], 4, Making(slowest=0.9)),
        host(2.0, 8),
    ),
    "prefetch-depth": recording(pool(uneven(), 2, prefetch=1), host(1.6, 8)),
    "worker-restart": recording(
        pool(12, 2, count=25, epochs=6, start_ns=400 * MS, flags=LoaderFlag.STARTS_PYTHON, persistent=False),
        host(1.5, 8),
    ),
    "pipeline-fill": recording(pool(first_slower(900, 8), 2, flags=KEPT), host(1.0, 8)),
    # Epochs of fewer batches than there are workers.
    "few-batches": recording(pool(60, 8, count=4, epochs=20, flags=KEPT), host(2.0, 8)),
    "handoff": recording(handed(Making(batch_bytes=20_000_000, sent_bytes=20_000_000), 10)),
    "handoff-many-tensors": recording(handed(Making(batch_bytes=20_000_000, sent_bytes=300), 10), info(device=H200)),
    # Of the 25 ms that a batch takes to come, its workers' next one is chosen in 22.
    "sampler": recording(
        handed(Making(), 10),
        happens(
            *(EventKind.SAMPLER, 8),
            lambda s: ((int(b) + 2 * MS, int(e)) for b, e in zip(s["fetch_begin_ns"], s["fetch_end_ns"], strict=True)),
        ),
    ),
    "sampler-of-epochs": recording(sampler_of_epochs),
    "sharding": recording(
        pool(20, 1, flags=LoaderFlag.ITERABLE),
        events([(START + 1, EventKind.LOADER_WORKERS, 4, NOT_MEASURED)]),
        host(1.0, 8),
    ),
    "overkill": recording(handed(Making(batch_bytes=4000, sent_bytes=300), 0.3)),
    "exclusive": recording(pool(80, 4, Making(cpu=0.02, queued=0.01)), host(0.4, 4), exclusive),
    "wasted": recording(pool(40, 2), wasted, host(2.0, 8)),
    "memory": recording(pool(40, 2, count=300), memory_grows),
    "copy-pageable": recording(copied(pinned=False)),
    "copy-serial": recording(copied(pinned=True, device=H200)),
    "copy-link": recording(copied(pinned=True), looks(NARROW_LINK, utilisation_pct=90.0)),
    "sync": recording(trains(computed(120, sync_within=True, within_ns=8 * MS))),
    "launch": recording(
        trains(computed(150, host_ns=COMPUTE), device=H200),
        amends(launched),
        looks({"sm_clock_mhz": 1980, "sm_clock_max_mhz": 1980, "throttle_reasons": 0}, utilisation_pct=35.0),
        host(1.0, 4),
    ),
    "gc": recording(trains(computed(120, sync=True, host_ns=6 * MS)), happens(EventKind.GARBAGE, 2, ends(5))),
    "gil": recording(trains(computed(120, sync=True, host_ns=10 * MS), cpu_ns=MS), threads, host(1.5, 4, queued=0.05)),
    # Work behind the optimizer besides.
    "main-process": recording(
        pool(computed(120, sync=True, before_ns=6 * MS, host_ns=2 * MS), 2),
        phase("pack", ends(-5, "fetch_end_ns")),
        host(1.3, 4),
    ),
    "step-gap": recording(trains(computed(120, sync=True, host_ns=COMPUTE)), phase("log images", ends(8))),
    # Four seconds of the program's own and two of imports, before its first step.
    "starting": recording(
        trains(steps(120, fetch_ns=2 * MS)),
        events(
            [
                (START - 6000 * MS, EventKind.PROCESS_BEGIN, NOT_MEASURED, NOT_MEASURED),
                (START - 5900 * MS, EventKind.IMPORT, NOT_MEASURED, START - 4000 * MS),
                (START + 5 * MS, EventKind.IMPORTS_TIMED, NOT_MEASURED, NOT_MEASURED),
            ]
        ),
        host(1.0, 4),
    ),
    # What the loop does after each step grows; so does the memory of the processes.
    "slowing": recording(trains([[Step(sync=True, host_ns=n * MS // 10) for n in range(200)]]), host(1.0, 4)),
    # The program stood still once.
    "breakpoint": recording(
        trains([[Step(fetch_ns=0, sync=True, host_ns=3000 * MS if n == 100 else 0) for n in range(160)]])
    ),
    "validation": recording(bounded(partial(evaluated, waited=0.8, workers=0))),
    "checkpoints": recording(bounded(saved)),
    "ends-of-epochs": recording(bounded(lambda run, _: told(run, 3, 2, 0))),
    "memory-pressure": recording(
        trains(slower_steps(ODD, 40 * MS), device=H200), retries, looks(FULL_MEMORY, utilisation_pct=95.0)
    ),
    "throttled": recording(
        trains(computed(200, sync=True), device=H200),
        looks(SLOW_CLOCK | {"power_mw": 650_000}, utilisation_pct=99.0),
        devices([SampledDevice(0, "NVIDIA H200", 700_000)], "570.86.15"),
    ),
    "contended": recording(
        trains(
            steps(200, fetch_ns=10 * MS, sync=True),
            spec=EmulatedSpec("test", "Test", 10**12, 10e9, 5e9, conditions=OTHERS),
        ),
        looks(OTHERS.state(0), utilisation_pct=84.0),
    ),
    "shape-churn": recording(trains(slower_steps(ODD, 60 * MS)), shapes),
    "compiling": recording(
        processor([{"flags": StepFlag.SHAPE_KNOWN | StepFlag.NEW_SHAPE}] * 60),
        info(**COMMAND),
        happens(EventKind.COMPILE, 0, ends(-30, "forward_begin_ns")),
    ),
    "torn": recording(torn),
    "failed": recording(
        trains(steps(50), ended={"status": "failed", "error": "ValueError: a broken image", "exit_code": 1})
    ),
    # The device stamped half of the steps.
    "device-silent": recording(trains(steps(80)), amends(half_unstamped)),
    "on-cpu": recording(
        processor([{"fetch": 60, "gap": 10, "cpu_ms": 95, "end": 110}] * 60),
        info(command=["python", "-m", "train", "--device", "cpu"], torch="2.9.0"),
        loader(0, None, 0),
        host(1.0, 2),
    ),
    # No fetch was seen, and the samples of a batch are not known.
    "on-cpu-no-fetch": recording(
        processor([{}] * 60), info(**COMMAND), sets(fetch_end_ns=NOT_MEASURED, samples=NOT_MEASURED)
    ),
    # Three minutes of a made-up training: validation, workers that fall behind, stand-in data.
    "long": recording(
        part(long_run, hours=0.05, hz=2.0, bad_every=900),
        info(code=CODE, torch="2.9.0+cu130", cost=None),
        devices([SampledDevice(0, "made-up GPU", 700_000)], "570.86.15"),
    ),
    # Of most steps the hooks looked at none.
    "thinned": recording(
        trains(steps(120, fetch_ns=4 * MS)), sets(skipped=0, skipped_samples=0, overhead_ns=20_000), left_out
    ),
    "several-causes": recording(several_causes),
    "transforms": recording(pool(60, 2, Making(cpu=0.9), 80), transforms, host(1.9, 4)),
    # Names that are markup, control a terminal, or begin a formula.
    "odd-words": recording(
        trains(steps(60, fetch_ns=20 * MS, host_ns=5 * MS, sync=True)),
        info(
            command=["python", f"{BAD}.py"],
            device={"kind": "emulated", "title": f"emulated {BAD}"},
            dataset={"name": BAD, "stand_in": f"the photos | of <i>{BAD}"},
            ended={"status": "failed", "error": BAD, "exit_code": 3},
            settings={"lr": 0.1, BAD: BAD, "deep": {"er": [1, 2, None]}, "flag": True},
        ),
        phase(f"=HYPERLINK {BAD}", ends(4)),
    ),
}
