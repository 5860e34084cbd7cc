"""Closed forms, what trials teach, and a training without some of its work: against the replay and the clock."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.prediction import empty_wait, least_time
from support.loader_clock import MS, SPECS, Spec, recorded, simulate
from whyidle.analyse.predict import predict as closed_form
from whyidle.analyse.predict.advice import VanishedWork, without
from whyidle.analyse.predict.fit import ReplayModel
from whyidle.analyse.predict.predict import predict
from whyidle.analyse.predict.workload import Workload
from whyidle.record.tuning import LoaderSettings


def test_expected_largest_of_normal_numbers() -> None:
    known = {1: 0.0, 2: 0.5642, 4: 1.0294, 8: 1.4236, 16: 1.7660}
    for workers, largest in known.items():
        assert closed_form.largest_of(workers) == pytest.approx(largest, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "prefetch"), [(2, 1), (4, 2), (8, 1), (8, 4)])
def test_efficiency_of_order_is_what_the_replay_says(workers: int, prefetch: int) -> None:
    spread = 0.6
    times = np.random.default_rng(1).gamma(spread**-2, 40 * MS * spread**2, 1000)
    own = {"cpu_ns": np.zeros(1000), "wait_ns": times, "host_ns": np.full(1000, 0.01 * MS), "handoff_ns": 0.0}
    workload = replace(recorded(SPECS["constant"], 1000), **own, latency_ns=0.0, batches_per_epoch=None)
    rate = predict(workload, [LoaderSettings(workers, prefetch)])[0].samples_per_s
    whole = workers * 32 * 1e9 / times.mean()
    assert closed_form.in_order_efficiency(spread, workers, prefetch) == pytest.approx(rate / whole, rel=0.2)


@given(st.floats(0.1, 1.5), st.integers(2, 16), st.floats(0.01, 0.5))
def test_the_prefetch_asked_for_loses_no_more_than_that(spread: float, workers: int, loss: float) -> None:
    prefetch = closed_form.prefetch_needed(spread, workers, loss)
    assert 1 - closed_form.in_order_efficiency(spread, workers, prefetch) <= loss + 1e-6
    if prefetch > 1:
        assert 1 - closed_form.in_order_efficiency(spread, workers, prefetch - 1) > loss - 1e-6


def test_workers_that_would_do() -> None:
    assert closed_form.workers_needed(5, 40, 10.2, cpus=8) == 5
    assert closed_form.workers_needed(0, 30, 10, cpus=8) == 3
    assert closed_form.workers_needed(35, 0, 8, cpus=4) is None  # four CPUs make one in 8.75
    assert closed_form.workers_needed(5, 40, 10.2, cpus=8, spread=1.0) == 7


def test_workers_that_would_do_keep_the_training_busy_in_the_replay() -> None:
    spec = replace(SPECS["constant"], cpu=lambda rng, n: np.full(n, 20 * MS), cpus=6)
    needed = closed_form.workers_needed(20, 40, 10.2, cpus=5)
    assert needed is not None
    enough, fewer = predict(recorded(spec), [LoaderSettings(needed, 2), LoaderSettings(needed - 1, 2)])
    assert enough.samples_per_s == pytest.approx(32 / 0.0102, rel=0.03)  # 200 steps hold the begin, in bursts
    assert fewer.samples_per_s < enough.samples_per_s * 0.95


def test_bounds_and_waits() -> None:
    assert least_time(40, 4, 10, 0.5, cpu=5, cpus=8) == 10.5
    assert least_time(40, 2, 10, 0.5, cpu=5, cpus=8) == 20
    assert least_time(40, 8, 1, 0.5, cpu=40, cpus=4) == 10
    assert empty_wait(40, 4, 10, 7) == pytest.approx(10 / 8)
    assert empty_wait(40, 4, 10, 70) < empty_wait(40, 4, 10, 7)


def test_memory_of_batches_under_way() -> None:
    assert closed_form.memory_held(8, 100) == 900


def trial(spec: Spec, loader: LoaderSettings) -> tuple[LoaderSettings, float]:
    return loader, simulate(replace(spec, batches_per_epoch=None), loader, 400, 11).rate(100)


def taught(workload: Workload, *trials: tuple[LoaderSettings, float]) -> ReplayModel:
    model = ReplayModel(workload)
    model.learn(trials, steady=True)
    return model


def rate(model: ReplayModel, loader: LoaderSettings) -> float:
    return model.predict([loader])[0].samples_per_s


QUICK = ("constant", "heavy_tail")


@pytest.mark.parametrize(
    ("name", "off"),
    [
        pytest.param(name, (0.7, 1.4)[k % 2], marks=[] if name in QUICK else pytest.mark.slow)
        for k, name in enumerate(SPECS)
    ],
)
def test_one_trial_at_the_baseline_puts_the_prediction_there_right(name: str, off: float) -> None:
    spec = replace(SPECS[name], batches_per_epoch=None)
    workload = replace(recorded(spec), scale=off)
    measured = trial(spec, spec.baseline)
    assert rate(taught(workload, measured), spec.baseline) == pytest.approx(measured[1], rel=0.02)


@pytest.mark.parametrize("faster", [0.8, 1.15])
def test_a_training_that_is_slower_or_faster_than_recorded_is_learned_too(faster: float) -> None:
    spec = SPECS["constant"]
    measured = (LoaderSettings(8, 2), 32 / 0.0102 * faster)
    model = taught(recorded(spec), measured)
    assert rate(model, LoaderSettings(8, 2)) == pytest.approx(measured[1], rel=0.02)
    # Learning begins from the recording each time.
    once = model.workload.scale
    model.learn([measured], steady=True)
    assert model.workload.scale == once
    model.learn([])
    assert model.workload.scale == 1.0


def test_two_trials_find_a_handoff_that_was_not_measured() -> None:
    spec = SPECS["large_payload"]
    guessed = replace(recorded(spec), handoff_ns=0.2 * MS, handoff_known=False)
    model = taught(guessed, trial(spec, LoaderSettings(0)), trial(spec, LoaderSettings(2, 2)))
    assert model.workload.handoff_ns == pytest.approx(spec.handoff_ns, rel=0.1)
    assert model.workload.handoff_known
    assert rate(model, LoaderSettings(8, 4)) == pytest.approx(trial(spec, LoaderSettings(8, 4))[1], rel=0.02)


@pytest.mark.slow
def test_two_trials_find_how_many_reads_the_storage_takes() -> None:
    spec = SPECS["throttled"]
    workload = recorded(spec)
    unlimited = replace(workload, limits=replace(workload.limits, storage_parallel=None))
    model = taught(unlimited, trial(spec, LoaderSettings(2, 2)), trial(spec, LoaderSettings(8, 2)))
    assert model.workload.limits.storage_parallel == pytest.approx(3.0, rel=0.1)
    assert rate(model, LoaderSettings(5, 2)) == pytest.approx(trial(spec, LoaderSettings(5, 2))[1], rel=0.03)


@pytest.mark.slow
def test_two_trials_find_that_fewer_cpus_are_had_than_counted() -> None:
    spec = SPECS["cpu_bound"]
    counted = replace(recorded(spec), contention=0.0)
    counted = replace(counted, limits=replace(counted.limits, cpus=6.0))
    model = taught(counted, trial(spec, LoaderSettings(2, 2)), trial(spec, LoaderSettings(8, 2)))
    for workers in (4, 6, 12):
        loader = LoaderSettings(workers, 2)
        assert rate(model, loader) == pytest.approx(trial(spec, loader)[1], rel=0.04)


IN_THE_LOOP = LoaderSettings(0)


def less(spec: Spec, making: float = 0.0, loop_ns: float = 0.0) -> Spec:
    """The physics with so much less to do, on the reference's side."""
    left = 1 - making
    return replace(
        spec,
        cpu=lambda rng, batches: left * spec.cpu(rng, batches),
        wait=lambda rng, batches: left * spec.wait(rng, batches),
        read=lambda rng, batches: left * spec.read(rng, batches),
        host_ns=spec.host_ns - loop_ns,
    )


