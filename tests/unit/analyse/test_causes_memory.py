"""Samples made for nothing, and workers whose memory grows: when they are why batches take long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.crafted import evidence, records_of
from support.judged_waits import COMPUTING, CPUS, judge, only, pieces, rates, waiting_for_data
from whyidle.analyse.causes.diagnosis import findings_of, verdict_of
from whyidle.analyse.causes.input.memory import soon_full
from whyidle.analyse.run.facts import Facts, WastedSamples, wasted_samples_of
from whyidle.analyse.run.memory_growth import MemoryGrowth, MemoryLimitSeen, memory_growth_of
from whyidle.record.schema import CONTENT, HOST, MEMORY, NOT_MEASURED, MemoryLimitOf, StepFlag


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return waiting_for_data(tmp_path_factory.mktemp("run") / "run")


def wasted(run: Facts, rows: list[dict[str, int]], iterable: bool = True) -> WastedSamples:
    usual = {"loader": NOT_MEASURED, "made": 8, "present": 8, "kept": 8}
    contents = records_of(CONTENT, [usual | {"batch": n} | row for n, row in enumerate(rows)])
    found = wasted_samples_of(run.window, contents, iterable, queued=True)
    assert found is not None
    return found


NONE = records_of(CONTENT, [])
TEN = (*range(10),)


@pytest.mark.parametrize(
    ("rows", "dropped"),
    [
        ([{"present": 6, "kept": 6}] * 20, 0.25),
        ([{"kept": 3 + n % 3} for n in range(21)], 0.5),
        ([{"kept": 2}] * 20, 0),  # the same number in each row is no loss
        # Time of a stream that went into nothing counts as samples do.
        ([{"stream_ns": 100, "unused_ns": 60}, {"stream_ns": 100, "unused_ns": 40}], 0.5),
    ],
)
def test_samples_that_are_none_or_not_in_the_batch_are_dropped(
    run: Facts, rows: list[dict[str, int]], dropped: float
) -> None:
    assert wasted(run, rows) == WastedSamples(pytest.approx(dropped), 0.0, 0.0)


def prints(of_worker: dict[int, list[int]]) -> list[dict[str, int]]:
    workers = len(of_worker)
    return [
        {"worker": worker, "batch": place * workers + worker, "fingerprint": number}
        for worker, numbers in of_worker.items()
        for place, number in enumerate(numbers)
    ]


@pytest.mark.parametrize(
    ("of_worker", "iterable", "repeated"),
    [
        (dict.fromkeys(range(4), TEN), True, 0.75),
        (dict.fromkeys(range(4), TEN), False, 0),
        ({0: TEN, 1: [*range(10, 20)]}, True, 0),
        ({0: [7] * 10, 1: [7] * 10}, True, 0),  # the data are all alike
        ({0: [*range(8), 90, 91], 1: [20, 21, 2, 23, 24, 25, 26, 27, 90, 91]}, True, 0),  # now and then the same
        ({0: [1, 2, 3], 1: [1, 2, 3]}, True, 0),  # too few
    ],
)
def test_batches_that_every_worker_makes_are_repeated(
    run: Facts, of_worker: dict[int, list[int]], iterable: bool, repeated: float
) -> None:
    assert wasted(run, prints(of_worker), iterable).repeated == pytest.approx(repeated)


@pytest.mark.parametrize("queued", [True, False])
def test_batches_that_nothing_is_computed_with_are_passed_over(tmp_path: Path, queued: bool) -> None:
    facts = waiting_for_data(tmp_path / "run")
    steps = np.array(facts.window.steps)
    steps["flags"][::2] |= StepFlag.COMPUTED_NOTHING
    steps["flags"][::2] &= ~(StepFlag.FORWARD_SEEN | StepFlag.OPTIMIZER)
    for name in ("backward_begin_ns", "optimizer_end_ns"):
        steps[name][::2] = NOT_MEASURED
    passed = wasted_samples_of(replace(facts.window, steps=steps), NONE, None, queued)
    assert passed is not None
    assert passed.passed_over == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("seen", "change"),
    [
        (WastedSamples(0.5, 0.0, 0.0), "Leave samples out before preparing them"),
        (WastedSamples(0.0, 0.5, 0.0), "get_worker_info"),
        (WastedSamples(0.1, 0.0, 0.4), "Filter in the dataset"),
    ],
)
@pytest.mark.parametrize("facts", [{}, {"set_workers": 0}, {"persistent_workers": False}])
def test_making_for_nothing_comes_before_more_workers(
    run: Facts, seen: WastedSamples, change: str, facts: dict[str, Any]
) -> None:
    cause = only(judge(run, COMPUTING, CPUS, pieces(run), wasted=seen, **facts))
    assert cause.cause == "input.wasted"
    first = cause.next[0]
    assert (first.kind, change in first.change) == ("slice", True)
    low, rate, high = rates(first)
    assert run.samples_per_s < low < rate < high


@pytest.mark.parametrize(("used", "cause"), [(1.9, "input.wasted"), (0.9, "input.handoff")])
def test_where_cpus_are_short_what_is_made_for_nothing_delays_what_is_handed_over(
    run: Facts, used: float, cause: str
) -> None:
    half = WastedSamples(0.5, 0.0, 0.0)
    cpus = CPUS | {"tree_cpus": used, "cpu_budget": 2.0}
    loader = COMPUTING | {"worker_busy_pct": 60.0, "queue_ready_mean": 3.0}
    assert only(judge(run, loader, cpus, pieces(run, handed=1.0), wasted=half)).cause == cause


def test_a_few_broken_samples_and_growth_alone_are_no_cause(run: Facts) -> None:
    for seen in ({"wasted": WastedSamples(0.05, 0.0, 0.05)}, {"memory": growth()}):
        assert only(judge(run, COMPUTING, CPUS, pieces(run), **seen)).cause == "input.too_few_workers"


LOOKS = 60
NO_LIMITS = np.zeros(0, MEMORY.dtype)
GIB = 1 << 30
GB = 10**9
MB = 10**6
Series = Callable[[float], float]


def grown(
    run: Facts,
    rss: Series,
    private: Series | None = None,
    info: dict[str, Any] | None = None,
    limits: list[dict[str, int]] | None = None,
    **series: Series,
) -> MemoryGrowth | None:
    """Each series is a function of the passed share of the window, 0..1. Private memory is seldom looked at."""
    host = np.full(LOOKS, NOT_MEASURED, dtype=np.int64).astype(HOST.dtype)
    window = run.window
    for number, row in enumerate(host):
        passed = number / (LOOKS - 1)
        row["t_ns"] = window.begin_ns + round(passed * window.wall_ns)
        row["main_rss_bytes"] = GB
        row["tree_rss_bytes"] = GB + rss(passed)
        if private is not None and number % 10 == 0:
            row["tree_private_bytes"] = private(passed)
        for name, of in series.items():
            row[name] = of(passed)
    return memory_growth_of(window, host, records_of(MEMORY, limits or []), 2, info or {})


rising: Series = lambda t: GB + 600 * MB * t  # noqa: E731


def grew(run: Facts, *series: Any, **how: Any) -> MemoryGrowth:
    found = grown(run, *series, **how)
    assert found is not None
    return found


@pytest.mark.parametrize(("rss", "copied"), [(rising, False), (lambda _: 2 * GB, True)])
def test_what_workers_keep_and_pages_that_are_copied_make_them_grow(run: Facts, rss: Series, copied: bool) -> None:
    found = grew(run, rss, rising)
    assert found.copied is copied
    assert found.bytes_per_s * run.window.wall_ns / 1e9 == pytest.approx(600 * MB, rel=0.1 if copied else 0.02)


started: Series = lambda t: 1 + round(4 * t)  # noqa: E731


@pytest.mark.parametrize(
    ("rss", "more"),
    [
        (lambda _: GB, {}),
        (lambda t: GB + 600 * MB * min(t, 0.4), {}),  # a cache that is full
        (lambda t: GB + 600 * MB * (1 - (1 - t) ** 4), {}),  # one that fills up ever more slowly
        (lambda t: GB + 600 * MB * (4 * t % 1.0), {}),  # workers that are started anew
        (lambda t: GB + 300 * MB * (round(t * 59) % 2), {}),  # batches that come and go
        (lambda t: GB + 20 * MB * t, {}),  # little
        (lambda t: GB - 600 * MB * t, {}),
        # Workers that are seen one after another.
        (lambda t: 300 * MB * started(t), {"private": None, "tree_processes": started}),
        # Private memory that was hardly looked at.
        (lambda _: GB, {"private": lambda t: rising(t) if t < 0.4 else NOT_MEASURED}),
    ],
)
def test_memory_that_levels_off_or_comes_and_goes_does_not_grow(run: Facts, rss: Series, more: dict[str, Any]) -> None:
    assert grown(run, rss, **{"private": rss} | more) is None


def test_no_workers_have_no_memory(run: Facts) -> None:
    host = np.zeros(LOOKS, HOST.dtype)
    assert memory_growth_of(run.window, host, NO_LIMITS, 0, {}) is None
    assert memory_growth_of(run.window, host[:0], NO_LIMITS, 2, {}) is None


def test_what_is_left_tells_how_long_it_lasts(run: Facts) -> None:
    found = grew(run, rising, memory_available_bytes=lambda t: 3 * GB - 600 * MB * t)
    assert found.full_in_s == pytest.approx(4 * found.elapsed_s, rel=0.05)
    assert found.full_share == 0
    emulated = grew(run, rising, info={"emulated_memory_bytes": 300 * MB})
    assert emulated.full_share == pytest.approx(0.5, abs=0.03)


def growth(**fields: Any) -> MemoryGrowth:
    usual = MemoryGrowth(10.0 * MB, False, 2, 100 * GB, 60.0, 0.0, 0.0, 0)
    return replace(usual, **fields)


@pytest.mark.parametrize(
    "fields", [{"stalled_share": 0.3}, {"full_share": 0.6}, {"stalled_share": None, "full_share": 1.0}]
)
@pytest.mark.parametrize("copied", [True, False])
def test_a_machine_without_memory_is_why_batches_take_long(run: Facts, fields: dict[str, Any], copied: bool) -> None:
    found = only(judge(run, COMPUTING, CPUS, pieces(run), memory=growth(copied=copied, **fields)))
    assert found.cause == "input.memory"
    assert [each.kind for each in found.next] == ["fewer_objects", "fewer_workers"]
    assert ("copies of pages" in found.title) == copied
    assert "600 MB per minute" in found.title
    (_, first, _), (_, second, _) = map(rates, found.next)
    assert run.samples_per_s < second <= first


def test_a_machine_that_is_soon_full_is_told_before_it_is(run: Facts) -> None:
    idle = replace(run, parts=replace(run.parts, input_ns=0, compute_ns=run.parts.wall_ns))
    for left, told in ((3 * GB, True), (100 * GB, False), (None, False)):
        assert soon_full(replace(idle, memory=growth(available_bytes=left, elapsed_s=5.0, bytes_per_s=GB))) is None
        facts = replace(idle, memory=growth(available_bytes=left))
        soon = [found for found in findings_of(facts) if found.cause == "input.memory"]
        assert len(soon) == told
        if told:
            assert (soon[0].severity, soon[0].share) == ("major", 0.0)
            assert "none is left in 5 min" in soon[0].title
            assert verdict_of(facts, findings_of(facts)) in soon


def limited(run: Facts, used: int, **fields: int) -> dict[str, int]:
    """A look at a container of 4 GiB at the end of the window."""
    usual = {"whose": MemoryLimitOf.CONTAINER, "slows": 0, "limit_bytes": 4 * GIB, "used_bytes": used, "oom_kills": 5}
    return {"t_ns": run.window.end_ns, **usual, **fields}


def test_memory_ends_at_the_limit_of_a_container_where_that_leaves_less(run: Facts) -> None:
    looks = [limited(run, 3 * GIB) | {"t_ns": run.window.begin_ns, "oom_kills": 4}, limited(run, 3 * GIB)]
    found = grew(run, rising, limits=looks, memory_available_bytes=lambda _: GIB)
    assert found.limit == MemoryLimitSeen(MemoryLimitOf.CONTAINER, 4 * GIB, False, None)
    assert (found.available_bytes, found.kills, found.full_share) == (GIB, 1, 0.0)
    assert grew(run, rising, limits=looks, memory_available_bytes=lambda _: GIB // 2).limit is None


@pytest.mark.parametrize(("left", "limit", "full"), [(200, True, 0.0), (50, True, 1.0), (200, False, 1.0)])
def test_what_a_small_limit_leaves_is_none_only_near_it(run: Facts, left: int, limit: bool, full: float) -> None:
    """200 MB of a container of 4 GiB are something, of a machine they are nothing."""
    looks = [limited(run, 4 * GIB - left * MB)] if limit else []
    assert grew(run, rising, limits=looks, memory_available_bytes=lambda _: left * MB).full_share == full


def test_a_group_that_swaps_has_no_memory_left(run: Facts) -> None:
    swapping = [
        limited(run, 3 * GIB, swap_used_bytes=0) | {"t_ns": run.window.begin_ns},
        limited(run, 3 * GIB, swap_used_bytes=GIB),
    ]
    found = grew(run, rising, limits=swapping, memory_available_bytes=lambda _: GIB)
    assert (found.swapped_bytes, found.full_share) == (GIB, 1.0)


@pytest.mark.parametrize(
    ("fields", "then"),
    [
        ({}, "left in 5 min."),
        ({"swap_bytes": 0}, "and the kernel kills one of its processes."),
        ({"slows": True}, "and the kernel slows it down."),
    ],
)
def test_the_finding_says_whose_limit_it_is_and_where_it_is_set(run: Facts, fields: dict[str, Any], then: str) -> None:
    limit = replace(MemoryLimitSeen(MemoryLimitOf.CONTAINER, 4 * GIB, False, None), **fields)
    idle = replace(run, parts=replace(run.parts, input_ns=0, compute_ns=run.parts.wall_ns))
    found = soon_full(replace(idle, memory=growth(available_bytes=3 * GB, limit=limit, kills=2)))
    assert found is not None
    assert "At this pace, none of the container's 4.0 GiB is left in 5 min" in found.title
    assert found.title.endswith(then)
    assert found.next[-1].change.startswith("Give the container more memory: `docker run --memory`")
    told = evidence(found)
    assert told["Memory left at the end, of the container's 4.0 GiB"] == pytest.approx(3000)
    assert told["Processes killed for lack of memory"] == 2
    full = only(judge(run, COMPUTING, CPUS, pieces(run), memory=growth(full_share=1.0, limit=limit)))
    assert "the container has no memory left" in full.title
    assert "Processes killed for lack of memory" not in evidence(full)
