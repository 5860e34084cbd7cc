"""A recorded run as the live view would have shown it at any of its moments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ...errors import RecordError
from ...record.processes import processes
from ...record.run import open_run
from ...record.sampled_devices import sampled_devices
from ...record.schema import EVENT, STEP
from ...record.stacks import read_stacks
from .extent import RECENT_NS
from .gathered import KEPT, Folder, RunRecords
from .judged import judged, recent_looks
from .look import snapshot_of
from .past import Past
from .reader import settled_before
from .series import SECOND_NS
from .snapshot import Snapshot
from .steady import Steady

JUDGED_EVERY_NS = 5 * SECOND_NS
"""Distance between the earlier moments that are judged to know since when a verdict has held."""
MOST_BACK = 32
"""Earlier moments that are judged for one look, at most."""


class ReplayReader:
    """Looks at moments of a run that has ended, in any order; reads of it what a moment needs.

    Raises:
        RecordError: not a run folder, one of an unknown version, or one without any training step.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._run = open_run(folder)
        self._told = processes(folder)
        self._sampled = sampled_devices(folder) or ()
        self._stacks = read_stacks(folder)
        self._files = Folder()
        self._pasts: list[Past] = []
        for path in sorted(folder.glob("*.rec")):
            self._open(path)
        trained = [past for past in self._pasts if past.header.kind is STEP and len(past)]
        if not trained:
            raise RecordError(f"{folder} has no training step to replay. See what it holds with `whyidle report`.")
        self.begin_ns = min(int(past.at(0)["fetch_begin_ns"][0]) for past in trained)
        """When the first step began, CLOCK_MONOTONIC ns."""
        self.end_ns = max(past.end_ns() for past in trained)
        """When the last one ended, on its device too."""
        self._steady = Steady()
        self._at_ns: int | None = None
        self._causes: dict[int, str | None] = {}

    @property
    def length_s(self) -> float:
        return (self.end_ns - self.begin_ns) / SECOND_NS

    def snapshot_at(self, seconds: float) -> Snapshot:
        """The run so many seconds after its first step began; what is beyond its end is its end.

        Where seconds rise little by little, the verdict is as steady as it was to those who watched.
        """
        ns = min(self.end_ns, self.begin_ns + max(0, round(seconds * SECOND_NS)))
        plays = self._at_ns is not None and 0 <= ns - self._at_ns <= RECENT_NS
        if not plays:
            self._steady = Steady()
        self._at_ns = ns
        view = snapshot_of(self._at(ns), self._steady)
        if not plays and view.verdict is not None and view.verdict.cause is not None:
            since_ns = self._since_ns(ns, view.verdict.cause)
            self._steady.since(since_ns)
            view = replace(view, verdict_since_s=(ns - since_ns) / SECOND_NS)
        return replace(view, at_s=(ns - self.begin_ns) / SECOND_NS)

    def _at(self, ns: int, history: bool = True) -> RunRecords:
        for past in self._pasts:
            past.go(ns)
        over = None
        if ns >= self.end_ns:
            over = str((self._run.info.get("ended") or {}).get("status", "lost"))
        return self._files.gather(self._run, self._told, ns, over, history, self._sampled, self._stacks)

    def _since_ns(self, ns: int, cause: str) -> int:
        """When the verdict began to name a cause, as far as a few moments tell: each twice as far back as the one
        before, and then between the last that named it and the first that did not."""
        now = (ns - self.begin_ns) // JUDGED_EVERY_NS
        same, other = now + 1, None
        back = 1
        while other is None and now - back >= 0 and back <= MOST_BACK:
            if self._cause(now - back) == cause:
                same, back = now - back, 2 * back
            else:
                other = now - back
        while other is not None and same - other > 1:
            middle = (same + other) // 2
            same, other = (middle, other) if self._cause(middle) == cause else (same, middle)
        return min(ns, self.begin_ns + same * JUDGED_EVERY_NS)

    def _cause(self, place: int) -> str | None:
        """Of the verdict at a moment of those that are looked at so."""
        if place not in self._causes:
            run = self._at(self.begin_ns + place * JUDGED_EVERY_NS, history=False)
            with np.errstate(all="ignore"):
                found = judged(run.mine, run, recent_looks(run)) if run.mine is not None else None
            self._causes[place] = None if found is None else found.verdict.cause
        return self._causes[place]

    def _open(self, path: Path) -> None:
        limit = KEPT.get(path.name.partition("-")[0])
        if limit is None:
            return
        try:
            past = Past(path, limit)
            if past.header.kind is EVENT:
                self._files.settled[path.name] = settled_before(path, len(past))
        except (RecordError, OSError):
            return  # damaged, which the report tells
        self._pasts.append(past)
        self._files.sources[path.name] = past
