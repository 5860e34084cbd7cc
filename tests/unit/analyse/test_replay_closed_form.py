"""One-line answers, against the replay and against what is known of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.prediction import empty_wait, least_time
from support.loader_clock import MS, SPECS, recorded
from whyidle.analyse.predict import predict as closed_form
from whyidle.analyse.predict.predict import predict
from whyidle.record.tuning import LoaderSettings


def test_expected_largest_of_normal_numbers() -> None:
    known = {1: 0.0, 2: 0.5642, 4: 1.0294, 8: 1.4236, 16: 1.7660}
    for workers, largest in known.items():
        assert closed_form.largest_of(workers) == pytest.approx(largest, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "prefetch"), [(2, 1), (4, 2), (8, 1), (8, 4)])
def test_efficiency_of_order_is_what_the_replay_says(workers: int, prefetch: int) -> None:
    spread = 0.6
    shape = spread**-2
    times = np.random.default_rng(1).gamma(shape, 40 * MS / shape, 1000)
    workload = replace(
        recorded(SPECS["constant"], 1000),
        cpu_ns=np.zeros(1000),
        wait_ns=times,
        host_ns=np.full(1000, 0.01 * MS),
        handoff_ns=0.0,
        latency_ns=0.0,
        batches_per_epoch=None,
    )
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
