"""Figures and states in words, for all live views.

Rows of a screen in pieces of one style each: built many times a second, so plainer than rich's texts. How the live
view is to be drawn, as far as the run does not say.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ...analyse.recent.snapshot import Snapshot
from ...record.files import plain
from ..words.figures import NOT_MEASURED as NOT_MEASURED

WORKER_ORDERS = ("number", "busy", "ms a batch", "quiet")
RANK_ORDERS = ("rank", "samples/s", "input")
LISTS = ("ranks", "devices", "workers")
"""Lists that the arrows can move in."""


@dataclass(frozen=True)
class Options:
    ascii_only: bool = False
    paused: bool = False
    keys: bool = False
    """Whether keys are read: then the last row names them."""
    help: bool = False
    focus: str = ""
    """The list that the arrows move in; empty: none."""
    chosen: int = 0
    """Which of its entries, by their order on the screen."""
    order: int = 0
    """Sort order of the list in focus (or of the workers), a number into its orders."""
    reverse: bool = False
    note: str = ""
    """Words beside the state: that the run ended and the next is awaited."""

    def sign(self, drawn: str, ascii_sign: str) -> str:
        return ascii_sign if self.ascii_only else drawn

    def order_of(self, names: tuple[str, ...]) -> int:
        return self.order % len(names)


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


NO_STEPS = "no training step was recorded"
NO_GPU = "no NVIDIA GPU found (`whyidle doctor` says why)"
"""Shown once the sampler has reported the machine: by then it has looked for GPUs."""
_ENDS = {
    "ok": "ended well",
    "oom": "out of memory",
    "failed": "failed",
    "stopped": "stopped",
    "lost": "lost: its process is gone",
}


def line(view: Snapshot) -> str:
    """The run in one plain line, for an output that is not a terminal."""
    return f"{safe(view.title)}: {state(view)}{', stand-in data' if view.stand_in else ''}"


def state(view: Snapshot) -> str:
    """How far a recording is, in a line."""
    if view.state == "watching":
        return "; ".join(
            f"{safe(each.name)} busy {percent(last(each.busy_pct))}, memory {percent(last(each.memory_pct))}"
            for each in view.devices
        ) or (NO_GPU if view.host.machine_busy_pct is not None else "no accelerator seen yet")
    if view.state == "starting":
        return "no training step yet"
    if not view.steps and view.state != "running":
        return f"{ending(view)}, {NO_STEPS}"
    parts = [safe(view.state), f"step {view.steps}" + (f"/{view.planned_steps}" if view.planned_steps else "")]
    if view.device:
        parts.append(f"on {safe(view.device)}")
    if view.samples_per_s is not None:
        of = f" on rank {view.rank} of {view.ranks}" if view.ranks > 1 else ""
        parts.append(f"{view.samples_per_s:.1f} samples/s{of}")
    if view.shares:
        busy = view.shares.get("compute")
        parts.append(f"device busy {NOT_MEASURED if busy is None else f'{100 * busy:.0f} %'}")
    if view.left_s is not None:
        parts.append(f"{duration(view.left_s)} left")
    return ", ".join(parts)


def ending(view: Snapshot) -> str:
    """A state, in words."""
    return _ENDS.get(view.state, safe(view.state))


def duration(seconds: float) -> str:
    """`42 s`, `3:07 min`, `2:05 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def percent(value: float | None) -> str:
    return NOT_MEASURED if value is None or value != value else f"{value:.0f} %"


def last(series: tuple[float, ...]) -> float | None:
    """The newest value; `None` where it was not measured."""
    return series[-1] if series and series[-1] == series[-1] else None


def size(count: float | None) -> str:
    """Bytes: `812 kB`, `3.2 GB`."""
    if count is None or count != count:
        return NOT_MEASURED
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= 0.9995 * factor:
            value = count / factor
            return f"{value:.1f} {unit}" if value < 99.95 else f"{value:.0f} {unit}"
    return f"{count / 1e3:.0f} kB"


def of(used: float, total: float) -> str:
    """`12.1 of 80.0 GB`: both in the unit of the whole."""
    unit, factor = next(((u, f) for u, f in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)) if total >= f), ("kB", 1e3))
    return f"{used / factor:.1f} of {total / factor:.1f} {unit}"


def rate(count: float | None) -> str:
    """Bytes a second."""
    return NOT_MEASURED if count is None or count != count else f"{size(count)}/s"


def number(value: float) -> str:
    """Samples/s with three figures or more: `3.42`, `34.2`, `342`, `12 342`."""
    if value >= 10_000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def milliseconds(value: float) -> str:
    """`0.42 ms`, `38.1 ms`, `1.20 s`."""
    if value >= 999.5:
        return f"{value / 1e3:.2f} s"
    return f"{value:.2f} ms" if value < 1 else f"{value:.1f} ms" if value < 99.95 else f"{value:.0f} ms"
