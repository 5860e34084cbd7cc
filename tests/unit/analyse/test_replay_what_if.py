"""A training without some of its work: the replay of it meets the loader's clock with that work really gone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.loader_clock import MS, SPECS, Spec, recorded, simulate
from whyidle.analyse.predict.predict import predict
from whyidle.analyse.predict.what_if import VanishedWork, without
from whyidle.record.tuning import LoaderSettings

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
