"""Documents as Markdown, for a pull request, as GitHub renders it.

All blocks are written in their order, without pictures. Long ones are cut, and say how much more there is.

What was recorded (commands, paths, titles) is text here, never markup: no link, no mention, no HTML comes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ...record.files import plain
from ..document import (
    Block,
    Caution,
    CodeChange,
    Document,
    FittingTable,
    Heading,
    Paragraph,
    Section,
    Space,
    TableBlock,
    Title,
)
from ..phrase import CODE, FINE, STRONG, Bar, Phrase, Span, Words, plain_words
from .text import fitting

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
    """Write all lines, those of a list without empty ones between them."""
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


def _lines(block: Block) -> Iterable[str]:
    """Write one block, after an empty line."""
    return WRITTEN[type(block)](block)


def _paragraph(block: Paragraph) -> Iterable[str]:
    if isinstance(block.words, Phrase) and all(isinstance(each, Bar) for each in block.words.pieces):
        return ()
    return ("", f"- {_marked(block.words, '- ')}" if block.indent else _marked(block.words))


def _marked(words: Words, without: str = "") -> str:
    """A text with the tones that Markdown has, and without such a beginning."""
    pieces = words.pieces if isinstance(words, Phrase) else ()
    if not any(isinstance(each, Span) and each.tone in TONES for each in pieces):
        return escaped(plain_words(words).strip().removeprefix(without))
    return "".join(map(_span, (each for each in pieces if isinstance(each, Span))))


def _span(span: Span) -> str:
    """Blanks at its ends are kept."""
    if span.tone in TONES:
        return TONES[span.tone](span.words)
    bare = span.words.strip()
    return " " * span.words.startswith(" ") + escaped(bare) + " " * (span.words.endswith(" ") and bool(bare))


TONES: Mapping[str, Callable[[str], str]] = {
    CODE: code,
    STRONG: lambda words: f"**{escaped(words)}**",
    FINE: lambda words: f"<sub>{escaped(words)}</sub>",
}


def _section(block: Section) -> Iterator[str]:
    if block.folded:
        yield from ("", f"<details><summary>{escaped(block.title)}</summary>")
    elif block.markdown is None and block.title:
        yield from _lines(Heading(block.title))
    for each in block.text if block.markdown is None else block.markdown:
        yield from _lines(each)
    if block.folded:
        yield from ("", "</details>")


def _caution(block: Caution) -> Iterable[str]:
    where = f" {escaped(block.where)}" if block.where else ""
    return ("", f"**{escaped(block.what)}{where}:** {escaped(block.words)}")


def _fitted(block: FittingTable) -> Iterator[str]:
    columns = fitting(block.columns, WIDEST)
    rows = list(zip(*(column.cells for column in columns), strict=True))
    return _table([column.head for column in columns], rows, [column.right for column in columns])


def _plain_table(block: TableBlock) -> Iterator[str]:
    wide = max(map(len, block.rows), default=0)
    heads = [column.head for column in block.columns] or [""] * wide
    return _table(heads, block.rows, [column.right for column in block.columns] or [False] * wide, block.whole)


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[Words]], right: Sequence[bool], whole: bool = False
) -> Iterator[str]:
    """Write a table, `whole` or with its first rows. Columns of pictures, and all others without a word, are left out.
    `right`: which columns are figures."""
    most, longest = (len(rows), None) if whole else (MOST_ROWS, LONGEST)
    full = [[_cell(cell, longest) for cell in row] + [""] * (len(heads) - len(row)) for row in rows[:most]]
    shown = [place for place in range(len(heads)) if any(row[place] for row in full)]
    if shown:
        yield ""
        yield f"| {' | '.join(escaped(heads[place]) for place in shown)} |"
        yield f"|{'|'.join(' --: ' if right[place] else ' :-- ' for place in shown)}|"
        yield from (f"| {' | '.join(row[place] for place in shown)} |" for row in full)
    yield from _more(len(rows) - most, "rows")


def _cell(words: Words, longest: int | None) -> str:
    """Its lines in one."""
    return "; ".join(escaped(line, longest) for line in plain_words(words).splitlines() if line.strip())


def _more(number: int, what: str) -> Iterator[str]:
    if number > 0:
        yield from ("", f"And {number} more {what if number > 1 else what[:-1]}.")


WRITTEN: Mapping[type[Block], Callable[[Any], Iterable[str]]] = {
    Title: lambda _: (),
    Heading: lambda block: ("", f"**{escaped(block.words)}**"),
    Paragraph: _paragraph,
    Space: lambda _: (),
    TableBlock: _plain_table,
    FittingTable: _fitted,
    CodeChange: lambda block: ("", "```diff", *map(_line, block.lines), "```"),
    Caution: _caution,
    Section: _section,
}
"""Kind of block → its lines."""
