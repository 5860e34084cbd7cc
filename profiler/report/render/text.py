"""Documents as text: on a terminal with its width, colours and signs, and plain elsewhere.

Tables that fit their terminal: what matters least goes first, and is never cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyse.run.stall_breakdown import PARTS
from ...record.files import plain
from ..document import (
    Block,
    Caution,
    CodeChange,
    Document,
    FittingColumn,
    FittingTable,
    Heading,
    Paragraph,
    Section,
    Space,
    TableBlock,
    Title,
)
from ..phrase import Words, toned
from . import bars
from .phrases import text_of, written

INDENT = 2
"""Blanks of one step to the right."""
BETWEEN = 2
"""Blanks between two columns of a table that fits."""
DIFF_TONES = {"-": "red", "+": "green"}
"""Tone of a line of a diff, by its first sign."""


def print_document(document: Document, console: Console, full: bool = True) -> None:
    """Print it, all or the short version."""
    ascii_only = bars.is_ascii(console)
    for block in _unfolded(document.blocks if full else document.brief or document.blocks):
        for each in renderables(block, console.width, ascii_only):
            console.print(each, soft_wrap=getattr(block, "one_line", False))


def renderables(block: Block, width: int, ascii_only: bool) -> Iterator[RenderableType]:
    """Make what is printed of a block on so many columns."""
    for each in _unfolded([block]):
        yield from PRINTED[type(each)](each, width, ascii_only)


def _unfolded(blocks: Iterable[Block]) -> Iterator[Block]:
    """Take sections apart."""
    for block in blocks:
        if isinstance(block, Section):
            yield from [Heading(block.title)] if block.title else []
            yield from _unfolded(block.text)
        else:
            yield block


def _headed(block: Title | Heading, _: int, ascii_only: bool) -> Iterator[RenderableType]:
    heading = text_of(block.words, ascii_only)
    heading.style = "bold"
    yield heading


def _fitted(block: FittingTable, width: int, ascii_only: bool) -> Iterator[RenderableType]:
    made = Table(box=None, padding=(0, BETWEEN, 0, 0), pad_edge=False, header_style="bold")
    columns = fitting(block.columns, width - INDENT * block.indent)
    for column in columns:
        made.add_column(
            written(plain(column.head), ascii_only),
            justify="right" if column.right else "left",
            no_wrap=column.folds_to is None,
            overflow="fold",
            min_width=_least(column),
        )
    rows = zip(*(column.cells for column in columns), strict=True)
    yield _indented(_filled(made, rows, ascii_only), block.indent)
    if any(column.head == block.legend_of for column in fitting(block.columns, width)):
        yield bars.legend(dict.fromkeys(PARTS, 1.0), ascii_only)


def _change(block: CodeChange, _: int, ascii_only: bool) -> Iterator[RenderableType]:
    for words in block.lines:
        yield _indented(text_of(toned(words, DIFF_TONES.get(words[:1], "")), ascii_only))


PRINTED: Mapping[type[Block], Callable[[Any, int, bool], Iterable[RenderableType]]] = {
    Title: _headed,
    Heading: _headed,
    Paragraph: lambda block, _, ascii_only: [_indented(text_of(block.words, ascii_only), block.indent)],
    Space: lambda *_: [Text()],
    TableBlock: lambda block, _, ascii_only: [_indented(_table(block, ascii_only), block.indent)],
    FittingTable: _fitted,
    CodeChange: _change,
    Caution: lambda block, _, ascii_only: (
        [] if block.quiet else [text_of(toned(block.said, "bold yellow"), ascii_only)]
    ),
}
"""Kind of block → what is printed of it; sections are taken apart before."""


def _indented(what: RenderableType, steps: int = 1) -> RenderableType:
    return Padding(what, (0, 0, 0, INDENT * steps)) if steps else what


def _table(block: TableBlock, ascii_only: bool) -> Table:
    made = Table(
        box=None,
        padding=(0, block.gap, 0, 0),
        pad_edge=False,
        collapse_padding=True,
        show_header=any(column.head for column in block.columns),
        show_edge=False,
        header_style=block.head_tone,
    )
    for column in block.columns:
        made.add_column(
            written(plain(column.head), ascii_only),
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            overflow="fold" if column.folds else "ellipsis",
            width=column.width,
            min_width=column.least,
            max_width=column.most,
            ratio=1 if column.grows else None,
            style=column.tone,
        )
    return _filled(made, block.rows, ascii_only)


def _filled(made: Table, rows: Iterable[Sequence[Words]], ascii_only: bool) -> Table:
    for row in rows:
        made.add_row(*(text_of(cell, ascii_only, plain) for cell in row))
    return made


def _least(column: FittingColumn) -> int:
    """Count the letters it takes at least. A bar takes the room of its signs."""
    texts = (column.head, *(text_of(cell).plain for cell in column.cells))
    widest = max(cell_len(line) for each in texts for line in each.splitlines() or [""])
    if column.folds_to is None:
        return widest
    longest_word = max((cell_len(word) for each in texts for word in each.split()), default=0)
    return min(widest, max(column.folds_to, longest_word))


def fitting(columns: Sequence[FittingColumn], width: int) -> list[FittingColumn]:
    """Choose those that fit, in their order. What stays whatever the room is may be too wide all the same."""
    kept = [column for column in columns if column.cells]
    while kept and sum(map(_least, kept)) + BETWEEN * (len(kept) - 1) > width:
        place = max(range(len(kept)), key=lambda number: kept[number].goes)
        first = kept[place]
        if first.goes == 0:
            break
        kept[place : place + 1] = [first.instead] if first.instead is not None else []
    return kept
