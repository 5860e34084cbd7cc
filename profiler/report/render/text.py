"""Documents as text: on a terminal with its width, colours and signs, and plain elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyse.run.stall_breakdown import PARTS, TOTAL
from ...record.files import plain
from ..document import (
    LEFT,
    RIGHT,
    Block,
    Caution,
    Changes,
    CodeChange,
    Document,
    EvidenceTable,
    FittingColumn,
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
    TableColumn,
    Title,
    Verdict,
    table,
)
from ..phrase import PartSign, Words, line, toned
from ..words import sample_time
from ..words.figures import SEVERITY_TONES, evidence_value, expected, part_name
from ..words.sample_time import MEASURED, compared, measured, shown_parts
from . import bars
from .fitted import Fitted
from .phrases import text_of, written


def sizes_of_batch(block: SizesOfBatch, ascii_only: bool) -> Iterator[RenderableType]:
    """The time per sample by part and batch size, and why a larger batch is slower or not."""
    verdict, scale = block.verdict, sample_time.scale_of([block.verdict])
    parts = [*shown_parts([verdict]), TOTAL]
    names = [line(PartSign(part) if part != TOTAL else " ", f" {part_name(part)}") for part in parts]
    changes = [f"{scale.number(c, '+')} {scale.spread(c)}".rstrip() for c in map(verdict.changes.get, parts)]
    grew = (" ▲" if part == verdict.grew else "" for part in parts)
    columns = [FittingColumn(f"{scale.unit} a sample", [*names, *MEASURED])]
    for place, (size, terms) in enumerate(verdict.terms.items()):
        figures = [*(scale.number(terms.get(part)) for part in parts), *measured(verdict, size)]
        goes = 0 if size in (verdict.smaller, verdict.larger) else place + 1
        columns.append(FittingColumn(f"batch {size}", figures, right=True, goes=goes))
    moved = [change + mark for change, mark in zip(changes, grew, strict=True)]
    columns.append(FittingColumn(f"{verdict.smaller} to {verdict.larger}", [*moved, *[""] * len(MEASURED)]))
    yield _indented(text_of(toned(block.name, "bold"), ascii_only))
    yield _indented(Fitted(columns, ascii_only), 2)
    yield _indented(text_of(line(f"{block.said} ", (f"[{verdict.cause}]", "bold")), ascii_only), 2)
    if verdict.evidence:
        rows = (
            (item.what, evidence_value(item.value, item.unit), expected(item.expected)) for item in verdict.evidence
        )
        yield _indented(_table(table(rows), ascii_only), 2)
    yield _indented(text_of(toned(compared(verdict), "dim"), ascii_only), 2)


INDENT = 2
"""Blanks of one step to the right."""
LEAST_OUTCOME = 5
"""Signs of the column that says which limits are kept."""
STACKED = 60
"""Signs of the bar of a step's time."""

DIFF_TONES = {"-": "red", "+": "green"}
"""Of a line of a diff, by its first sign."""


def print_document(document: Document, console: Console, full: bool = True) -> None:
    """Print it, all or the short version."""
    ascii_only = bars.is_ascii(console)
    for block in document.blocks if full else document.brief or document.blocks:
        one_line = isinstance(block, Title | Paragraph | Caution | LimitTable) and block.one_line
        for each in renderables(block, console.width, ascii_only):
            console.print(each, soft_wrap=one_line)


