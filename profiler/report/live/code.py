"""Which line of code takes most of the last seconds: of the workers, and of the training."""

from __future__ import annotations

from ...analyse.recent.snapshot import CodeView, Snapshot
from ..words.code import short_file
from .devices import LABEL
from .lines import Row, cut, safe
from .options import Options

LEAST_ROOM = 24
"""Cells that a line of code is cut to, at least: beside another it needs as many."""


def code(view: Snapshot, width: int, detail: int, options: Options) -> list[Row]:
    """Detail 0: both in a row, where there is room for them. 1: a row each."""
    if not view.code:
        return []
    head, room = Row(" code".ljust(LABEL)), width - LABEL
    if detail:
        rows = [_said(each, room, options) for each in view.code]
        return [(head if not i else Row(" " * LABEL)).join(row) for i, row in enumerate(rows)]
    return [head.join(side_by_side(view.code, room, options))]


def side_by_side(lines: tuple[CodeView, ...], room: int, options: Options) -> Row:
    """As many lines as have room, in a row."""
    gap = f" {options.sign('·', '-')} "
    kept = lines[: max(1, (room + len(gap)) // (LEAST_ROOM + len(gap)))]
    each = (room - len(gap) * (len(kept) - 1)) // len(kept)
    found = Row()
    for number, line in enumerate(kept):
        # What the first leaves over is the last one's.
        last = number == len(kept) - 1
        found.add(gap if number else "").join(_said(line, room - found.cells - len(gap) if last else each, options))
    return found.within(room, options.ascii_only)


def _said(line: CodeView, room: int, options: Options) -> Row:
    """`workers 84 % data.py:27 with zipfile.ZipFile(self.path) as archive:`"""
    share = f"{line.whose} {line.share_pct:.0f} % "
    place = short_file(line.file).rpartition("/")[2]
    text = f"{place}:{line.line} {line.code or line.function}"
    return Row(share, "bold").add(cut(safe(text), max(0, room - len(share)), options.ascii_only))
