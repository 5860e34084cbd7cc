"""What trials teach the model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.loader_clock import MS, SPECS, Spec, recorded, simulate
from whyidle.analyse.predict.model import ReplayModel
from whyidle.analyse.predict.workload import Workload
from whyidle.record.tuning import LoaderSettings


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
    assert rate(taught(recorded(spec), measured), LoaderSettings(8, 2)) == pytest.approx(measured[1], rel=0.02)


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


def test_learning_begins_from_the_recording_each_time() -> None:
    model = ReplayModel(recorded(SPECS["constant"]))
    measured = trial(SPECS["constant"], LoaderSettings(2, 2))
    model.learn([measured])
    once = model.workload
    model.learn([measured])
    assert model.workload.scale == once.scale
    model.learn([])
    assert model.workload.scale == 1.0
