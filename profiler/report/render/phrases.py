"""Words of a document with their tones and signs, as rich prints and measures them."""

from __future__ import annotations

from rich.text import Text

from ..phrase import Bar, Inline, Length, PartSign, Spark, Words
from . import bars
from .ascii import written


def text_of(words: Words, ascii_only: bool = False) -> Text:
    """Words with their tones and signs."""
    if isinstance(words, str):
        return Text(written(words, ascii_only))
    if len(words.pieces) == 1:
        return _piece(words.pieces[0], ascii_only)
    whole = Text()
    for piece in words.pieces:
        whole.append_text(_piece(piece, ascii_only))
    return whole


def _piece(piece: Inline, ascii_only: bool) -> Text:
    if isinstance(piece, Bar):
        return bars.stacked(piece.shares, piece.width, ascii_only)
    if isinstance(piece, Length):
        return Text(("#" if ascii_only else "█") * piece.signs)
    if isinstance(piece, Spark):
        return Text(bars.spark(piece.values, piece.width, ascii_only))
    if isinstance(piece, PartSign):
        return Text(bars.sign(piece.part, ascii_only), style=bars.colour(piece.part))
    return Text(written(piece.words, ascii_only), style=piece.tone)
