"""What the text reports print, as blocks of a page: so that both say the same, in the same words and figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .fitted import Fitted


@dataclass(frozen=True)
class Heading:
    words: str
    kind: str = "heading"


@dataclass(frozen=True)
class Paragraph:
    words: str
    kind: str = "paragraph"


@dataclass(frozen=True)
class Rows:
    """A table. `head` is empty where it has none; `right` says for each column whether it is figures."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]
    kind: str = "rows"


Block = Heading | Paragraph | Rows


def blocks_of(shown: Iterable[RenderableType]) -> list[Block]:
    """A bold line of its own is a heading; blank lines go."""
    return [block for each in shown for block in _blocks(each)]


def _blocks(shown: RenderableType) -> Iterator[Block]:
    if isinstance(shown, Padding):
        # What is indented stands under a heading, and is none.
        yield from (Paragraph(b.words) if isinstance(b, Heading) else b for b in _blocks(shown.renderable))
    elif isinstance(shown, Group | Columns):
        yield from blocks_of(shown.renderables)
    elif isinstance(shown, Fitted):
        yield from _blocks(shown.whole())
    elif isinstance(shown, Table):
        if shown.row_count:
            yield _rows(shown)
    elif isinstance(shown, str):
        yield from _blocks(Text(shown))
    elif isinstance(shown, Text):
        words = shown.plain.strip()
        if words:
            yield Heading(words) if str(shown.style) == "bold" else Paragraph(words)
    else:
        raise TypeError(f"a page cannot show a {type(shown).__name__}")


def _rows(table: Table) -> Rows:
    columns = [list(column.cells) for column in table.columns]
    head = tuple(_words(column.header) for column in table.columns) if table.show_header else ()
    right = tuple(
        column.justify == "right" or any(isinstance(cell, Text) and cell.justify == "right" for cell in cells)
        for column, cells in zip(table.columns, columns, strict=True)
    )
    rows = tuple(tuple(_words(cell) for cell in row) for row in zip(*columns, strict=True))
    return Rows(head if any(head) else (), rows, right)


def _words(cell: RenderableType) -> str:
    """Of a cell; a plain string is no markup, as on a terminal (`commands.console`)."""
    if isinstance(cell, Text):
        return cell.plain.strip()
    return cell.strip() if isinstance(cell, str) else ""
