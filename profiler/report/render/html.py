"""Documents as parts of a page, which the templates lay out: the words of a text report, without its signs for bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...record.files import plain
from ..document import (
    Block,
    Caution,
    CodeChange,
    FittingTable,
    Heading,
    Paragraph,
    Section,
    Space,
    TableBlock,
    Title,
)
from ..phrase import Words
from .phrases import text_of


@dataclass(frozen=True)
class PagePart:
    kind: str
    """`heading`, `paragraph` or `rows`."""
    words: str = ""
    """Of a heading or a paragraph."""
    head: tuple[str, ...] = ()
    """Heads of the columns; empty where there are none."""
    rows: tuple[tuple[str, ...], ...] = ()
    right: tuple[bool, ...] = ()
    """For each column whether it is figures."""


@dataclass(frozen=True)
class PageSection:
    title: str
    """Empty of what stands before the first heading."""
    blocks: tuple[PagePart, ...]


def page_sections(blocks: Iterable[Block]) -> list[PageSection]:
    """Cut parts at their headings: each is a card of a page. Sections that hold nothing are left out."""
    cards: list[tuple[str, list[PagePart]]] = [("", [])]
    for part in page_parts(blocks):
        if part.kind == "heading":
            cards.append((part.words, []))
        else:
            cards[-1][1].append(part)
    return [PageSection(title, tuple(within)) for title, within in cards if title or within]


def page_parts(blocks: Iterable[Block]) -> list[PagePart]:
    """Turn blocks into what the templates' macros take. Titles, cautions and sections with a picture are drawn by the
    page itself."""
    return [part for block in blocks for part in PARTS_OF_A_PAGE[type(block)](block)]


def _table(heads: Iterable[str], rows: Iterable[Sequence[Words]], right: Iterable[bool]) -> list[PagePart]:
    cells = tuple(tuple(map(_words, row)) for row in rows)
    shown = tuple(each.strip() for each in heads)
    right = tuple(right) or (False,) * max(map(len, cells), default=0)
    return [PagePart("rows", "", shown if any(shown) else (), cells, right)] if cells else []


def _fitted(block: FittingTable) -> list[PagePart]:
    columns = [column for column in block.columns if column.cells]
    rows = zip(*(column.cells for column in columns), strict=True)
    return _table((column.head for column in columns), rows, (column.right for column in columns))


def _words(words: Words) -> str:
    return text_of(words, shown=plain).plain.strip()


PARTS_OF_A_PAGE: Mapping[type[Block], Callable[[Any], Iterable[PagePart]]] = {
    Title: lambda _: (),
    Heading: lambda block: [PagePart("heading", block.words.strip())],
    Paragraph: lambda block: [PagePart("paragraph", words)] if (words := _words(block.words)) else [],
    Space: lambda _: (),
    TableBlock: lambda block: _table(
        (column.head for column in block.columns), block.rows, (column.right for column in block.columns)
    ),
    FittingTable: _fitted,
    CodeChange: lambda block: [PagePart("paragraph", line) for line in block.lines],
    Caution: lambda _: (),
    Section: lambda block: page_parts(block.on_page()),
}
"""Kind of block → the parts of a page that it becomes."""
