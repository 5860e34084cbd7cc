"""The replay against a plain simulation of the same physics, and what holds for any loader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.loader_clock import MS, SPECS, Made, Spec, recorded, simulate
from whyidle.analyse.predict.cases import ReplayCase, hands, rows_of
from whyidle.analyse.predict.predict import ns_per_batch, serial
from whyidle.analyse.predict.protocol import replay
from whyidle.analyse.predict.rows import DrawnTimes, Replayed, ReplayRows
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
    "costly sampler": {"drawing_ns": 7 * MS, "batches_per_epoch": 45, "host_ns": 6 * MS},
}


def rows_for(spec: Spec, chosen: list[LoaderSettings]) -> ReplayRows:
    return rows_of([recorded(spec, 8)], [ReplayCase(s, hands(s, 1), 0) for s in chosen], 1)


def drawn(made: Made, hosts: Any, spec: Spec) -> DrawnTimes:
    device = None if spec.device_ns is None else np.full((1, len(hosts)), spec.device_ns)
    return DrawnTimes(made.read_ns[None], made.wait_ns[None], made.cpu_ns[None], hosts[None], device)


def made_by(spec: Spec, rng: np.random.Generator) -> Made:
    """No two alike: which of two that end at the same instant counts as the first is anybody's guess, and out of order
    a late batch may then fall to a worker that has another one."""
    made = spec.made(rng, STEPS + SPARE)
    return replace(made, wait_ns=made.wait_ns * rng.uniform(0.999, 1.001, STEPS + SPARE))


def replayed(spec: Spec, chosen: list[LoaderSettings], made: Made, hosts: Any, steps: int = STEPS) -> Replayed:
    return replay(rows_for(spec, chosen), drawn(made, hosts, spec), steps)


CROSSED = [
    pytest.param(name, variant, marks=() if (place + number) % 6 == 0 else pytest.mark.slow)
    for place, name in enumerate(SPECS)
    for number, variant in enumerate(VARIANTS)
]
"""Of the quick tests each workload is in two, and each variant."""


@pytest.mark.parametrize(("name", "variant"), CROSSED)
def test_replays_are_within_one_percent_of_the_reference(name: str, variant: str) -> None:
    spec = replace(SPECS[name], **VARIANTS[variant])
    rng = np.random.default_rng([list(SPECS).index(name), list(VARIANTS).index(variant)])
    made, hosts = made_by(spec, rng), spec.hosts(rng, STEPS + SPARE)
    chosen = [EVERY[k] for k in rng.choice(len(EVERY), 8, replace=False)]
    results = replayed(spec, chosen, made, hosts)
    for k, each in enumerate(chosen):
        truth = simulate(spec, each, STEPS, made=made, hosts=hosts)
        assert results.ends[k, -1] == pytest.approx(truth.step_ends_ns[-1], rel=0.01), each
        wall = truth.step_ends_ns[-1]
        assert results.stalls[k].sum() / wall == pytest.approx(truth.stall_share, abs=0.01), each
        assert results.ends[k] == pytest.approx(truth.step_ends_ns, rel=0.02), each


@pytest.mark.parametrize(
    "variant", ["as it is", "few cpus", "asynchronous device", "synchronous device", "costly sampler"]
)
@pytest.mark.parametrize("name", SPECS)
def test_a_training_without_workers_is_within_one_percent_of_the_reference(name: str, variant: str) -> None:
    spec = replace(SPECS[name], **VARIANTS[variant])
    rng = np.random.default_rng(3)
    made, hosts = spec.made(rng, STEPS), spec.hosts(rng, STEPS)
    workload = replace(recorded(spec, 8), settings=LoaderSettings(0))
    ends, stalls = serial(workload, drawn(made, hosts, spec))
    truth = simulate(spec, LoaderSettings(0), STEPS, made=made, hosts=hosts)
    assert ends[0] == pytest.approx(truth.step_ends_ns, rel=0.01)
    assert stalls.sum() / ends[0, -1] == pytest.approx(truth.stall_share, abs=0.01)


def test_constant_times_give_the_closed_form() -> None:
    rng, number = np.random.default_rng(2), 200
    workers, prefetch = rng.integers(1, 9, number), rng.integers(1, 5, number)
    making, step = rng.uniform(1, 200, number), rng.uniform(1, 40, number)
    handoff, latency = rng.uniform(0, 5, number) * (rng.random(number) < 0.8), rng.uniform(0, 5, number)
    drawing = rng.uniform(0, 20, number) * (rng.random(number) < 0.5)
    spec = Spec("", cpus=32, start_ns=0)
    rows = rows_for(spec, [LoaderSettings(int(w), int(p)) for w, p in zip(workers, prefetch, strict=True)])
    rows = replace(rows, draw=np.arange(number), handoff=handoff * MS, drawing=drawing * MS)
    rows = replace(rows, latency=latency * MS)
    steps = 400
    nothing = np.zeros((number, steps))
    times = DrawnTimes(nothing, making[:, None] * MS + nothing, nothing, step[:, None] * MS + nothing, None)
    ends = replay(rows, times, steps).ends
    # Each of the protocol's circles: the training's, a worker's, an order's from one hand-over to the next.
    own, order = step + handoff + drawing, making + latency + handoff + drawing
    closed = np.maximum.reduce([own, making / workers, order / (workers * prefetch)])
    taken, drawn_ahead = ns_per_batch(ends, rows.outstanding, rows.workers, rows.epoch), drawing > 0
    assert taken[~drawn_ahead] == pytest.approx(closed[~drawn_ahead] * MS, rel=1e-9)
    # Orders that come one by one at first leave the workers out of step for some bursts.
    assert taken[drawn_ahead] == pytest.approx(closed[drawn_ahead] * MS, rel=0.01)


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
    spec = Spec("", handoff_ns=0, latency_ns=0.0, start_ns=0, cpus=8, drawing_ns=15 * MS)
    made = Made(np.zeros(20), np.full(20, 20 * MS), np.zeros(20))
    result = replayed(spec, [LoaderSettings(1, prefetch)], made, np.full(20, 10 * MS), steps=4)
    assert result.ends[0] / MS == pytest.approx(ends)


def test_an_early_batch_is_taken_out_while_the_training_waits_for_a_late_one() -> None:
    spec = Spec("", host_ns=1 * MS, handoff_ns=2 * MS, latency_ns=0.0, start_ns=0, cpus=8)
    wait = np.full(20, 1 * MS)
    wait[0] = 20 * MS
    made = Made(np.zeros(20), wait, np.zeros(20))
    result = replayed(spec, [LoaderSettings(2, 2)], made, np.full(20, 1 * MS), steps=4)
    # Batches 1 and 3 of the other worker are taken out by 6 ms; 0 comes at 20 and costs 2, 1 nothing more.
    assert result.ends[0] / MS == pytest.approx([23, 24, 27, 28])
