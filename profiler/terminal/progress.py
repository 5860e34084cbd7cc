"""Progress of a comparison: the live view on a terminal, a line a run elsewhere.

Progress of a tuning: a line that is drawn over on a terminal, a line a block elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ..analyse.cells.comparison import Cell
from ..analyse.recent.reader import RecentReader
from ..errors import RecordError
from ..matrix.matrix import PENDING, Matrix
from ..report import bars, live
from ..report.documents import cells_table
from ..report.render import renderables
from ..report.words.figures import counted
from ..tune.result import describe
from ..tune.search import SearchProgress

PLAIN_SECONDS = 15.0
"""Between lines that say that it goes on, where the output is no terminal."""
LIVE_ROWS = 14
"""Rows that are left to the run under way, below the table of those that ran."""


class Drawn:
    """Drawn over on a terminal, unless plain lines are asked for. Use as a context manager around what it shows."""

    def __init__(self, target: Console, plain: bool) -> None:
        self._target = target
        drawn = target.is_terminal and not plain
        self._live = Live(console=target, auto_refresh=False, transient=True) if drawn else None
        """`None`: lines that stay."""

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            # At its end rich draws all of the last picture, even what the terminal has no room for.
            self._live.update(Text(), refresh=True)
            self._live.stop()


class MatrixProgress(Drawn):
    """Of the runs of a matrix; tell it when a run begins and ends, and let it tick."""

    def __init__(
        self, target: Console, matrix: Matrix, plain: bool, said: Callable[[str, Cell], str] | None = None
    ) -> None:
        """
        Args:
            plain: print lines on a terminal too.
            said: what to print of a run that has ended, after its cell's title; takes that title and the cell. With
                it there are always lines.
        """
        super().__init__(target, plain or said is not None)
        self._matrix = matrix
        self._said = said or self._ended
        self._total = matrix.runs_ahead
        self._device = matrix.setting["device"]
        self._done = 0
        self._begun = time.monotonic()
        self._reader: RecentReader | None = None
        self._folder: Path | None = None

    def begin(self, folder: Path) -> None:
        self._folder, self._reader = folder, None

    def end(self, title: str, cell: Cell) -> None:
        self._done += 1
        if self._live is None:
            line = f"[{self._done}/{self._total}] {title}: {self._said(title, cell)}"
            self._target.print(line, markup=False, soft_wrap=True)

    def tick(self) -> None:
        if self._live is None or self._folder is None:
            return
        if self._reader is None:
            try:
                self._reader = RecentReader(self._folder)
            except RecordError:
                return
        ascii_only = bars.is_ascii(self._target)
        ran = [cell for cell in self._matrix.cells if cell.status != PENDING]
        view = live.screen(self._reader.snapshot(), self._target.width, live.Options(ascii_only))
        rows = max(3, self._target.height - LIVE_ROWS - 6)
        table = renderables(cells_table.table_of(ran[-rows:], self._matrix.setting), self._target.width, ascii_only)
        self._live.update(Group(*table, Text(), self._head(), view), refresh=True)

    def _ended(self, _: str, cell: Cell) -> str:
        # Of this run, not of its cell: that a repeat was slow is seen here only.
        rate = cell.counted[-1][0].figure("samples_per_s") if cell.counted else None
        if cell.status != "ok" or rate is None:
            return f"{cell.status} {cell.error or ''}"
        return f"{cell.status} {rate:.1f} samples/s on {cell.axes.get('device') or self._device['name']}"

    def _head(self) -> Text:
        left = (time.monotonic() - self._begun) * (self._total / self._done - 1) if self._done else None
        if (budget := self._matrix.budget) is not None:
            left = budget.left if left is None else min(left, budget.left)
        ahead = "" if left is None else f", about {live.duration(left)} left"
        return Text(f"run {self._done + 1} of {self._total}{ahead}", style="bold")


class TuneProgress(Drawn):
    """Of a tuning, from the program's start on."""

    def __init__(self, target: Console, plain: bool) -> None:
        super().__init__(target, plain)
        self._phase = "starting the training and recording its first steps"
        self._begun = self._said = time.monotonic()
        self._now: SearchProgress | None = None
        self._at = 0.0
        """When `_now` came."""
        self._tried: set[object] = set()

    def say(self, sentence: str) -> None:
        """A line that stays."""
        self._target.print(sentence, markup=False, soft_wrap=not self._target.is_terminal)

    def phase(self, what: str) -> None:
        """Of what comes before and after the search."""
        self._phase, self._begun, self._now = what, time.monotonic(), None
        self.tick()

    def show(self, now: SearchProgress) -> None:
        """A block begins, or has ended."""
        self._now, self._at = now, time.monotonic()
        if now.entry is not None:
            self._tried.add(now.settings)
            if now.entry.error is not None:
                self.say(f"{describe(now.settings, now.baseline)}: {now.entry.error.splitlines()[0]}")
            elif self._live is None:
                self._said = time.monotonic()
                self.say(f"[{now.block}] {self._state(now)}")
        self.tick()

    def tick(self) -> None:
        if self._live is not None:
            lines = (f" whyidle: {self._line()}", f" {self._state(self._now)}" if self._now is not None else "")
            texts = [Text(line, no_wrap=True, overflow="ellipsis") for line in lines if line]
            self._live.update(Group(*texts), refresh=True)
        elif time.monotonic() - self._said > PLAIN_SECONDS:
            self._said = time.monotonic()
            self.say(self._line())

    def _line(self) -> str:
        """Begin with what matters most: a narrow terminal cuts the end."""
        now = self._now
        if now is None:
            return f"{self._phase} ({time.monotonic() - self._begun:.0f} s)"
        left = max(0.0, now.left_s - (time.monotonic() - self._at if now.entry is None else 0.0))
        tried = counted(len(self._tried), "setting")
        return f"block {now.block}, {tried} tried, at most {live.duration(left)} left · {now.phase}"

    def _state(self, now: SearchProgress) -> str:
        what = "batches kept in memory" if now.held else describe(now.settings, now.baseline)
        if now.entry is not None and now.entry.block is not None:
            what += f": {now.entry.block.samples_per_s:.0f} samples/s in this block"
        best = "" if now.speedup == 1 else f" · best so far {now.speedup:.2f}×: {describe(now.best, now.baseline)}"
        return what + best
