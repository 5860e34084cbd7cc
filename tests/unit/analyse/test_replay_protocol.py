"""The replay against a plain simulation of the same physics, and what holds for any loader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.loader_clock import MS, SPECS, Spec, recorded, simulate
from whyidle.analyse.predict.replay import MOST_OUTSTANDING, Replay, Workload
from whyidle.record.tuning import LoaderSettings

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
        result, truth = Replay(load, each, STEPS), simulate(load, each, STEPS)
        wall = truth.step_ends_ns[-1]
        assert result.ends[-1] == pytest.approx(wall, rel=0.01), each
        assert sum(result.stalls) / wall == pytest.approx(truth.stall_share, abs=0.01), each
        assert result.ends == pytest.approx(truth.step_ends_ns, rel=0.02), each


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
