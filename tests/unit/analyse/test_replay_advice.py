"""What a report of a plain run says of other settings: replayed, not tried."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.judged_waits import COMPUTING, CPUS, judge, only, waiting_for_data
from support.planted_runs import Making, hosted, pooled
from whyidle.analyse.causes.diagnosis import findings_of
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.predict.advice import MOST_OFF, Advice
from whyidle.analyse.predict.workload import MachineLimits, Workload
from whyidle.analyse.run.analysis import analyse
from whyidle.record.run import open_run
from whyidle.record.tuning import LoaderSettings
from whyidle.scenarios.planted import PlantedWorkers, Step

MS = 1_000_000


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


def test_the_cheapest_that_is_nearly_the_best_is_meant() -> None:
    pick = Advice(workload()).cheapest(lambda settings: settings.num_workers > 2)
    # A batch takes 40.5 ms, a step 10.5: four at a time, and no more than one to spare.
    assert pick.settings.num_workers in (4, 5)
    assert pick.settings.prefetch_factor == 2
    assert pick.samples_per_s == pytest.approx(8 / 0.0105, rel=0.03)


@pytest.mark.parametrize("drawing_ms", [0.0, 15.0])
def test_a_sampler_that_is_waited_for_is_given_a_queue_of_two_at_least(drawing_ms: float) -> None:
    costly = workload(0.0, 14.0, settings=LoaderSettings(0), drawing_ns=drawing_ms * MS, host_ns=18 * MS * np.ones(200))
    asked = Advice(costly)
    pick = asked.cheapest(lambda settings: settings.num_workers > 0)
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
    step = Step(fetch_ns=41 * MS, compute_ns=10 * MS, sync=True)
    hosted(pooled(tmp_path / "run", [[step] * 150], PlantedWorkers(2, 2), Making(cpu=0.03, queued=0.0)), 0.3, 8, 10.0)
    with_replay = analyse(open_run(tmp_path / "run"))
    facts = with_replay.facts
    assert facts.advice is not None
    assert with_replay.verdict.cause == "input.too_few_workers"
    without = findings_of(dataclasses.replace(facts, advice=None))
    assert [(f.cause, f.share) for f in without] == [(f.cause, f.share) for f in with_replay.findings]
    assert without[0].next != with_replay.findings[0].next


def judged(folder: Path, advice: Advice, waits: dict[str, float], workers: int = 0, **told: Any) -> Finding:
    """The finding of a training that came as fast as its replay."""
    facts = waiting_for_data(folder)
    facts = dataclasses.replace(facts, samples=round(advice.now.samples_per_s * facts.parts.wall_ns / 1e9))
    return only(judge(facts, COMPUTING | {"workers": 1} | waits, CPUS, set_workers=workers, advice=advice, **told))


@pytest.mark.parametrize(("workers", "surely"), [(0, True), (1, False)])
def test_where_workers_may_wait_for_each_other_the_first_one_still_brings_something(
    tmp_path: Path, workers: int, surely: bool
) -> None:
    """Batches that wait for 40 ms, of a server that may answer one at a time, and steps of 10: one worker makes them
    beside the steps, whoever serves it, and a second one may bring nothing."""
    advice = Advice(workload(settings=LoaderSettings(workers, 2 if workers else None)))
    finding = judged(tmp_path / "run", advice, {"cpu_pct": 3.0, "run_queue_pct": 0.0}, workers, exclusion=None)
    assert finding.cause == ("input.too_few_workers" if workers else "input.serial")
    change = finding.next[0].speedup
    assert change.to_try is not surely
    assert change.value > 3
    one = advice.cheapest(lambda settings: settings.num_workers == 1)
    assert change.low == pytest.approx(one.low / advice.now.samples_per_s if surely else 1.0, rel=0.01)


@pytest.mark.parametrize(("batches", "persist"), [(10, True), (5000, False), (None, False)])
def test_workers_are_to_persist_where_epochs_are_short(tmp_path: Path, batches: int | None, persist: bool) -> None:
    """Forking four workers takes 100 ms, as ten steps do."""
    advice = Advice(workload(settings=LoaderSettings(0), batches_per_epoch=batches, start_ns=20 * MS))
    change = judged(tmp_path / "run", advice, {}, persistent_workers=False).next[0]
    assert change.settings.get("persistent_workers", False) is persist
    assert (", persistent_workers=True" in change.change) is persist


@pytest.mark.parametrize(("cpu_ms", "kind"), [(2.0, "cheaper"), (20.0, "workers")])
def test_what_gains_next_to_nothing_is_not_advised(tmp_path: Path, cpu_ms: float, kind: str) -> None:
    """A batch that is made in 2 ms beside steps of 40, and takes as long to hand over: a worker gains 2 %."""
    own = {"host_ns": 40 * MS * np.ones(200), "handoff_ns": 1.2 * MS, "handoff_known": False}
    advice = Advice(workload(wait_ms=0.0, cpu_ms=cpu_ms, settings=LoaderSettings(0), **own))
    found = judged(tmp_path / "run", advice, {"work_ms_per_batch": cpu_ms})
    assert found.next[0].kind == kind
    if kind == "cheaper":
        assert len(found.next) == 1
        assert "Index a whole batch at once" in found.next[0].change


def test_cpus_that_are_used_up_are_no_reason_for_more_workers_than_they_run() -> None:
    computing = workload(wait_ms=0.0, cpu_ms=40.0, limits=MachineLimits(cpus=2.0))
    advice = Advice(computing)
    assert advice.cheapest(lambda settings: settings.num_workers > 2) is None
    waiting = Advice(workload(wait_ms=40.0, cpu_ms=4.0, limits=MachineLimits(cpus=2.0)))
    assert waiting.cheapest(lambda settings: settings.num_workers > 2) is not None
