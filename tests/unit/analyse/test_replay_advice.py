"""What a report of a plain run says of other settings: replayed, not tried."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.judged_waits import COMPUTING, CPUS, judge, only, waiting_for_data
from support.loader_clock import SPECS, Simulation, recorded
from support.planted_runs import Making, hosted, pooled
from whyidle.analyse.causes.diagnosis import findings_of
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.predict.predict import MOST_OFF, Advice, VanishedWork, predict, prefetch_needed, without
from whyidle.analyse.predict.replay import Workload
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
        "host_ns": 10 * MS * ones,
        "handoff_ns": 0.5 * MS,
        "main_cpus": 0.2,
        "cpus": 4.0,
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
    without = findings_of(replace(facts, advice=None))
    assert [(f.cause, f.share) for f in without] == [(f.cause, f.share) for f in with_replay.findings]
    assert without[0].next != with_replay.findings[0].next


def judged(folder: Path, advice: Advice, waits: dict[str, float], workers: int = 0, **told: Any) -> Finding:
    """The finding of a training that came as fast as its replay."""
    facts = waiting_for_data(folder)
    facts = replace(facts, samples=round(advice.now.samples_per_s * facts.parts.wall_ns / 1e9))
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
    computing = workload(wait_ms=0.0, cpu_ms=40.0, cpus=2.0)
    advice = Advice(computing)
    assert advice.cheapest(lambda settings: settings.num_workers > 2) is None
    waiting = Advice(workload(wait_ms=40.0, cpu_ms=4.0, cpus=2.0))
    assert waiting.cheapest(lambda settings: settings.num_workers > 2) is not None


@pytest.mark.parametrize(
    ("workers", "loss", "prefetch"), [(1, 0.1, 1), (2, 0.1, 3), (4, 0.2, 2), (8, 0.1, 6), (8, 0.3, 2)]
)
def test_the_prefetch_asked_for_loses_no_more_than_that_in_the_replay(workers: int, loss: float, prefetch: int) -> None:
    spread = 0.6
    assert prefetch_needed(spread, workers, loss) == prefetch
    times = np.random.default_rng(1).gamma(spread**-2, 40 * MS * spread**2, 1000)
    own = {"cpu_ns": np.zeros(1000), "wait_ns": times, "host_ns": np.full(1000, 0.01 * MS), "handoff_ns": 0.0}
    load = replace(recorded(SPECS["constant"], 1000), **own, latency_ns=0.0, batches_per_epoch=None)
    rate = predict(load, [LoaderSettings(workers, prefetch)])[0].samples_per_s
    assert rate / (workers * 32 * 1e9 / times.mean()) >= 1 - 1.4 * loss


def less(load: Workload, making: float = 0.0, loop_ns: float = 0.0) -> Workload:
    """The physics with so much less to do, on the reference's side."""
    made = {name: (1 - making) * getattr(load, name) for name in ("cpu_ns", "wait_ns", "read_ns")}
    return replace(load, **made, host_ns=load.host_ns - loop_ns)


@pytest.mark.parametrize("name", ["constant", "cpu_bound", "throttled"])
@pytest.mark.parametrize("settings", [LoaderSettings(0), LoaderSettings(2, 2)], ids=["serial", "workers"])
@pytest.mark.parametrize("gone", [VanishedWork(making=0.7), VanishedWork(loop_ns=6 * MS)], ids=["making", "loop"])
def test_the_replay_without_work_meets_the_training_without_it(
    name: str, settings: LoaderSettings, gone: VanishedWork
) -> None:
    spec = SPECS[name]
    (said,) = predict(without(recorded(spec, 400, settings=settings), gone), [settings])
    came = Simulation(less(recorded(spec, 705, 5), gone.making, gone.loop_ns), settings, 700).rate(100)
    assert said.samples_per_s == pytest.approx(came, rel=0.03)


def test_what_leaves_the_loop_for_the_workers_is_made_there() -> None:
    spec = replace(SPECS["constant"], cpus=8, host_ns=30 * MS)
    settings = LoaderSettings(4, 2)
    workload = without(recorded(spec, 300, settings=settings), VanishedWork(loop_ns=20 * MS, moved=True))
    assert workload.cpu_ns.mean() == pytest.approx(25 * MS)
    assert workload.host_ns.mean() == pytest.approx(10 * MS)
    (said,) = predict(workload, [settings])
    heavier = replace(spec, cpu=lambda rng, batches: np.full(batches, 25 * MS), host_ns=10 * MS)
    assert said.samples_per_s == pytest.approx(Simulation(recorded(heavier, 709), settings, 700).rate(100), rel=0.03)


@given(
    waits=st.lists(st.floats(0, 1e9), min_size=1, max_size=40),
    share=st.floats(0, 1),
)
def test_queueing_goes_from_the_longest_waits_first_and_no_wait_grows(waits: list[float], share: float) -> None:
    workload = replace(recorded(SPECS["constant"], len(waits)), wait_ns=np.array(waits))
    left = without(workload, VanishedWork(queueing=share)).wait_ns
    assert left.sum() == pytest.approx((1 - share) * sum(waits), rel=1e-6, abs=1e-3)
    assert (left <= np.array(waits) + 1e-6).all()
    cut = left < np.array(waits) - 1e-6
    # All that were cut are as long as each other, and no shorter than those that were not.
    if cut.any():
        assert np.ptp(left[cut]) <= 1e-3 + 1e-9 * left.max()
        assert left[~cut].max(initial=0.0) <= left[cut].max() + 1e-3


@pytest.mark.parametrize("settings", [LoaderSettings(0), LoaderSettings(2, 2)], ids=["serial", "workers"])
def test_a_training_of_which_nothing_is_left_has_a_rate_yet(settings: LoaderSettings) -> None:
    spec = replace(SPECS["constant"], handoff_ns=0.0, latency_ns=0.0)
    everything = VanishedWork(making=1.0, loop_ns=1e12)
    (said,) = predict(without(recorded(spec, 50, settings=settings), everything), [settings])
    assert math.isfinite(said.samples_per_s)
    assert said.samples_per_s > 1e6
    assert 0 <= said.stall_share <= 1
    assert said.low <= said.samples_per_s <= said.high


@pytest.mark.parametrize("quicker", [0.0, 0.3])
def test_other_computing_gets_quicker_by_its_share_of_what_vanished(quicker: float) -> None:
    """Of 60 ms of CPU time a batch, 40 made and 20 trained on, 30 vanish: half of it, so half of the effect."""
    spec = replace(SPECS["constant"], host_ns=20 * MS)
    workload = replace(
        recorded(spec, 50), cpu_ns=np.full(50, 40.0 * MS), wait_ns=np.full(50, 7.0 * MS), handoff_ns=0.0, main_cpus=1.0
    )
    left = without(workload, VanishedWork(making=0.75), quicker)
    assert left.cpu_ns.mean() == pytest.approx(10 * MS * (1 - quicker / 2))
    assert left.host_ns.mean() == pytest.approx(20 * MS * (1 - quicker / 2))
    assert left.wait_ns.mean() == pytest.approx(0.25 * 7 * MS), "what waits has no caches"
