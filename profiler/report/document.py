"""What a result says, as blocks: one document for each kind of result.

A document holds words and figures, and no layout. `render.py` prints it on a terminal, makes parts of a page of it,
and a summary for a pull request, by one table: kind of block → its forms.
What a terminal's character set lacks is the renderer's business too: documents are written with every sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

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
STRONG, CODE, FINE = "strong", "code", "fine"
"""Tones that Markdown alone has: strong emphasis, code, small print."""


@dataclass(frozen=True)
class Span:
    """Words of one tone."""

    words: str
    tone: Tone = ""


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
    return Phrase(tuple(inline for piece in pieces for inline in _inlines(piece)))


def _inlines(piece: str | tuple[str, Tone] | Inline | Phrase) -> tuple[Inline, ...]:
    if isinstance(piece, Phrase):
        return piece.pieces
    if isinstance(piece, str):
        return (Span(piece),)
    return (Span(*piece),) if isinstance(piece, tuple) else (piece,)


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
    grows: bool = False
    """Takes the room that others leave."""
    width: int | None = None
    """Signs, whatever it holds."""
    least: int | None = None
    most: int | None = None
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
    whole: bool = False
    """Whether Markdown cuts neither rows nor words: what there is to do may stand at their end."""
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
    whole: bool = False,
) -> TableBlock:
    """Make a table of rows. Those that have no column of `columns` are set in the plain way."""
    filled = list(rows)
    plain_ones = max((len(row) for row in filled), default=0) - len(columns)
    made = [
        replace(column, cells=tuple(row[place] if place < len(row) else "" for row in filled))
        for place, column in enumerate((*columns, *[LEFT] * plain_ones))
    ]
    return TableBlock(tuple(made), gap, head_tone, indent, whole)


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
    """What must be read before any figure: that data or a device are no real ones, that a worker died. Pages show it by
    themselves."""

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
class Section:
    """Blocks that belong together below a heading, and what other formats than text show in their place."""

    title: str
    """Empty: there is no heading."""
    text: tuple[Block, ...]
    page: tuple[Block, ...] | None = None
    """On a page, below the same heading; `None`: as the text; empty: nothing, a page draws it itself."""
    markdown: tuple[Block, ...] | None = None
    """In Markdown, with its own heading; `None`: as the text."""
    folded: bool = False
    """Whether Markdown shows its heading alone until somebody clicks it."""

    def on_page(self) -> tuple[Block, ...]:
        """Give what a page shows of it, its heading first."""
        shown = self.text if self.page is None else self.page
        return (Heading(self.title), *shown) if self.title and shown else shown


Block = Title | Heading | Paragraph | Space | TableBlock | CodeChange | Caution | Section


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


Kind = TypeVar("Kind")


def blocks_of_kind(document: Document, kind: type[Kind]) -> list[Kind]:
    """Choose those blocks of a document that are of one kind."""
    return [block for block in document.blocks if isinstance(block, kind)]


def under(blocks: Iterable[Block], steps: int = 1) -> Iterator[Block]:
    """Move blocks a step to the right; headings and empty lines stay where they are."""
    for block in blocks:
        if isinstance(block, Paragraph | TableBlock):
            yield replace(block, indent=block.indent + steps)
        else:
            yield block


LOADERS_RAN = "its figures are computed, not measured on such a device. The loaders really ran."


def emulated_device(words: str = LOADERS_RAN) -> Caution:
    """Say that figures are of an emulated device, for outputs in which its name alone would not tell."""
    return Caution("Emulated device", words, quiet=True)


def verdict_section(finding: Finding) -> Section:
    """Name the cause that comes first, how bad it is and how sure, and in a sentence what it does."""
    cause = finding.cause or NO_CAUSE
    said = [finding.severity] if finding.severity != "none" else []
    if finding.cause not in (None, "none"):
        said.append(f"confidence {finding.confidence:.1f}")
    remarks = ", ".join(said)
    head = line(
        ("Verdict  ", "bold"), (cause, SEVERITY_TONES[finding.severity]), (f"  ({remarks})" if remarks else "", "bold")
    )
    short = line(("Verdict:", STRONG), " ", (cause, CODE), f" ({remarks})" if remarks else "")
    return Section(
        "",
        (Paragraph(head), Paragraph(finding.title, 1)),
        page=(),
        markdown=(Paragraph(short), Paragraph(finding.title)),
    )


BAR_SIGNS = 60
"""Width of the bar of a step's time."""
Part = tuple[str, float | None, str]
"""A part of the time of a step: its name, its share 0 to 1 (`None`: not measured), and what it means."""


