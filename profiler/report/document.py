"""What a result says, as blocks: one document for each kind of result.

A document holds words and figures, and no layout: `render/text.py` makes all of a terminal's lines of it,
`render/html.py` parts of a page, which draws some blocks itself, `render/markdown.py` a summary for a pull request.
What a terminal's character set lacks is the renderer's business too: documents are written with every sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from ..analyse.causes.finding import Evidence, Finding, Next
from ..analyse.cells.batch_size import BatchVerdict
from ..analyse.where.places import Where
from .phrase import Tone, Words, plain_words
from .words.code import in_lines, line_of, spent
from .words.figures import NO_CAUSE, evidence_value, part_name, prediction, share
from .words.sample_time import sentence


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
    """Steps to the right, below what it belongs to."""
    one_line: bool = False
    """Whether a text keeps it in one line however long it is, for logs and for what is copied from a terminal."""


@dataclass(frozen=True)
class Space:
    """An empty line of a text; pages and Markdown set blocks apart by themselves."""


@dataclass(frozen=True)
class TableColumn:
    """How a column of a table is set."""

    head: str = ""
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


@dataclass(frozen=True)
class TableBlock:
    """Rows of cells. Without `columns` every column is set in the plain way."""

    rows: tuple[tuple[Words, ...], ...]
    columns: tuple[TableColumn, ...] = ()
    gap: int = 2
    """Blanks between two columns."""
    head_tone: Tone = "bold"
    indent: int = 0


def table(
    rows: Iterable[Sequence[Words]], *columns: TableColumn, gap: int = 2, head_tone: Tone = "bold", indent: int = 0
) -> TableBlock:
    """A table of rows that are still to be made."""
    return TableBlock(tuple(tuple(row) for row in rows), columns, gap, head_tone, indent=indent)


RIGHT, LEFT = TableColumn(right=True), TableColumn()


@dataclass(frozen=True)
class FittingColumn:
    """A column of a table that leaves out columns where there is too little room."""

    head: str
    cells: Sequence[Words]
    right: bool = False
    folds_to: int | None = None
    """Letters to which its words may be folded; `None`: it stays as wide as it is."""
    goes: int = 0
    """Where there is too little room, columns go from the highest number down; 0 stays."""
    instead: FittingColumn | None = None
    """Takes its place then."""


@dataclass(frozen=True)
class FittingTable:
    """A table whose columns go, those that matter least first, until the rest has room."""

    columns: tuple[FittingColumn, ...]
    indent: int = 0
    legend_of: str | None = None
    """Head of a column of `Bar`s: a legend of all parts follows where that column is shown."""


@dataclass(frozen=True)
class SizesOfBatch:
    """The time per sample of one loader by batch size and by term, and why a larger batch is slower."""

    name: str
    verdict: BatchVerdict

    @property
    def said(self) -> str:
        """What a larger batch did."""
        return sentence(self.verdict)


@dataclass(frozen=True)
class Verdict:
    """The cause that comes first, and in a sentence what it does."""

    finding: Finding
    title: ClassVar[str] = "Verdict"

    @property
    def cause(self) -> str:
        """Its code, or that there is none."""
        return self.finding.cause or NO_CAUSE

    @property
    def remarks(self) -> str:
        """How bad it is and how sure, in a word each; empty where neither is known."""
        said = [self.finding.severity] if self.finding.severity != "none" else []
        if self.finding.cause not in (None, "none"):
            said.append(f"confidence {self.finding.confidence:.1f}")
        return ", ".join(said)


@dataclass(frozen=True)
class TimeRow:
    """A part of the time of a step. `None`: not measured."""

    part: str
    share: float | None
    ms: float | None
    """Of a step."""
    meaning: str


@dataclass(frozen=True)
class SharesOfTime:
    """Where the time of a step went, the parts of which sum to it."""

    title: str
    rows: tuple[TimeRow, ...]
    step_ms: float
    bar: bool
    """Whether there are enough steps for a picture of it."""
    remarks: tuple[str, ...] = ()
    heads: ClassVar[tuple[str, str, str, str]] = ("part", "share", "a step", "meaning")

    @property
    def lines(self) -> list[tuple[str, str, str, str, str]]:
        """(part, its name, share, ms of a step, what it means) a part, `n/a` for waiting of which nothing was seen; and
        what they sum to, which is no part."""
        parts = [
            (row.part, part_name(row.part), share(row.share), "" if row.ms is None else f"{row.ms:.2f} ms", row.meaning)
            for row in self.rows
        ]
        return [*parts, ("", "a step", share(1.0), f"{self.step_ms:.2f} ms", "")]

    @property
    def shares(self) -> dict[str, float]:
        """Part → share 0 to 1, of those that were measured."""
        return {row.part: row.share for row in self.rows if row.share is not None}


@dataclass(frozen=True)
class Changes:
    """What to change, and what that would bring."""

    changes: tuple[Next, ...]
    now: float | None
    """Samples a second as it stands."""
    title: ClassVar[str] = "What to change"

    @property
    def said(self) -> list[str]:
        """A sentence each."""
        return [f"{one.change}{prediction(one, self.now)}" for one in self.changes]


@dataclass(frozen=True)
class EvidenceTable:
    """The figures that a verdict rests on."""

    items: tuple[Evidence, ...]
    title: ClassVar[str] = "Evidence"
    heads: ClassVar[tuple[str, str, str]] = ("measured", "here", "normal")

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """(what, its value, what it should be) of those that were measured."""
        known = (item for item in self.items if item.value is not None)
        return [(item.what, evidence_value(item.value, item.unit), item.expected) for item in known]


@dataclass(frozen=True)
class LinesOfCode:
    """Where in the code the time of a finding was spent."""

    lines: tuple[Where, ...]
    title: ClassVar[str] = "Lines of code"

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """(place, the line of source, how much of which time) a line."""
        return [(line_of(each), each.code, spent(each)) for each in self.lines]


@dataclass(frozen=True)
class OtherFindings:
    """What else was found, less important than the verdict."""

    findings: tuple[Finding, ...]
    now: float | None
    title: ClassVar[str] = "Also found"

    @property
    def said(self) -> list[tuple[str, list[str]]]:
        """(what was found, what to change) a finding, in a sentence each."""
        return [
            (
                f"{found.cause} ({found.severity}): {found.title}",
                [*Changes(found.next[:1], self.now).said, *in_lines(found.where[:1], found.stages)],
            )
            for found in self.findings
        ]


@dataclass(frozen=True)
class Caution:
    """What must be read before any figure: that data or a device are no real ones, that a worker died."""

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
class Quality:
    """How far a recording can be trusted."""

    notes: tuple[str, ...]
    said: str | None = None
    """How much was recorded, and at what cost."""
    brief: tuple[str, ...] = ()
    """The same in a few words each."""
    title: ClassVar[str] = "Quality of the measurement"

    @property
    def lines(self) -> list[str]:
        """All that is said, a sentence each."""
        return [*([self.said] if self.said else []), *(f"note: {note}" for note in self.notes)]


LOADERS_RAN = "its figures are computed, not measured on such a device. The loaders really ran."


def emulated_device(words: str = LOADERS_RAN) -> Caution:
    """That figures are of an emulated device, for outputs in which its name alone would not tell."""
    return Caution("Emulated device", words, quiet=True)


@dataclass(frozen=True)
class CodeChange:
    """Lines of code that go, and those that are to stand in their place."""

    lines: tuple[str, ...]
    """As a diff has them: what goes begins with `-`, what comes with `+`."""


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

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """As `LimitTable.heads` call them."""
        return self.outcome, self.what, self.measured, self.wanted, self.note


@dataclass(frozen=True)
class LimitTable:
    """The limits that a run was held to. A text has a line for each, however long it is."""

    rows: tuple[LimitRow, ...]
    heads: ClassVar[tuple[str, str, str, str, str]] = ("", "check", "measured", "wanted", "")
    one_line: ClassVar[bool] = True


Block = (
    Title
    | Heading
    | Paragraph
    | Space
    | TableBlock
    | FittingTable
    | SizesOfBatch
    | Verdict
    | SharesOfTime
    | Changes
    | EvidenceTable
    | LinesOfCode
    | OtherFindings
    | Caution
    | CodeChange
    | LimitTable
    | Quality
)


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
    """Those blocks of a document that are of one kind."""
    return [block for block in document.blocks if isinstance(block, kind)]


def under(blocks: Iterable[Block], steps: int = 1) -> Iterator[Block]:
    """Blocks a step further to the right; headings and empty lines stay where they are."""
    for block in blocks:
        if isinstance(block, Paragraph | TableBlock | FittingTable):
            yield replace(block, indent=block.indent + steps)
        else:
            yield block
