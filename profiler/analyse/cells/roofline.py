"""How near loaders come to what the machine can do with the same files: the rule, apart from any measuring.

One core reads, decodes and transforms a sample one after the other, so the times of these parts add up; so do they for
all cores at once, whose rates were measured at once. Handing batches over and copying them go on beside that, so they
only bound it. Files are taken to be in memory; what the storage gives (`stored`) is told beside that. What can be done
without (`aside`) is told and does not count. The rule was fixed before any of our own loaders was tuned against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..statistics import Range, range_of
from .axes import feed_of
from .comparison import Cell

SETTING = "roofline"
"""Under which a comparison's setting has what was measured."""
NEAR = 0.85
"""Of the limit: from here on another loader would hardly be faster."""
MAKING, BESIDE, STORED, ASIDE = "making", "beside", "stored", "aside"
"""Kinds of parts: done one after the other by whoever makes samples; done meanwhile by others; by the storage, of files
that are not in memory; not needed."""


@dataclass(frozen=True)
class LoadingPart:
    """One part of what a loader does, done alone. Rates are samples/s, medians over rounds with their range."""

    name: str
    kind: str
    one: Range
    """One core, the others idle."""
    all: Range
    """All cores at once."""


@dataclass(frozen=True)
class Roofline:
    """What this machine could make of these samples."""

    cores: int
    parts: tuple[LoadingPart, ...]
    one: float
    """Samples/s of one core."""
    all: float
    """Samples/s of all cores at once: the limit."""
    bound_by: str
    """`making`, or the part beside it that is slower."""

    @property
    def making(self) -> tuple[LoadingPart, ...]:
        """What the limit consists of."""
        return tuple(part for part in self.parts if part.kind == MAKING)


@dataclass(frozen=True)
class PlacedRoofline:
    """A roofline, and which cells of a comparison it is of."""

    place: Mapping[str, Any]
    """Where those stand on the axes on which their samples differ."""
    decoder: str
    transformer: str
    """The libraries of the fastest decoding and transforming that was found."""
    roofline: Roofline

    def is_of(self, cell: Cell) -> bool:
        """Whether these are the samples of that cell, made by a loader."""
        return feed_of(cell) != "synthetic" and all(cell.axes.get(name) == at for name, at in self.place.items())

    def share(self, cell: Cell) -> float | None:
        """What the cell's training takes of what could be made, 0 to 1 and seldom more; `None` of one that did not
        run."""
        rate = cell.samples_per_s
        return None if cell.status != "ok" or rate is None else rate.value / self.roofline.all


@dataclass(frozen=True)
class SampleTime:
    """The time a sample takes: of the limit by part, of a loader as a whole."""

    name: str
    samples_per_s: float
    parts: tuple[tuple[str, float], ...]
    """Names and ms, which sum up to all of it; of a loader one without a name."""
    share: float
    """Of the limit, 0 to 1."""

    @property
    def ms(self) -> float:
        return sum(ms for _, ms in self.parts)


def sample_times(found: PlacedRoofline, cells: Sequence[Cell]) -> list[SampleTime]:
    """The limit, and whatever of these cells it is of, the fastest first."""
    made = found.roofline
    if made.bound_by == MAKING:
        parts = tuple((part.name, 1e3 / part.all.value) for part in made.making)
    else:
        parts = ((made.bound_by, 1e3 / made.all),)
    loaders = []
    for cell in cells:
        if found.is_of(cell) and (share := found.share(cell)):
            rate = share * made.all
            loaders.append(SampleTime(f"{cell.pipeline}, batch {cell.batch_size}", rate, (("", 1e3 / rate),), share))
    return [SampleTime("limit", made.all, parts, 1.0), *sorted(loaders, key=lambda each: each.ms)]


def rooflines(setting: Mapping[str, Any]) -> list[PlacedRoofline]:
    """Of a comparison, as its setting tells them."""
    found = [(each, roofline(each)) for each in setting.get(SETTING, ())]
    return [
        PlacedRoofline(each["place"], each["decoder"], each["transformer"], made)
        for each, made in found
        if made is not None
    ]


def limit_of(cell: Cell, among: Sequence[PlacedRoofline]) -> PlacedRoofline | None:
    """The roofline of a cell's samples."""
    return next((each for each in among if each.is_of(cell)), None)


def roofline(told: Mapping[str, Any]) -> Roofline | None:
    """As measured; `None` where nothing was.

    Args:
        told: `cores`, and `parts`: each with `name`, `kind` and, of each round, `one` and `all`.
    """
    parts = tuple(part for each in told.get("parts", ()) if (part := _part(each)) is not None)
    making = [part for part in parts if part.kind == MAKING]
    if not making:
        return None
    one, every = (1 / sum(1 / getattr(part, cores).value for part in making) for cores in ("one", "all"))
    slowest = min((part for part in parts if part.kind == BESIDE), key=lambda part: part.all.value, default=None)
    if slowest is None or slowest.all.value >= every:
        return Roofline(told["cores"], parts, one, every, MAKING)
    return Roofline(told["cores"], parts, min(one, slowest.one.value), slowest.all.value, slowest.name)


def _part(told: Mapping[str, Any]) -> LoadingPart | None:
    one, every = _rates(told["one"]), _rates(told["all"])
    return None if one is None or every is None else LoadingPart(told["name"], told["kind"], one, every)


def _rates(rounds: Sequence[float]) -> Range | None:
    return range_of((rate for rate in rounds if rate > 0), median)
