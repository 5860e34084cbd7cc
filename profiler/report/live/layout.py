"""Puts the live view together: as much detail as the height has room for, the essentials first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...analyse.recent.snapshot import Snapshot
from .code import code
from .devices import devices
from .header import header
from .host import host
from .keys import footer, help_screen
from .lines import Row, cut
from .makers import makers
from .options import LISTS, Options
from .ranks import ranks
from .step import step
from .verdict import verdict
from .words import line as in_words

LEAST_WIDTH, LEAST_HEIGHT = 40, 8

_ORDER = ("header", "ranks", "devices", "step", "workers", "host", "code", "verdict")
_UPGRADES = (
    ("verdict", 1),
    ("devices", 1),
    ("ranks", 1),
    ("workers", 1),
    ("header", 1),
    ("code", 1),
    ("host", 1),
    ("workers", 2),
    ("devices", 2),
    ("step", 1),
    ("blank", 1),
    ("verdict", 2),
    ("devices", 3),
    ("host", 2),
    ("devices", 4),
    ("devices", 5),
)
"""What more room is used for, in this order; a level that does not fit is passed over."""
_GIVEN_UP = ("host", "workers", "code", "devices", "ranks")
"""What is left out first where not even the essentials fit."""
LEAST_WINDOW = 4
"""Rows that a list of which not all fits must have to be shown as one."""

Build = Callable[[int, int | None], list[Row]]
"""The rows of a section at a level of detail, in at most so many rows where it is a list."""


def screen(view: Snapshot, width: int, height: int, options: Options) -> list[Row]:
    """At most `height` rows of at most `width` cells."""
    if options.help:
        return help_screen(width, height, options)
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        needs = f"too small: {width}{options.sign('×', 'x')}{height}, needs {LEAST_WIDTH}{options.sign('×', 'x')}8"
        said = [Row(cut(in_words(view), width, options.ascii_only)), Row(cut(needs, width), "dim")]
        return said[: max(1, height)]
    bottom = footer(width, options)
    focused = _focused(view, options)
    rows = _fitted(_sections(view, width, focused), height - len(bottom), focused.focus)
    rows += [Row() for _ in range(height - len(bottom) - len(rows) if bottom else 0)]
    return [row.within(width, options.ascii_only) for row in rows + bottom]


def lists(view: Snapshot) -> tuple[str, ...]:
    """Those of `LISTS` that have more than one entry."""
    counts = (len(view.rank_views), len(view.devices), len(view.makers))
    return tuple(name for name, count in zip(LISTS, counts, strict=True) if count > 1)


def _focused(view: Snapshot, options: Options) -> Options:
    known = lists(view)
    return options if options.focus in known or not options.focus else replace(options, focus="", chosen=0)


def _sections(view: Snapshot, width: int, options: Options) -> dict[str, Build]:
    return {
        "header": lambda detail, _: header(view, width, detail, options),
        "ranks": lambda detail, rows: ranks(view, width, detail, options, rows),
        "devices": lambda detail, rows: devices(view, width, detail, options, rows),
        "step": lambda detail, _: [] if view.state == "watching" else step(view, width, detail, options),
        "workers": lambda detail, rows: makers(view, width, detail, options, rows),
        "host": lambda detail, _: host(view, width, detail, options),
        "code": lambda detail, _: code(view, width, detail, options),
        "verdict": lambda detail, _: verdict(view, width, detail, options),
    }


def _fitted(sections: dict[str, Build], height: int, focus: str) -> list[Row]:
    drawn = {name: build(0, None) for name, build in sections.items()}
    detail = dict.fromkeys(sections, 0)
    left = height - sum(map(len, drawn.values()))
    kept: list[Row]
    for name in _GIVEN_UP:
        if left >= 0:
            break
        kept = drawn[name][: max(0, len(drawn[name]) + left)] if name in ("devices", "ranks") else []
        left += len(drawn[name]) - len(kept)
        drawn[name] = kept
    if left < 0:
        left += len(drawn["verdict"])
        drawn["verdict"] = sections["verdict"](-1, None)
        left -= len(drawn["verdict"])
        # Its last rows tell least.
        kept = drawn["step"][: max(1, len(drawn["step"]) + left)] if left < 0 else drawn["step"]
        left += len(drawn["step"]) - len(kept)
        drawn["step"] = kept
    blank = False
    for name, level in _UPGRADES if left > 0 else ():
        if name == "blank":
            blank = left >= sum(bool(rows) for rows in drawn.values()) - 1
            left -= blank * (sum(bool(rows) for rows in drawn.values()) - 1)
            continue
        if not drawn[name]:
            continue
        more = sections[name](level, None)
        if len(more) - len(drawn[name]) <= left:
            left -= len(more) - len(drawn[name])
            drawn[name], detail[name] = more, level
        elif name in LISTS and name == focus and len(drawn[name]) + left >= LEAST_WINDOW:
            more = sections[name](level, len(drawn[name]) + left)
            if len(more) - len(drawn[name]) <= left:
                left -= len(more) - len(drawn[name])
                drawn[name], detail[name] = more, level
    for name in ("workers", "ranks"):
        # A list that is too long for the room that is left shows a part of it.
        full = {"workers": 2, "ranks": 1}[name]
        if drawn[name] and detail[name] < full and len(drawn[name]) + left >= LEAST_WINDOW and left > 1:
            more = sections[name](full, len(drawn[name]) + left)
            if 0 < len(more) - len(drawn[name]) <= left:
                left -= len(more) - len(drawn[name])
                drawn[name] = more
    rows: list[Row] = []
    for name in _ORDER:
        if blank and rows and drawn[name]:
            rows.append(Row())
        rows += drawn[name]
    return rows[:height]
