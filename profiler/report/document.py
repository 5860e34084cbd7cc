"""What a result says, as blocks: one document for each kind of result.

A document holds words and figures, and no layout. `render.py` prints it on a terminal, makes parts of a page of it,
and a summary for a pull request, by one table: kind of block → its forms.
What a terminal's character set lacks is the renderer's business too: documents are written with every sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ..analyse.causes.finding import Evidence, Finding, Next
from ..analyse.cells.batch_size import BatchVerdict
from ..analyse.run.stall_breakdown import TOTAL
from ..analyse.where.places import Where
from .words import sample_time
from .words.code import in_lines, line_of, spent
from .words.figures import (
    NO_CAUSE,
    PART_COLOURS,
    SEVERITY_TONES,
    counted,
    evidence_value,
    expected,
    part_name,
    prediction,
    share,
)
from .words.sample_time import MEASURED

# Words in a row with their tones, and the small pictures between them.

LEAST_SAID = 0.005
"""A part below this share would read 0 %."""
Tone = str
"""How words are set off: `bold`, `dim`, or a colour (`yellow`, `bold red`, …), as a terminal knows them; empty: not."""


@dataclass(frozen=True)
class Span:
    """Words of one tone."""

    words: str
    tone: Tone = ""
    code: bool = False
    """Whether it is code, or a name of the program's: Markdown sets that off."""


@dataclass(frozen=True)
class Bar:
    """Shares of time side by side: part of the stall breakdown → share 0 to 1."""

    shares: Mapping[str, float]
    width: int
    """Signs that all of it takes."""

    @property
    def words(self) -> str:
        """The same where nothing is drawn."""
        return ", ".join(f"{part_name(part)} {share(of, 0)}" for part, of in self.shares.items() if of >= LEAST_SAID)


@dataclass(frozen=True)
class Length:
    """One figure as a bar from the left."""

    signs: int


@dataclass(frozen=True)
class PartSign:
    """The sign that a part of the stall breakdown has in bars, in its colour."""

    part: str


Inline = Span | Bar | Length | PartSign


@dataclass(frozen=True)
class Phrase:
    """Words in a row, of one tone or several."""

    pieces: tuple[Inline, ...]

    @property
    def plain(self) -> str:
        """The words alone, and those that stand for bars."""
        return "".join(piece.words for piece in self.pieces if isinstance(piece, Span | Bar))


Words = str | Phrase
"""Of a block or a cell."""


def plain_words(words: Words) -> str:
    """Without tones and pictures."""
    return words if isinstance(words, str) else words.plain


def line(*pieces: str | tuple[str, Tone] | Inline | Phrase) -> Phrase:
    """A line of several pieces: words, words with a tone, signs, other lines."""
    made: list[Inline] = []
    for piece in pieces:
        if isinstance(piece, Phrase):
            made += piece.pieces
        elif isinstance(piece, str):
            made.append(Span(piece))
        else:
            made.append(Span(*piece) if isinstance(piece, tuple) else piece)
    return Phrase(tuple(made))


def toned(words: str, tone: Tone) -> Phrase:
    """Words of one tone."""
    return Phrase((Span(words, tone),))


# Blocks.


@dataclass(frozen=True)
class Title:
    """What it is all about, and what came of it, in a line."""

    words: Words
    one_line: bool = False
    """As of a paragraph."""


@dataclass(frozen=True)
class Heading:
    """Begins a section."""

    words: str


@dataclass(frozen=True)
class Paragraph:
    words: Words
    indent: int = 0
    """Steps to the right, below what it belongs to; in Markdown an item of a list."""
    one_line: bool = False
    """Whether a text keeps it in one line however long it is, for logs and for what is copied from a terminal."""


@dataclass(frozen=True)
class Space:
    """An empty line of a text; pages and Markdown set blocks apart by themselves."""


@dataclass(frozen=True)
class TableColumn:
    """How a column of a table is set."""

    head: str = ""
    cells: Sequence[Words] = ()
    right: bool = False
    """Figures stand to the right."""
    wraps: bool = True
    """Whether its words may be broken into several lines where there is too little room."""
    folds: bool = False
    """Whether a word that is too long goes on in the next line; otherwise it is cut off, with a sign for that."""
    least: int | None = None
    most: int | None = None
    """Signs that it takes at least, and at most; `None`: as many as it needs."""
    tone: Tone = ""
    folds_to: int | None = None
    """Letters to which the words of a column of a table that fits may be folded; `None`: it stays as wide as it is."""
    goes: int = 0
    """Where there is too little room in a table that fits, columns go from the highest number down; 0 stays."""
    instead: TableColumn | None = None
    """Takes its place then."""


