"""Cells of a comparison: which differ in one thing alone, what their trainings came to, what limits them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.cells import NOTHING, Planned, training_result, with_info
from whyidle.analyse.cells.comparison import (
    Cell,
    cell_of,
    compare,
    grouped,
    ladders,
    places,
    round_of,
    same_place,
    twin,
    varying,
)
from whyidle.analyse.cells.studies import (
    Roofline,
    metrics_by_batch_size,
    of_limit,
    results,
    roofline,
    rooflines,
)
from whyidle.matrix.ceilings import add_round
from whyidle.record.comparison import CellRecord
from whyidle.report.contract import comparison as compare_json
from whyidle.scenarios.planted import Step, train

PAGES = Path(__file__).parents[3] / "docs" / "commands"

ANY_PLACE = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["a", "b"])
CELLS = st.lists(
    st.builds(
        lambda pipeline, size, axes: cell(size, pipeline, **axes),
        st.sampled_from(["torch", "dali"]),
        st.integers(1, 3),
        st.dictionaries(st.sampled_from(["net", "device", "workers"]), ANY_PLACE),
    ),
    max_size=12,
)


def cell(batch_size: int = 8, pipeline: str = "torch", **axes: Any) -> Cell:
    return Cell(pipeline, batch_size, "ok", None, axes=axes)


@given(CELLS, st.sampled_from(["pipeline", "batch_size", "net", "workers"]))
def test_every_cell_is_in_one_group_with_just_those_that_stand_where_it_does_on_the_other_axes(
    cells: list[Cell], axis: str
) -> None:
    groups = grouped(cells, but=(axis,))
    assert sorted(id(each) for group in groups for each in group) == sorted(map(id, cells))
    others = {"pipeline", "batch_size", "net", "device", "workers"} - {axis}
    for group in groups:
        for each in cells:
            # True and 1 are places of their own.
            alike = all(repr(places(each).get(name)) == repr(places(group[0]).get(name)) for name in others)
            assert alike == any(each is member for member in group)


@given(CELLS)
def test_a_ladder_differs_in_its_axis_alone_and_rises_along_it(cells: list[Cell]) -> None:
    for ladder in ladders(cells, "batch_size"):
        sizes = [each.batch_size for each in ladder]
        assert sizes == sorted(sizes)
        assert varying(ladder) == ()
        assert len({each.pipeline for each in ladder}) == 1


def test_groups_come_in_the_order_of_their_first_cells_and_what_is_not_told_is_one_place() -> None:
    cells = [cell(net="b"), cell(net="a"), cell(16, net="b")]
    assert grouped(cells, on=["net"]) == [[cells[0], cells[2]], [cells[1]]]
    assert grouped([cell(threads=None), cell()], on=["threads"]) == [[cell(threads=None), cell()]]
    assert same_place(cell(threads=None), cell(), ("threads",))
    assert not same_place(cell(threads=2), cell(), ("threads",))
    # A file holds places as lists, too.
    assert len(grouped([cell(plan=["a"]), cell(plan=["b"]), cell(16, plan=["a"])], but=("batch_size",))) == 2


def test_a_twin_differs_in_what_is_named_and_in_nothing_else() -> None:
    plain, other = cell(augment=False, net="vgg"), cell(augment=False, net="resnet")
    augmented = cell(augment=True, net="vgg")
    assert twin(augmented, [other, augmented, plain], augment=False) is plain
    assert twin(augmented, [other, augmented], augment=False) is None


def test_runs_that_are_gone_are_told_and_the_others_count_in_their_rounds(tmp_path: Path) -> None:
    for number in (0, 2):
        train(tmp_path / f"naive-b8-r{number}", [[Step()] * 40])
    cell = cell_of(tmp_path, CellRecord("naive", 8, "ok", None, tuple(f"naive-b8-r{number}" for number in range(3))))
    assert cell.error == "1 of its runs is no longer there"
    assert [row.round for row, _ in cell.counted] == [0, 2]
    assert [row.round for row in cell.rows] == [0, 1, 2]
    # A folder that was named by hand tells none.
    assert (round_of("caffe-b16-r12"), round_of("kept"), round_of("my-run")) == (12, None, None)


def test_runs_that_told_nothing_have_no_result(planned: Planned) -> None:
    silent, untried = planned.cell(1, 2), planned.cell(1, 2, results=({"train_s": 3.0, "evaluation": None},))
    assert results([silent]) == ()
    [found] = results([untried])
    assert (found.evaluation, found.confusion, found.metrics, found.shown) == (None, None, (), False)


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


def test_sizes_are_set_beside_each_other_only_where_all_else_is_the_same(planned: Planned) -> None:
    cells = [
        planned.cell(1, 2, net="a", results=(training_result(0.9),)),
        planned.cell(1, 2, net="b", batch_size=64, results=(training_result(0.5),)),
    ]
    assert metrics_by_batch_size(results(cells)) == ()


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
    found = roofline(told(*parts))
    assert found is not None
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


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=6))
def test_the_limit_is_below_each_of_its_parts_and_its_parts_sum_up_to_it(rates: list[float]) -> None:
    found = limit(*(part(str(number), "making", rate, 2 * rate) for number, rate in enumerate(rates)))
    assert found.limit <= 2 * min(rates) * (1 + 1e-9)
    assert sum(1 / part.all_cores.value for part in found.making) == pytest.approx(1 / found.limit)


def test_rounds_are_taken_together_by_their_medians() -> None:
    parts: list[dict[str, Any]] = []
    for rate in (100.0, 900.0, 200.0):
        add_round(parts, [{"name": "read", "kind": "making", "one": rate, "all": 2 * rate}])
    found = limit(*parts)
    [read] = found.parts
    assert (read.one_core.value, read.one_core.low, read.one_core.high, found.limit) == (200, 100, 900, 400)


def test_what_was_done_not_once_is_no_part() -> None:
    """Longer than the time it was given, or refused."""
    assert roofline(told(part("read", "making", 0, 0))) is None
    assert roofline(told()) is None
    assert rooflines({}) == []


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