def time_lines(parts: Iterable[Part], step_ms: float) -> list[tuple[str, str, str, str, str]]:
    """Give (part, its name, share, ms of a step, what it means) a part, `n/a` for waiting of which nothing was seen;
    and what they sum to, which is no part."""
    lines = [
        (part, part_name(part), share(of), "" if of is None else f"{of * step_ms:.2f} ms", meaning)
        for part, of, meaning in parts
    ]
    return [*lines, ("", "a step", share(1.0), f"{step_ms:.2f} ms", "")]


def time_section(title: str, parts: Sequence[Part], step_ms: float, bar: bool, remarks: Iterable[str]) -> Section:
    """Show where the time of a step went, the parts of which sum to it. `bar`: whether there are enough steps for a
    picture of it."""
    lines, below = time_lines(parts, step_ms), tuple(Paragraph(words, 1) for words in remarks)
    signed: list[tuple[Words, ...]] = [
        (line(PartSign(part), toned(f" {name}", PART_COLOURS[part])) if part else f"  {name}", *rest)
        for part, name, *rest in lines
    ]
    picture = Paragraph(line(Bar({part: of for part, of, _ in parts if of is not None}, BAR_SIGNS)), 1)
    widths = (LEFT, RIGHT, TableColumn(right=True, least=len("12345.67 ms")), LEFT)
    heads = (TableColumn(title), TableColumn("share", right=True), TableColumn("a step", right=True))
    return Section(
        title,
        (*([picture] if bar else []), table(signed, *widths, indent=1), *below),
        page=(),
        markdown=(table((rest for _, *rest in lines), *heads, TableColumn("meaning")), *below),
    )


def said_of(changes: Iterable[Next], now: float | None) -> list[str]:
    """Say what to change and what that would bring, a sentence each. `now`: samples a second as it stands."""
    return [f"{one.change}{prediction(one, now)}" for one in changes]


def changes_section(changes: Iterable[Next], now: float | None) -> Section:
    """Say what to change."""
    return Section("What to change", tuple(Paragraph(said, 1) for said in said_of(changes, now)))


MOST_EVIDENCE, MOST_FINDINGS, MOST_NOTES = 8, 5, 5
"""Of each in Markdown."""


def evidence_rows(items: Iterable[Evidence]) -> list[tuple[str, str, str]]:
    """Give (what, its value, what it should be) of those that were measured."""
    known = (item for item in items if item.value is not None)
    return [(item.what, evidence_value(item.value, item.unit), item.expected) for item in known]


def evidence_section(items: Iterable[Evidence]) -> Section:
    """Show the figures that a verdict rests on."""
    rows = evidence_rows(items)
    heads = (TableColumn("Evidence"), TableColumn("here", right=True), TableColumn("normal"))
    return Section(
        "Evidence",
        (table(((what, value, expected(wanted)) for what, value, wanted in rows), indent=1),),
        markdown=(table(rows[:MOST_EVIDENCE], *heads),),
    )


def code_rows(lines: Iterable[Where]) -> list[tuple[str, str, str]]:
    """Give (place, the line of source, how much of which time) a line."""
    return [(line_of(each), each.code, spent(each)) for each in lines]


def code_section(lines: Iterable[Where]) -> Section:
    """Show where in the code the time of a finding was spent."""
    rows = code_rows(lines)
    return Section(
        "Lines of code",
        tuple(
            said
            for place, code, time in rows
            for said in (
                Paragraph(line(place, (f"   {code}" if code else "", "bold")), 1),
                Paragraph(time, 2),
            )
        ),
        page=(table(rows),),
        markdown=(
            Heading("Lines of code"),
            *(Paragraph(line((place, CODE), " ", (code, CODE), f": {time}"), 1) for place, code, time in rows),
        ),
    )


def others_section(findings: Sequence[Finding], now: float | None) -> Section:
    """Say what else was found, less important than the verdict, with the first change and where the time was spent."""
    said = [f"{found.cause} ({found.severity}): {found.title}" for found in findings]
    below = [(*said_of(each.next[:1], now), *in_lines(each.where[:1], each.stages)) for each in findings]
    rest = len(said) - MOST_FINDINGS
    more = (Paragraph(f"And {counted(rest, 'more finding')}."),) if rest > 0 else ()
    return Section(
        "Also found",
        tuple(
            shown
            for words, further in zip(said, below, strict=True)
            for shown in (Paragraph(words, 1), *(Paragraph(each, 2) for each in further))
        ),
        markdown=(Heading("Also found"), *(Paragraph(words, 1) for words in said[:MOST_FINDINGS]), *more),
    )


