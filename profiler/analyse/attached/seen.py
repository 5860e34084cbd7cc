"""Looks at the stacks of an observed tree, by thread: what each stood in, from its first sight of training on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ...record.run import Run
from ...record.schema import NOT_MEASURED, ThreadState
from ...record.stacks import CallStack
from ..where.looks import Looks, all_looks
from . import stacks


@dataclass(frozen=True)
class SeenThread:
    """How often each stack of one thread was seen; of one that trains those since it was first seen training."""

    pid: int
    tid: int
    """The kernel's."""
    stacks: Counter[CallStack] = field(default_factory=Counter)
    before: Counter[CallStack] = field(default_factory=Counter)
    """Those before that."""
    missed: int = 0
    """Looks that failed, because the stack changed while it was read; those at its process as a whole."""

    @property
    def is_main(self) -> bool:
        """Whether it is its process's first."""
        return self.tid == self.pid

    @property
    def name(self) -> str:
        return "MainThread" if self.is_main else str(self.tid)

    @property
    def looks(self) -> int:
        return self.stacks.total()


def threads_of(looks: Looks | None) -> list[SeenThread]:
    """The threads that were looked at, by process and number."""
    if looks is None:
        return []
    numbers = np.unique(looks.records["stack"]).tolist()
    training = [number for number in numbers if stacks.is_training(looks.table.stack(number))]
    found = []
    for mine in _by_thread(looks):
        pid, tid = int(mine.records["process"][0]), int(mine.records["thread"][0])
        trains = np.isin(mine.records["stack"], training)
        first = int(trains.argmax()) if trains.any() else 0
        since = np.arange(len(mine)) >= first
        ran = np.isin(mine.records["state"], (ThreadState.RUNS, NOT_MEASURED))
        missed = int(((mine.records["stack"] == NOT_MEASURED) & ran & since).sum())
        found.append(SeenThread(pid, tid, _counted(mine.kept(since)), _counted(mine.kept(~since)), missed))
    return [thread for thread in found if thread.stacks]


def _by_thread(looks: Looks) -> Iterator[Looks]:
    _, whose = np.unique(looks.records[["process", "thread"]], return_inverse=True)
    order = np.argsort(whose, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(whose[order])) + 1):
        yield Looks(looks.records[part], looks.table)


def _counted(looks: Looks) -> Counter[CallStack]:
    return Counter({stack: count for stack, count in looks.stacks() if stack})


def so_far(run: Run) -> dict[str, float]:
    """Class → share of the looks at the thread that trains, the largest first; for a view in passing."""
    threads = threads_of(all_looks(run))
    thread = max(threads, key=training_looks, default=None)
    if thread is None or not training_looks(thread):
        return {}
    counts: Counter[str] = Counter()
    for stack, looks in thread.stacks.items():
        counts[stacks.class_of(stack)] += looks
    return {name: looks / thread.looks for name, looks in counts.most_common()}


def training_looks(thread: SeenThread) -> int:
    """Those that only a thread which trains can have given."""
    return sum(count for stack, count in thread.stacks.items() if stacks.is_training(stack))
