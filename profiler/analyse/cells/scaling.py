"""What further ranks bring: speed-up and efficiency, against one rank at the same batch of each or of all together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..statistics import Range
from .axes import BATCH_SIZE, OF_LOADING, alike_but_for, feed_of, label, varying
from .comparison import Cell

Held = Literal["per rank", "total"]
"""Which batch size is the same on all points of a curve: that of each rank (weak scaling) or that of all together
(strong scaling)."""

SHARED_OUT = ("workers", "threads")
"""Axes that may follow the number of ranks, as where the machine's CPUs are divided among them."""
OF_RANKS = ("ranks", "interconnect")
"""Axes that a single rank has no place on."""


@dataclass(frozen=True)
class Point:
    """The training on one number of ranks, against that on one rank."""

    ranks: int
    cell: Cell
    speedup: Range | None
    """Median rate over the median rate of one rank, with what the repeats of either allow at most; `None`: see
    `why`."""
    why: str | None
    """Why there is no speed-up; `None` where there is one."""

    @property
    def batch_size(self) -> int:
        """Batch size of each rank."""
        return self.cell.batch_size

    @property
    def rate(self) -> Range | None:
        """Samples/s of all ranks together."""
        return self.cell.samples_per_s if self.cell.status == "ok" else None

    @property
    def efficiency(self) -> Range | None:
        """Speed-up over the number of ranks: 1 is ideal."""
        return None if self.speedup is None else self.speedup.divided_by(self.ranks)

    @property
    def waiting_share(self) -> float | None:
        """Share of the time in which ranks wait for the last of them; part of what counts as computing."""
        typical = self.cell.typical
        return typical.job.waiting_share if typical is not None and typical.job is not None else None

    @property
    def exchange_ms(self) -> float | None:
        """What the exchange of gradients adds to each step, where that is emulated: computed, not measured."""
        told = self.cell.typical.info.get("exchange") if self.cell.typical else None
        return float(told["ms"]) if isinstance(told, dict) and "ms" in told else None


@dataclass(frozen=True)
class Curve:
    """Trainings that differ in the number of ranks alone, and in what follows from that."""

    held: Held
    batch_size: int
    """Batch size that is the same on all points: of each rank or of all together, as `held` says."""
    pipeline: str
    interconnect: str | None
    place: str
    """Place on the other axes in which cells of the comparison differ, in words."""
    emulated: bool
    points: tuple[Point, ...]
    """One for each number of ranks, ascending."""


@dataclass(frozen=True)
class Scaling:
    """What further ranks bring."""

    curves: tuple[Curve, ...]

    def of(self, held: Held) -> tuple[Curve, ...]:
        """The curves on which this batch size is held."""
        return tuple(curve for curve in self.curves if curve.held == held)


def scaling(cells: Sequence[Cell]) -> Scaling | None:
    """Curves over the number of ranks; `None` where all cells have the same."""
    if len({_ranks(cell) for cell in cells}) < 2:
        return None
    cells = [cell for cell in cells if "ranks" in cell.axes]
    aside = (*OF_RANKS, *(name for name in SHARED_OUT if _follows(cells, name)))
    families = alike_but_for(cells, BATCH_SIZE, *aside)
    names = [name for name in varying(cells) if name not in aside]
    weak = [c for family in families for c in _curves(family, names, "per rank")]
    strong = [c for family in families for c in _curves(family, names, "total")]
    strong = [curve for curve in strong if _tells(curve) and curve.points[0].ranks == 1]
    told = {id(point.cell) for curve in (*strong, *weak) if _tells(curve) for point in curve.points}
    # A cell without anything to set it against is shown once, with the reason.
    weak = [c for c in weak if _tells(c) or any(p.ranks > 1 and id(p.cell) not in told for p in c.points)]
    return Scaling((*weak, *strong))


def _tells(curve: Curve) -> bool:
    """Whether it has more than one number of ranks."""
    return len({point.ranks for point in curve.points}) > 1


def _ranks(cell: Cell) -> int:
    return int(cell.axes.get("ranks", 1))


def _follows(cells: Sequence[Cell], name: str) -> bool:
    """Whether this axis has one value wherever the number of ranks and all else is the same."""
    return all(name not in varying(several) for several in alike_but_for(cells, name))


def _curves(family: Sequence[Cell], names: Sequence[str], held: Held) -> Iterable[Curve]:
    several = [cell for cell in family if _ranks(cell) > 1]
    synthetic = feed_of(family[0]) == "synthetic"
    seen = dict.fromkeys((_held(cell, held), cell.axes.get("interconnect")) for cell in several)
    for batch_size, interconnect in seen:
        alone = _alone(family, batch_size, interconnect)
        members = [c for c in several if (_held(c, held), c.axes.get("interconnect")) == (batch_size, interconnect)]
        points = [Point(1, alone, None, None)] if alone else []
        points += [Point(_ranks(cell), cell, None, None) for cell in sorted(members, key=_ranks)]
        yield Curve(
            held,
            batch_size,
            family[0].pipeline,
            interconnect,
            label(family[0], [name for name in names if not (synthetic and name in OF_LOADING)]),
            str(family[0].axes.get("device", "")).startswith("emulated"),
            tuple(_against(point, alone, batch_size) for point in points),
        )


def _held(cell: Cell, held: Held) -> int:
    return cell.batch_size * (_ranks(cell) if held == "total" else 1)


def _alone(family: Sequence[Cell], batch_size: int, interconnect: Any) -> Cell | None:
    """The single rank at a batch size. It exchanges nothing, whichever interconnect it was given."""
    found = [cell for cell in family if _ranks(cell) == 1 and cell.batch_size == batch_size]
    same = [cell for cell in found if cell.axes.get("interconnect") == interconnect]
    return next(iter(same or found), None)


def _against(point: Point, alone: Cell | None, batch_size: int) -> Point:
    if point.rate is None:
        return replace(point, why=_without_rate(point.cell))
    if alone is None:
        return replace(point, why=f"one rank was not run at batch {batch_size}")
    base = alone.samples_per_s if alone.status == "ok" else None
    if base is None:
        return replace(point, why=f"one rank at batch {batch_size}: {_without_rate(alone)}")
    if point.cell is alone:
        return replace(point, speedup=Range(1.0, 1.0, 1.0, 1))
    return replace(point, speedup=point.rate.over(base))


def _without_rate(cell: Cell) -> str:
    if cell.status == "oom":
        return "out of memory"
    return cell.error or cell.status
