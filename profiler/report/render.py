"""Documents in the forms that they are read in: text for a terminal, parts of a page, Markdown as GitHub renders it.

Text has a terminal's width, colours and signs; in a table that fits its width what matters least goes first, and is
never cut. A page's templates lay out its parts: the words of the text, without its signs for bars. Markdown, for a pull
request, has all blocks in their order, without pictures; long ones are cut, and say how much more there is.

What was recorded (commands, paths, titles) is text in each of them, never markup: no link, no
mention, no HTML comes of it, and nothing acts on a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..record.files import one_line, plain
from . import bars
from .document import (
    Bar,
    Block,
    Caution,
    CodeChange,
    Document,
    Heading,
    Length,
    Limits,
    Paragraph,
    PartSign,
    Space,
    Span,
    Sweep,
    TableBlock,
    TableColumn,
    Title,
    Tone,
    Words,
    line,
    plain_words,
    sweep_blocks,
    toned,
)
from .words.figures import PART_COLOURS
from .words.sample_time import sentence

_ASCII = str.maketrans("µ▲–−×✓✗·⚠", "u^--x+x-!", "°") | {ord("±"): "+-", ord("→"): "->", ord("…"): "..."}


def written(words: str, ascii_only: bool) -> str:
    """Write words in the signs that the output has."""
    return words.translate(_ASCII) if ascii_only else words


def text_of(words: Words, ascii_only: bool = False, shown: Callable[[str], str] = one_line) -> Text:
    """Write words with their tones and signs, as rich prints and measures them. `shown`: what is shown of words that
    somebody may have recorded; in one line, unless they stand in a cell of a table."""
    whole = Text()
    for piece in (Span(words),) if isinstance(words, str) else words.pieces:
        if isinstance(piece, Bar):
            whole.append_text(bars.stacked(piece.shares, piece.width, ascii_only))
        elif isinstance(piece, Length):
            whole.append_text(Text(("#" if ascii_only else "█") * piece.signs))
        elif isinstance(piece, PartSign):
            whole.append_text(Text(bars.sign(piece.part, ascii_only), style=PART_COLOURS[piece.part]))
        else:
            whole.append_text(Text(written(shown(piece.words), ascii_only), style=piece.tone))
    return whole


# Text.

INDENT = 2
"""Blanks of one step to the right."""
BETWEEN = 2
"""Blanks between two columns of a table that fits."""
LEAST_OUTCOME = 5
"""Signs of the column that says which limits are kept."""
DIFF_TONES: Mapping[str, Tone] = {"-": "red", "+": "green"}
"""Tone of a line of a diff, by its first sign."""


def print_document(document: Document, console: Console, full: bool = True) -> None:
    """Print it, all or the short version."""
    ascii_only = bars.is_ascii(console)
    for block in document.blocks if full else document.brief or document.blocks:
        for each in renderables(block, console.width, ascii_only):
            console.print(each, soft_wrap=getattr(block, "one_line", False))


def renderables(block: Block, width: int, ascii_only: bool) -> Iterable[RenderableType]:
    """Make what is printed of a block on so many columns."""
    return FORMS[type(block)].text(block, width, ascii_only)


def _headed(block: Title | Heading, _: int, ascii_only: bool) -> Iterator[RenderableType]:
    heading = text_of(block.words, ascii_only)
    heading.style = "bold"
    yield heading


def _indented(what: RenderableType, steps: int = 1) -> RenderableType:
    return Padding(what, (0, 0, 0, INDENT * steps)) if steps else what


def _text_table(block: TableBlock, width: int, ascii_only: bool) -> Iterator[RenderableType]:
    columns = fitting(block, width - INDENT * block.indent)
    headed = any(column.head for column in columns)
    made = Table(
        box=None, padding=(0, block.gap, 0, 0), pad_edge=False, show_header=headed, header_style=block.head_tone
    )
    for column in columns:
        made.add_column(
            written(plain(column.head), ascii_only),
            justify="right" if column.right else "left",
            no_wrap=column.folds_to is None if block.fits else not column.wraps,
            overflow="fold" if block.fits or column.folds else "ellipsis",
            min_width=_least(column) if block.fits else column.least,
            max_width=column.most,
            style=column.tone,
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        made.add_row(*(text_of(cell, ascii_only, plain) for cell in row))
    yield _indented(made, block.indent)
    if any(column.head == block.legend_of for column in columns):
        yield bars.legend(ascii_only)


def _text_limits(block: Limits, _: int, ascii_only: bool) -> Iterator[RenderableType]:
    wide = max((LEAST_OUTCOME, *(len(row.outcome) for row in block.rows)))
    width = max((len(row.what) for row in block.rows), default=0)
    for row in block.rows:
        said = f"{row.measured}, {row.wanted}{f'  ({row.note})' if row.note else ''}"
        yield text_of(line((f"{row.outcome:{wide}}", row.tone), f" {row.what:{width}}  {said}"), ascii_only)


def _least(column: TableColumn) -> int:
    """Count the letters it takes at least. A bar takes the room of its signs."""
    texts = (column.head, *(text_of(cell).plain for cell in column.cells))
    widest = max(cell_len(line) for each in texts for line in each.splitlines() or [""])
    if column.folds_to is None:
        return widest
    longest_word = max((cell_len(word) for each in texts for word in each.split()), default=0)
    return min(widest, max(column.folds_to, longest_word))


def fitting(block: TableBlock, width: int) -> list[TableColumn]:
    """Choose the columns that fit, in their order: all of a table whose columns do not go. What
    stays whatever the room is may be too wide all the same."""
    kept = [column for column in block.columns if column.cells or not block.fits]
    while block.fits and kept and sum(map(_least, kept)) + BETWEEN * (len(kept) - 1) > width:
        place = max(range(len(kept)), key=lambda number: kept[number].goes)
        first = kept[place]
        if first.goes == 0:
            break
        kept[place : place + 1] = [first.instead] if first.instead is not None else []
    return kept


# Parts of a page.


class PagePart(NamedTuple):
    """What a macro of the templates shows."""

    kind: str
    """`heading`, `paragraph`, `code` or `rows`."""
    words: str = ""
    """Of a heading, a paragraph or code."""
    head: tuple[str, ...] = ()
    """Heads of the columns; empty where there are none."""
    rows: tuple[tuple[str, ...], ...] = ()
    right: tuple[bool, ...] = ()
    """For each column whether it is figures."""


class PageSection(NamedTuple):
    """A card of a page."""

    title: str
    """Empty of what stands before the first heading."""
    blocks: tuple[PagePart, ...]


def page_sections(blocks: Iterable[Block]) -> list[PageSection]:
    """Cut parts at their headings: each is a card of a page. Sections that hold nothing are left out."""
    cards: list[tuple[str, list[PagePart]]] = [("", [])]
    for part in page_parts(blocks):
        if part.kind == "heading":
            cards.append((part.words, []))
        else:
            cards[-1][1].append(part)
    return [PageSection(title, tuple(within)) for title, within in cards if title or within]


def page_parts(blocks: Iterable[Block]) -> list[PagePart]:
    """Turn blocks into what the templates' macros take. Titles and cautions are drawn by the page itself."""
    return [part for block in blocks for part in FORMS[type(block)].page(block)]


