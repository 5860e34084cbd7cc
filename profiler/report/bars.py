"""A share of time as a bar of characters: readable without colour, and in ASCII."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from rich.console import Console
from rich.text import Text

from ..analyse.run.stall_breakdown import PARTS, UNTOLD
from .words.figures import PART_COLOURS, part_name

_ALL = (*PARTS, UNTOLD)
_SIGNS = dict(zip(_ALL, "█░▒▓▚·?", strict=True))
_ASCII = dict(zip(_ALL, "#-=%+.?", strict=True))


def is_ascii(console: Console) -> bool:
    """Whether the output cannot show block characters."""
    return console.encoding.lower().replace("-", "") != "utf8"


def sign(part: str, ascii_only: bool = False) -> str:
    """The character of a part in bars and legends."""
    return (_ASCII if ascii_only else _SIGNS)[part]


def stacked(shares: Mapping[str, float], width: int, ascii_only: bool = False) -> Text:
    """The parts (shares 0..1) side by side; every part above half a character shows, the width is exact."""
    return Text.assemble(*pieces(shares, width, ascii_only))


def pieces(shares: Mapping[str, float], width: int, ascii_only: bool = False) -> list[tuple[str, str]]:
    """The same as texts with a style each."""
    cells = {part: shares.get(part, 0.0) * width for part in _ALL}
    whole = {part: int(n) for part, n in cells.items()}
    # Largest remainders first, so that the bar is exactly as wide as asked.
    for part in sorted(_ALL, key=lambda p: cells[p] - whole[p], reverse=True)[: width - sum(whole.values())]:
        whole[part] += 1
    return [(sign(part, ascii_only) * whole[part], PART_COLOURS[part]) for part in _ALL if whole[part]]


def legend(parts: Mapping[str, float], ascii_only: bool = False) -> Text:
    """Names of the parts that have a share, each behind its sign."""
    line = Text()
    for part in _ALL:
        if parts.get(part, 0.0) >= 0.005:
            line.append(sign(part, ascii_only), style=PART_COLOURS[part])
            line.append(f" {part_name(part)}  ")
    return line


def colour(part: str) -> str:
    return PART_COLOURS[part]


def spark(values: Sequence[float], width: int, ascii_only: bool = False) -> str:
    """The last `width` values of 0..100 as a row of characters; a blank for each not measured."""
    levels = " .:-=+*#%@" if ascii_only else " ▁▂▃▄▅▆▇█"
    row = ""
    for value in values[-width:]:
        if value != value:
            row += " "
            continue
        step = round(min(max(value, 0.0), 100.0) / 100 * (len(levels) - 1))
        # A measured zero shows a base line; only what was not measured is blank.
        row += ("_" if ascii_only else "▁") if step == 0 else levels[step]
    return row.rjust(width)


@lru_cache(maxsize=128)
def graph(values: tuple[float, ...], width: int, rows: int, ascii_only: bool = False) -> tuple[str, ...]:
    """The last values of 0..100 as an area over `rows` rows, highest first; blank where nothing was measured.

    Braille holds two values in a character, four levels in a row. What was drawn is kept: histories change once a
    second, and are drawn more often.
    """
    if ascii_only:
        return tuple(_band(values[-width:], width, rows, row) for row in range(rows))
    top = 4 * rows
    scale = top / 100
    late = values[-2 * width :]
    # A measured zero shows a base line.
    known = [0 if v != v else top if v >= 100 else (int(v * scale + 0.5) if v > 0 else 0) or 1 for v in late]
    heights = bytes(2 * width - len(late)) + bytes(known)
    bands = []
    for base in range(top - 4, -1, -4):
        dots = heights.translate(bytes(min(4, max(0, height - base)) for height in range(256)))
        bands.append("".join([_BRAILLE[5 * left + right] for left, right in zip(dots[::2], dots[1::2], strict=True)]))
    return tuple(bands)


def gauge(share: float, width: int, ascii_only: bool = False) -> tuple[str, str]:
    """A share of 0..1 as the filled and the empty part of a bar; any share above 0 fills a character."""
    filled = min(width, max(round(share * width), int(share > 0)))
    full, empty = ("#", ".") if ascii_only else ("━", "─")
    return full * filled, empty * (width - filled)


_LEFT = (0, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0, 0x80, 0xA0, 0xB0, 0xB8)
_BRAILLE = [chr(0x2800 + left + right) if left + right else " " for left in _LEFT for right in _RIGHT]
"""By height on the left times five, and height on the right."""


def _band(values: Sequence[float], width: int, rows: int, row: int) -> str:
    """A row of a graph in ASCII; only the lowest shows a base line."""
    levels = " .:-=+*#%@"
    signs = ""
    for value in values:
        within = rows * value - 100 * (rows - 1 - row)
        step = 0 if value != value else round(min(max(within, 0.0), 100.0) / 100 * (len(levels) - 1))
        signs += "_" if step == 0 and row == rows - 1 and value == value else levels[step]
    return signs.rjust(width)
