"""What a report of a plain run says of other settings: replayed, not tried."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from support.crafted import ON_CPU, add, add_events
from support.judged_waits import COMPUTING, CPUS, judge, only, waiting_for_data
from whyidle.analyse.causes.diagnosis import findings_of
from whyidle.analyse.predict.advice import MOST_OFF, Advice
from whyidle.analyse.predict.workload import MachineLimits, Workload
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import BATCH, HOST, NOT_MEASURED, STEP, EventKind, StepFlag
from whyidle.record.tuning import LoaderSettings

MS = 1_000_000
START = 10**12


def workload(wait_ms: float = 40.0, cpu_ms: float = 0.5, **more: object) -> Workload:
    ones = np.ones(200)
    given = {
        "settings": LoaderSettings(2, 2),
        "batch_size": 8,
        "cpu_ns": cpu_ms * MS * ones,
        "wait_ns": wait_ms * MS * ones,
        "read_ns": 0 * ones,
        "collate_ns": 0 * ones,
        "slowest_ns": np.nan * ones,
        "host_ns": 10 * MS * ones,
        "handoff_ns": 0.5 * MS,
        "main_cpus": 0.2,
        "limits": MachineLimits(cpus=4.0),
    }
    return Workload(**given | more)  # type: ignore[arg-type]


def starved(folder: Path, workers: int = 2, wait_ms: float = 40.0, cpu_ms: float = 1.0, steps: int = 150) -> Path:
    """A training on the processor with steps of 10 ms, and as many workers as said, two batches ahead each."""
    create_run(folder, ON_CPU | {"host": {"cpus": 8}})
    ends: list[float] = []
    given: list[float] = []
    step_rows, batch_rows = [], []
    asked = 0.0
    for number in range(steps):
        begin = max(
            ends[number - workers] if number >= workers else 0.0,
            given[number - 2 * workers] if number >= 2 * workers else 0.0,
        )
        ends.append(begin + wait_ms + cpu_ms)
        given.append(max(ends[-1] + 0.25, asked) + 0.5)
        stamps = {"fetch_begin_ns": asked, "fetch_end_ns": given[-1], "forward_begin_ns": given[-1]}
        stamps |= {"optimizer_end_ns": given[-1] + 10, "step_end_ns": given[-1] + 10}
        of_both = {"loader": 1, "batch": number, "samples": 8, "skipped": 0}
        step_rows.append(
            {name: START + round(ms * MS) for name, ms in stamps.items()}
            | of_both
            | {"step": number, "epoch": 0, "flags": 0 if number else StepFlag.FIRST_OF_EPOCH, "overhead_ns": 0}
            | {"queue_ready": int(ends[-1] <= asked), "queue_capacity": 2 * workers, "sync_ns": 0}
        )
        batch_rows.append(
            of_both
            | {"begin_ns": START + round(begin * MS), "end_ns": START + round(ends[-1] * MS), "threads": 1}
            | {"worker": number % workers, "cpu_ns": round(cpu_ms * MS), "run_queue_ns": 0, "read_ns": 0}
            | {"process_cpu_ns": round(cpu_ms * MS), "collate_ns": MS // 10, "batch_bytes": 4096}
        )
        asked = given[-1] + 10
    add(folder, STEP, step_rows)
    add(folder, BATCH, batch_rows)
    add(
        folder,
        HOST,
        [
            {
                "t_ns": START + round(ms * MS),
                "cpus": 8000,
                "machine_busy_pct": 10.0,
                "tree_cpu_ns": round(0.3 * ms * MS),
            }
            | {"main_cpu_ns": round(0.1 * ms * MS)}
            for ms in np.linspace(0, asked, 30)
        ],
    )
    told = {EventKind.LOADER_WORKERS: workers, EventKind.LOADER_PREFETCH: 2, EventKind.LOADER_FLAGS: 0}
    add_events(folder, [(START, EventKind.TRAINING_BEGIN, 0, NOT_MEASURED)])
    add_events(folder, [(START, what, value, NOT_MEASURED) for what, value in told.items()])
    return folder


def told(folder: Path) -> Analysis:
    return analyse(open_run(folder))


def test_the_cheapest_that_is_nearly_the_best_is_meant() -> None:
    pick = Advice(workload()).cheapest(lambda settings: settings.num_workers > 2)
    assert pick is not None
    # A batch takes 40.5 ms, a step 10.5: four at a time, and no more than one to spare.
    assert pick.settings.num_workers in (4, 5)
    assert pick.settings.prefetch_factor == 2
    assert pick.samples_per_s == pytest.approx(8 / 0.0105, rel=0.03)


def test_settings_that_do_not_fit_are_not_meant() -> None:
    little = MachineLimits(cpus=4.0, memory_bytes=2 * 10**9, worker_bytes=10**9)
    pick = Advice(workload(limits=little)).cheapest(lambda settings: settings.num_workers > 2)
    assert pick is not None
    assert pick.settings.num_workers <= 4
    assert Advice(workload(limits=little)).cheapest(lambda settings: settings.num_workers > 4) is None


@pytest.mark.parametrize("drawing_ms", [0.0, 15.0])
def test_a_sampler_that_is_waited_for_is_given_a_queue_of_two_at_least(drawing_ms: float) -> None:
    costly = workload(0.0, 14.0, settings=LoaderSettings(0), drawing_ns=drawing_ms * MS, host_ns=18 * MS * np.ones(200))
    asked = Advice(costly)
    pick = asked.cheapest(lambda settings: settings.num_workers > 0)
    assert pick is not None
    assert (pick.settings.num_workers, pick.settings.prefetch_factor) == (1, 2 if drawing_ms else 1)
    # Whoever makes the batches, the training draws and then trains.
    assert pick.samples_per_s == pytest.approx(8 / (0.0185 + drawing_ms / 1000), rel=0.05)
    assert asked.now.samples_per_s == pytest.approx(8 / (0.032 + drawing_ms / 1000), rel=0.05)


def test_a_replay_that_misses_what_was_measured_is_not_believed() -> None:
    advice = Advice(workload())
    rate = advice.now.samples_per_s
    assert advice.agrees(rate * 1.1)
    assert not advice.agrees(rate * np.exp(-1.1 * MOST_OFF))


def test_cause_and_share_are_the_same_without_a_replay(tmp_path: Path) -> None:
    folder = starved(tmp_path / "run")
    with_replay = told(folder)
    facts = with_replay.facts
    assert facts is not None
    assert facts.advice is not None
    without = findings_of(dataclasses.replace(facts, advice=None))
    assert [(f.cause, f.share) for f in without] == [(f.cause, f.share) for f in with_replay.findings]
    assert without[0].next != with_replay.findings[0].next


@pytest.mark.parametrize(("workers", "surely"), [(0, True), (1, False)])
def test_where_workers_may_wait_for_each_other_the_first_one_still_brings_something(
    tmp_path: Path, workers: int, surely: bool
) -> None:
    """Batches that wait for 40 ms, of a server that may answer one at a time, and steps of 10: one worker makes them
    beside the steps, whoever serves it, and a second one may bring nothing."""
    facts = waiting_for_data(tmp_path / "run")
    waits = COMPUTING | {"workers": 1, "cpu_pct": 3.0, "run_queue_pct": 0.0}
    advice = Advice(workload(settings=LoaderSettings(workers, 2 if workers else None)))
    facts = dataclasses.replace(facts, samples=round(advice.now.samples_per_s * facts.parts.wall_ns / 1e9))
    finding = only(judge(facts, waits, CPUS, set_workers=workers, advice=advice, exclusion=None))
    assert finding.cause == ("input.too_few_workers" if workers else "input.serial")
    change = finding.next[0].speedup
    assert change is not None
    assert change.to_try is not surely
    assert change.value > 3
    one = advice.cheapest(lambda settings: settings.num_workers == 1)
    assert one is not None
    assert change.low == pytest.approx(one.low / advice.now.samples_per_s if surely else 1.0, rel=0.01)


@pytest.mark.parametrize(("batches", "persist"), [(10, True), (5000, False), (None, False)])
def test_workers_are_to_persist_where_epochs_are_short(tmp_path: Path, batches: int | None, persist: bool) -> None:
    """Forking four workers takes 100 ms, as ten steps do."""
    facts = waiting_for_data(tmp_path / "run")
    advice = Advice(workload(settings=LoaderSettings(0), batches_per_epoch=batches, start_ns=20 * MS))
    facts = dataclasses.replace(facts, samples=round(advice.now.samples_per_s * facts.parts.wall_ns / 1e9))
    told = {"set_workers": 0, "persistent_workers": False, "advice": advice}
    change = only(judge(facts, COMPUTING | {"workers": 1}, CPUS, **told)).next[0]
    assert change.settings is not None
    assert change.settings.get("persistent_workers", False) is persist
    assert (", persistent_workers=True" in change.change) is persist


def test_what_gains_next_to_nothing_is_not_advised(tmp_path: Path) -> None:
    """A batch that is made in 2 ms beside steps of 40, and takes as long to hand over: a worker gains 2 %."""
    facts = waiting_for_data(tmp_path / "run")
    own = {"host_ns": 40 * MS * np.ones(200), "handoff_ns": 1.2 * MS, "handoff_known": False}
    advice = Advice(workload(wait_ms=0.0, cpu_ms=2.0, settings=LoaderSettings(0), **own))
    facts = dataclasses.replace(facts, samples=round(advice.now.samples_per_s * facts.parts.wall_ns / 1e9))
    quick = COMPUTING | {"workers": 1, "work_ms_per_batch": 2.0}
    found = only(judge(facts, quick, CPUS, set_workers=0, advice=advice))
    assert [each.kind for each in found.next] == ["cheaper"]
    assert "index a whole batch at once" in found.next[0].change
    slow = Advice(workload(wait_ms=0.0, cpu_ms=20.0, settings=LoaderSettings(0), **own))
    facts = dataclasses.replace(facts, samples=round(slow.now.samples_per_s * facts.parts.wall_ns / 1e9))
    slowly = COMPUTING | {"workers": 1, "work_ms_per_batch": 20.0}
    assert only(judge(facts, slowly, CPUS, set_workers=0, advice=slow)).next[0].kind == "workers"


def test_cpus_that_are_used_up_are_no_reason_for_more_workers_than_they_run() -> None:
    computing = workload(wait_ms=0.0, cpu_ms=40.0, limits=MachineLimits(cpus=2.0))
    advice = Advice(computing)
    assert advice.cheapest(lambda settings: settings.num_workers > 2) is None
    waiting = Advice(workload(wait_ms=40.0, cpu_ms=4.0, limits=MachineLimits(cpus=2.0)))
    assert waiting.cheapest(lambda settings: settings.num_workers > 2) is not None