def _page_words(words: Words) -> str:
    return text_of(words, shown=plain).plain.strip()


def _page_table(block: TableBlock) -> Iterator[PagePart]:
    columns = [column for column in block.columns if column.cells]
    heads = tuple(column.head.strip() for column in columns)
    rows = tuple(zip(*(map(_page_words, column.cells) for column in columns), strict=True))
    if rows:
        yield PagePart("rows", "", heads if any(heads) else (), rows, tuple(column.right for column in columns))


# Markdown.

MOST_ROWS = 30
MOST_PARAGRAPHS = 16
"""In a row."""
WIDEST = 120
"""Signs that a row of a table may take, as a terminal has so many; where it takes more, columns go as they go there."""
LONGEST = 1000
"""Characters of one text."""
_MARKUP = re.compile(r"[\\`*_{}\[\]|~$]|^[-+](?=\s|$)|(?<=^\d)[.)](?=\s)|(?<=^\d\d)[.)](?=\s)")
_QUOTED = re.compile("`([^`|]+)`")
"""Code within a text. A `|` in it would end a cell of a table."""
_LINKED = re.compile(r"#|@|\bGH-(?=\d)|:(?=//)", re.IGNORECASE)
"""Signs after which GitHub makes a link of an issue, a person or an address, also where they are escaped."""


def markdown(document: Document) -> str:
    """Write the short version, and below it, folded, all of it."""
    lines = [f"### whyidle: {escaped(document.title)}", *_together(document.brief or document.blocks)]
    if document.brief:
        lines += ["", "<details><summary>All of it</summary>", *_together(document.blocks), "", "</details>"]
    return "\n".join(lines) + "\n"


def escaped(value: object, longest: int | None = LONGEST) -> str:
    """Write a text as text: one line, with nothing in it that Markdown, HTML or GitHub acts on, and
    what stands between backquotes as code; cut where it is longer."""
    said = ""
    for place, text in enumerate(_QUOTED.split(_line(value, longest))):
        plainly = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        # The last, since the reference of a character has such a sign.
        plainly = _LINKED.sub(r"\g<0>&#8203;", _MARKUP.sub(r"\\\g<0>", plainly)).replace("www.", "www&#46;")
        said += code(text) if place % 2 else plainly
    return said


def code(value: object) -> str:
    """Write a text as code, outside of tables."""
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
        lines = [row for each in (shown[:MOST_PARAGRAPHS] if more > 0 else shown) for row in FORMS[kind].markdown(each)]
        for row in (*lines, *_more(more, "paragraphs")):
            if _is_item(row) and together[-2:-1] and _is_item(together[-2]) and not together[-1]:
                together.pop()
            together.append(row)
    return together


