"""Stack samples, by whose they are and when they were made."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.run import AGAIN, Run, Writer, processes
from ...record.schema import NAN, NOT_MEASURED, STACK, ThreadState
from ...record.stacks import CallStack, StackTable
from ..intervals import Intervals, inside
from .places import FETCHER, WORKER, is_file, own_part, within

_PINS = re.compile(r"/torch/utils/data/_utils/pin_memory\.py\Z")


@dataclass(frozen=True)
class Looks:
    """Some stack samples."""

    records: Records
    """STACK records, in the order of time."""
    table: StackTable

    def __len__(self) -> int:
        return len(self.records)

    @property
    def failed(self) -> int:
        """Looks that saw nothing, because the stack changed meanwhile."""
        return int((self.records["stack"] == NOT_MEASURED).sum())

    def during(self, intervals: Intervals) -> Looks:
        """Those that were made within these times."""
        return self.kept(inside(intervals, self.records["t_ns"]))

    def between(self, begin_ns: int, end_ns: int) -> Looks:
        return self.kept((self.records["t_ns"] >= begin_ns) & (self.records["t_ns"] < end_ns))

    def where(self, holds: Callable[[CallStack], bool]) -> Looks:
        """Those whose stack is of this kind; of those that failed none."""
        numbers = np.unique(self.records["stack"])
        good = [number for number in numbers.tolist() if holds(self.table.stack(number))]
        return self.kept(np.isin(self.records["stack"], good))

    def in_state(self, *states: int) -> Looks:
        """Those that the kernel said this of."""
        return self.kept(np.isin(self.records["state"], states))

    def stacks(self) -> Iterator[tuple[CallStack, int]]:
        """Each different stack with how often it was seen; the empty one stands for looks that failed."""
        numbers, counts = np.unique(self.records["stack"], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            yield self.table.stack(number), count

    def states(self) -> Counter[int]:
        """How often the kernel said what of these threads."""
        states, counts = np.unique(self.records["state"], return_counts=True)
        return Counter(dict(zip(states.tolist(), counts.tolist(), strict=True)))

    def kept(self, which: npt.NDArray[np.bool_]) -> Looks:
        """Those at the places that are true."""
        return replace(self, records=self.records[which])


@dataclass(frozen=True)
class ProcessLooks:
    """All looks at a training process and at what works for it."""

    training: Looks
    """At the thread that trains."""
    threads: Looks
    """At the other Python threads of its process, but the one that pins batches."""
    workers: Looks
    """At main threads of loader workers."""
    sending: Looks
    """At the threads by which workers send batches, and the one by which the training pins them."""
    others: Looks
    """At main threads of other Python processes that the training started."""

    @property
    def making(self) -> Looks:
        """At workers that are preparing a batch."""
        return self.workers.where(makes)


LEAST_SEEN = 20
"""Looks at workers from which it is said what they do while the training waits."""


def making_seen(looks: ProcessLooks, waiting: Intervals) -> float:
    """Of looks at workers within these times, the share in which they ran, making a batch; NaN of too few, and where
    the kernel does not tell whether they ran."""
    of_workers = looks.workers.during(waiting)
    seen = len(of_workers) - of_workers.failed - of_workers.states()[NOT_MEASURED]
    return len(of_workers.where(makes).in_state(ThreadState.RUNS)) / seen if seen >= LEAST_SEEN else NAN


def makes(stack: CallStack) -> bool:
    """Whether a worker's stack stands in the making of a batch, and not in waiting for an order."""
    return within(own_part(stack), FETCHER) is not None


def looks_at(run: Run, writer: Writer) -> ProcessLooks | None:
    """All looks at one training process; `None` where its stacks were not looked at."""
    whole = all_looks(run)
    if whole is None:
        return None
    pid = writer[1] % AGAIN
    thread = next((p.thread for p in processes(run.folder) if (p.rank, p.pid) == writer), None) or pid
    return process_looks(whole, pid, thread)


def all_looks(run: Run) -> Looks | None:
    """Those at all processes; `None` where there are none."""
    records = run.records(STACK)
    if len(records) == 0:
        return None
    return Looks(records[np.argsort(records["t_ns"], kind="stable")], run.stacks)


def process_looks(whole: Looks, pid: int, thread: int) -> ProcessLooks:
    """Those of `whole` at a training process, whose thread `thread` trains, and at what works for it."""
    own = whole.kept(whole.records["process"] == pid)
    # Processes that this one started, or that those started.
    pairs = set(zip(whole.records["process"].tolist(), whole.records["parent"].tolist(), strict=True))
    family = {pid}
    while grown := {process for process, parent in pairs if parent in family} - family:
        family |= grown
    children = whole.kept(np.isin(whole.records["process"], list(family - {pid})))
    main = children.records["process"] == children.records["thread"]
    mains, rest = children.kept(main), children.kept(~main)
    in_loop = np.isin(mains.records["process"], np.unique(mains.where(_in_file(WORKER)).records["process"]))
    of_workers = np.isin(rest.records["process"], np.unique(mains.records["process"][in_loop]))
    trains = own.records["thread"] == thread
    threads = own.kept(~trains)
    pins = np.isin(threads.records["stack"], np.unique(threads.where(_in_file(_PINS)).records["stack"]))
    sending = np.concatenate((rest.records[of_workers], threads.records[pins]))
    return ProcessLooks(
        own.kept(trains),
        threads.kept(~pins),
        mains.kept(in_loop),
        Looks(sending, whole.table),
        mains.kept(~in_loop),
    )


def _in_file(kind: re.Pattern[str]) -> Callable[[CallStack], bool]:
    return lambda stack: any(is_file(kind, call.file) for call in stack)
