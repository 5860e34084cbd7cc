"""Figures of this benchmark: paired differences, their intervals, and the tables made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from whyidle_bench.rivals.cost import MedianInterval, median_interval

from .loop import Block

COLUMNS = {
    "wall": "wall",
    "cpu": "CPU, thread",
    "threads": "CPU, process",
    "wall_around": "wall, around",
    "cpu_around": "CPU, around",
}
"""What a block says of a step, and its name in the table. `around` leaves out what fills the step."""


@dataclass(frozen=True)
class Row:
    """What an observer adds to a step, in µs by column."""

    observer: str
    added: Mapping[str, MedianInterval]
    percent: float
    """Of the bare step's wall time: the larger of wall and CPU time added, around what fills the step where that saw
    nothing of the observer."""
    note: str = ""


@dataclass(frozen=True)
class Table:
    """One length of step."""

    target_ms: float
    workers: int
    products: int
    step_us: float
    """A bare step by the wall clock, median over rounds."""
    step_cpu_us: float
    rounds: int
    steps: int
    """In a block."""
    where: str
    rows: Sequence[Row]

    def row(self, observer: str) -> Row | None:
        return next((row for row in self.rows if row.observer == observer), None)

    def lines(self) -> Iterator[str]:
        loader = f"{self.workers} workers" if self.workers else "loader in the training"
        yield (
            f"\nSteps of {self.step_us / 1e3:.3g} ms ({self.step_cpu_us / 1e3:.3g} ms of CPU), {loader}, {self.where}: "
            f"{self.rounds} rounds of {self.steps} steps, {self.products} products a step"
        )
        header = "".join(f"{name:>23}" for name in COLUMNS.values())
        yield f"{'added µs a step':<28}{header}{'% of step':>11}"
        for row in self.rows:
            figures = "".join(f"{row.added[column]!s:>23}" for column in COLUMNS)
            yield f"{row.observer:<28}{figures}{row.percent:>11.2f}{'   ' + row.note if row.note else ''}"


@dataclass(frozen=True)
class Pair:
    """A block under an observer, and the bare one beside it."""

    watched: Block
    bare: Block


def rows_of(rounds: Sequence[Mapping[str, Pair]], sees_filling: Sequence[str]) -> tuple[list[Row], Block]:
    """A row for each observer, and the median bare block.

    Args:
        sees_filling: observers whose cost is partly within what fills the step.
    """
    bare = sorted((pair.bare for each in rounds for pair in each.values()), key=lambda block: block.wall_ns)
    middle = bare[len(bare) // 2]
    rows = []
    for observer in rounds[0]:
        pairs = [(each[observer].watched.per_step_us(), each[observer].bare.per_step_us()) for each in rounds]
        added = {
            column: median_interval([watched[column] - alone[column] for watched, alone in pairs]) for column in COLUMNS
        }
        share = 100 * cost_us(added, observer in sees_filling) / middle.per_step_us()["wall"]
        rows.append(Row(observer, added, share))
    return rows, middle


def cost_us(added: Mapping[str, MedianInterval], sees_filling: bool = False) -> float:
    """The larger of wall and CPU time, medians."""
    if sees_filling:
        return max(added["wall"].median, added["cpu"].median)
    return max(added["wall_around"].median, added["cpu_around"].median)
