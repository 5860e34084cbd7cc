"""Words of a document with their tones and signs, as rich prints and measures them.

Our own signs in ASCII, for an output that has no more.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from ...record.files import one_line
from ..phrase import Bar, Inline, Length, PartSign, Span, Words
from . import bars

_ASCII = str.maketrans(
    {"µ": "u", "±": "+-", "→": "->", "▲": "^", "…": "...", "–": "-", "−": "-", "×": "x", "✓": "+", "✗": "x", "·": "-"}
)


def written(words: str, ascii_only: bool) -> str:
    """Words in the signs that the output has."""
    return words.translate(_ASCII) if ascii_only else words


def text_of(words: Words, ascii_only: bool = False, shown: Callable[[str], str] = one_line) -> Text:
    """Words with their tones and signs. `shown`: what is shown of words that somebody may have recorded; in one line,
    unless they stand in a cell of a table."""
    whole = Text()
    for piece in (Span(words),) if isinstance(words, str) else words.pieces:
        whole.append_text(_piece(piece, ascii_only, shown))
    return whole


def _piece(piece: Inline, ascii_only: bool, shown: Callable[[str], str]) -> Text:
    if isinstance(piece, Bar):
        return bars.stacked(piece.shares, piece.width, ascii_only)
    if isinstance(piece, Length):
        return Text(("#" if ascii_only else "█") * piece.signs)
    if isinstance(piece, PartSign):
        return Text(bars.sign(piece.part, ascii_only), style=bars.colour(piece.part))
    return Text(written(shown(piece.words), ascii_only), style=piece.tone)
