"""Cells of a comparison: which differ in one thing alone, what their trainings came to, what limits them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.cells import NOTHING, Planned, training_result, with_info
from whyidle.analyse.cells.comparison import (
    Cell,
    cell_of,
    compare,
    round_of,
)
from whyidle.analyse.cells.studies import (
    Roofline,
    metrics_by_batch_size,
    of_limit,
    results,
    rooflines,
)
from whyidle.matrix.ceilings import add_round
from whyidle.record.comparison import CellRecord
from whyidle.report.contract import comparison as compare_json
from whyidle.scenarios.planted import Step, train

PAGES = Path(__file__).parents[3] / "docs" / "commands"


def cell(batch_size: int = 8, pipeline: str = "torch", **axes: Any) -> Cell:
    return Cell(pipeline, batch_size, "ok", None, axes=axes)


def test_places_are_told_apart_by_what_they_are_and_need_not_be_hashable() -> None:
    cells = [cell(plan=["a"]), cell(plan=["b"]), cell(16, plan=["a"]), cell(net=1), cell(net=True), cell(net=None)]
    assert [len(group.cells) for group in compare(cells).groups] == [2, 1, 1, 1, 1]


def test_runs_that_are_gone_are_told_and_the_others_count_in_their_rounds(tmp_path: Path) -> None:
    for number in (0, 2):
        train(tmp_path / f"naive-b8-r{number}", [[Step()] * 40])
    cell = cell_of(tmp_path, CellRecord("naive", 8, "ok", None, tuple(f"naive-b8-r{number}" for number in range(3))))
    assert cell.error == "1 of its runs is no longer there"
    assert [row.round for row, _ in cell.counted] == [0, 2]
    assert [row.round for row in cell.rows] == [0, 1, 2]
    # A folder that was named by hand tells none.
    assert (round_of("caffe-b16-r12"), round_of("kept"), round_of("my-run")) == (12, None, None)


@pytest.mark.parametrize(
    ("small", "large", "says"),
    [
        ((0.700, 0.720), (0.705, 0.700), True),  # as much as repeats differ
        ((0.700, 0.702), (0.690, 0.691), False),
        ((0.700, 0.700), (0.695, 0.695), True),  # less than anybody would call a fall
        ((0.650,), (0.700,), True),
        ((0.700,), (0.650,), None),  # nothing was repeated
    ],
)
def test_accuracy_held_where_it_fell_by_no_more_than_repeats_differ(
    planned: Planned, small: tuple[float, ...], large: tuple[float, ...], says: bool | None
) -> None:
    cells = [
        planned.cell(1, 2, batch_size=size, results=tuple(map(training_result, of_runs)))
        for size, of_runs in ((64, large), (8, small))
    ]
    [found] = metrics_by_batch_size(results(cells))
    assert found.metric == "accuracy"  # a loss is no merit
    assert [cell.batch_size for cell in found.cells] == [8, 64]
    assert found.held is says


@pytest.mark.parametrize(
    ("accuracies", "more", "learnt"),
    [
        ((0.15, 0.12), {"classes": [str(n) for n in range(10)]}, False),
        ((0.85, 0.12), {"classes": [str(n) for n in range(10)]}, True),
        ((0.55, 0.52), {"confusion": [[5, 5], [4, 6]]}, False),
        ((0.80, 0.52), {"confusion": [[8, 2], [2, 8]]}, True),
        ((0.04, 0.042), {"average_precision": 0.04, "recall": 0.6}, False),
    ],
)
def test_whether_nets_learnt_is_judged_by_what_chance_gives(
    planned: Planned, accuracies: tuple[float, float], more: dict[str, Any], learnt: bool
) -> None:
    cells = [
        planned.cell(1, 2, batch_size=size, results=(training_result(accuracy, **more),))
        for size, accuracy in zip((8, 16), accuracies, strict=True)
    ]
    assert {each.learnt for each in metrics_by_batch_size(results(cells))} == {learnt}


def part(name: str, kind: str, one: float, every: float) -> dict[str, Any]:
    return {"name": name, "kind": kind, "one": [one], "all": [every]}


READ, DECODE = part("read", "making", 1000, 2000), part("decode", "making", 250, 500)


def told(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"place": {}, "decoder": "d", "transformer": "t", "cores": 2, "parts": list(parts)}


def limit(*parts: dict[str, Any]) -> Roofline:
    [found] = rooflines({"roofline": [told(*parts)]})
    return found


@pytest.mark.parametrize(
    ("more", "every", "bound_by"),
    [
        ([], 400, "making"),  # of 0.5 ms and 2 ms
        ([part("copy", "beside", 900, 900)], 400, "making"),
        ([part("copy", "beside", 300, 300)], 300, "copy"),
        ([part("collate", "aside", 1, 1)], 400, "making"),
        ([part("collate", "stored", 1, 1)], 400, "making"),
    ],
)
def test_times_of_what_a_core_does_add_up_what_goes_on_beside_only_bounds_them_and_the_rest_does_not_count(
    more: list[dict[str, Any]], every: float, bound_by: str
) -> None:
    found = limit(READ, DECODE, *more)
    assert (found.one_core, found.limit, found.bound_by) == (pytest.approx(200), pytest.approx(every), bound_by)
    assert [each.name for each in found.parts] == ["read", "decode", *(each["name"] for each in more)]


def test_rounds_are_taken_together_by_their_medians() -> None:
    parts: list[dict[str, Any]] = []
    for rate in (100.0, 900.0, 200.0):
        add_round(parts, [{"name": "read", "kind": "making", "one": rate, "all": 2 * rate}])
    found = limit(*parts)
    [read] = found.parts
    assert (read.one_core.value, read.one_core.low, read.one_core.high, found.limit) == (200, 100, 900, 400)


def test_what_was_done_not_once_is_no_part() -> None:
    """Longer than the time it was given, or refused."""
    assert rooflines({"roofline": [told(part("read", "making", 0, 0)), told()]}) == rooflines({}) == []


def test_a_cell_is_held_against_the_limit_of_its_own_samples(tmp_path: Path) -> None:
    [found] = rooflines({"roofline": [told(READ, DECODE) | {"place": {"augment": False}}]})
    planned = Planned(tmp_path)
    of_these = planned.cell(40, NOTHING, augment=False)  # 8 samples in 40 ms
    others = planned.cell(40, NOTHING, augment=True)
    synthetic = planned.cell(40, NOTHING, augment=False, feed="synthetic")
    assert found.share(of_these) == of_limit(of_these, [found]) == pytest.approx(200 / 400, rel=0.01)
    assert [found.share(each) for each in (others, synthetic)] == [None, None]
    assert [cell for _, cell in found.reached([synthetic, others, of_these])] == [of_these]
    assert found.share(replace(of_these, status="failed")) is None


def test_the_page_of_the_command_names_the_keys_of_its_json() -> None:
    told_beside = dict.fromkeys(("what", "dataset", "size", "batch_size", "rounds", "notices"))
    made = compare_json.roofline(limit(READ, DECODE), told_beside)
    keys = {*made, *made["parts"][0], *made["parts"][0]["one_core"]}
    [shape] = re.findall(r'```\n(\{"format".*?)```', (PAGES / "roofline.md").read_text(), re.DOTALL)
    values = {"whyidle-roofline", "making", "beside", "stored", "aside"}
    assert set(re.findall(r'"([\w-]+)"', shape)) - values == keys


def test_runs_of_one_round_on_two_machines_are_no_block(planned: Planned) -> None:
    """A drift of one machine hits the sizes that ran on it alone, so it cannot be told from what the size does."""
    small, large = (planned.cell(1, 1.0 * size, batch_size=size, results=(None,) * 3) for size in (8, 16))
    [together] = compare([small, large]).batch_verdicts.values()
    [apart] = compare(
        [with_info(small, host={"name": "alpha"}), with_info(large, host={"name": "beta"})]
    ).batch_verdicts.values()
    nameless = [replace(c, rows=tuple(replace(row, round=None) for row in c.rows)) for c in (small, large)]
    [unknown] = compare(nameless).batch_verdicts.values()
    assert apart.changes == unknown.changes != together.changes
