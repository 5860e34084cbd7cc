"""Which lines of code take the last seconds: the verdict's, and beside it those of the workers and of the training.

A line that the verdict names is told once, with the share of the time that the verdict is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...analyse.recent.snapshot import CodeView, Snapshot
from ...analyse.where.places import Where
from ..words.code import short_file
from .devices import LABEL
from .lines import Row, cut, safe
from .options import Options

LEAST_ROOM = 24
"""Cells that a line of code is cut to, at least: beside another it needs as many."""


@dataclass(frozen=True)
class ToldLine:
    """A line as it is told."""

    whose: str
    """`verdict`, `workers` or `training`."""
    share: str
    """Its share with the unit; empty where it has none, as the line on which a loader is made."""
    of: str
    """What the share is of, where there is room to say it."""
    place: str


def code(view: Snapshot, width: int, detail: int, options: Options) -> list[Row]:
    """Detail 0: in a row, as many as have room. 1: a row each."""
    told = lines(view)
    if not told:
        return []
    head, room = Row(" code".ljust(LABEL)), width - LABEL
    if detail:
        rows = [_said(each, room, options, whole=True) for each in told]
        return [(head if not i else Row(" " * LABEL)).join(row) for i, row in enumerate(rows)]
    return [head.join(side_by_side(told, room, options))]


def lines(view: Snapshot) -> tuple[ToldLine, ...]:
    """The verdict's line, and the lines of workers and training that are not the same."""
    where = view.verdict.where[:1] if view.verdict is not None else ()
    named = {(each.file, each.line) for each in where}
    ours = [
        ToldLine("verdict", "" if each.share is None else f"{100 * each.share:.0f} %", each.time, _place(each))
        for each in where
    ]
    rest = [each for each in view.code if (each.file, each.line) not in named]
    return (*ours, *(ToldLine(each.whose, f"{each.share_pct:.0f} %", "", _place(each)) for each in rest))


def side_by_side(told: Sequence[ToldLine], room: int, options: Options) -> Row:
    """As many lines as have room, in a row."""
    gap = f" {options.sign('·', '-')} "
    kept = told[: max(1, (room + len(gap)) // (LEAST_ROOM + len(gap)))]
    each = (room - len(gap) * (len(kept) - 1)) // len(kept)
    found = Row()
    for number, line in enumerate(kept):
        # What the first leaves over is the last one's.
        last = number == len(kept) - 1
        found.add(gap if number else "").join(_said(line, room - found.cells - len(gap) if last else each, options))
    return found.within(room, options.ascii_only)


def _said(line: ToldLine, room: int, options: Options, whole: bool = False) -> Row:
    """`workers 84 % data.py:27 with zipfile.ZipFile(self.path) as archive:`; `whole`: and what the share is of, if that
    fits."""
    share = f"{line.whose} {line.share} ".replace("  ", " ")
    text, of = safe(line.place), f"  {'of ' if line.share else ''}{line.of}" if whole and line.of else ""
    row = Row(share, "bold").add(cut(text, max(0, room - len(share)), options.ascii_only))
    return row.add(of, "dim") if row.cells + len(of) <= room else row


def _place(line: CodeView | Where) -> str:
    place = short_file(line.file).rpartition("/")[2]
    return f"{place}:{line.line} {line.code or line.function}"
