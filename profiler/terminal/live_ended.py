"""The live view's last word on a run that has ended: the verdict of the whole run, as the report has it."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

from ..analyse.attached.attached import attached, is_attached
from ..analyse.attached.causes import findings_of, verdict_of
from ..analyse.recent.snapshot import UNDER_WAY, Snapshot
from ..analyse.run.analysis import analyse
from ..record.run import open_run
from ..record.schema import BATCH, STEP


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
