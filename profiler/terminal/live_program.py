"""The live view on a terminal: draws it, and acts on keys.

When a run has ended, the view shows the verdict of the whole run, as the report has it.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

from ..analyse.attached.attached import attached, is_attached
from ..analyse.attached.causes import findings_of, verdict_of
from ..analyse.recent.snapshot import UNDER_WAY, Snapshot
from ..analyse.recent.sources import Following, SnapshotSource
from ..analyse.run.analysis import analyse
from ..record.run import open_run
from ..record.schema import BATCH, STEP
from ..report.live import Options, Row, lists, screen
from .screen import Screen


def of_whole_run(view: Snapshot, folder: Path) -> Snapshot:
    """The view with the verdict of the whole run; as it is where the folder cannot be analysed (any more)."""
    try:
        run = open_run(folder)
        if is_attached(run):
            seen = attached(run)
            verdict, rate = verdict_of(seen, findings_of(seen)), None
        else:
            analysis = analyse(run)
            verdict, rate = analysis.verdict, None
            if analysis.facts is not None and analysis.facts.samples_known:
                rate = (analysis.facts if analysis.job is None else analysis.job).samples_per_s
    except Exception:
        # What is damaged the report tells.
        return view
    return replace(view, verdict=verdict, verdict_since_s=None, verdict_samples_per_s=rate, verdict_of_whole_run=True)


LARGE_BYTES = 80_000_000
"""Records of a run's steps and batches, from which one look at it does not wait for all of them to be judged: three
hours at ten steps a second."""
MANY_PROCESSES = 64
"""Training processes above which it does not either."""


def is_large(folder: Path) -> bool:
    """Whether judging the whole run takes longer than a look at it may."""
    kinds = tuple(f"{kind.name}-" for kind in (STEP, BATCH))
    with os.scandir(folder) as entries:
        files = [each for each in entries if each.name.startswith(kinds)]
    if sum(each.name.startswith(kinds[0]) for each in files) > MANY_PROCESSES:
        return True
    return sum(each.stat(follow_symlinks=False).st_size for each in files) >= LARGE_BYTES


PATIENCE_SECONDS = 0.5
"""How long a screen waits for it at first. A run of a day takes many seconds, in which keys are to be answered."""


class LastWord:
    """Analyses a run once, beside what is drawn."""

    def __init__(self) -> None:
        self._of: tuple[Path, str] | None = None
        self._thread: threading.Thread | None = None
        self._told: Snapshot | None = None

    def told(self, folder: Path | None, view: Snapshot, seconds: float | None = None) -> Snapshot:
        """The view with the verdict of the whole run; as it is while the run goes on, or the analysis does.

        Args:
            folder: of the run; `None`: there is none.
            seconds: the longest wait for the analysis, when it is asked for first; `None`: as long as it takes.
        """
        if folder is None or view.state in UNDER_WAY:
            return view
        if self._thread is None or self._of != (folder, view.state):
            self._of, self._told = (folder, view.state), None
            self._thread = threading.Thread(target=self._analyse, args=(folder, view, self._of), daemon=True)
            self._thread.start()
            self._thread.join(seconds)
        known = self._told
        if known is None:
            return view
        return replace(
            view,
            verdict=known.verdict,
            verdict_since_s=known.verdict_since_s,
            verdict_samples_per_s=known.verdict_samples_per_s,
            verdict_of_whole_run=known.verdict_of_whole_run,
        )

    def _analyse(self, folder: Path, view: Snapshot, of: tuple[Path, str]) -> None:
        told = of_whole_run(view, folder)
        if self._of == of:
            self._told = told


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
