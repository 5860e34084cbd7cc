"""The replay against a plain simulation of the same physics, and what holds for any loader; predictions that are right
on average, honest about what they do not know, and quick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.loader_clock import MS, SPECS, Simulation, Spec, recorded
from whyidle.analyse.predict.predict import predict
from whyidle.analyse.predict.replay import MOST_OUTSTANDING, Replay, Workload
from whyidle.record.tuning import LoaderSettings

# The replay.


STEPS = 200
SPARE = 65
"""Batches that may be ordered beyond the last step."""
EVERY = [
    LoaderSettings(workers, prefetch, in_order=in_order, persistent_workers=persists)
    for workers in range(1, 9)
    for prefetch in (1, 2, 3, 4, 8)
    for in_order in (True, False)
    for persists in (True, False)
]
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "short epochs": {"batches_per_epoch": 37},
    "few cpus": {"cpus": 2.0, "main_cpus": 2.0, "contention": 0.03},
    "asynchronous device": {"device_ns": 9 * MS, "host_ns": 3 * MS, "synchronous": False, "host_cv": 0.5},
    "synchronous device": {"device_ns": 9 * MS, "host_ns": 3 * MS, "cpus": 1.5},
    "costly hand-off": {"handoff_ns": 4 * MS, "latency_ns": 3 * MS},
    "held up on its way": {"handoff_ns": 4 * MS, "delay_ns": 5 * MS, "sharing_ns": 3 * MS},
    "costly sampler": {"drawing_ns": 7 * MS, "batches_per_epoch": 45, "host_ns": 6 * MS},
}


def apart(load: Workload, rng: np.random.Generator) -> Workload:
    """No two batches alike: which of two that end at the same instant counts as the first is anybody's guess, and out
    of order a late batch may then fall to a worker that has another one."""
    return replace(load, wait_ns=load.wait_ns * rng.uniform(0.999, 1.001, len(load.wait_ns)))


def waiting(wait_ms: Sequence[float], host_ms: float, **more: float) -> Workload:
    """Batches that do nothing but wait, and cost nothing else unless said."""
    costs: dict[str, Any] = {"handoff_ns": 0, "latency_ns": 0.0, "start_ns": 0, "cpus": 8} | more
    return replace(recorded(Spec("", host_ns=host_ms * MS, **costs), len(wait_ms)), wait_ns=np.array(wait_ms) * MS)


CROSSED = [
    pytest.param(name, variant, marks=() if (place + number) % 7 == 0 else pytest.mark.slow)
    for place, name in enumerate(SPECS)
    for number, variant in enumerate(VARIANTS)
]
"""Of the quick tests each workload is in two, and each variant."""


@pytest.mark.parametrize(("name", "variant"), CROSSED)
def test_replays_are_within_one_percent_of_the_reference(name: str, variant: str) -> None:
    spec = replace(SPECS[name], **VARIANTS[variant])
    rng = np.random.default_rng([list(SPECS).index(name), list(VARIANTS).index(variant)])
    load = apart(recorded(spec, STEPS + SPARE), rng)
    for each in (LoaderSettings(0), *(EVERY[k] for k in rng.choice(len(EVERY), 8, replace=False))):
        result, truth = Replay(load, each, STEPS), Simulation(load, each, STEPS)
        wall = truth.ends[-1]
        assert result.ends[-1] == pytest.approx(wall, rel=0.01), each
        assert sum(result.stalls) / wall == pytest.approx(truth.stalled / wall, abs=0.01), each
        assert result.ends == pytest.approx(truth.ends, rel=0.02), each


@pytest.mark.parametrize(
    ("prefetch", "ends"),
    [
        # Drawn from 0 to 15, made from 15 to 35, taken; the next is drawn from 35 to 50 and ready at 70: in turn.
        (1, [35 + 15 + 10, 70 + 15 + 10, 105 + 15 + 10, 140 + 15 + 10]),
        # Drawn from 0 and from 15, made from 15 to 35 and on to 55, beside 15 of drawing and 10 of training a step.
        (2, [35 + 25, 60 + 25, 85 + 25, 110 + 25]),
    ],
)
def test_a_batch_is_ordered_once_the_training_has_drawn_its_indices(prefetch: int, ends: list[float]) -> None:
    result = Replay(waiting([20] * 20, 10, drawing_ns=15 * MS), LoaderSettings(1, prefetch), 4)
    assert np.array(result.ends) / MS == pytest.approx(ends)


def test_an_early_batch_is_taken_out_while_the_training_waits_for_a_late_one() -> None:
    result = Replay(waiting([20] + [1] * 19, 1, handoff_ns=2 * MS), LoaderSettings(2, 2), 4)
    # Batches 1 and 3 of the other worker are taken out by 6 ms; 0 comes at 20 and costs 2, 1 nothing more.
    assert np.array(result.ends) / MS == pytest.approx([23, 24, 27, 28])


@pytest.mark.parametrize(
    ("host_ns", "ahead"), [(np.nan, 2), (1.0, MOST_OUTSTANDING)], ids=["no number", "a prefetch without end"]
)
def test_what_has_no_end_is_refused(host_ns: float, ahead: int) -> None:
    load = replace(recorded(Spec(""), 8), host_ns=np.full(8, host_ns))
    with pytest.raises(ArithmeticError):
        Replay(load, LoaderSettings(2, ahead), 20)


# Predictions.


GIB = 1 << 30


def truth(spec: Spec, loader: LoaderSettings, seed: int = 77) -> float:
    return Simulation(recorded(spec, 1100, seed), loader, 1000).rate(100)


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
        (SPECS["constant"], LoaderSettings(0), "serial"),
        (SPECS["constant"], LoaderSettings(1, 2), "workers"),
        (SPECS["constant"], LoaderSettings(8, 2), "training"),
        (replace(SPECS["cpu_bound"], cpus=2), LoaderSettings(8, 2), "cpu"),
        (replace(SPECS["cpu_bound"], cpus=3.5), LoaderSettings(3, 2), "cpu"),
        (SPECS["throttled"], LoaderSettings(8, 2), "storage"),
        (SPECS["stragglers"], LoaderSettings(8, 1), "order"),
        (SPECS["large_payload"], LoaderSettings(8, 2), "handoff"),
        (replace(SPECS["constant"], batches_per_epoch=10, start_ns=60 * MS), LoaderSettings(8, 2), "start"),
        (replace(SPECS["constant"], batches_per_epoch=5000), LoaderSettings(8, 2), "training"),
        (
            replace(SPECS["constant"], batches_per_epoch=50_000, start_ns=1500 * MS),
            LoaderSettings(2, 2),
            "workers",
        ),
        (
            replace(SPECS["constant"], host_ns=2 * MS, device_ns=30 * MS, synchronous=False),
            LoaderSettings(4, 2),
            "training",
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
