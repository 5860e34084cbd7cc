"""Which cells differ in one thing alone, whatever else there is of them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from whyidle.analyse.cells.axes import alike_but_for, alike_on, ladders, places, same_place, twin, varying
from whyidle.analyse.cells.comparison import Cell

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
    return Cell(pipeline, batch_size, "ok", None, (), (), (), axes)


@given(CELLS, st.sampled_from(["pipeline", "batch_size", "net", "workers"]))
def test_every_cell_is_in_one_group_with_just_those_that_stand_where_it_does_on_the_other_axes(
    cells: list[Cell], axis: str
) -> None:
    groups = alike_but_for(cells, axis)
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


def test_groups_come_in_the_order_of_their_first_cells() -> None:
    cells = [cell(net="b"), cell(net="a"), cell(16, net="b")]
    assert alike_on(cells, ["net"]) == [[cells[0], cells[2]], [cells[1]]]


def test_a_place_that_is_not_told_is_one_place() -> None:
    assert alike_on([cell(threads=None), cell()], ["threads"]) == [[cell(threads=None), cell()]]
    assert same_place(cell(threads=None), cell(), ("threads",))
    assert not same_place(cell(threads=2), cell(), ("threads",))


def test_places_that_a_file_holds_as_lists_are_told_apart() -> None:
    assert len(alike_but_for([cell(plan=["a"]), cell(plan=["b"]), cell(16, plan=["a"])], "batch_size")) == 2


def test_a_twin_differs_in_what_is_named_and_in_nothing_else() -> None:
    plain, other = cell(augment=False, net="vgg"), cell(augment=False, net="resnet")
    augmented = cell(augment=True, net="vgg")
    assert twin(augmented, [other, augmented, plain], augment=False) is plain
    assert twin(augmented, [other, augmented], augment=False) is None
