"""A share of time as a bar of characters: readable without colour, and in ASCII."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    cells = {part: shares.get(part, 0.0) * width for part in _ALL}
    whole = {part: int(n) for part, n in cells.items()}
    # Largest remainders first, so that the bar is exactly as wide as asked.
    for part in sorted(_ALL, key=lambda p: cells[p] - whole[p], reverse=True)[: width - sum(whole.values())]:
        whole[part] += 1
    return Text.assemble(*((sign(part, ascii_only) * whole[part], PART_COLOURS[part]) for part in _ALL if whole[part]))


def legend(ascii_only: bool = False) -> Text:
    """Names of the parts, each behind its sign."""
    told = ((sign(part, ascii_only), PART_COLOURS[part], part_name(part)) for part in PARTS)
    return Text.assemble(*(piece for sign, colour, name in told for piece in ((sign, colour), f" {name}  ")))


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


def gauge(share: float, width: int, ascii_only: bool = False) -> tuple[str, str]:
    """A share of 0..1 as the filled and the empty part of a bar; any share above 0 fills a character."""
    filled = min(width, max(round(share * width), int(share > 0)))
    full, empty = ("#", ".") if ascii_only else ("━", "─")
    return full * filled, empty * (width - filled)
