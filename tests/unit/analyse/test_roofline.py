"""The rule by which parts become a limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.cells import NOTHING, Planned
from whyidle.analyse.cells.roofline import PlacedRoofline, roofline, rooflines, sample_times
from whyidle.matrix.ceilings import add_round


def part(name: str, kind: str, one: float, every: float) -> dict[str, Any]:
    return {"name": name, "kind": kind, "one": [one], "all": [every]}


READ, DECODE = part("read", "making", 1000, 2000), part("decode", "making", 250, 500)


def told(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"cores": 2, "parts": list(parts)}


def test_times_of_what_a_core_does_add_up() -> None:
    found = roofline(told(READ, DECODE))
    assert found is not None
    assert found.one == pytest.approx(200)  # 1 ms and 4 ms
    assert found.all == pytest.approx(400)
    assert found.bound_by == "making"


def test_what_goes_on_beside_only_bounds_it() -> None:
    fast, slow = part("copy", "beside", 900, 900), part("copy", "beside", 300, 300)
    unbound, bound = roofline(told(READ, DECODE, fast)), roofline(told(READ, DECODE, slow))
    assert unbound is not None
    assert bound is not None
    assert (unbound.all, unbound.bound_by) == (pytest.approx(400), "making")
    assert (bound.all, bound.one, bound.bound_by) == (300, pytest.approx(200), "copy")


@pytest.mark.parametrize("kind", ["aside", "stored"])
def test_what_is_not_needed_does_not_count(kind: str) -> None:
    with_it, without = roofline(told(READ, DECODE, part("collate", kind, 1, 1))), roofline(told(READ, DECODE))
    assert with_it is not None
    assert without is not None
    assert (with_it.all, with_it.one, with_it.bound_by) == (without.all, without.one, without.bound_by)
    assert [each.name for each in with_it.parts] == ["read", "decode", "collate"]


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=6))
def test_the_limit_is_below_each_of_its_parts_and_its_parts_sum_up_to_it(rates: list[float]) -> None:
    found = roofline(told(*(part(str(number), "making", rate, 2 * rate) for number, rate in enumerate(rates))))
    assert found is not None
    assert found.all <= 2 * min(rates) * (1 + 1e-9)
    times = sample_times(PlacedRoofline({}, "", "", found), [])
    assert sum(ms for _, ms in times[0].parts) == pytest.approx(1e3 / found.all)


def test_rounds_are_taken_together_by_their_medians() -> None:
    parts: list[dict[str, Any]] = []
    for rate in (100.0, 900.0, 200.0):
        add_round(parts, [{"name": "read", "kind": "making", "one": rate, "all": 2 * rate}])
    found = roofline(told(*parts))
    assert found is not None
    [read] = found.parts
    assert (read.one.value, read.one.low, read.one.high, found.all) == (200, 100, 900, 400)


def test_what_was_done_not_once_is_no_part() -> None:
    """Longer than the time it was given, or refused."""
    assert roofline(told(part("read", "making", 0, 0))) is None
    assert roofline(told()) is None
    assert rooflines({}) == []


def test_a_cell_is_held_against_the_limit_of_its_own_samples(tmp_path: Path) -> None:
    plain = {"place": {"augment": False}, "decoder": "d", "transformer": "t", **told(READ, DECODE)}
    [found] = rooflines({"roofline": [plain]})
    planned = Planned(tmp_path)
    of_these = planned.cell(40, NOTHING, augment=False)  # 8 samples in 40 ms
    others = planned.cell(40, NOTHING, augment=True)
    synthetic = planned.cell(40, NOTHING, augment=False, feed="synthetic")
    assert [found.is_of(each) for each in (of_these, others, synthetic)] == [True, False, False]
    assert found.share(of_these) == pytest.approx(200 / 400, rel=0.01)
    assert [time.name for time in sample_times(found, [of_these, others, synthetic])] == ["limit", "workers, batch 8"]
    failed = replace(of_these, status="failed", analyses=())
    assert found.share(failed) is None
