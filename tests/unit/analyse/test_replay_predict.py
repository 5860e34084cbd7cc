"""Predictions: right on average, honest about what they do not know, quick."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.loader_clock import MS, SPECS, Spec, recorded, simulate
from whyidle.analyse.predict.predict import predict
from whyidle.analyse.predict.replay import Binding
from whyidle.record.tuning import LoaderSettings

GIB = 1 << 30


def truth(spec: Spec, loader: LoaderSettings, seed: int = 77) -> float:
    return simulate(recorded(spec, 1100, seed), loader, 1000).rate(100)


@pytest.mark.slow
def test_intervals_hold_what_is_measured_nine_times_in_ten() -> None:
    loaders = [LoaderSettings(0), *(LoaderSettings(w, p) for w, p in ((1, 2), (2, 2), (4, 1), (8, 4)))]
    inside = []
    for name in ("heavy_tail", "cpu_bound", "throttled"):
        rates = [truth(SPECS[name], loader) for loader in loaders]
        for seed in range(3):
            predictions = predict(recorded(SPECS[name], 300, seed), loaders)
            inside += [p.low <= rate <= p.high for p, rate in zip(predictions, rates, strict=True)]
    assert np.mean(inside) >= 0.85


def test_a_longer_recording_leaves_less_in_doubt_and_a_single_batch_says_little() -> None:
    def width(batches: int) -> float:
        (one,) = predict(recorded(SPECS["heavy_tail"], batches), [LoaderSettings(2, 2)])
        return float(np.log(one.high / one.low))

    assert width(2000) < width(100) / 1.5
    assert width(1) > np.log(2)


def test_predictions_do_not_depend_on_what_else_is_asked() -> None:
    workload = recorded(SPECS["heavy_tail"])
    alone = predict(workload, [LoaderSettings(3, 2)])[0]
    among = predict(workload, [LoaderSettings(16, 8), LoaderSettings(3, 2), LoaderSettings(0)])[1]
    assert among.samples_per_s == pytest.approx(alone.samples_per_s, rel=1e-9)


@pytest.mark.parametrize(
    ("spec", "loader", "binds"),
    [
        (SPECS["constant"], LoaderSettings(0), Binding.SERIAL),
        (SPECS["constant"], LoaderSettings(1, 2), Binding.WORKERS),
        (SPECS["constant"], LoaderSettings(8, 2), Binding.TRAINING),
        (replace(SPECS["cpu_bound"], cpus=2), LoaderSettings(8, 2), Binding.CPU),
        (replace(SPECS["cpu_bound"], cpus=3.5), LoaderSettings(3, 2), Binding.CPU),
        (SPECS["throttled"], LoaderSettings(8, 2), Binding.STORAGE),
        (SPECS["stragglers"], LoaderSettings(8, 1), Binding.ORDER),
        (SPECS["large_payload"], LoaderSettings(8, 2), Binding.HANDOFF),
        (replace(SPECS["constant"], batches_per_epoch=10, start_ns=60 * MS), LoaderSettings(8, 2), Binding.START),
        (replace(SPECS["constant"], batches_per_epoch=5000), LoaderSettings(8, 2), Binding.TRAINING),
        (
            replace(SPECS["constant"], batches_per_epoch=50_000, start_ns=1500 * MS),
            LoaderSettings(2, 2),
            Binding.WORKERS,
        ),
        (
            replace(SPECS["constant"], host_ns=2 * MS, device_ns=30 * MS, synchronous=False),
            LoaderSettings(4, 2),
            Binding.TRAINING,
        ),
    ],
)
def test_what_binds_is_named(spec: Spec, loader: LoaderSettings, binds: str) -> None:
    assert predict(recorded(spec, 600), [loader])[0].binding == binds


def test_the_beginning_of_a_long_epoch_is_a_small_share_of_it() -> None:
    (said,) = predict(
        recorded(replace(SPECS["constant"], batches_per_epoch=50_000, start_ns=200 * MS)), [LoaderSettings(8, 2)]
    )
    assert said.stall_share < 0.05


def test_a_handoff_nobody_measured_widens_the_interval_where_there_are_workers() -> None:
    workload = recorded(replace(SPECS["tiny"], batches_per_epoch=None))
    doubtful = replace(workload, handoff_known=False)
    known = predict(workload, [LoaderSettings(0), LoaderSettings(2, 2)])
    unknown = predict(doubtful, [LoaderSettings(0), LoaderSettings(2, 2)])
    assert unknown[0].low == pytest.approx(known[0].low)
    assert unknown[1].low < known[1].low / 1.5
    assert unknown[1].high > known[1].high * 1.1
    assert unknown[1].samples_per_s == pytest.approx(known[1].samples_per_s)


def test_reads_beyond_the_recorded_ones_may_slow_each_other() -> None:
    workload = recorded(SPECS["throttled"], settings=LoaderSettings(2, 2))
    workload = replace(workload, storage_parallel=np.inf)
    two, eight = predict(workload, [LoaderSettings(2, 2), LoaderSettings(8, 2)])
    assert np.log(two.samples_per_s / two.low) < 0.22
    assert eight.low <= truth(SPECS["throttled"], eight.settings) <= eight.high
    assert eight.low < eight.samples_per_s / 1.3


def test_settings_that_do_not_fit_say_what_they_need_and_what_there_is() -> None:
    limits = {"memory_bytes": 4 * GIB, "shm_bytes": GIB, "worker_bytes": GIB // 2}
    large = replace(recorded(SPECS["constant"]), **limits, batch_bytes=100 << 20)
    asked = [LoaderSettings(4, 2), LoaderSettings(8, 4), LoaderSettings(11, 1, pin_memory=True)]
    fits, shared, memory = (each.infeasible for each in predict(large, asked))
    assert fits is None
    assert shared == "33 batches of 100.0 MiB take 2.7 GiB more of /dev/shm, but only 1.0 GiB are free"
    assert all(words in str(memory) for words in ("11 workers", "pinned", "5.2 GiB more memory, but only 4.0 GiB are"))
    # Nothing known of memory rules nothing out.
    assert predict(recorded(SPECS["constant"]), [LoaderSettings(64, 16)])[0].infeasible is None
