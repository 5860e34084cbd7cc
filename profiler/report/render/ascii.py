"""Our own signs in ASCII, for an output that has no more."""

from __future__ import annotations

_ASCII = str.maketrans(
    {"µ": "u", "±": "+-", "→": "->", "▲": "^", "…": "...", "–": "-", "−": "-", "×": "x", "✓": "+", "✗": "x", "·": "-"}
)


def written(words: str, ascii_only: bool) -> str:
    """Words in the signs that the output has."""
    return words.translate(_ASCII) if ascii_only else words