def quality_section(notes: Sequence[str], said: str | None = None, brief: Sequence[str] = ()) -> Section:
    """Say how far a recording can be trusted. `said`: how much was recorded, and at what cost; `brief`: the same in a
    few words each."""
    rest = len(notes) - MOST_NOTES
    more = (Paragraph(f"And {counted(rest, 'more note')}."),) if rest > 0 else ()
    folded = Section(
        f"{counted(len(notes), 'note')} on this recording",
        (*(Paragraph(note, 1) for note in notes[:MOST_NOTES]), *more),
        folded=True,
    )
    return Section(
        "Quality of the measurement",
        tuple(Paragraph(each, 1) for each in (*([said] if said else []), *(f"note: {note}" for note in notes))),
        markdown=(
            *([Paragraph(toned(" · ".join(brief), FINE))] if brief else []),
            *([folded] if notes else []),
        ),
    )


LEAST_OUTCOME = 5
"""Signs of the column that says which limits are kept."""


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


def limits_section(rows: Sequence[LimitRow]) -> Section:
    """Show the limits that a run was held to. A text has a line for each, however long it is."""
    wide = max((LEAST_OUTCOME, *(len(row.outcome) for row in rows)))
    width = max((len(row.what) for row in rows), default=0)
    lines = (
        line(
            (f"{row.outcome:{wide}}", row.tone),
            f" {row.what:{width}}  {row.measured}, {row.wanted}{f'  ({row.note})' if row.note else ''}",
        )
        for row in rows
    )
    figures = (TableColumn("measured", right=True), TableColumn("wanted", right=True))
    cells = ((row.outcome, row.what, row.measured, row.wanted, row.note) for row in rows)
    whole = table(cells, LEFT, TableColumn("check"), *figures, whole=True)
    return Section("", tuple(Paragraph(words, one_line=True) for words in lines), page=(whole,), markdown=(whole,))


def sizes_section(name: str, verdict: BatchVerdict) -> Section:
    """Show the time per sample of one loader by part and batch size, and why a larger batch is slower or not."""
    scale, said = sample_time.scale_of([verdict]), sample_time.sentence(verdict)
    parts = sample_time.rows(verdict, scale)
    names = [line(PartSign(each.part) if each.part != TOTAL else " ", f" {each.name}") for each in parts]
    columns = [TableColumn(f"{scale.unit} a sample", [*names, *MEASURED])]
    for place, size in enumerate(verdict.terms):
        figures = [*(each.figures[place] for each in parts), *sample_time.measured(verdict, size)]
        goes = 0 if size in (verdict.smaller, verdict.larger) else place + 1
        columns.append(TableColumn(f"batch {size}", figures, right=True, goes=goes))
    moved = [each.change + " ▲" * each.grew for each in parts]
    columns.append(TableColumn(f"{verdict.smaller} to {verdict.larger}", [*moved, *[""] * len(MEASURED)]))
    rows = [(item.what, evidence_value(item.value, item.unit), expected(item.expected)) for item in verdict.evidence]
    return Section(
        "",
        (
            Paragraph(toned(name, "bold"), 1),
            fitting_table(columns, 2),
            Paragraph(line(f"{said} ", (f"[{verdict.cause}]", "bold")), 2),
            *([table(rows, indent=2)] if rows else []),
            Paragraph(toned(sample_time.compared(verdict), "dim"), 2),
        ),
        page=(),
        markdown=(Paragraph(line(f"{name}: {said} ", (verdict.cause, CODE)), 1),),
    )


MOST_BRIEF, LEAST_SAMPLES = 3, 5
"""Lines of code, changes and notes in a short version; stack samples of a line, of which fewer may be chance."""


def brief_actions(verdict: Finding, found: Sequence[Finding], now: float | None) -> Iterator[Block]:
    """Show the lines of code, what to change, what else was found; `now`: samples a second."""
    if where := [each for each in verdict.where if each.share is None or each.samples >= LEAST_SAMPLES][:MOST_BRIEF]:
        yield from (code_section(where), Space())
    if verdict.next:
        yield from (changes_section(verdict.next[:MOST_BRIEF], now), Space())
    if worth := [each for each in found if each is not verdict and each.severity not in ("none", "minor")]:
        yield Paragraph(f"Also found: {', '.join(f'{each.cause} ({each.severity})' for each in worth)}.")


def brief_quality(said: Sequence[str], notes: Sequence[str], show: bool = False) -> Iterator[Paragraph]:
    """Say what it rests on, and how many notes --full has. `show`: print the first, which say why there is no
    verdict."""
    shown = notes[: MOST_BRIEF * show]
    yield from (Paragraph(f"note: {note}") for note in shown)
    more = [f"{counted(len(notes) - len(shown), 'note')}: --full"] if len(notes) > len(shown) else []
    if said or more:
        yield Paragraph(" · ".join([*said, *more]))
