"""Samples made for nothing: what is found of them, and when it is the cause of a wait."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.judged_waits import COMPUTING, CPUS, judge, only, pieces, waiting_for_data
from whyidle.analyse.run.facts import Facts, WastedSamples, wasted_samples_of
from whyidle.record.columns import copied
from whyidle.record.reader import Records
from whyidle.record.schema import CONTENT, NOT_MEASURED, StepFlag


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return waiting_for_data(tmp_path_factory.mktemp("run") / "run")


def contents(rows: list[dict[str, int]]) -> Records:
    found = np.full(len(rows), NOT_MEASURED, dtype=np.int64).astype(CONTENT.dtype)
    for name in CONTENT.dtype.names or ():
        found[name] = [row.get(name, NOT_MEASURED) for row in rows]
    return found


def found(run: Facts, rows: list[dict[str, int]], iterable: bool = True) -> WastedSamples | None:
    mine = [
        {"loader": NOT_MEASURED, "made": 8, "present": 8, "kept": 8, "batch": n} | row for n, row in enumerate(rows)
    ]
    return wasted_samples_of(run.window, contents(mine), iterable, queued=True)


def test_samples_that_are_none_or_not_in_the_batch_are_dropped(run: Facts) -> None:
    none = found(run, [{"present": 6, "kept": 6}] * 20)
    assert none is not None
    assert none.dropped == pytest.approx(0.25)
    filtered = found(run, [{"kept": 3 + n % 3} for n in range(21)])
    assert filtered is not None
    assert filtered.dropped == pytest.approx(0.5)


def test_the_same_number_of_samples_in_each_row_is_no_loss(run: Facts) -> None:
    assert found(run, [{"kept": 2}] * 20) == WastedSamples(0.0, 0.0, 0.0)


def test_time_of_a_stream_that_went_into_nothing_counts_as_samples_do(run: Facts) -> None:
    streamed = found(run, [{"stream_ns": 100, "unused_ns": 60}, {"stream_ns": 100, "unused_ns": 40}])
    assert streamed is not None
    assert streamed.dropped == pytest.approx(0.5)


def prints(of_worker: dict[int, list[int]]) -> list[dict[str, int]]:
    workers = len(of_worker)
    return [
        {"worker": worker, "batch": place * workers + worker, "fingerprint": number}
        for worker, numbers in of_worker.items()
        for place, number in enumerate(numbers)
    ]


def test_batches_that_every_worker_makes_are_repeated(run: Facts) -> None:
    same = prints({worker: list(range(10)) for worker in range(4)})
    repeated = found(run, same)
    assert repeated is not None
    assert repeated.repeated == pytest.approx(0.75)
    indexed = found(run, same, iterable=False)
    assert indexed is not None
    assert indexed.repeated == 0


@pytest.mark.parametrize(
    "of_worker",
    [
        {0: list(range(10)), 1: list(range(10, 20))},
        {0: [7] * 10, 1: [7] * 10},  # the data are all alike
        {0: [*range(8), 90, 91], 1: [20, 21, 2, 23, 24, 25, 26, 27, 90, 91]},  # now and then the same
        {0: [1, 2, 3], 1: [1, 2, 3]},  # too few
    ],
)
def test_workers_with_data_of_their_own_repeat_nothing(run: Facts, of_worker: dict[int, list[int]]) -> None:
    repeated = found(run, prints(of_worker))
    assert repeated is not None
    assert repeated.repeated == 0


@pytest.mark.parametrize("queued", [True, False])
def test_batches_that_nothing_is_computed_with_are_passed_over(tmp_path: Path, queued: bool) -> None:
    facts = waiting_for_data(tmp_path / "run")
    steps = copied(facts.window.steps)
    steps["flags"][::2] |= StepFlag.COMPUTED_NOTHING
    steps["flags"][::2] &= ~(StepFlag.FORWARD_SEEN | StepFlag.OPTIMIZER)
    for name in ("backward_begin_ns", "optimizer_end_ns"):
        steps[name][::2] = NOT_MEASURED
    passed = wasted_samples_of(replace(facts.window, steps=steps), contents([]), None, queued)
    assert passed is not None
    assert passed.passed_over == pytest.approx(0.5, abs=0.02)


def test_nothing_looked_at_is_not_measured(run: Facts) -> None:
    assert wasted_samples_of(run.window, contents([]), True, queued=True) is None


@pytest.mark.parametrize(
    ("wasted", "change"),
    [
        (WastedSamples(0.5, 0.0, 0.0), "leave out before making"),
        (WastedSamples(0.0, 0.5, 0.0), "get_worker_info"),
        (WastedSamples(0.1, 0.0, 0.4), "filter before making"),
    ],
)
@pytest.mark.parametrize("facts", [{}, {"set_workers": 0}, {"persistent_workers": False}])
def test_making_for_nothing_comes_before_more_workers(
    run: Facts, wasted: WastedSamples, change: str, facts: dict[str, Any]
) -> None:
    cause = only(judge(run, COMPUTING, CPUS, pieces(run), wasted=wasted, **facts))
    assert cause.cause == "input.wasted"
    first = cause.next[0]
    assert (first.kind, change in first.change) == ("slice", True)
    assert first.low is not None
    assert first.predicted_samples_per_s is not None
    assert first.high is not None
    assert run.samples_per_s < first.low < first.predicted_samples_per_s < first.high


@pytest.mark.parametrize(("used", "cause"), [(1.9, "input.wasted"), (0.9, "input.handoff")])
def test_where_cpus_are_short_what_is_made_for_nothing_delays_what_is_handed_over(
    run: Facts, used: float, cause: str
) -> None:
    wasted = WastedSamples(0.5, 0.0, 0.0)
    cpus = CPUS | {"tree_cpus": used, "cpu_budget": 2.0}
    loader = COMPUTING | {"worker_busy_pct": 60.0, "queue_ready_mean": 3.0}
    assert only(judge(run, loader, cpus, pieces(run, handed=1.0), wasted=wasted)).cause == cause


def test_a_few_broken_samples_are_no_cause(run: Facts) -> None:
    few = WastedSamples(0.05, 0.0, 0.05)
    assert only(judge(run, COMPUTING, CPUS, pieces(run), wasted=few)).cause == "input.too_few_workers"