RIGHT, LEFT = TableColumn(right=True), TableColumn()


@dataclass(frozen=True)
class TableBlock:
    """Columns of equally many cells; where it fits, those without a cell are left out."""

    columns: tuple[TableColumn, ...]
    gap: int = 2
    """Blanks between two columns."""
    head_tone: Tone = "bold"
    indent: int = 0
    fits: bool = False
    """Whether columns go, those that matter least first, until the rest has room."""
    legend_of: str | None = None
    """Head of a column of `Bar`s: a legend of all parts follows where that column is shown."""


def table(
    rows: Iterable[Sequence[Words]],
    *columns: TableColumn,
    gap: int = 2,
    head_tone: Tone = "bold",
    indent: int = 0,
) -> TableBlock:
    """Make a table of rows. Those that have no column of `columns` are set in the plain way."""
    filled = list(rows)
    plain_ones = max((len(row) for row in filled), default=0) - len(columns)
    made = [
        replace(column, cells=tuple(row[place] if place < len(row) else "" for row in filled))
        for place, column in enumerate((*columns, *[LEFT] * plain_ones))
    ]
    return TableBlock(tuple(made), gap, head_tone, indent)


def fitting_table(columns: Iterable[TableColumn], indent: int = 0, legend_of: str | None = None) -> TableBlock:
    """Make a table that leaves out columns where there is too little room."""
    return TableBlock(tuple(columns), indent=indent, fits=True, legend_of=legend_of)


@dataclass(frozen=True)
class CodeChange:
    """Lines of code that go, and those that are to stand in their place."""

    lines: tuple[str, ...]
    """As a diff has them: what goes begins with `-`, what comes with `+`."""


@dataclass(frozen=True)
class Caution:
    """What must be read before any figure: that data or a device are no real ones, that a worker
    died. Pages show it by themselves."""

    what: str
    words: str
    where: str = ""
    """Of what it is so, where not of all."""
    quiet: bool = False
    """Whether a text leaves it out, as the device in its title and the heads of its columns say it already."""
    one_line: bool = False
    """As of a paragraph."""

    @property
    def said(self) -> str:
        """In a sentence."""
        return f"{self.what.upper()}{self.where and f' {self.where}'}: {self.words}"


@dataclass(frozen=True)
class LimitRow:
    """A limit that a run was held to, in words."""

    outcome: str
    """Whether it is kept, in a word."""
    tone: Tone
    """Of that word."""
    what: str
    measured: str
    wanted: str
    note: str


@dataclass(frozen=True)
class Limits:
    """Limits that a run was held to. A text has a line for each, however long it is; all other forms have a table."""

    rows: tuple[LimitRow, ...]
    one_line: ClassVar[bool] = True
    """As of a paragraph."""

    def as_table(self) -> TableBlock:
        """Give a row for each."""
        figures = (TableColumn("measured", right=True), TableColumn("wanted", right=True))
        cells = ((row.outcome, row.what, row.measured, row.wanted, row.note) for row in self.rows)
        return table(cells, LEFT, TableColumn("check"), *figures)


@dataclass(frozen=True)
class Sweep:
    """The time per sample of one loader by part and batch size, and why a larger batch is slower or
    not. Markdown has the sentence alone."""

    name: str
    verdict: BatchVerdict


Block = Title | Heading | Paragraph | Space | TableBlock | CodeChange | Caution | Limits | Sweep


@dataclass(frozen=True)
class Document:
    """All that a result says, in its order."""

    blocks: tuple[Block, ...]
    brief: tuple[Block, ...] = ()
    """The short version, for one screen; empty where all of it is short."""

    @property
    def title(self) -> str:
        """Without tones; empty of a part that has none."""
        return next((plain_words(block.words) for block in self.blocks if isinstance(block, Title)), "")

    @property
    def cautions(self) -> list[Caution]:
        return [block for block in self.blocks if isinstance(block, Caution)]


