"""Progress of a tuning: a line that is drawn over on a terminal, a line a block elsewhere."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.text import Text

from ..report import live
from ..tune.search.candidates import describe
from ..tune.search.race import SearchPhase
from ..tune.search.search import SearchProgress
from .comparison_progress import Drawn

PLAIN_SECONDS = 15.0
"""Between lines that say that it goes on, where the output is no terminal."""
_PHASES = {
    SearchPhase.HEADROOM: "is there anything to gain?",
    SearchPhase.RACE: "comparing settings",
    SearchPhase.PIN: "comparing pinned memory",
    SearchPhase.RESTART: "how epochs begin",
}


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
                self.say(f"[{now.block}/{now.blocks}] {self._state(now)}")
        self.tick()

    def tick(self) -> None:
        if self._live is not None:
            lines = (f" whyidle: {self._line()}", f" {self._state(self._now)}" if self._now is not None else "")
            texts = (Text(line, no_wrap=True, overflow="ellipsis") for line in lines if line)
            self._live.update(Group(*texts), refresh=True)
        elif time.monotonic() - self._said > PLAIN_SECONDS:
            self._said = time.monotonic()
            self.say(self._line())

    def _line(self) -> str:
        """What matters most first: a narrow terminal cuts its end."""
        now = self._now
        if now is None:
            return f"{self._phase} ({time.monotonic() - self._begun:.0f} s)"
        left = max(0.0, now.left_s - (time.monotonic() - self._at if now.entry is None else 0.0))
        tried = f"{len(self._tried)} setting{'s' * (len(self._tried) != 1)} tried"
        done = f"block {now.block} of about {now.blocks}"
        return f"{done}, {tried}, at most {live.duration(left)} left · {_PHASES.get(now.phase, now.phase)}"

    def _state(self, now: SearchProgress) -> str:
        what = "batches fetched before" if now.held else describe(now.settings, now.baseline)
        if now.entry is not None and now.entry.block is not None:
            what += f": {now.entry.block.samples_per_s:.0f} samples/s in this block"
        best = "" if now.speedup == 1 else f" · best so far {now.speedup:.2f} times: {describe(now.best, now.baseline)}"
        return what + best
