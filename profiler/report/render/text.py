"""Documents as text: on a terminal with its width, colours and signs, and plain elsewhere.

The time per sample by batch size, as bars and as a table of terms, as wide as there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyse.cells.batch_size.result import BatchVerdict
from ...analyse.run.stall_breakdown import PARTS, TOTAL, UNTOLD
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
from ..words.sample_time import MEASURED, compared, known, measured, shares, shown_parts
from . import bars
from .fitted import Fitted
from .phrases import text_of, written

LONGEST_BAR = 72
"""Signs; longer ones are no easier to compare."""


def sizes_of_batch(block: SizesOfBatch, width: int, ascii_only: bool) -> Iterator[RenderableType]:
    """Bars, terms and the reason, for so many signs in a row."""
    verdict, scale = block.verdict, sample_time.scale_of([block.verdict])
    yield Text.assemble("  ", (block.name, "bold"), f": {written(scale.unit, ascii_only)} a sample")
    yield _indented(_bars(verdict, scale, width - 2 * INDENT, ascii_only), 2)
    yield Text()
    yield _indented(_terms(verdict, scale, width - 2 * INDENT, ascii_only), 2)
    yield Text()
    said = Text(f"{written(block.said, ascii_only)} ")
    said.append(f"[{verdict.cause}]", style="bold")
    yield _indented(said, 2)
    if verdict.evidence:
        yield _indented(_evidence(verdict, ascii_only), 2)
    yield _indented(Text(compared(verdict), style="dim"), 2)


def _bars(verdict: BatchVerdict, scale: sample_time.Scale, width: int, ascii_only: bool) -> Table:
    """A row a size; a bar as long as the time per sample, the longest filling the line."""
    totals = {size: terms.get(TOTAL) for size, terms in verdict.terms.items()}
    largest = max((total.value for total in totals.values() if known(total)), default=0.0)
    mark = written("±", ascii_only)
    heads = [(f"batch {size}", scale.number(total), scale.spread(total, mark)) for size, total in totals.items()]
    taken = sum(max(cell_len(head[column]) for head in heads) for column in range(3)) + 5
    longest = max(1, min(LONGEST_BAR, width - taken))
    rows = Table.grid(padding=0)
    for column in range(3):
        rows.add_column(justify="left" if column == 2 else "right", no_wrap=True)
    rows.add_column(no_wrap=True)
    for (size, total), (name, number, spread) in zip(totals.items(), heads, strict=True):
        length = round(longest * total.value / largest) if known(total) and largest > 0 else 0
        bar = bars.stacked(shares(verdict.terms[size]), length, ascii_only) if length else Text()
        compared_one = size in (verdict.smaller, verdict.larger)
        style = "bold" if compared_one else ""
        rows.add_row(Text(name, style), Text(f"  {number}", style), Text(f" {spread}"), Text("  ") + bar)
    return rows


def _terms(verdict: BatchVerdict, scale: sample_time.Scale, width: int, ascii_only: bool) -> Table:
    """A row a term, a column a size: what grew stands out, with what it grew by."""
    mark, arrow = written("±", ascii_only), written("→", ascii_only)
    parts = [*shown_parts([verdict]), TOTAL]
    changes = [f"{verdict.smaller} {arrow} {verdict.larger}"]
    changes += [f"{scale.number(c, '+')} {scale.spread(c, mark)}".rstrip() for c in map(verdict.changes.get, parts)]
    figures = {size: [scale.number(terms.get(part)) for part in parts] for size, terms in verdict.terms.items()}
    work = {size: measured(verdict, size) for size in figures}
    names = [Text(f"{_sign(part, ascii_only)} {part_name(part)}", _colour(part)) for part in parts]
    names += [Text(f"  {name}") for name in MEASURED]
    columns = {size: [str(size), *figures[size], *work[size]] for size in figures}
    room = width - max(len(name) for name in names) - 2 - 3 - max(map(len, changes))
    sizes = _fitting(verdict, {size: max(map(len, column)) + 2 for size, column in columns.items()}, room)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    for _ in (*sizes, "changes"):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_row("", *(Text(str(size), "bold") for size in sizes), Text(changes[0], "bold"), "")
    for row, name in enumerate(names):
        part = parts[row] if row < len(parts) else None
        change = changes[row + 1] if part not in (None, UNTOLD) else ""
        grew = part is not None and part == verdict.grew
        style = "bold" if grew else ""
        sign = written("▲", ascii_only) if grew else ""
        cells = (Text(columns[size][row + 1], style) for size in sizes)
        table.add_row(name, *cells, Text(change, style), Text(sign, "bold red"))
    return table


def _fitting(verdict: BatchVerdict, widths: dict[int, int], room: int) -> Sequence[int]:
    """The sizes that there is room for, the two that are compared before all others."""
    must = (verdict.smaller, verdict.larger)
    room -= sum(widths[size] for size in must if size in widths)
    taken = {size for size in must if size in widths}
    for size, width in widths.items():
        if size not in taken and width <= room:
            taken.add(size)
            room -= width
    return [size for size in widths if size in taken]


def _evidence(verdict: BatchVerdict, ascii_only: bool) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    for item in verdict.evidence:
        words = (item.what, evidence_value(item.value, item.unit), expected(item.expected))
        table.add_row(*(Text(written(word, ascii_only)) for word in words))
    return table


def _sign(part: str, ascii_only: bool) -> str:
    return " " if part == TOTAL else bars.sign(part, ascii_only)


def _colour(part: str) -> str:
    return "bold" if part == TOTAL else bars.colour(part)


INDENT = 2
"""Blanks of one step to the right."""
LEAST_OUTCOME = 5
"""Signs of the column that says which limits are kept."""
STACKED = 60
"""Signs of the bar of a step's time."""

DIFF_TONES = {"-": "red", "+": "green"}
"""Of a line of a diff, by its first sign."""


def print_document(document: Document, console: Console) -> None:
    """Print all of it."""
    ascii_only = bars.is_ascii(console)
    for block in document.blocks:
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
        yield from sizes_of_batch(block, width, ascii_only)
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
