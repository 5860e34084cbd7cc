"""A recording of a training that never ran: a day of it, written in seconds. Its data are made up, and it says so.

Steps of some 100 ms on a device with a queue; workers that now and then fall behind, and do so for minutes a few times
a day; a validation after each epoch; samples of device and host at a steady rate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from whyidle.record.run import create_run
from whyidle.record.schema import BATCH, DEVICE, EVENT, HOST, NOT_MEASURED, STEP, EventKind, Kind, StepFlag
from whyidle.record.segment import RecordWriter

MS, S = 10**6, 10**9
BEGIN = 10**12
SAMPLES = 64
STEPS_PER_EPOCH = 10_000
VALIDATION_S = 20
BAD_EVERY = 90_000
"""Steps from one stretch of slow batches to the next: they are the steps for which `is_bad`."""
TRAINING, SAMPLER = 4711, 4712

Times = npt.NDArray[np.int64]


def make(folder: Path, hours: float = 24.0, workers: int = 4, hz: float = 5.0, bad_every: int = BAD_EVERY) -> Path:
    """Write the run into a folder that is not there yet."""
    random = np.random.default_rng(0)
    count = int(hours * 36_000)
    description = {
        "command": ["python", "train.py"],
        "device": {"kind": "cuda", "title": "made-up GPU", "count": 1},
        "dataset": {"name": "made-up", "stand_in": "a training of a day"},
        "clock": {"time_ns": 1_767_225_600 * S, "monotonic_ns": BEGIN},
        "ended": {"status": "ok", "exit_code": 0},
    }
    create_run(folder, description)
    steps = _steps(count, bad_every, random)
    _write(folder, STEP, TRAINING, steps)
    _write(folder, BATCH, TRAINING, _batches(steps, workers, random))
    _write(folder, EVENT, TRAINING, _events(steps))
    at = np.arange(BEGIN, int(steps["step_end_ns"][-1]), int(S / hz), dtype=np.int64)
    _write(folder, DEVICE, SAMPLER, _device(steps, at, random))
    _write(folder, HOST, SAMPLER, _host(at, random))
    return folder


def is_bad(steps: Times, every: int = BAD_EVERY) -> npt.NDArray[np.bool_]:
    """Which of these step numbers lie in a stretch of slow batches."""
    return (steps + every // 2) % every < every * 2 // 45


def _steps(count: int, bad_every: int, random: np.random.Generator) -> npt.NDArray[np.void]:
    number = np.arange(count)
    wait = random.exponential(6 * MS, count) + np.where(
        random.random(count) < 0.01, random.exponential(250 * MS, count), 0
    )
    wait += np.where(is_bad(number, bad_every), random.exponential(80 * MS, count), 0)
    compute = random.normal(86 * MS, 3 * MS, count)
    steps = _blank(STEP, count)
    first = number % STEPS_PER_EPOCH == 0
    own = (wait + compute + 3 * MS).astype(np.int64)
    pause = np.where(first & (number > 0), VALIDATION_S * S, 0)
    begin = BEGIN + np.concatenate(([0], np.cumsum(own)[:-1])) + np.cumsum(pause)
    fetched = begin + wait.astype(np.int64)
    steps["step"], steps["epoch"] = number, number // STEPS_PER_EPOCH
    steps["flags"] = StepFlag.OPTIMIZER | np.where(first, StepFlag.FIRST_OF_EPOCH, 0)
    steps["samples"], steps["skipped"], steps["skipped_samples"] = SAMPLES, 0, 0
    steps["fetch_begin_ns"], steps["fetch_end_ns"] = begin, fetched
    steps["queue_ready"] = np.where(wait > 20 * MS, 0, random.integers(1, 9, count))
    steps["queue_capacity"] = 8
    steps["copy_begin_ns"], steps["copy_end_ns"], steps["copy_bytes"] = fetched, fetched + MS, SAMPLES * 600_000
    steps["device_copy_begin_ns"], steps["device_copy_end_ns"] = fetched, fetched + MS
    steps["device_begin_ns"] = fetched + MS
    steps["device_end_ns"] = steps["device_begin_ns"] + compute.astype(np.int64)
    steps["forward_begin_ns"] = fetched + MS
    steps["backward_begin_ns"] = steps["forward_begin_ns"] + 20 * MS
    steps["optimizer_begin_ns"] = steps["backward_begin_ns"] + 40 * MS
    steps["optimizer_end_ns"] = steps["device_end_ns"]
    steps["step_end_ns"] = begin + own
    steps["sync_ns"], steps["gc_ns"], steps["overhead_ns"] = 0, 0, 60_000
    steps["memory_bytes"] = 9 * 10**9
    steps["loader"], steps["batch"] = 1, ((number // STEPS_PER_EPOCH) << 32) + number % STEPS_PER_EPOCH
    return steps


def _batches(steps: npt.NDArray[np.void], workers: int, random: np.random.Generator) -> npt.NDArray[np.void]:
    count = len(steps)
    batches = _blank(BATCH, count)
    late = steps["fetch_end_ns"] - steps["fetch_begin_ns"] > 20 * MS
    end = steps["fetch_end_ns"] - MS - np.where(late, 0, random.exponential(150 * MS, count)).astype(np.int64)
    took = random.normal(340 * MS, 40 * MS, count).astype(np.int64) + np.where(late, 300 * MS, 0)
    # A worker begins a batch when the one before is done; batches of other workers may be done before this one.
    done = np.concatenate((np.full(workers, BEGIN - 2_000 * MS), steps["fetch_end_ns"][:-workers]))
    end = np.maximum(end, done + MS)
    before = np.concatenate((end[:workers] - 400 * MS, end[:-workers]))
    begin = np.maximum(end - took, before)
    batches["worker"], batches["samples"] = np.arange(count) % workers, SAMPLES
    batches["begin_ns"], batches["end_ns"] = begin, end
    batches["read_ns"] = ((end - begin) * random.uniform(0.1, 0.5, count)).astype(np.int64)
    batches["collate_ns"], batches["cpu_ns"] = (end - begin) // 20, (end - begin) // 2
    batches["threads"], batches["training"], batches["skipped"] = 1, TRAINING, 0
    batches["loader"], batches["batch"] = steps["loader"], steps["batch"]
    batches["slowest_index"] = random.integers(0, 10**6, count)
    batches["slowest_ns"] = (end - begin) // 8
    return batches


def _events(steps: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    first = np.flatnonzero((steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0)
    begins = steps["fetch_begin_ns"][first]
    ends = steps["step_end_ns"][first[1:] - 1]
    rows = [(BEGIN, EventKind.TRAINING_BEGIN, 0, NOT_MEASURED)]
    rows += [(int(at), EventKind.EPOCH_BEGIN, n, NOT_MEASURED) for n, at in enumerate(begins)]
    rows += [(int(a), EventKind.BOUNDARY, 0, int(b)) for a, b in zip(ends, begins[1:], strict=True)]
    rows += [(int(steps["step_end_ns"][-1]), EventKind.TRAINING_END, 0, NOT_MEASURED)]
    rows.sort()
    events = _blank(EVENT, len(rows))
    for name, values in zip(("t_ns", "what", "value", "end_ns"), zip(*rows, strict=True), strict=True):
        events[name] = values
    return events


def _device(steps: npt.NDArray[np.void], at: Times, random: np.random.Generator) -> npt.NDArray[np.void]:
    device = _blank(DEVICE, len(at))
    within = np.clip(np.searchsorted(steps["fetch_begin_ns"], at) - 1, 0, None)
    idle = at > steps["step_end_ns"][within]
    device["t_ns"], device["device"], device["window_ns"] = at, 0, 166 * MS
    device["utilisation_pct"] = np.where(idle, 40, np.clip(random.normal(88, 8, len(at)), 0, 100)).round()
    device["memory_used_bytes"], device["memory_total_bytes"] = 11 * 10**9, 80 * 10**9
    device["power_mw"] = np.where(idle, 120_000, random.normal(390_000, 15_000, len(at))).astype(np.int64)
    device["sm_clock_mhz"] = device["sm_clock_max_mhz"] = 1980
    return device


def _host(at: Times, random: np.random.Generator) -> npt.NDArray[np.void]:
    host = _blank(HOST, len(at))
    host["t_ns"], host["late_ns"], host["cpus"] = at, MS, 16_000
    host["machine_busy_pct"] = np.clip(random.normal(35, 6, len(at)), 0, 100)
    host["steal_pct"] = 0.0
    host["tree_cpu_ns"] = np.cumsum((random.normal(4.6, 0.4, len(at)) * np.diff(at, prepend=at[0])).astype(np.int64))
    return host


def _blank(kind: Kind, count: int) -> npt.NDArray[Any]:
    """Records of which nothing was measured."""
    records = np.zeros(count, dtype=kind.dtype)
    for field, missing in zip(kind.fields[1:], kind.missing(), strict=True):
        records[field.name] = missing
    records["seq"] = np.arange(1, count + 1)
    return records


def _write(folder: Path, kind: Kind, pid: int, records: npt.NDArray[np.void]) -> None:
    writer = RecordWriter(folder, kind, 0, pid)
    writer.close()
    with writer.path.open("ab") as file:
        records.tofile(file)
