"""Where the cells of a comparison stand on its axes, and which of them are equal but for one axis or some.

Loader and batch size are axes like net, device or workers. A place that a cell does not tell (`None`, or no such axis)
is one place. All that is said of pairs and series of cells (batch size, scaling, augmentation, the differential test)
is said of what these functions find.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

PIPELINE, BATCH_SIZE = "pipeline", "batch_size"
OF_LOADING = ("augment", "store", "workers")
"""Axes on which a cell whose batches come from memory stands nowhere."""
CHOICES = ("workers", "store")
"""Axes that are a choice of loading, as loader and batch size are: among cells that differ in these alone one wins."""

_NAMED = {"augment": "augmentation"}
"""Axis whose name is no noun → what it is called in a sentence."""


class OnAxes(Protocol):
    """What stands on axes: a cell."""

    @property
    def pipeline(self) -> str: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def axes(self) -> Mapping[str, Any]: ...


class OfCell(Protocol):
    """What is told of one cell: a result, a cost."""

    @property
    def cell(self) -> OnAxes: ...


C = TypeVar("C", bound=OnAxes)
T = TypeVar("T", bound="OnAxes | OfCell")


def places(of: OnAxes | OfCell) -> dict[str, Any]:
    """Axis → where a cell, or the cell that something is told of, stands on it."""
    cell: Any = getattr(of, "cell", of)
    every = {PIPELINE: cell.pipeline, BATCH_SIZE: cell.batch_size, **cell.axes}
    return {name: value for name, value in every.items() if value is not None}


def same_place(one: OnAxes, other: OnAxes, axes: Iterable[str]) -> bool:
    """Whether two cells stand at one place on these axes."""
    mine, theirs = places(one), places(other)
    return all(mine.get(name) == theirs.get(name) for name in axes)


def alike_on(items: Iterable[T], axes: Collection[str]) -> list[list[T]]:
    """Groups that stand at one place on these axes, in the order of their first ones."""
    return _grouped(items, lambda name: name in axes)


def alike_but_for(items: Iterable[T], *axes: str) -> list[list[T]]:
    """Groups that stand at one place on every axis but these, in the order of their first ones."""
    return _grouped(items, lambda name: name not in axes)


def ladders(items: Iterable[T], axis: str) -> list[list[T]]:
    """Groups that differ in one axis alone, each from the lowest place on it to the highest."""
    return [sorted(group, key=lambda each: places(each)[axis]) for group in alike_but_for(items, axis)]


def twin(cell: C, cells: Iterable[C], **elsewhere: Any) -> C | None:
    """The first of the cells that stands where this one does, but on the axes that are named with their places."""
    sought = places(cell) | elsewhere
    return next((each for each in cells if places(each) == sought), None)


def _grouped(items: Iterable[T], counts: Callable[[str], bool]) -> list[list[T]]:
    groups: dict[str, list[T]] = {}
    for each in items:
        # Places need not be hashable: they come from a file.
        key = repr(sorted((name, repr(value)) for name, value in places(each).items() if counts(name)))
        groups.setdefault(key, []).append(each)
    return list(groups.values())


def varying(cells: Sequence[OnAxes]) -> tuple[str, ...]:
    """The axes beside loader and batch size on which these cells do not all stand at the same place."""
    names = dict.fromkeys(name for cell in cells for name in cell.axes)
    return tuple(name for name in names if len({repr(cell.axes.get(name)) for cell in cells}) > 1)


def feed_of(cell: OnAxes) -> str:
    """What fed the steps: `real`, `synthetic` or `loader-only`."""
    return str(cell.axes.get("feed") or "real")


def label(cell: OnAxes, names: Sequence[str]) -> str:
    """A cell's place on some axes, in words."""
    return " ".join(said for name in names if (said := place(name, cell.axes.get(name))))


def place(name: str, value: Any) -> str:
    """A place on an axis, in words; nothing where there is nothing to say."""
    if value is None:
        return ""
    if isinstance(value, bool):
        said = _NAMED.get(name, name)
        return said if value else f"no {said}"
    if isinstance(value, int):
        return f"{value} {name.removesuffix('s') if value == 1 else name}"
    return str(value).removeprefix("emulated:")
