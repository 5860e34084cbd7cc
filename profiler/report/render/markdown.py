"""Documents as Markdown, for a pull request, as GitHub renders it.

All blocks are written in their order, without pictures. Long ones are cut, and say how much more there is.

What was recorded (commands, paths, titles) is text here, never markup: no link, no mention, no HTML comes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import assert_never

from ...record.files import plain
from ..document import (
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
    Title,
    Verdict,
)
from ..phrase import Bar, Phrase, Words, plain_words
from .fitted import fitting

MOST_FINDINGS = 5
MOST_EVIDENCE = 8
MOST_NOTES = 5
MOST_ROWS = 30
MOST_PARAGRAPHS = 8
"""In a row."""
WIDEST = 120
"""Signs that a row of a table may take, as a terminal has so many; where it takes more, columns go as they go there."""
LONGEST = 1000
"""Characters of one text."""
_MARKUP = re.compile(r"[\\`*_{}\[\]|~$]|^[-+](?=\s|$)|(?<=^\d)[.)](?=\s)|(?<=^\d\d)[.)](?=\s)")
_LINKED = re.compile(r"#|@|\bGH-(?=\d)|:(?=//)", re.IGNORECASE)
"""Signs after which GitHub makes a link of an issue, a person or an address, also where they are escaped."""


def markdown(document: Document) -> str:
    """The short version, and below it, folded, all of it."""
    lines = [f"### whyidle: {escaped(document.title)}", *_together(document.brief or document.blocks)]
    if document.brief:
        lines += ["", "<details><summary>All of it</summary>", *_together(document.blocks), "", "</details>"]
    return "\n".join(lines) + "\n"


def escaped(value: object, longest: int | None = LONGEST) -> str:
    """A text as text: one line, with nothing in it that Markdown, HTML or GitHub acts on; cut where it is longer."""
    line = _line(value, longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = _MARKUP.sub(r"\\\g<0>", line)
    # The last, since the reference of a character has such a sign.
    return _LINKED.sub(r"\g<0>&#8203;", line).replace("www.", "www&#46;")


def code(value: object) -> str:
    """A text as code, outside of tables."""
    line = _line(value) or " "
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def _line(value: object, longest: int | None = LONGEST) -> str:
    line = " ".join(plain(str(value)).split())
    return line if longest is None or len(line) <= longest else f"{line[: longest - 1]}…"


def _together(blocks: Iterable[Block]) -> list[str]:
    """All lines, those of a list without empty ones between them."""
    together: list[str] = []
    for kind, alike in groupby((each for each in blocks if not isinstance(each, Title | Space)), key=type):
        shown = list(alike)
        more = len(shown) - MOST_PARAGRAPHS if kind is Paragraph else 0
        lines = [line for block in (shown[:MOST_PARAGRAPHS] if more > 0 else shown) for line in _lines(block)]
        for line in (*lines, *_more(more, "paragraphs")):
            if line.startswith("- ") and together[-2:-1] and together[-2].startswith("- ") and not together[-1]:
                together.pop()
            together.append(line)
    return together


def _lines(block: Block) -> Iterator[str]:
    """Of one block, after an empty line."""
    if isinstance(block, Heading):
        yield from ("", f"**{escaped(block.words)}**")
    elif isinstance(block, Paragraph):
        if isinstance(block.words, Phrase) and all(isinstance(each, Bar) for each in block.words.pieces):
            return
        words = plain_words(block.words).strip()
        yield from _listed([words.removeprefix("- ")]) if block.indent else ("", escaped(words))
    elif isinstance(block, TableBlock):
        wide = max(map(len, block.rows), default=0)
        heads = [column.head for column in block.columns] or [""] * wide
        yield from _table(heads, block.rows, [column.right for column in block.columns] or [False] * wide)
    elif isinstance(block, FittingTable):
        columns = fitting(block.columns, WIDEST)
        rows = list(zip(*(column.cells for column in columns), strict=True))
        yield from _table([column.head for column in columns], rows, [column.right for column in columns])
    elif isinstance(block, SizesOfBatch):
        yield from ("", f"- {escaped(block.name)}: {escaped(block.said)} {code(block.verdict.cause)}")
    elif isinstance(block, Verdict):
        yield from ("", f"**{block.title}:** {code(block.cause)}{f' ({block.remarks})' if block.remarks else ''}")
        yield from ("", escaped(block.finding.title))
    elif isinstance(block, SharesOfTime):
        _, *heads = block.heads
        yield from _table([block.title, *heads], [row for _, *row in block.lines], (False, True, True, False))
        yield from _listed(block.remarks)
    elif isinstance(block, Changes):
        yield from ("", f"**{block.title}**", *_listed(block.said))
    elif isinstance(block, CodeChange):
        yield from ("", "```diff", *map(_line, block.lines), "```")
    elif isinstance(block, EvidenceTable):
        _, *heads = block.heads
        yield from _table([block.title, *heads], block.rows[:MOST_EVIDENCE], (False, True, False))
    elif isinstance(block, LinesOfCode):
        said = [f"{code(place)} {code(text)}: {escaped(spent)}" for place, text, spent in block.rows]
        yield from ("", f"**{block.title}**", *(line for each in said for line in ("", f"- {each}")))
    elif isinstance(block, OtherFindings):
        yield from ("", f"**{block.title}**", *_listed([said for said, _ in block.said[:MOST_FINDINGS]]))
        yield from _more(len(block.said) - MOST_FINDINGS, "findings")
    elif isinstance(block, Caution):
        where = f" {escaped(block.where)}" if block.where else ""
        yield from ("", f"**{block.what}{where}:** {escaped(block.words)}")
    elif isinstance(block, Quality):
        yield from _quality(block)
    elif isinstance(block, LimitTable):
        # Uncut, in number and in length: what there is to do stands at the end of a note.
        rows = [tuple(escaped(cell, longest=None) for cell in row.cells) for row in block.rows]
        yield from _rows(block.heads, rows, (False, False, True, True, False))
    elif not isinstance(block, Title | Space):
        assert_never(block)


def _listed(sentences: Iterable[str]) -> Iterator[str]:
    for said in sentences:
        yield from ("", f"- {escaped(said)}")


def _more(number: int, what: str) -> Iterator[str]:
    if number > 0:
        yield from ("", f"And {number} more {what if number > 1 else what[:-1]}.")


def _quality(block: Quality) -> Iterator[str]:
    if block.brief:
        yield from ("", f"<sub>{' · '.join(block.brief)}</sub>")
    if block.notes:
        count = f"{len(block.notes)} note{'' if len(block.notes) == 1 else 's'} on this recording"
        yield from ("", f"<details><summary>{count}</summary>", *_listed(block.notes[:MOST_NOTES]))
        yield from _more(len(block.notes) - MOST_NOTES, "notes")
        yield from ("", "</details>")


def _table(heads: Sequence[str], rows: Sequence[Sequence[Words]], right: Sequence[bool]) -> Iterator[str]:
    """`right`: which columns are figures."""
    shown = [[_cell(cell) for cell in row] for row in rows[:MOST_ROWS]]
    yield from _rows([escaped(head) for head in heads], shown, right)
    yield from _more(len(rows) - MOST_ROWS, "rows")


def _cell(words: Words) -> str:
    """Its lines in one."""
    return "; ".join(escaped(line) for line in plain_words(words).splitlines() if line.strip())


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    """Of texts that are Markdown. Columns of pictures, and all others without a word, are left out."""
    full = [[*row, *[""] * (len(heads) - len(row))] for row in rows]
    shown = [place for place in range(len(heads)) if any(row[place] for row in full)]
    if not shown:
        return
    yield ""
    yield f"| {' | '.join(heads[place] for place in shown)} |"
    yield f"|{'|'.join(' --: ' if right[place] else ' :-- ' for place in shown)}|"
    yield from (f"| {' | '.join(row[place] for place in shown)} |" for row in full)
