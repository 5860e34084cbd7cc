"""The live view on a terminal: draws, and does what the keys say."""

from __future__ import annotations

import time
from dataclasses import replace

from ..analyse.recent.snapshot import UNDER_WAY, Snapshot
from ..analyse.recent.sources import Following, SnapshotSource
from ..report.live import Options, Row, lists, screen
from .live_ended import PATIENCE_SECONDS, LastWord
from .screen import Screen

PAGE = 5
"""Entries that a page moves by."""


class Program:
    """What is shown of a source, and how. `press` is what a key does; `run` draws until one says to quit."""

    def __init__(self, source: SnapshotSource, options: Options) -> None:
        self.source = source
        self.options = options
        self.view: Snapshot | None = None
        self.quit = False
        self._last_word = LastWord()

    def run(self, to: Screen, interval: float) -> None:
        self.options = replace(self.options, keys=to.has_keys)
        while not self.quit:
            due = time.monotonic() + interval
            size = to.size()
            to.show(self.rows(*size), size)
            while not self.quit:
                pressed = to.pressed(due - time.monotonic())
                for key in pressed:
                    self.press(key)
                if pressed or time.monotonic() >= due or to.size() != size:
                    break

    def rows(self, width: int, height: int) -> list[Row]:
        """The screen as it stands."""
        if self.view is None or not self.options.paused:
            self.view = self._last_word.told(self.source.folder, self.source.look(), PATIENCE_SECONDS)
        note = ""
        if isinstance(self.source, Following) and self.source.next_ones and self.view.state not in UNDER_WAY:
            note = "waiting for the next run"
        return screen(self.view, width, height, replace(self.options, note=note))

    def press(self, key: str) -> None:
        now = self.options
        if key == "q":
            self.quit = True
        elif key in ("h", "?") or (key == "escape" and now.help):
            self.options = replace(now, help=not now.help)
        elif key in ("p", "space"):
            self.options = replace(now, paused=not now.paused)
        elif key == "a":
            self.options = replace(now, ascii_only=not now.ascii_only)
        elif key == "s":
            self._in_a_list()
            self.options = replace(self.options, order=self.options.order + 1)
        elif key == "r":
            self._in_a_list()
            self.options = replace(self.options, reverse=not now.reverse)
        elif key in ("tab", "back tab"):
            self._next_list(-1 if key == "back tab" else 1)
        elif key in _MOVES:
            self._move(_MOVES[key])

    def _next_list(self, by: int) -> None:
        """None is one of the choices, so that Tab alone leads back."""
        known = ("", *(lists(self.view) if self.view else ()))
        here = known.index(self.options.focus) if self.options.focus in known else 0
        self.options = replace(self.options, focus=known[(here + by) % len(known)], chosen=0, order=0, reverse=False)

    def _in_a_list(self) -> None:
        """Whoever sorts or moves without having chosen a list means the one that has an order."""
        known = lists(self.view) if self.view else ()
        if self.options.focus not in known and known:
            wanted = next((name for name in ("workers", "ranks") if name in known), known[0])
            self.options = replace(self.options, focus=wanted, chosen=0)

    def _move(self, by: int) -> None:
        fresh = not self.options.focus
        self._in_a_list()
        if self.view is None or not self.options.focus:
            return
        counts = {
            "ranks": len(self.view.rank_views),
            "devices": len(self.view.devices),
            "workers": len(self.view.makers),
        }
        most = counts.get(self.options.focus, 0) - 1
        # The first press only shows where one is.
        chosen = 0 if fresh else min(max(0, self.options.chosen + by), max(0, most))
        self.options = replace(self.options, chosen=chosen)


_MOVES = {"up": -1, "down": 1, "page up": -PAGE, "page down": PAGE}
