"""Keeps flat figures of a recording current while it is made: for `whyidle.log_to`, and as a Prometheus file.

The command that records does this, about every ten seconds, so that the training computes nothing. Nothing is read
unless somebody asked for it.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

from ...analyse.recent.reader import RecentReader
from ...errors import WhyidleError
from ...record.files import plain, write_text
from ...record.run import refuse_recorded
from ...record.scalars import tell, wanted
from . import prometheus, scalars

FIGURES = ("file of figures that whyidle wrote", rb"# HELP whyidle_")
"""The Prometheus file, in words, and how every such file begins, as a pattern."""
PROMETHEUS_SECONDS = 10.0
LEAST_SECONDS = 1.0
"""Between two looks, however often figures are asked for."""


class Figures:
    """Call `tick` about once a second, `finish` at the end. Neither ever raises."""

    def __init__(self, folder: Path, textfile: Path | None = None) -> None:
        """`folder`: of the run, which may be made later. `textfile`: the Prometheus file to keep.

        Raises:
            WhyidleError: there is no folder for it, or something is there that is no file, or that we did not write.
        """
        if textfile is not None:
            if not textfile.parent.is_dir():
                raise WhyidleError(
                    f"cannot write {textfile}: {textfile.parent} is no folder. Name another with --prometheus."
                )
            if _is_no_file(textfile):
                raise WhyidleError(f"cannot write {textfile}: it is no file. Name a file with --prometheus.")
            refuse_recorded(textfile, FIGURES, " with --prometheus")
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
            # What one of the two cannot have, the other still gets.
            if view.steps and every is not None:
                with suppress(Exception):
                    tell(self._folder, scalars.of_snapshot(view))
            if self._textfile is not None:
                _keep(self._textfile, prometheus.of_snapshot(view, self._folder.name))
        asked = [seconds for seconds in (every, PROMETHEUS_SECONDS if self._textfile else None) if seconds]
        # A look at a very busy recording takes longer: never more than a tenth of a CPU.
        self._due = time.monotonic() + max(LEAST_SECONDS, min(asked), 10 * (time.process_time() - begun))

    def finish(self) -> None:
        """Leave the last seconds in the Prometheus file; say so where that is impossible."""
        if self._textfile is None:
            return
        try:
            view = (self._reader or RecentReader(self._folder)).snapshot()
            _keep(self._textfile, prometheus.of_snapshot(view, self._folder.name))
        except Exception as error:
            why = (isinstance(error, OSError) and error.strerror) or error
            with suppress(OSError):
                print(plain(f"whyidle: {self._textfile} holds no figures of this run: {why}."), file=sys.stderr)


def _is_no_file(path: Path) -> bool:
    """A pipe that nobody reads would hold up who writes to it, and with that the training's output."""
    return path.exists() and not path.is_file()


def _keep(textfile: Path, text: str) -> None:
    """Write it.

    Raises:
        OSError: it cannot be written.
        RecordError: another file has taken its place.
    """
    if _is_no_file(textfile):
        raise OSError(f"{textfile} is no file")
    refuse_recorded(textfile, FIGURES)
    write_text(textfile, text, named=True)
