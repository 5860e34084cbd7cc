"""Workers whose memory grows: how, until when, and when that is why batches take long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.crafted import evidence, records_of
from support.judged_waits import COMPUTING, CPUS, judge, only, pieces, waiting_for_data
from whyidle.analyse.causes.diagnosis import findings_of, verdict_of
from whyidle.analyse.causes.input.memory import soon_full
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.memory_growth import MemoryGrowth, MemoryLimitSeen, memory_growth_of
from whyidle.record.schema import HOST, MEMORY, NOT_MEASURED, MemoryLimitOf

LOOKS = 60
NO_LIMITS = np.zeros(0, MEMORY.dtype)
GIB = 1 << 30
GB = 10**9
MB = 10**6
Series = Callable[[float], float]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return waiting_for_data(tmp_path_factory.mktemp("run") / "run")


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


def test_what_workers_keep_makes_them_grow(run: Facts) -> None:
    found = grown(run, lambda t: GB + 600 * MB * t, lambda t: GB + 600 * MB * t)
    assert found is not None
    assert not found.copied
    assert found.bytes_per_s * run.window.wall_ns / 1e9 == pytest.approx(600 * MB, rel=0.02)


def test_pages_that_are_copied_become_private(run: Facts) -> None:
    found = grown(run, lambda _: 2 * GB, lambda t: GB + 600 * MB * t)
    assert found is not None
    assert found.copied
    assert found.bytes_per_s * run.window.wall_ns / 1e9 == pytest.approx(600 * MB, rel=0.1)


@pytest.mark.parametrize(
    "rss",
    [
        lambda _: GB,
        lambda t: GB + 600 * MB * min(t, 0.4),  # a cache that is full
        lambda t: GB + 600 * MB * (1 - (1 - t) ** 4),  # one that fills up ever more slowly
        lambda t: GB + 600 * MB * (4 * t % 1.0),  # workers that are started anew
        lambda t: GB + 300 * MB * (round(t * 59) % 2),  # batches that come and go
        lambda t: GB + 20 * MB * t,  # little
        lambda t: GB - 600 * MB * t,
    ],
)
def test_memory_that_levels_off_or_comes_and_goes_does_not_grow(run: Facts, rss: Series) -> None:
    assert grown(run, rss, rss) is None


def test_workers_that_are_seen_one_after_another_do_not_grow(run: Facts) -> None:
    start: Series = lambda t: 1 + round(4 * t)  # noqa: E731
    assert grown(run, lambda t: 300 * MB * start(t), tree_processes=start) is None


def test_private_memory_that_was_hardly_looked_at_says_nothing(run: Facts) -> None:
    assert grown(run, lambda _: GB, lambda t: GB + 600 * MB * t if t < 0.4 else NOT_MEASURED) is None


def test_no_workers_have_no_memory(run: Facts) -> None:
    host = np.zeros(LOOKS, HOST.dtype)
    assert memory_growth_of(run.window, host, NO_LIMITS, 0, {}) is None
    assert memory_growth_of(run.window, host[:0], NO_LIMITS, 2, {}) is None


def test_what_is_left_tells_how_long_it_lasts(run: Facts) -> None:
    found = grown(run, lambda t: GB + 600 * MB * t, memory_available_bytes=lambda t: 3 * GB - 600 * MB * t)
    assert found is not None
    assert found.full_in_s is not None
    assert found.full_in_s == pytest.approx(4 * found.elapsed_s, rel=0.05)
    assert found.full_share == 0
    emulated = grown(run, lambda t: GB + 600 * MB * t, info={"emulated_memory_bytes": 300 * MB})
    assert emulated is not None
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
    assert ("copies of the pages" in found.title) == copied
    assert "600 MB a minute" in found.title
    first, second = found.next[0].predicted_samples_per_s, found.next[1].predicted_samples_per_s
    assert first is not None
    assert second is not None
    assert run.samples_per_s < second <= first


def test_growth_alone_is_not_why_batches_take_long(run: Facts) -> None:
    found = only(judge(run, COMPUTING, CPUS, pieces(run), memory=growth()))
    assert found.cause == "input.too_few_workers"


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
    rss: Series = lambda t: GB + 600 * MB * t  # noqa: E731
    looks = [limited(run, 3 * GIB) | {"t_ns": run.window.begin_ns, "oom_kills": 4}, limited(run, 3 * GIB)]
    found = grown(run, rss, limits=looks, memory_available_bytes=lambda _: GIB)
    assert found is not None
    assert found.limit == MemoryLimitSeen(MemoryLimitOf.CONTAINER, 4 * GIB, False, None)
    assert (found.available_bytes, found.kills, found.full_share) == (GIB, 1, 0.0)
    machine = grown(run, rss, limits=looks, memory_available_bytes=lambda _: GIB // 2)
    assert machine is not None
    assert machine.limit is None


def test_what_a_small_limit_leaves_is_none_only_near_it(run: Facts) -> None:
    """200 MB of a container of 4 GiB are something, of a machine they are nothing."""
    rss: Series = lambda t: GB + 600 * MB * t  # noqa: E731
    for left, full in ((200 * MB, 0.0), (50 * MB, 1.0)):
        looks = [limited(run, 4 * GIB - left)]
        found = grown(run, rss, limits=looks, memory_available_bytes=lambda _, left=left: left)
        assert found is not None
        assert found.full_share == full
    machine = grown(run, rss, memory_available_bytes=lambda _: 200 * MB)
    assert machine is not None
    assert machine.full_share == 1.0


def test_a_group_that_swaps_has_no_memory_left(run: Facts) -> None:
    swapping = [
        limited(run, 3 * GIB, swap_used_bytes=0) | {"t_ns": run.window.begin_ns},
        limited(run, 3 * GIB, swap_used_bytes=GIB),
    ]
    found = grown(run, lambda t: GB + 600 * MB * t, limits=swapping, memory_available_bytes=lambda _: GIB)
    assert found is not None
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
    assert "at this pace none of the container's 4.0 GiB is left in 5 min" in found.title
    assert found.title.endswith(then)
    assert found.next[-1].change.startswith("more memory for the container: docker run --memory")
    told = evidence(found)
    assert told["memory left at the end, of the container's 4.0 GiB"] == pytest.approx(3000)
    assert told["processes killed for want of memory"] == 2
    full = only(judge(run, COMPUTING, CPUS, pieces(run), memory=growth(full_share=1.0, limit=limit)))
    assert "the container has no memory left" in full.title
    assert "processes killed for want of memory" not in evidence(full)