def under(blocks: Iterable[Block]) -> Iterator[Block]:
    """Move blocks a step to the right; headings and empty lines stay where they are."""
    for block in blocks:
        if isinstance(block, Paragraph | TableBlock):
            yield replace(block, indent=block.indent + 1)
        else:
            yield block


LOADERS_RAN = "its figures are computed, not measured on such a device. The loaders really ran."


def emulated_device(words: str = LOADERS_RAN) -> Caution:
    """Say that figures are of an emulated device, for outputs in which its name alone would not tell."""
    return Caution("Emulated device", words, quiet=True)


def section(title: str, *blocks: Block) -> Iterator[Block]:
    """Give blocks that belong together, below a heading, and an empty line after them."""
    yield Heading(title)
    yield from blocks
    yield Space()


def verdict_blocks(finding: Finding) -> Iterator[Block]:
    """Name the cause that comes first, how bad it is and how sure, and in a sentence what it does."""
    said = [finding.severity] if finding.severity != "none" else []
    if finding.cause not in (None, "none"):
        said.append(f"confidence {finding.confidence:.1f}")
    remarks = f"  ({', '.join(said)})" if said else ""
    cause = Span(finding.cause or NO_CAUSE, SEVERITY_TONES[finding.severity], code=True)
    yield Paragraph(line(("Verdict  ", "bold"), cause, (remarks, "bold")))
    yield Paragraph(finding.title, 1)


BAR_SIGNS = 60
"""Width of the bar of a step's time."""
Part = tuple[str, float | None, str]
"""A part of the time of a step: its name, its share 0 to 1 (`None`: not measured), and what it means."""


def time_lines(parts: Iterable[Part], step_ms: float) -> list[tuple[str, str, str, str, str]]:
    """Give (part, its name, share, ms of a step, what it means) a part, `n/a` for waiting of which
    nothing was seen; and what they sum to, which is no part."""
    lines = [
        (part, part_name(part), share(of), "" if of is None else f"{of * step_ms:.2f} ms", meaning)
        for part, of, meaning in parts
    ]
    return [*lines, ("", "a step", share(1.0), f"{step_ms:.2f} ms", "")]


def time_section(
    title: str, parts: Sequence[Part], step_ms: float, bar: bool, remarks: Iterable[str]
) -> Iterator[Block]:
    """Show where the time of a step went, the parts of which sum to it. `bar`: whether there are
    enough steps for a picture of it."""
    rows: list[tuple[Words, ...]] = [
        (line(PartSign(part), toned(f" {name}", PART_COLOURS[part])) if part else f"  {name}", *rest)
        for part, name, *rest in time_lines(parts, step_ms)
    ]
    picture = Paragraph(line(Bar({part: of for part, of, _ in parts if of is not None}, BAR_SIGNS)), 1)
    widths = (LEFT, RIGHT, TableColumn(right=True, least=len("12345.67 ms")), LEFT)
    below = (Paragraph(words, 1) for words in remarks)
    yield from section(title, *([picture] if bar else []), table(rows, *widths, indent=1), *below)


def said_of(changes: Iterable[Next], now: float | None) -> list[str]:
    """Say what to change and what that would bring, a sentence each. `now`: samples a second as it stands."""
    return [f"{one.change}{prediction(one, now)}" for one in changes]


def changes_section(changes: Iterable[Next], now: float | None) -> Iterator[Block]:
    """Say what to change."""
    return section("What to change", *(Paragraph(said, 1) for said in said_of(changes, now)))


def evidence_rows(items: Iterable[Evidence]) -> list[tuple[str, str, str]]:
    """Give (what, its value, what it should be) of those that were measured."""
    known = (item for item in items if item.value is not None)
    return [(item.what, evidence_value(item.value, item.unit), item.expected) for item in known]


def code_rows(lines: Iterable[Where]) -> list[tuple[str, str, str]]:
    """Give (place, the line of source, how much of which time) a line."""
    return [(line_of(each), each.code, spent(each)) for each in lines]


LINES = "Lines of code"
"""A heading; pages have a table of their own below it."""


def code_section(lines: Iterable[Where]) -> Iterator[Block]:
    """Show where in the code the time of a finding was spent."""
    yield Heading(LINES)
    for place, code, time in code_rows(lines):
        source = Span(f"   {code}" if code else "", "bold", code=True)
        yield Paragraph(line(Span(place, code=True), source), 1)
        yield Paragraph(time, 2)
    yield Space()


