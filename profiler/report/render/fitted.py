"""Tables that fit their terminal: what matters least goes first, and is never cut."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from ...record.files import plain
from ..document import FittingColumn
from .phrases import text_of, written

BETWEEN = 2
"""Blanks between two columns."""


class Fitted:
    """The columns that there is room for, side by side; takes its width from the console that prints it."""

    def __init__(self, columns: Sequence[FittingColumn], ascii_only: bool) -> None:
        self._columns = columns
        self._ascii_only = ascii_only

    def shows(self, head: str, width: int) -> bool:
        """Whether there is room for a column."""
        return any(column.head == head for column in fitting(self._columns, width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._table(fitting(self._columns, options.max_width))

    def _table(self, columns: Sequence[FittingColumn]) -> Table:
        table = Table(box=None, padding=(0, BETWEEN, 0, 0), pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(
                written(column.head, self._ascii_only),
                justify="right" if column.right else "left",
                no_wrap=column.folds_to is None,
                overflow="fold",
                min_width=least(column),
            )
        for row in zip(*(column.cells for column in columns), strict=True):
            table.add_row(*(text_of(cell, self._ascii_only, plain) for cell in row))
        return table


def least(column: FittingColumn) -> int:
    """Letters it takes at least."""
    if column.folds_to is None:
        return _widest(column)
    longest_word = max((cell_len(word) for each in _texts(column) for word in each.split()), default=0)
    return min(_widest(column), max(column.folds_to, longest_word))


def _widest(column: FittingColumn) -> int:
    return max(cell_len(line) for each in _texts(column) for line in each.splitlines() or [""])


def _texts(column: FittingColumn) -> tuple[str, ...]:
    """As wide as they are printed: a bar takes the room of its signs."""
    return (column.head, *(text_of(cell).plain for cell in column.cells))


def fitting(columns: Sequence[FittingColumn], width: int) -> list[FittingColumn]:
    """Those that fit, in their order. What stays whatever the room is may be too wide all the same."""
    kept = [column for column in columns if column.cells]
    while kept and _width(kept) > width:
        place = max(range(len(kept)), key=lambda number: kept[number].goes)
        first = kept[place]
        if first.goes == 0:
            break
        kept[place : place + 1] = [first.instead] if first.instead is not None else []
    return kept


def _width(columns: Sequence[FittingColumn]) -> int:
    return sum(least(column) for column in columns) + BETWEEN * (len(columns) - 1)
