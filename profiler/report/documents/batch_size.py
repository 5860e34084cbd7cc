"""Why a larger batch is slower, in words and bars: one loader's time per sample, by batch size and by term."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyse.cells.batch_size.result import TOTAL, BatchVerdict
from ...analyse.run.stall_breakdown import UNTOLD
from ..render import bars
from ..words import sample_time
from ..words.sample_time import known, shares, shown_parts
from .run import evidence_value

LONGEST_BAR = 72
"""Signs; longer ones are no easier to compare."""
_INDENT = 4
_ASCII = str.maketrans({"µ": "u", "±": "+-", "→": "->", "▲": "^"})


class BatchText:
    """One verdict; takes its width and its signs from the console that prints it."""

    def __init__(self, name: str, verdict: BatchVerdict) -> None:
        self._name = name
        self._verdict = verdict
        self._scale = sample_time.scale_of([verdict])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        ascii_only = bars.is_ascii(console)
        verdict = self._verdict
        unit = _written(self._scale.unit, ascii_only)
        yield Text.assemble("  ", (self._name, "bold"), f": {unit} a sample")
        yield Padding(self._bars(options.max_width - _INDENT, ascii_only), (0, 0, 0, _INDENT))
        yield Text()
        yield Padding(self._terms(options.max_width - _INDENT, ascii_only), (0, 0, 0, _INDENT))
        yield Text()
        text = _written(verdict.text, ascii_only)
        said = Text(f"{text[:1].upper()}{text[1:].rstrip('.')}. ")
        said.append(f"[{verdict.cause}]", style="bold")
        yield Padding(said, (0, 0, 0, _INDENT))
        if verdict.evidence:
            yield Padding(_evidence(verdict, ascii_only), (0, 0, 0, _INDENT))
        yield Padding(Text(compared(verdict), style="dim"), (0, 0, 0, _INDENT))

    def _bars(self, width: int, ascii_only: bool) -> Table:
        """A row a size; a bar as long as the time per sample, the longest filling the line."""
        totals = {size: terms.get(TOTAL) for size, terms in self._verdict.terms.items()}
        largest = max((total.value for total in totals.values() if known(total)), default=0.0)
        mark = _written("±", ascii_only)
        heads = [
            (f"batch {size}", self._scale.number(total), self._scale.spread(total, mark))
            for size, total in totals.items()
        ]
        taken = sum(max(cell_len(head[column]) for head in heads) for column in range(3)) + 5
        longest = max(1, min(LONGEST_BAR, width - taken))
        rows = Table.grid(padding=0)
        for column in range(3):
            rows.add_column(justify="left" if column == 2 else "right", no_wrap=True)
        rows.add_column(no_wrap=True)
        for (size, total), (name, number, spread) in zip(totals.items(), heads, strict=True):
            length = round(longest * total.value / largest) if known(total) and largest > 0 else 0
            bar = bars.stacked(shares(self._verdict.terms[size]), length, ascii_only) if length else Text()
            compared_one = size in (self._verdict.smaller, self._verdict.larger)
            style = "bold" if compared_one else ""
            rows.add_row(Text(name, style), Text(f"  {number}", style), Text(f" {spread}"), Text("  ") + bar)
        return rows

    def _terms(self, width: int, ascii_only: bool) -> Table:
        """A row a term, a column a size: what grew stands out, with what it grew by."""
        verdict, scale = self._verdict, self._scale
        mark, arrow = _written("±", ascii_only), _written("→", ascii_only)
        parts = [*shown_parts([verdict]), TOTAL]
        changes = [f"{verdict.smaller} {arrow} {verdict.larger}"]
        changes += [f"{scale.number(c, '+')} {scale.spread(c, mark)}".rstrip() for c in map(verdict.changes.get, parts)]
        figures = {size: [scale.number(terms.get(part)) for part in parts] for size, terms in verdict.terms.items()}
        work = {size: measured(verdict, size) for size in figures}
        names = [Text(f"{_sign(part, ascii_only)} {bars.name(part)}", _colour(part)) for part in parts]
        names += [Text("  samples measured"), Text("  seconds measured")]
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
            sign = _written("▲", ascii_only) if grew else ""
            cells = (Text(columns[size][row + 1], style) for size in sizes)
            table.add_row(name, *cells, Text(change, style), Text(sign, "bold red"))
        return table


def compared(verdict: BatchVerdict) -> str:
    """What the figures rest on."""
    counts = set(verdict.runs.values())
    if counts == {1}:
        rests = f"One run of each size: it has no interval of its own, runs are taken to differ by {_percent(verdict)}."
    elif len(counts) == 1:
        rests = f"{counts.pop()} runs of each size, taken to differ by {_percent(verdict)}."
    else:
        each = ", ".join(f"{number} of batch {size}" for size, number in verdict.runs.items())
        rests = f"Runs: {each}; those of one size are taken to differ by {_percent(verdict)}."
    return f"Compared: batch {verdict.smaller} and {verdict.larger}. {rests} Intervals are of 95 %."


def _percent(verdict: BatchVerdict) -> str:
    percent = 100 * verdict.noise
    if percent != percent:
        return sample_time.NOT_MEASURED
    return f"{percent:.1f} %" if percent >= 0.05 or percent == 0 else "less than 0.1 %"


def measured(verdict: BatchVerdict, size: int) -> tuple[str, str]:
    """Samples and seconds of a run, after its warm-up."""
    work = verdict.work.get(size)
    if work is None:
        return sample_time.NOT_MEASURED, sample_time.NOT_MEASURED
    return str(work.samples), f"{work.seconds:.1f}" if work.seconds < 100 else f"{work.seconds:.0f}"


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
        expected = f"(should be {item.expected})" if item.expected else ""
        words = (item.what, evidence_value(item.value, item.unit), expected)
        table.add_row(*(Text(_written(word, ascii_only)) for word in words))
    return table


def _written(text: str, ascii_only: bool) -> str:
    """Our own signs, where the output has no more than ASCII."""
    return text.translate(_ASCII) if ascii_only else text


def _sign(part: str, ascii_only: bool) -> str:
    return " " if part == TOTAL else bars.sign(part, ascii_only)


def _colour(part: str) -> str:
    return "bold" if part == TOTAL else bars.colour(part)


def render(verdicts: dict[str, BatchVerdict]) -> Iterator[RenderableType]:
    """One block a loader."""
    for name, verdict in verdicts.items():
        if name != next(iter(verdicts)):
            yield Text()
        yield BatchText(name, verdict)