def finding_sections(
    verdict: Finding, others: Sequence[Finding], now: float | None, between: Iterable[Block] = ()
) -> Iterator[Block]:
    """Show all that is known of a verdict, then what else was found, less important than that, with
    the first change and where the time was spent. `between`: stands before the evidence."""
    if verdict.where:
        yield from code_section(verdict.where)
    if verdict.next:
        yield from changes_section(verdict.next, now)
    yield from between
    if verdict.evidence:
        rows = ((what, value, expected(wanted)) for what, value, wanted in evidence_rows(verdict.evidence))
        yield from section("Evidence", table(rows, indent=1))
    if not others:
        return
    yield Heading("Also found")
    for found in others:
        yield Paragraph(f"{found.cause} ({found.severity}): {found.title}", 1)
        below = (*said_of(found.next[:1], now), *in_lines(found.where[:1], found.stages))
        yield from (Paragraph(each, 2) for each in below)
    yield Space()


def quality_section(notes: Iterable[str], said: str | None = None) -> Iterator[Block]:
    """Say how far a recording can be trusted. `said`: how much was recorded, and at what cost."""
    yield Heading("Quality of the measurement")
    yield from (Paragraph(each, 1) for each in (*([said] if said else []), *(f"note: {note}" for note in notes)))


def sweep_blocks(sweep: Sweep) -> Iterator[Block]:
    """Give what a text shows of a sweep over batch sizes."""
    verdict, scale = sweep.verdict, sample_time.scale_of([sweep.verdict])
    terms = (*sample_time.shown_parts([verdict]), TOTAL)
    names = [line(PartSign(term) if term != TOTAL else " ", f" {part_name(term)}") for term in terms]
    columns = [TableColumn(f"{scale.unit} a sample", [*names, *MEASURED])]
    for place, (size, estimates) in enumerate(verdict.terms.items()):
        figures = [*(scale.number(estimates.get(term)) for term in terms), *sample_time.measured(verdict, size)]
        goes = 0 if size in (verdict.smaller, verdict.larger) else place + 1
        columns.append(TableColumn(f"batch {size}", figures, right=True, goes=goes))
    changes = [(verdict.changes.get(term), " ▲" * (term == verdict.grew)) for term in terms]
    moved = [f"{scale.number(change, '+')} {scale.spread(change)}".rstrip() + sign for change, sign in changes]
    columns.append(TableColumn(f"{verdict.smaller} to {verdict.larger}", [*moved, *[""] * len(MEASURED)]))
    rows = [(item.what, evidence_value(item.value, item.unit), expected(item.expected)) for item in verdict.evidence]
    yield Paragraph(toned(sweep.name, "bold"), 1)
    yield fitting_table(columns, 2)
    yield Paragraph(line(f"{sample_time.sentence(verdict)} ", (f"[{verdict.cause}]", "bold")), 2)
    yield from [table(rows, indent=2)] if rows else []
    yield Paragraph(toned(sample_time.compared(verdict), "dim"), 2)


MOST_BRIEF, LEAST_SAMPLES = 3, 5
"""Lines of code, changes and notes in a short version; stack samples of a line, of which fewer may be chance."""


def brief_actions(verdict: Finding, found: Sequence[Finding], now: float | None) -> Iterator[Block]:
    """Show the lines of code, what to change, what else was found; `now`: samples a second."""
    if where := [each for each in verdict.where if each.share is None or each.samples >= LEAST_SAMPLES][:MOST_BRIEF]:
        yield from code_section(where)
    if verdict.next:
        yield from changes_section(verdict.next[:MOST_BRIEF], now)
    if worth := [each for each in found if each is not verdict and each.severity not in ("none", "minor")]:
        yield Paragraph(f"Also found: {', '.join(f'{each.cause} ({each.severity})' for each in worth)}.")


def brief_quality(said: Sequence[str], notes: Sequence[str], show: bool = False) -> Iterator[Paragraph]:
    """Say what it rests on, and how many notes --full has. `show`: print the first, which say why
    there is no verdict."""
    shown = notes[: MOST_BRIEF * show]
    yield from (Paragraph(f"note: {note}") for note in shown)
    more = [f"{counted(len(notes) - len(shown), 'note')}: --full"] if len(notes) > len(shown) else []
    if said or more:
        yield Paragraph(" · ".join([*said, *more]))
