"""What a training stamped of itself, held against where the analysis says its time went.

Stamps are compared with stamps, by which of them lie within which: that holds however long anything took, and
whatever else the machine did meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from whyidle.analyse.intervals import EMPTY, Intervals, clip, intersect, subtract, total, union, union_of
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.stall_breakdown import PARTS

Stamps = dict[str, Intervals]
"""Part of a step (`PARTS`, or any other name) → when the training was at it, in ns."""
TOLD = ("compute", "input", "host", "boundary")
"""Parts that trainings stamp."""
OUTSIDE = "outside"
"""A stretch in which all that is stamped is a boundary, whatever it is called; its rims are nothing that was."""


def stamps(spans: Iterable[tuple[str, int, int]]) -> Stamps:
    """Of (what, begin, end)."""
    found: dict[str, list[tuple[int, int]]] = {}
    for what, begin, end in spans:
        found.setdefault(what, []).append((begin, end))
    united = {what: union(*np.array(each, dtype=np.int64).T) for what, each in found.items()}
    outside = united.pop(OUTSIDE, EMPTY)
    inside = {what: subtract(each, outside) for what, each in united.items()}
    for each in united.values():
        inside["boundary"] = union_of(inside.get("boundary", EMPTY), intersect(each, outside))
    return inside


def written(folder: Path) -> Stamps:
    """What `programs/planted.py` wrote there."""
    lines = [line.split() for file in folder.iterdir() for line in file.read_text().splitlines()]
    return stamps((what, int(begin), int(end)) for what, begin, end in lines)


def assert_told_apart(facts: Facts, spans: Stamps, parts: Iterable[str] = TOLD) -> None:
    """In the recording's window each of the parts holds all that the training stamped as such, and nothing that it
    stamped as another; what it stamped as none may be anybody's. All parts make up the window to the nanosecond."""
    window, found = facts.window, facts.parts
    for part in parts:
        for other in TOLD:
            own = clip(spans.get(other, EMPTY), window.begin_ns, window.end_ns)
            wrong = subtract(own, found.when[part]) if other == part else intersect(own, found.when[part])
            what = f"not taken for {part}" if other == part else f"{other} taken for {part}"
            assert not len(wrong), (what, total(wrong), total(own), wrong - window.begin_ns)
    assert sum(getattr(found, f"{part}_ns") for part in PARTS) == found.wall_ns == window.wall_ns
