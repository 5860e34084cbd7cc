"""A share of time as a bar of characters: readable without colour, and in ASCII."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from ..analyse.partition import PARTS, UNTOLD

_ALL = (*PARTS, UNTOLD)
_SIGNS = dict(zip(_ALL, "█░▒▓▚·?", strict=True))
_ASCII = dict(zip(_ALL, "#-=%+.?", strict=True))
_COLOURS = dict(zip(_ALL, ("green", "red", "yellow", "magenta", "blue", "cyan", "dim"), strict=True))


def is_ascii(console: Console) -> bool:
    """Whether the output cannot show block characters."""
    return console.encoding.lower().replace("-", "") != "utf8"


def sign(part: str, ascii_only: bool = False) -> str:
    """The character of a part in bars and legends."""
    return (_ASCII if ascii_only else _SIGNS)[part]


def name(part: str) -> str:
    """Of a part, in words."""
    return "not told apart" if part == UNTOLD else part


def stacked(shares: Mapping[str, float], width: int, ascii_only: bool = False) -> Text:
    """The parts (shares 0..1) side by side; every part above half a character shows, the width is exact."""
    cells = {part: shares.get(part, 0.0) * width for part in _ALL}
    whole = {part: int(n) for part, n in cells.items()}
    # Largest remainders first, so that the bar is exactly as wide as asked.
    for part in sorted(_ALL, key=lambda p: cells[p] - whole[p], reverse=True)[: width - sum(whole.values())]:
        whole[part] += 1
    bar = Text()
    for part in _ALL:
        bar.append(sign(part, ascii_only) * whole[part], style=_COLOURS[part])
    return bar


def legend(parts: Mapping[str, float], ascii_only: bool = False) -> Text:
    """Names of the parts that have a share, each behind its sign."""
    line = Text()
    for part in _ALL:
        if parts.get(part, 0.0) >= 0.005:
            line.append(sign(part, ascii_only), style=_COLOURS[part])
            line.append(f" {name(part)}  ")
    return line


def colour(part: str) -> str:
    return _COLOURS[part]


def spark(values: list[float], width: int, ascii_only: bool = False) -> str:
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