def renderables(block: Block, width: int, ascii_only: bool) -> Iterator[RenderableType]:
    """What is printed of a block on so many columns."""
    if isinstance(block, Space):
        yield Text()
    elif isinstance(block, Title | Heading):
        yield _heading(block.words, ascii_only)
    elif isinstance(block, Paragraph):
        yield _indented(text_of(block.words, ascii_only), block.indent)
    elif isinstance(block, TableBlock):
        yield _indented(_table(block, ascii_only), block.indent)
    elif isinstance(block, FittingTable):
        fitted = Fitted(block.columns, ascii_only)
        yield _indented(fitted, block.indent)
        if block.legend_of is not None and fitted.shows(block.legend_of, width):
            yield bars.legend(dict.fromkeys(PARTS, 1.0), ascii_only)
    elif isinstance(block, SizesOfBatch):
        yield from sizes_of_batch(block, ascii_only)
    elif isinstance(block, Verdict):
        yield _verdict(block)
        yield _indented(text_of(block.finding.title, ascii_only))
    elif isinstance(block, SharesOfTime):
        yield _heading(block.title, ascii_only)
        if block.bar:
            yield _indented(bars.stacked(block.shares, STACKED, ascii_only))
        yield _indented(_table(_time_table(block), ascii_only))
        yield from _paragraphs(block.remarks, ascii_only)
    elif isinstance(block, Changes):
        yield _heading(block.title, ascii_only)
        yield from _paragraphs(block.said, ascii_only)
    elif isinstance(block, EvidenceTable):
        yield _heading(block.title, ascii_only)
        yield _indented(
            _table(table((what, value, expected(wanted)) for what, value, wanted in block.rows), ascii_only)
        )
    elif isinstance(block, LinesOfCode):
        yield _heading(block.title, ascii_only)
        for place, code, spent in block.rows:
            yield _indented(text_of(line(place, (f"   {code}" if code else "", "bold")), ascii_only))
            yield _indented(text_of(spent, ascii_only), 2)
    elif isinstance(block, OtherFindings):
        yield _heading(block.title, ascii_only)
        for said, changes in block.said:
            yield _indented(text_of(said, ascii_only))
            yield from (_indented(text_of(change, ascii_only), 2) for change in changes)
    elif isinstance(block, Caution):
        if not block.quiet:
            yield text_of(toned(block.said, "bold yellow"), ascii_only)
    elif isinstance(block, CodeChange):
        for words in block.lines:
            yield _indented(text_of(toned(words, DIFF_TONES.get(words[:1], "")), ascii_only))
    elif isinstance(block, LimitTable):
        yield from _limits(block, ascii_only)
    elif isinstance(block, Quality):
        yield _heading(block.title, ascii_only)
        yield from _paragraphs(block.lines, ascii_only)
    else:
        assert_never(block)


def _heading(words: Words, ascii_only: bool) -> Text:
    heading = text_of(words, ascii_only)
    heading.style = "bold"
    return heading


def _paragraphs(lines: Iterable[str], ascii_only: bool) -> Iterator[RenderableType]:
    for words in lines:
        yield _indented(text_of(words, ascii_only))


def _verdict(block: Verdict) -> Text:
    head = Text(f"{block.title}  ", style="bold").append(block.cause, style=SEVERITY_TONES[block.finding.severity])
    return head.append(f"  ({block.remarks})" if block.remarks else "")


def _time_table(block: SharesOfTime) -> TableBlock:
    rows: list[tuple[Words, ...]] = [
        (line(PartSign(part), toned(f" {name}", bars.colour(part))) if part else f"  {name}", *rest)
        for part, name, *rest in block.lines
    ]
    return table(rows, LEFT, RIGHT, TableColumn(right=True, least=len("12345.67 ms")), LEFT)


def _limits(block: LimitTable, ascii_only: bool) -> Iterator[RenderableType]:
    """The widths of these columns alone are those of all rows: notes are of any length."""
    wide = max(LEAST_OUTCOME, *(len(row.outcome) for row in block.rows))
    width = max(len(row.what) for row in block.rows)
    for row in block.rows:
        note = f"  ({row.note})" if row.note else ""
        said = f" {row.what:{width}}  {row.measured}, {row.wanted}{note}"
        yield text_of(line((f"{row.outcome:{wide}}", row.tone), said), ascii_only)


def _indented(what: RenderableType, steps: int = 1) -> RenderableType:
    return Padding(what, (0, 0, 0, INDENT * steps)) if steps else what


def _table(block: TableBlock, ascii_only: bool) -> Table:
    headed = any(column.head for column in block.columns)
    made = Table(
        box=None,
        padding=(0, block.gap, 0, 0),
        pad_edge=False,
        collapse_padding=True,
        show_header=headed,
        show_edge=False,
        header_style=block.head_tone,
    )
    for column in block.columns:
        made.add_column(
            written(column.head, ascii_only),
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            overflow="fold" if column.folds else "ellipsis",
            width=column.width,
            min_width=column.least,
            max_width=column.most,
            ratio=1 if column.grows else None,
            style=column.tone,
        )
    for row in block.rows:
        made.add_row(*(text_of(cell, ascii_only, plain) for cell in row))
    return made
