"""The time per sample by batch size, as bars and as a table of terms, as wide as there is room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyse.cells.batch_size.result import BatchVerdict
from ...analyse.run.stall_breakdown import TOTAL, UNTOLD
from ..document import SizesOfBatch
from ..words import sample_time
from ..words.figures import evidence_value, expected, part_name
from ..words.sample_time import MEASURED, compared, known, measured, shares, shown_parts
from . import bars
from .ascii import written

LONGEST_BAR = 72
"""Signs; longer ones are no easier to compare."""
_INDENT = 4


def sizes_of_batch(block: SizesOfBatch, width: int, ascii_only: bool) -> Iterator[RenderableType]:
    """Bars, terms and the reason, for so many signs in a row."""
    verdict, scale = block.verdict, sample_time.scale_of([block.verdict])
    yield Text.assemble("  ", (block.name, "bold"), f": {written(scale.unit, ascii_only)} a sample")
    yield _indented(_bars(verdict, scale, width - _INDENT, ascii_only))
    yield Text()
    yield _indented(_terms(verdict, scale, width - _INDENT, ascii_only))
    yield Text()
    said = Text(f"{written(block.said, ascii_only)} ")
    said.append(f"[{verdict.cause}]", style="bold")
    yield _indented(said)
    if verdict.evidence:
        yield _indented(_evidence(verdict, ascii_only))
    yield _indented(Text(compared(verdict), style="dim"))


def _indented(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, _INDENT))


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