def _is_item(line: str) -> bool:
    return line.lstrip().startswith("- ")


def _paragraph(block: Paragraph) -> Iterator[str]:
    """Write a paragraph, or an item of a list below what it belongs to."""
    pieces = (Span(block.words),) if isinstance(block.words, str) else block.words.pieces
    if not all(isinstance(each, Bar) for each in pieces):
        said = "".join(_span(each) for each in pieces if isinstance(each, Span | Bar)).strip()
        # What begins with a dash is an item of a list already.
        item = f"{'  ' * (block.indent - 1)}- " + said.removeprefix("\\- ")
        yield from ("", item if block.indent else said)


def _span(piece: Span | Bar) -> str:
    """Write words of one tone; a blank at their ends is kept."""
    said = piece.words.strip()
    written = escaped(said)
    if isinstance(piece, Span) and said:
        written = code(said) if piece.code else f"**{written}**" if piece.tone.startswith("bold") else written
    return " " * piece.words[:1].isspace() + written + " " * (piece.words[-1:].isspace() and bool(said))


def _markdown_table(block: TableBlock, whole: bool = False) -> Iterator[str]:
    """Write a table, whole or with its first rows. Columns of pictures, and all others without a word, are left out."""
    columns = fitting(block, WIDEST)
    rows = max((len(column.cells) for column in columns), default=0)
    most, longest = (rows, None) if whole else (MOST_ROWS, LONGEST)
    texts = [(column, [_cell(cell, longest) for cell in column.cells[:most]]) for column in columns]
    if shown := [(column, cells) for column, cells in texts if any(cells)]:
        yield ""
        yield f"| {' | '.join(escaped(column.head) for column, _ in shown)} |"
        yield f"|{'|'.join(' --: ' if column.right else ' :-- ' for column, _ in shown)}|"
        yield from (f"| {' | '.join(row)} |" for row in zip(*(cells for _, cells in shown), strict=True))
    yield from _more(rows - most, "rows")


def _cell(words: Words, longest: int | None) -> str:
    """Its lines in one."""
    return "; ".join(escaped(line, longest) for line in plain_words(words).splitlines() if line.strip())


def _more(number: int, what: str) -> Iterator[str]:
    if number > 0:
        yield from ("", f"And {number} more {what if number > 1 else what[:-1]}.")


class Form(NamedTuple):
    """How a kind of block is shown."""

    text: Callable[[Any, int, bool], Iterable[RenderableType]]
    """On so many columns, in ASCII or not."""
    page: Callable[[Any], Iterable[PagePart]]
    markdown: Callable[[Any], Iterable[str]]
    """After an empty line."""


def _nothing(*_: Any) -> tuple[()]:
    return ()


FORMS: Mapping[type[Block], Form] = {
    Title: Form(_headed, _nothing, _nothing),
    Heading: Form(
        _headed,
        lambda block: [PagePart("heading", block.words.strip())],
        lambda block: ("", f"**{escaped(block.words)}**"),
    ),
    Paragraph: Form(
        lambda block, _, ascii_only: [_indented(text_of(block.words, ascii_only), block.indent)],
        lambda block: [PagePart("paragraph", words)] if (words := _page_words(block.words)) else [],
        _paragraph,
    ),
    Space: Form(lambda *_: [Text()], _nothing, _nothing),
    TableBlock: Form(_text_table, _page_table, _markdown_table),
    CodeChange: Form(
        lambda block, _, ascii_only: [
            _indented(text_of(toned(words, DIFF_TONES.get(words[:1], "")), ascii_only)) for words in block.lines
        ],
        lambda block: [PagePart("code", "\n".join(block.lines))],
        lambda block: ("", "```diff", *map(_line, block.lines), "```"),
    ),
    Caution: Form(
        lambda block, _, ascii_only: [] if block.quiet else [text_of(toned(block.said, "bold yellow"), ascii_only)],
        _nothing,
        lambda block: ("", f"**{escaped(' '.join((block.what, block.where)).strip())}:** {escaped(block.words)}"),
    ),
    Limits: Form(
        _text_limits,
        lambda block: _page_table(block.as_table()),
        # What there is to do may stand at the end of the rows, or of their words.
        lambda block: _markdown_table(block.as_table(), whole=True),
    ),
    Sweep: Form(
        lambda block, width, ascii_only: [
            each for part in sweep_blocks(block) for each in renderables(part, width, ascii_only)
        ],
        lambda block: page_parts(sweep_blocks(block)),
        lambda block: _paragraph(
            Paragraph(line(f"{block.name}: {sentence(block.verdict)}", Span(block.verdict.cause, code=True)), 1)
        ),
    ),
}
"""Kind of block → its forms."""
