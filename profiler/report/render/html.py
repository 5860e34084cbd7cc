"""Documents as parts of a page, which the templates lay out: the words of a text report, without its signs for bars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from ...record.files import plain
from ..document import (
    Block,
    Caution,
    Changes,
    CodeChange,
    EvidenceTable,
    FittingTable,
    Heading,
    LimitTable,
    LinesOfCode,
    OtherFindings,
    Paragraph,
    Quality,
    SharesOfTime,
    SizesOfBatch,
    Space,
    TableBlock,
    Title,
    Verdict,
)
from ..phrase import Words
from ..words.figures import expected
from .phrases import text_of


@dataclass(frozen=True)
class PageHeading:
    words: str
    kind: str = "heading"


@dataclass(frozen=True)
class PageParagraph:
    words: str
    kind: str = "paragraph"


@dataclass(frozen=True)
class PageTable:
    """`head` is empty where it has none; `right` says for each column whether it is figures."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]
    kind: str = "rows"


PagePart = PageHeading | PageParagraph | PageTable


@dataclass(frozen=True)
class PageSection:
    title: str
    """Empty of what stands before the first heading."""
    blocks: tuple[PagePart, ...]


def page_sections(blocks: Iterable[Block]) -> list[PageSection]:
    """Parts cut at their headings: each is a card of a page. Sections that hold nothing are left out."""
    cards: list[tuple[str, list[PagePart]]] = [("", [])]
    for part in page_parts(blocks):
        if isinstance(part, PageHeading):
            cards.append((part.words, []))
        else:
            cards[-1][1].append(part)
    return [PageSection(title, tuple(within)) for title, within in cards if title or within]


def page_parts(blocks: Iterable[Block]) -> list[PagePart]:
    """Blocks as the templates' macros take them. Titles, verdicts, cautions, shares of time and the time per sample by
    batch size are drawn by the page itself, from the blocks."""
    return [part for block in blocks for part in _parts(block)]


def _parts(block: Block) -> Iterator[PagePart]:
    if isinstance(block, Heading):
        yield PageHeading(block.words.strip())
    elif isinstance(block, Paragraph):
        if words := _words(block.words):
            yield PageParagraph(words)
    elif isinstance(block, FittingTable):
        columns = [column for column in block.columns if column.cells]
        if columns and columns[0].cells:
            rows = tuple(tuple(map(_words, row)) for row in zip(*(column.cells for column in columns), strict=True))
            yield _table([column.head for column in columns], rows, tuple(column.right for column in columns))
    elif isinstance(block, TableBlock):
        if block.rows:
            wide = max(map(len, block.rows))
            right = tuple(column.right for column in block.columns) or (False,) * wide
            rows = tuple(tuple(map(_words, row)) for row in block.rows)
            yield _table([column.head for column in block.columns], rows, right)
    elif isinstance(block, Changes):
        yield PageHeading(block.title)
        yield from map(PageParagraph, block.said)
    elif isinstance(block, EvidenceTable):
        yield PageHeading(block.title)
        rows = tuple((what, value, expected(wanted)) for what, value, wanted in block.rows)
        yield PageTable((), rows, (False, False, False))
    elif isinstance(block, LinesOfCode):
        yield PageHeading(block.title)
        yield PageTable((), tuple(block.rows), (False, False, False))
    elif isinstance(block, OtherFindings):
        yield PageHeading(block.title)
        for said, changes in block.said:
            yield from map(PageParagraph, (said, *changes))
    elif isinstance(block, CodeChange):
        yield from map(PageParagraph, block.lines)
    elif isinstance(block, LimitTable):
        yield _table(block.heads, tuple(row.cells for row in block.rows), (False,) * len(block.heads))
    elif isinstance(block, Quality):
        yield PageHeading(block.title)
        yield from map(PageParagraph, block.lines)
    elif not isinstance(block, Title | Space | Verdict | SharesOfTime | SizesOfBatch | Caution):
        assert_never(block)


def _table(head: Iterable[str], rows: tuple[tuple[str, ...], ...], right: tuple[bool, ...]) -> PageTable:
    heads = tuple(each.strip() for each in head)
    return PageTable(heads if any(heads) else (), rows, right)


def _words(words: Words) -> str:
    return text_of(words, shown=plain).plain.strip()