@pytest.mark.parametrize("name", ["constant", "cpu_bound", "throttled"])
@pytest.mark.parametrize("settings", [IN_THE_LOOP, LoaderSettings(2, 2)], ids=["serial", "workers"])
@pytest.mark.parametrize("gone", [VanishedWork(making=0.7), VanishedWork(loop_ns=6 * MS)], ids=["making", "loop"])
def test_the_replay_without_work_meets_the_training_without_it(
    name: str, settings: LoaderSettings, gone: VanishedWork
) -> None:
    spec = SPECS[name]
    (said,) = predict(without(recorded(spec, 400, settings=settings), gone), [settings])
    came = simulate(less(spec, gone.making, gone.loop_ns), settings, 700, 5).rate(100)
    assert said.samples_per_s == pytest.approx(came, rel=0.03)


def test_what_leaves_the_loop_for_the_workers_is_made_there() -> None:
    spec = replace(SPECS["constant"], cpus=8, host_ns=30 * MS)
    settings = LoaderSettings(4, 2)
    workload = without(recorded(spec, 300, settings=settings), VanishedWork(loop_ns=20 * MS, moved=True))
    assert workload.cpu_ns.mean() == pytest.approx(25 * MS)
    assert workload.host_ns.mean() == pytest.approx(10 * MS)
    (said,) = predict(workload, [settings])
    heavier = replace(spec, cpu=lambda rng, batches: np.full(batches, 25 * MS), host_ns=10 * MS)
    assert said.samples_per_s == pytest.approx(simulate(heavier, settings, 700).rate(100), rel=0.03)


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


@pytest.mark.parametrize("settings", [IN_THE_LOOP, LoaderSettings(2, 2)], ids=["serial", "workers"])
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


def test_work_that_is_moved_makes_nothing_quicker() -> None:
    moved = without(recorded(SPECS["constant"], 50), VanishedWork(loop_ns=5 * MS, moved=True), 0.3)
    still = without(recorded(SPECS["constant"], 50), VanishedWork(loop_ns=5 * MS, moved=True))
    assert (moved.host_ns == still.host_ns).all()
    assert (moved.cpu_ns == still.cpu_ns).all()
