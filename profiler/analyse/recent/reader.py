"""A run that is being recorded (or has ended), as it stands: for the live view."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...errors import RecordError
from ...record.processes import AGAIN, TrainingProcess, processes
from ...record.reader import RecordFile, Records
from ...record.run import open_run
from ...record.sampled_devices import SampledDevice, sampled_devices
from ...record.schema import EVENT, PAUSE, STEP
from ...record.stacks import StackFollower
from .gathered import KEPT, PAUSES_A_STEP, Folder, RunRecords, settled
from .judged import Steady
from .look import ranks_of, snapshot_of
from .progress import moved
from .series import SECOND_NS
from .snapshot import RankView, Snapshot
from .tail import LATE, Tail

LATE_STEPS = 128
"""Last steps that are read again at each look: more than can wait for their device stamps at a time."""
MOST_SHARE = 0.01
"""Share of one CPU that judging may take: where a judgement takes longer, there are fewer of them."""
MOST_WAITS = 20
"""Times the planned distance between two judgements that a costly one may stretch it to, at most."""
GONE_NS = 5 * SECOND_NS
"""Time since its last step after which a training whose process is not there counts as killed."""
YOUNG_NS = SECOND_NS // 10
"""A folder that was changed less than this ago is listed again at the next look: more may have come at that moment."""


class RecentReader:
    """Follows a run folder. `snapshot()` may be called as often as wanted; it reads only what is new.

    Args:
        folder: the run.
        clock: tells CLOCK_MONOTONIC, ns.
        judge_s: what costs most, shares, histories and the verdict, is done anew after so long.

    Raises:
        RecordError: not a run folder, or one of an unknown version.
    """

    def __init__(self, folder: Path, clock: Callable[[], int] = time.monotonic_ns, judge_s: float = 0.9) -> None:
        self.folder = folder
        self._clock = clock
        self._judge_ns = round(judge_s * SECOND_NS)
        self._run = open_run(folder)
        self._told: list[TrainingProcess] = []
        self._sampled: tuple[SampledDevice, ...] = ()
        self._changed_ns = -1
        """When the folder was last changed, as far as it was looked at."""
        self._young = False
        self._files = Folder()
        self._stacks = StackFollower(folder)
        self._tails: dict[str, Tail] = {}
        self._closed: set[str] = set()
        """Files to which nothing will be added."""
        self._all_read: set[str] = set()
        """Files to which nothing will be added, and that were read to their end since that is known."""
        self._steady = Steady()
        self._ranks: dict[int, RankView] = {}
        self._turn = 0
        self._last: _Judgement | None = None

    def snapshot(self) -> Snapshot:
        """The state of the run now.

        Raises:
            RecordError: the folder is gone.
        """
        changed = self._look_around()
        news = self._take_in()
        now_ns, last = self._now_ns(), self._last
        if last is not None and not changed and not (news and last.name is None):
            if last.over or now_ns < last.until_ns:
                return last.view if last.over or last.name is None else self._moved(last, now_ns)
            self._look_around(anyway=True)
            self._take_in()
        self._last = self._judge(now_ns)
        return self._last.view

    def _judge(self, now_ns: int) -> _Judgement:
        began = time.thread_time_ns()
        if (self._run.info.get("device") or {}).get("kind", "cpu") != "cpu":
            for tail in self._tails.values():
                if tail.header.kind.name in LATE:
                    tail.refresh(LATE_STEPS * (PAUSES_A_STEP if tail.header.kind.name == PAUSE.name else 1))
        ended = self._run.info.get("ended")
        over = str(ended.get("status")) if isinstance(ended, dict) else None
        if over is None and self._writer_is_gone(now_ns):
            over = "lost"
        if over is not None:
            now_ns = self._files.newest_ns() or now_ns
        run = self._files.gather(self._run, self._told, now_ns, over, self._sampled, self._stacks.table)
        view = snapshot_of(run, self._steady, self._known_ranks(run) if over is None else None)
        self._ranks = {each.rank: each for each in view.rank_views}
        mine = run.mine if view.state == "running" else None
        cost_ns = time.thread_time_ns() - began
        until_ns = now_ns + max(self._judge_ns, min(round(cost_ns / MOST_SHARE), MOST_WAITS * self._judge_ns))
        return _Judgement(
            view, over is not None, None if mine is None else mine.name, run.first_ns or now_ns, now_ns, until_ns
        )

    def _moved(self, last: _Judgement, now_ns: int) -> Snapshot:
        """The last view with the steps that ran since."""
        assert last.name is not None
        step = self._tails[last.name].records()[-1]
        epoch = self._files.epoch(last.name)
        done, end_ns = int(step["step"]) + 1, int(step["step_end_ns"])
        view = moved(last.view, self._run.info, done, end_ns, epoch, last.first_ns, now_ns)
        since_s = view.verdict_since_s
        return view if since_s is None else replace(view, verdict_since_s=since_s + (now_ns - last.at_ns) / SECOND_NS)

    def _known_ranks(self, run: RunRecords) -> dict[int, RankView]:
        """Of several ranks one is looked at in turn, the others stay as they were."""
        numbers = [process.rank for process in ranks_of(run)]
        self._turn += 1
        due = numbers[self._turn % len(numbers)] if numbers else None
        return {rank: view for rank, view in self._ranks.items() if rank != due}

    def _now_ns(self) -> int:
        """Where the run is recorded on another machine, its clock is known by its newest record only."""
        newest = self._files.newest_ns()
        if newest is None:
            return self._clock()
        return max(newest, self._clock()) if self._is_here() else newest

    def _is_here(self) -> bool:
        return (self._run.info.get("host") or {}).get("name") == socket.gethostname()

    def _writer_is_gone(self, now_ns: int) -> bool:
        """Whether the training was killed: its process is not there, and it was on this machine.

        One that has just ended is not: whoever started it has yet to say how.
        """
        tails = [tail for tail in self._tails.values() if tail.header.kind is STEP]
        if not tails or not self._is_here():
            return False
        ended = (int(rows["step_end_ns"][-1]) for tail in tails if len(rows := tail.records()))
        last_ns = max(ended, default=0)
        if last_ns - self._clock() >= GONE_NS:
            return True  # the machine was started anew since: the clock began at 0
        return now_ns - last_ns >= GONE_NS and not any(
            Path(f"/proc/{tail.header.pid % AGAIN}").exists() for tail in tails
        )

    def _look_around(self, anyway: bool = False) -> bool:
        """Find what is new in the folder, apart from records. Whether it was changed since the last look."""
        try:
            changed_ns = self.folder.stat().st_mtime_ns
            if changed_ns == self._changed_ns and not (anyway or self._young):
                return False
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.name.endswith(".rec"))
        except OSError as error:
            raise RecordError(
                f"{self.folder} is gone: the run's folder was removed or moved while it was watched."
            ) from error
        new = [name for name in names if name not in self._tails and name.partition("-")[0] in KEPT]
        for name in new:
            self._open(name)
        if new:
            self._look_for_closed()
        if changed_ns == self._changed_ns and not self._young:
            return False
        before, known_ns = self._run.info, self._changed_ns
        self._changed_ns = changed_ns
        # What changes within the same tick of the file system's clock has no stamp of its own.
        self._young = abs(time.time_ns() - changed_ns) < YOUNG_NS
        self._told = processes(self.folder)
        self._sampled = sampled_devices(self.folder) or ()
        with suppress(RecordError):  # as it was, then: it is about to go
            self._run = open_run(self.folder)
        return changed_ns != known_ns or self._run.info != before

    def _look_for_closed(self) -> None:
        """A folder may hold a training after another: those that have ended are not read again and again."""
        for name in self._tails.keys() - self._closed:
            if self._tails[name].header.closed:
                self._closed.add(name)
                continue
            with suppress(RecordError, OSError):
                if RecordFile(self.folder / name).header.closed:
                    self._closed.add(name)

    def _open(self, name: str) -> None:
        path = self.folder / name
        try:
            tail = Tail(path, KEPT[name.partition("-")[0]])
            if tail.header.kind is EVENT:
                self._files.settled[name] = settled_before(path, tail.seen)
        except (RecordError, OSError):
            return  # its header is being written; it is there at the next look
        self._tails[name] = self._files.sources[name] = tail

    def _take_in(self) -> bool:
        """Read what is new in the files. Whether a step was."""
        news = False
        self._stacks.look()
        for name, tail in list(self._tails.items()):
            if name in self._all_read:
                continue
            closed = name in self._closed
            try:
                fresh = tail.look()
            except OSError:
                continue  # what was read of a file that is gone stays
            if closed:
                self._all_read.add(name)
            if len(fresh) == 0:
                continue
            if name in self._files.settled:
                self._files.settled[name] = np.concatenate((self._files.settled[name], settled(fresh)))
            news |= tail.header.kind is STEP
        return news


@dataclass(frozen=True)
class _Judgement:
    """A judgement, and what may be shown until the next."""

    view: Snapshot
    over: bool
    name: str | None
    """File of the steps that it shows; `None` while it shows none."""
    first_ns: int
    """When the first step began."""
    at_ns: int
    until_ns: int


def settled_before(path: Path, count: int) -> Records:
    """Events among the first `count` of a file that still count."""
    parts: list[Records] = [np.empty(0, dtype=EVENT.dtype)]
    for chunk in RecordFile(path).chunks() if count else ():
        parts.append(settled(chunk[chunk["seq"] <= count]))
        if chunk["seq"][-1] >= count:
            break
    return np.concatenate(parts)
