"""Tables that fit their terminal: what matters least goes first, and is never cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

BETWEEN = 2
"""Blanks between two columns."""
MERGED = 20
"""Letters of a column made of several, at least."""


@dataclass(frozen=True)
class Column:
    head: str
    cells: Sequence[str | Text]
    right: bool = False
    folds_to: int | None = None
    """Letters to which its words may be folded; `None`: it stays as wide as it is."""
    goes: int = 0
    """Where there is too little room, columns go from the highest number down; 0 stays."""
    instead: Column | None = None
    """Takes its place then."""
    words: Sequence[str] | None = None
    """What its cells are called in a sentence, of columns that tell rows apart: where even what stays is too wide, all
    of these become one, whose words are folded."""

    @property
    def least(self) -> int:
        """Letters it takes at least."""
        return self.widest if self.folds_to is None else min(self.widest, max(self.folds_to, self.longest_word))

    @property
    def widest(self) -> int:
        return max(cell_len(line) for each in self._texts for line in each.splitlines() or [""])

    @property
    def longest_word(self) -> int:
        return max((cell_len(word) for each in self._texts for word in each.split()), default=0)

    @property
    def _texts(self) -> tuple[str, ...]:
        return (self.head, *(str(each) for each in self.cells))


class Fitted:
    """The columns that there is room for, side by side; takes its width from the console that prints it."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns

    def whole(self) -> Table:
        """With every column, for what is as wide as it must be."""
        return table_of([column for column in self._columns if column.cells])

    def shows(self, head: str, width: int) -> bool:
        """Whether there is room for a column."""
        return any(column.head == head for column in fitting(self._columns, width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield table_of(fitting(self._columns, options.max_width))


def fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Those that fit, in their order. What stays whatever the room is may be too wide all the same."""
    kept = [column for column in columns if column.cells]
    while kept and _width(kept) > width:
        place = max(range(len(kept)), key=lambda number: kept[number].goes)
        first = kept[place]
        if first.goes == 0:
            break
        kept[place : place + 1] = [first.instead] if first.instead is not None else []
    return kept if _width(kept) <= width else _merged(kept)


def _width(columns: Sequence[Column]) -> int:
    return sum(column.least for column in columns) + BETWEEN * (len(columns) - 1)


def _merged(columns: Sequence[Column]) -> list[Column]:
    """With one column for all that tell rows apart."""
    telling = [column.words for column in columns if column.words is not None]
    if len(telling) < 2:
        return list(columns)
    rows = (" ".join(word for word in row if word) for row in zip(*telling, strict=True))
    return [Column("", list(rows), folds_to=MERGED), *(column for column in columns if column.words is None)]


def table_of(columns: Sequence[Column]) -> Table:
    table = Table(box=None, padding=(0, BETWEEN, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column.head,
            justify="right" if column.right else "left",
            no_wrap=column.folds_to is None,
            overflow="fold",
            min_width=column.least,
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*(Text(each) if isinstance(each, str) else each for each in row))
    return table
