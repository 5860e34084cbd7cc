"""Rows of a screen in pieces of one style each: built many times a second, so plainer than rich's texts."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from functools import lru_cache
from typing import Self

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ...record.files import plain

_CODES = {
    "bold": "1",
    "dim": "2",
    "reverse": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_WITHOUT_COLOUR = ("bold", "dim", "reverse")
_UNIT = re.compile(r"(?<=\d) (?=\S)")
"""Between a figure and its unit, where no row may end."""


class Row:
    """A row: pieces of text with a style each (`bold red`, as rich writes it), and how many cells they take."""

    __slots__ = ("cells", "pieces")

    def __init__(self, text: str = "", style: str = "") -> None:
        self.pieces: list[tuple[str, str]] = []
        self.cells = 0
        if text:
            self.add(text, style)

    def add(self, text: str, style: str = "") -> Self:
        self.pieces.append((text, style))
        self.cells += len(text) if text.isascii() else cell_len(text)
        return self

    def join(self, other: Row) -> Self:
        self.pieces += other.pieces
        self.cells += other.cells
        return self

    def to(self, column: int) -> Self:
        """Blanks up to a column."""
        return self.add(" " * (column - self.cells)) if column > self.cells else self

    def within(self, width: int, ascii_only: bool) -> Row:
        """This line, or where it is too long what fits of it."""
        return self if self.cells <= width else Row(cut(self.plain, width, ascii_only))

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.pieces)

    def text(self) -> Text:
        """For rich."""
        return Text.assemble(*self.pieces, no_wrap=True, overflow="crop")

    def ansi(self, colour: bool) -> str:
        """With the terminal's codes; without colour, weights alone."""
        coded = ((_code(style, colour), text) for text, style in self.pieces)
        return "".join(f"{code}{text}\x1b[0m" if code else text for code, text in coded)


@lru_cache(maxsize=256)
def _code(style: str, colour: bool) -> str:
    codes = [_CODES[word] for word in style.split() if colour or word in _WITHOUT_COLOUR]
    return f"\x1b[{';'.join(codes)}m" if codes else ""


def safe(text: str) -> str:
    """What a run says of itself, in one row and without control characters."""
    return str(plain(" ".join(text.split()))) if not text.isprintable() else text


def cut(text: str, width: int, ascii_only: bool = False) -> str:
    """At most so many cells; what was cut is marked. For names, never for figures."""
    if cell_len(text) <= width:
        return text
    mark = "..." if ascii_only else "…"
    return set_cell_size(text, max(0, width - len(mark))).rstrip() + mark if width > len(mark) else ""


def flow(items: Iterable[Row], width: int, gap: str = "  ", rows: int | None = None) -> list[Row]:
    """Items side by side, as many rows as they need; whole items only. With `rows`, what does not fit is left out."""
    found: list[Row] = []
    for item in items:
        if found and found[-1].cells + len(gap) + item.cells <= width:
            found[-1].add(gap).join(item)
        elif rows is None or len(found) < rows:
            found.append(Row().join(item))
    return found


@lru_cache(maxsize=64)
def wrapped(text: str, width: int) -> tuple[str, ...]:
    """The words of a sentence in rows of at most so many cells."""
    text = safe(text)
    wide = cell_len(text) > len(text)
    bound = _UNIT.sub("\u00a0", text)
    rows = textwrap.wrap(bound, max(1, width // 2 if wide else width), break_on_hyphens=False)
    return tuple(row.replace("\u00a0", " ") for row in rows)
