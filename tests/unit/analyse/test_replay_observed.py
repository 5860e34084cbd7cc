"""A recorded training as what the replay is fed with."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.crafted import ON_CPU, add, add_events, amend, rows_of
from whyidle.analyse.predict.observed import Unobserved, workload_of
from whyidle.analyse.predict.replay import Workload
from whyidle.analyse.run.facts import facts_of
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import BATCH, HOST, NOT_MEASURED, STEP, EventKind, StepFlag
from whyidle.record.segment import RecordWriter

MS = 1_000_000
START = 10**12
STEP_MS, HANDOVER_MS, LATENCY_MS = 10.0, 0.5, 0.25
EMULATED = ON_CPU | {"device": {"kind": "emulated", "title": "emulated Test"}}


def observed(folder: Path) -> Workload:
    run = open_run(folder)
    facts = facts_of(run)
    assert facts is not None
    return workload_of(run, facts)


def ns(ms: float) -> int:
    return START + round(ms * MS)


def training(
    folder: Path,
    steps: int = 120,
    workers: int | None = 2,
    wait_ms: float = 6.0,
    cpu_ms: float = 2.0,
    queue_ms: float = 3.0,
    epochs: int = 1,
    info: dict[str, Any] = ON_CPU,
    step: dict[str, float] | None = None,
    batch: dict[str, float] | None = None,
    steps_ms: tuple[float, ...] = (STEP_MS,),
    queued: float | None = None,
    drawn_ms: float = 0.0,
) -> Path:
    """Steps of 10 ms whose batches lay ready, or, every fourth, were waited for; each batch made in between.

    Args:
        steps_ms: lengths of steps, which take turns.
        queued: share of the time that the training's thread waits for a CPU.
        drawn_ms: what the sampler takes at the end of each fetch.
    """
    create_run(folder, info)
    events = [(START, EventKind.TRAINING_BEGIN, 0, NOT_MEASURED)]
    if workers is not None:
        told = {EventKind.LOADER_WORKERS: workers, EventKind.LOADER_PREFETCH: 4, EventKind.LOADER_FLAGS: 0}
        events += [(START, what, value, NOT_MEASURED) for what, value in told.items()]
    step_rows, batch_rows = [], []
    at, epoch_at, made_ms = 0.0, 0.0, cpu_ms + wait_ms + queue_ms
    for number in range(steps):
        in_epoch, epoch = number % (steps // epochs), number // (steps // epochs)
        first, waited, step_ms = in_epoch == 0, number % 4 == 3, steps_ms[number % len(steps_ms)]
        fetch = drawn_ms + (40.0 if first else 5.0 if waited else HANDOVER_MS)
        end = at + fetch - drawn_ms - HANDOVER_MS - LATENCY_MS if waited or first else at - 4.0
        if drawn_ms and not first:
            events.append((ns(at + fetch - drawn_ms), EventKind.SAMPLER, 8, ns(at + fetch)))
        epoch_at = at if first else epoch_at
        numbers = {"loader": 1 + epoch, "batch": in_epoch}
        step_rows.append(
            {
                "step": number, "epoch": epoch, "flags": StepFlag.FIRST_OF_EPOCH if first else 0, "samples": 8,
                "fetch_begin_ns": ns(at), "fetch_end_ns": ns(at + fetch), "forward_begin_ns": ns(at + fetch),
                "optimizer_end_ns": ns(at + fetch + step_ms), "step_end_ns": ns(at + fetch + step_ms),
                "queue_ready": 1, "queue_capacity": 8, "overhead_ns": 0, "skipped": 0, "sync_ns": 0,
                **numbers, **(step or {}),
            }
        )  # fmt: skip
        begin = epoch_at + 20.0 + 3.0 * in_epoch if in_epoch < (workers or 1) else end - made_ms
        batch_rows.append(
            {
                "worker": number % (workers or 1), "samples": 8, "threads": 1, "begin_ns": ns(begin),
                "end_ns": ns(max(end, begin + made_ms)), "cpu_ns": cpu_ms * MS, "process_cpu_ns": cpu_ms * MS,
                "run_queue_ns": queue_ms * MS, "read_ns": 0, "batch_bytes": 4096, "skipped": 0,
                **numbers, **(batch or {}),
            }
        )  # fmt: skip
        at += fetch + step_ms
    add(folder, STEP, step_rows)
    add(folder, BATCH, [{name: int(value) for name, value in row.items()} for row in batch_rows])
    add(
        folder,
        HOST,
        [
            {
                "t_ns": ns(ms), "cpus": 4000, "main_cpu_ns": int(0.4 * ms * MS), "shm_used_bytes": 10,
                "shm_total_bytes": 30,
                "memory_available_bytes": 10**9, "tree_pss_bytes": 3 * 10**8,
                **({} if queued is None else {"main_thread_queue_ns": int(queued * ms * MS)}),
            }
            for ms in np.linspace(0, at, 20)
        ],
    )  # fmt: skip
    add_events(folder, events)
    return folder


def test_the_trainings_side_and_the_settings_are_told(tmp_path: Path) -> None:
    workload = observed(training(tmp_path / "run", epochs=4))
    assert workload.host_ns == pytest.approx(STEP_MS * MS, rel=1e-3)
    assert (workload.synchronous, workload.device_ns) == (True, None)
    assert (workload.settings.num_workers, workload.settings.prefetch_factor) == (2, 4)
    assert workload.handoff_known
    assert workload.handoff_ns == pytest.approx(HANDOVER_MS * MS, rel=0.01)
    assert workload.latency_ns == pytest.approx(LATENCY_MS * MS)
    assert workload.start_ns * 3 == pytest.approx(20 * MS)
    assert (workload.batches_per_epoch, workload.batch_size, workload.batch_bytes) == (30, 8, 4096)
    limits = workload.cpus, workload.memory_bytes, workload.shm_bytes, workload.worker_bytes
    assert limits == (4.0, 10**9, 20, 10**8)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_the_sampler_takes_is_neither_the_steps_nor_the_hand_over_s(tmp_path: Path, workers: int) -> None:
    before = observed(training(tmp_path / "run", workers=workers, epochs=4))
    after = observed(training(tmp_path / "costly", workers=workers, epochs=4, drawn_ms=7.0))
    assert (before.drawing_ns, after.drawing_ns) == (0, pytest.approx(7 * MS, rel=0.05))
    assert after.host_ns == pytest.approx(before.host_ns)
    assert after.handoff_ns == pytest.approx(before.handoff_ns, abs=0.6 * MS)
    assert after.latency_ns == pytest.approx(before.latency_ns, abs=0.6 * MS)


@pytest.mark.parametrize(
    ("batch", "cpu_ms", "wait_ms", "read_ms"),
    [({}, 2, 6, 0), ({"process_cpu_ns": 7 * MS}, 7, 1, 0), ({"read_ns": 5 * MS}, 2, 1, 5)],
    ids=["no wait for a CPU", "other threads count as the worker's CPU time", "reading is apart from other waiting"],
)
def test_making_is_told_in_its_parts(
    tmp_path: Path, batch: dict[str, float], cpu_ms: float, wait_ms: float, read_ms: float
) -> None:
    workload = observed(training(tmp_path / "run", batch=batch))
    made = np.median(workload.cpu_ns) + workload.sharing_ns, np.median(workload.wait_ns), np.median(workload.read_ns)
    assert made == pytest.approx((cpu_ms * MS, wait_ms * MS, read_ms * MS))
    assert batch or 0 < workload.sharing_ns < 1 * MS


def test_batches_left_out_by_thinning_pull_the_times_to_the_mean_of_all(tmp_path: Path) -> None:
    skipped = {"skipped": 3, "skipped_ns": 3 * 5.5 * MS}
    workload = observed(training(tmp_path / "run", batch=skipped))
    # Recorded batches took 11 ms, those left out 5.5 ms each.
    assert np.median(workload.cpu_ns) + workload.sharing_ns == pytest.approx(2 * MS * (11 + 3 * 5.5) / 4 / 11, rel=0.02)


def test_what_the_training_waits_for_the_device_is_not_its_own_time(tmp_path: Path) -> None:
    stamps = {"sync_ns": 4 * MS, "flags": StepFlag.DRAINED_KNOWN | StepFlag.DRAINED_AT_ENTRY}
    folder = training(tmp_path / "run", info=EMULATED, step=stamps)

    def on_device(steps: Any) -> None:
        for name, after in (("device_copy_begin_ns", 1), ("device_copy_end_ns", 2), ("device_begin_ns", 2)):
            steps[name] = steps["fetch_end_ns"] + after * MS
        steps["device_end_ns"] = steps["fetch_end_ns"] + 8 * MS

    amend(folder, on_device)
    workload = observed(folder)
    assert workload.synchronous
    assert workload.host_ns == pytest.approx((STEP_MS - 4) * MS, rel=1e-3)
    assert workload.device_ns is not None
    assert workload.device_ns == pytest.approx(7 * MS)


@pytest.mark.parametrize(("ran_ms", "left_ms"), [(30.0, 30.0), (10.0, 20.0)], ids=["computed", "waited"])
def test_what_a_longer_step_ran_on_a_cpu_is_no_waiting_for_one(tmp_path: Path, ran_ms: float, left_ms: float) -> None:
    """The thread waits for a CPU 5 ms a step, in fetches or not: steps that are longer by 20 ms, every other one, had
    that waiting in them only as far as they did not run."""
    rows = training(
        tmp_path / "run", steps_ms=(STEP_MS, 30.0), queued=5 / 22.4, step={"cpu_ns": int((ran_ms + HANDOVER_MS) * MS)}
    )
    host_ns = observed(rows).host_ns
    assert np.quantile(host_ns, [0.25, 0.75]) == pytest.approx([STEP_MS * MS, left_ms * MS], rel=0.1)


def test_serial_batches_leave_the_hand_over_unknown(tmp_path: Path) -> None:
    folder = training(tmp_path / "run", workers=0, queue_ms=0.0, batch={"process_cpu_ns": NOT_MEASURED})
    workload = observed(folder)
    assert workload.settings.num_workers == 0
    assert workload.settings.prefetch_factor is None
    assert not workload.handoff_known
    assert workload.handoff_ns > 0


@pytest.mark.parametrize(("size", "moved"), [(4096, 0.01), (20_000_000, 0.5)])
def test_touching_a_workers_batch_is_part_of_its_hand_over(tmp_path: Path, size: int, moved: float) -> None:
    workload = observed(training(tmp_path / "run", batch={"batch_bytes": size}))
    # What the training does for a batch is the same altogether.
    assert workload.host_ns + workload.handoff_ns == pytest.approx((STEP_MS + HANDOVER_MS) * MS)
    assert STEP_MS * MS - np.median(workload.host_ns) <= moved * STEP_MS * MS
    alone = observed(training(tmp_path / "alone", workers=0, queue_ms=0.0, batch={"batch_bytes": size}))
    assert alone.host_ns == pytest.approx(STEP_MS * MS)


def test_cpus_that_others_use_are_not_the_jobs(tmp_path: Path) -> None:
    folder = training(tmp_path / "run", info=ON_CPU | {"host": {"cpus": 4}})
    run = open_run(folder)
    facts = facts_of(run)
    busy = {"machine_busy_pct": 75.0, "tree_cpus": 1.0}
    shared = dataclasses.replace(facts, sampled=dataclasses.replace(facts.sampled, **busy))
    assert workload_of(run, facts).cpus == 4.0
    # Others use two of the four, and three threads of the job compete with them.
    assert workload_of(run, shared).cpus == pytest.approx(4 * 3 / 5)


def test_cpus_that_other_trainings_of_the_job_use_are_not_this_ones(tmp_path: Path) -> None:
    folder = training(tmp_path / "run", info=ON_CPU | {"host": {"cpus": 4}})
    steps = open_run(folder).records(STEP)
    writer = RecordWriter(folder, STEP, pid=4711)
    names = [field.name for field in STEP.fields[1:]]
    half = [{name: int(steps[name][n]) for name in names} for n in range(0, len(steps), 2)]
    lasts = int(steps["step_end_ns"][-1] - steps["fetch_begin_ns"][0])
    # Two of the four CPUs, by a process that makes fewer steps.
    for body in rows_of(STEP, [row | {"cpu_ns": 2 * lasts // len(half)} for row in half]):
        writer.append(*body)
    writer.close()
    run = open_run(folder)
    facts = facts_of(run)
    assert facts is not None
    assert workload_of(run, facts).cpus == pytest.approx(4 * 3 / 5, rel=0.05)


def turns(steps: Any) -> None:
    steps["loader"] = 1 + steps["step"] % 2


@pytest.mark.parametrize(
    ("workers", "change", "together", "words"),
    [
        (None, None, [], "torch's DataLoader"),
        (2, "no batches", [], "not recorded"),
        (2, turns, [], "."),
        (2, None, [4], "fetches 4 batches"),
        (2, None, [4, 1], None),
    ],
)
def test_what_cannot_be_replayed_says_why(
    tmp_path: Path, workers: int | None, change: Any, together: list[int], words: str | None
) -> None:
    folder = training(tmp_path / "run", workers=workers)
    add_events(folder, [(START, EventKind.BATCHES_TOGETHER, each, NOT_MEASURED) for each in together])
    if callable(change):
        amend(folder, change)
    elif change:
        next(folder.glob("batch-*.rec")).unlink()
    with contextlib.nullcontext() if words is None else pytest.raises(Unobserved, match=words):
        assert observed(folder).settings.num_workers == 2
