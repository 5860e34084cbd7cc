"""Words in a row with their tones, and the small pictures between them: what the blocks of a document hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .words.figures import part_name, share

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
