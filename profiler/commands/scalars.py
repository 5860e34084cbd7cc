"""Keeps flat figures of a recording current while it is made: for `stallscope.log_to`, and as a Prometheus file.

The command that records does this, about every ten seconds, so that the training computes nothing. Nothing is read
unless somebody asked for it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..analyse.analysis import Analysis
from ..analyse.recent.reader import RecentReader
from ..errors import StallscopeError
from ..record.files import plain, write_text
from ..record.scalars import tell, wanted
from ..report import prometheus, scalars

PROMETHEUS_SECONDS = 10.0
LEAST_SECONDS = 1.0
"""Between two looks, however often figures are asked for."""


class Figures:
    """Call `tick` about once a second, `finish` with the whole run. Neither of them ever raises."""

    def __init__(self, folder: Path, textfile: Path | None = None) -> None:
        """`textfile`: the Prometheus file to keep.

        Raises:
            StallscopeError: there is no folder for it.
        """
        if textfile is not None and not textfile.parent.is_dir():
            raise StallscopeError(
                f"cannot write {textfile}: {textfile.parent} is no folder. Name another with --prometheus."
            )
        self._folder = folder
        self._textfile = textfile
        self._reader: RecentReader | None = None
        self._due = 0.0

    def tick(self) -> None:
        if time.monotonic() < self._due:
            return
        every = wanted(self._folder)
        if every is None and self._textfile is None:
            return
        begun = time.process_time()
        with suppress(Exception):
            self._reader = self._reader or RecentReader(self._folder)
            view = self._reader.snapshot()
            if view.steps and every is not None:
                tell(self._folder, scalars.of_snapshot(view))
            if self._textfile is not None:
                write_text(self._textfile, prometheus.of_snapshot(view, self._folder.name))
        asked = [seconds for seconds in (every, PROMETHEUS_SECONDS if self._textfile else None) if seconds]
        # A look at a very busy recording takes longer: never more than a tenth of a CPU.
        self._due = time.monotonic() + max(LEAST_SECONDS, min(asked), 10 * (time.process_time() - begun))

    def after(self, call: Callable[[], object]) -> Callable[[], None]:
        """`call`, and a `tick` after it."""

        def both() -> None:
            call()
            self.tick()

        return both

    def finish(self, analysis: Analysis) -> None:
        """Leave the whole run in the Prometheus file; say where that is not possible."""
        if self._textfile is None:
            return
        try:
            write_text(self._textfile, prometheus.of_run(analysis, self._folder.name))
        except Exception as error:
            why = error.strerror if isinstance(error, OSError) else error
            print(plain(f"stallscope: {self._textfile} holds no figures of this run: {why}."), file=sys.stderr)
