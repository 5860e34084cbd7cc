"""The processes that train, seen from outside.

Each thread is looked at from its first sight of training on: what the one that trains spends its time on, and what its
workers do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...record.run import ProcessStates, Run
from ...record.schema import NOT_MEASURED, ThreadState
from ...record.stacks import CallStack
from ..statistics import Estimate, wilson
from ..where.located import LEAST_LOOKS, LEAST_SHARE
from ..where.looks import Looks, all_looks
from ..where.places import Where, places
from ..where.stages import SAMPLE, stage_of
from . import stacks

WORKER_NAME = "pt_data_worker"
MOST_TOP = 5
MAKING, IDLE = "making", "idle"
"""What a worker does."""

OWN = ("data wait", "data making", *stacks.VALIDATION.values(), "checkpoint", "logging", "python")
"""What holds up one rank and not by itself the others."""


@dataclass(frozen=True)
class SeenThread:
    """How often each stack of one thread was seen; of one that trains those since it was first seen training."""

    pid: int
    tid: int
    """The kernel's."""
    stacks: Counter[CallStack] = field(default_factory=Counter)
    missed: int = 0
    """Looks that failed, because the stack changed while it was read; those at its process as a whole."""

    @property
    def is_main(self) -> bool:
        """Whether it is its process's first."""
        return self.tid == self.pid

    @property
    def looks(self) -> int:
        return self.stacks.total()

    @property
    def training_looks(self) -> int:
        """Looks that only a thread which trains can have given."""
        return sum(count for stack, count in self.stacks.items() if stacks.is_training(stack))

    @property
    def weights(self) -> dict[CallStack, float]:
        """How much of the time each stack stands for, in looks.

        A look fails because the stack changes while it is read, so the looks that failed were at a thread that ran:
        they are shared out over the stacks it ran in.
        """
        running = sum(n for stack, n in self.stacks.items() if not stacks.is_blocked(stack))
        factor = 1 + self.missed / running if running else 1.0
        return {s: n if stacks.is_blocked(s) else n * factor for s, n in self.stacks.items()}


def threads_of(looks: Looks | None) -> list[SeenThread]:
    """The threads that were looked at, by process and number."""
    if looks is None:
        return []
    numbers = np.unique(looks.records["stack"]).tolist()
    training = [number for number in numbers if stacks.is_training(looks.table.stack(number))]
    found = []
    _, whose = np.unique(looks.records[["process", "thread"]], return_inverse=True)
    order = np.argsort(whose, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(whose[order])) + 1):
        mine = Looks(looks.records[part], looks.table)
        pid, tid = int(mine.records["process"][0]), int(mine.records["thread"][0])
        trains = np.isin(mine.records["stack"], training)
        first = int(trains.argmax()) if trains.any() else 0
        since = np.arange(len(mine)) >= first
        ran = np.isin(mine.records["state"], (ThreadState.RUNS, NOT_MEASURED))
        missed = int(((mine.records["stack"] == NOT_MEASURED) & ran & since).sum())
        found.append(SeenThread(pid, tid, _counted(mine.kept(since)), missed))
    return [thread for thread in found if thread.stacks]


def _counted(looks: Looks) -> Counter[CallStack]:
    return Counter({stack: count for stack, count in looks.stacks() if stack})


def so_far(run: Run) -> dict[str, float]:
    """Class → share of the looks at the thread that trains, the largest first; for a view in passing."""
    thread = max(threads_of(all_looks(run)), key=lambda each: each.training_looks, default=None)
    if thread is None or not thread.training_looks:
        return {}
    counts: Counter[str] = Counter()
    for stack, looks in thread.stacks.items():
        counts[stacks.class_of(stack)] += looks
    return {name: looks / thread.looks for name, looks in counts.most_common()}


@dataclass(frozen=True)
class Tally:
    """The stacks of some threads, by what the threads were doing."""

    weights: Mapping[tuple[str, CallStack], float]
    """How much of the time a (class, stack) stands for, in looks."""
    seen: Mapping[tuple[str, CallStack], int]
    """How often it was seen."""

    @staticmethod
    def of(threads: Iterable[SeenThread], doing: Callable[[CallStack], str]) -> Tally:
        """Tally these threads. `doing`: the class of a stack."""
        weights: defaultdict[tuple[str, CallStack], float] = defaultdict(float)
        seen: Counter[tuple[str, CallStack]] = Counter()
        for thread in threads:
            for stack, weight in thread.weights.items():
                what = doing(stack), stack
                weights[what] += weight
                seen[what] += thread.stacks[stack]
        return Tally(weights, seen)

    @property
    def stacks(self) -> dict[str, set[CallStack]]:
        """Class → the stacks in which threads were seen doing that."""
        found: defaultdict[str, set[CallStack]] = defaultdict(set)
        for what, stack in self.seen:
            found[what].add(stack)
        return found

    def divided(self, by: Callable[[CallStack], str], *classes: str, of_all: bool = False) -> dict[str, float]:
        """Divide the time in which these were done, the largest share first.

        The shares sum to one; `of_all`: they are of all the time.
        """
        counts: defaultdict[str, float] = defaultdict(float)
        for (doing, stack), weight in self.weights.items():
            if doing in classes:
                counts[by(stack)] += weight
        whole = sum((self.weights if of_all else counts).values())
        return {name: n / whole for name, n in sorted(counts.items(), key=lambda item: -item[1])}

    def share(self, what: str) -> float:
        """Return the share of all the time in which this was done, 0..1."""
        return sum(self.divided(lambda _: what, what, of_all=True).values())

    def top(self, what: str, of_all: bool = False) -> tuple[tuple[str, float], ...]:
        """Return (function and place, share of the time) where this was done most."""
        return tuple(self.divided(stacks.leaf_of, what, of_all=of_all).items())[:MOST_TOP]

    def lines(self, time: str, *classes: str) -> tuple[Where, ...]:
        """Return the lines of the user's own code on which these were done, but for those seen too seldom to be more
        than chance. `time`: what their shares are of, in words."""
        lines = places(((stack, count) for (doing, stack), count in self.seen.items() if doing in classes), time)
        return tuple(line for line in lines if line.samples >= LEAST_LOOKS and (line.share or 0.0) >= LEAST_SHARE)


@dataclass(frozen=True)
class Cpu:
    """What `/proc` says processes did, as shares of their time; `None` where the kernel did not tell."""

    running: float | None
    """Share on a CPU; above 1 for several threads."""
    queued: float | None
    """Share in which the main thread waited for a CPU."""
    io: float | None
    """Share in which the main thread waited for a disk (uninterruptible sleep)."""
    main: float | None = None
    """Share in which the main thread was on a CPU."""

    @property
    def idle(self) -> float | None:
        """Share of the rest: the main thread waited for something else."""
        running = self.running if self.main is None else self.main
        if running is None:
            return None
        return max(0.0, 1 - running - (self.queued or 0.0) - (self.io or 0.0))


@dataclass(frozen=True)
class Workers:
    """The loader's worker processes of one training process."""

    count: float
    """Mean number at a time."""
    seen: int
    """Number of different processes: more than `count` where they were started anew."""
    cpu: Cpu
    looks: int
    """Number of stack samples, all together."""
    busy: float | None
    """Share of their time in which they prepared batches, by their stacks; `None` without any."""
    stages: Mapping[str, float]
    """Shares of the time they prepared batches."""
    top: tuple[tuple[str, float], ...]
    """Function and place → share of the time they prepared batches."""
    read_bytes_per_s: float | None
    read_chars_per_s: float | None
    tally: Tally = Tally({}, {})


@dataclass(frozen=True)
class Trainer:
    """One process that trains: its thread, and its workers."""

    by: SeenThread
    """The thread that trains."""
    rank: int | None
    cpu: Cpu
    shares: Mapping[str, Estimate]
    """Class → share of time; empty where no stacks were read."""
    waits: Mapping[str, float]
    """Shares of the time spent waiting for data: `waiting`, `unpacking`, `starting workers`, `ending workers`."""
    validation_waits: Mapping[str, float]
    """As `waits`, of the time an evaluation waits for data."""
    stages: Mapping[str, float]
    """Shares of the time in which it prepares batches itself."""
    top: Mapping[str, tuple[tuple[str, float], ...]]
    """Class → function and place → share of time."""
    pin_thread: bool
    workers: Workers | None
    tally: Tally = Tally({}, {})

    @property
    def pid(self) -> int:
        return self.by.pid

    @property
    def main_thread(self) -> bool:
        return self.by.is_main

    @property
    def thread(self) -> str:
        """Name of its thread: the kernel's number, unless it is the main one."""
        return "MainThread" if self.by.is_main else str(self.by.tid)

    @property
    def looks(self) -> int:
        return self.by.looks

    @property
    def own(self) -> float:
        """Estimate of time in which other ranks would have to wait for this one."""
        return self.share(*OWN)

    def share(self, *classes: str) -> float:
        """Return the share of time in which it did any of these, 0..1."""
        return sum(self.shares[c].value for c in classes if c in self.shares)


def trainers_of(
    threads: list[SeenThread], processes: list[ProcessStates], root: int, on_cpu: bool
) -> tuple[list[Trainer], bool]:
    """Find the processes that train, by rank, and tell whether any was seen training."""
    chosen: dict[int, SeenThread] = {}
    for thread in threads:
        if thread.training_looks > (chosen[thread.pid].training_looks if thread.pid in chosen else 0):
            chosen[thread.pid] = thread
    seen = bool(chosen)
    if not chosen:
        mains = {t.pid: t for t in reversed(threads) if t.is_main}
        chosen = {pid: mains.get(pid, SeenThread(pid, pid)) for pid in _likely(processes, threads, root)}
    by_pid = {p.pid: p for p in processes}
    workers: defaultdict[int | None, list[ProcessStates]] = defaultdict(list)
    for process in processes:
        if is_worker(process, threads):
            workers[_owner(process, by_pid, set(chosen))].append(process)
    trainers = [
        _trainer(by_pid.get(pid) or ProcessStates(pid, 0, "?"), thread, threads, workers[pid], on_cpu)
        for pid, thread in chosen.items()
    ]
    return sorted(trainers, key=lambda t: (t.rank is None, t.rank or 0, t.pid)), seen


def _likely(processes: list[ProcessStates], threads: list[SeenThread], root: int) -> list[int]:
    """Where nothing was seen training: the ranks of a launcher, else the outermost Python process."""
    python = [p for p in processes if p.python is not False and not is_worker(p, threads)]
    ranks = {p.pid: p for p in python if p.rank is not None}
    if ranks:
        return [p.pid for p in ranks.values() if p.parent not in ranks]
    pids = {p.pid for p in python}
    return [p.pid for p in python if p.pid == root] or [p.pid for p in python if p.parent not in pids]


def is_worker(process: ProcessStates, threads: list[SeenThread]) -> bool:
    """Whether a process makes batches for one that trains: by its name, or by the stacks of its main thread."""
    mains = (t for t in threads if t.pid == process.pid and t.is_main)
    return process.name.startswith(WORKER_NAME) or any(stacks.is_worker(stack) for t in mains for stack in t.stacks)


def _owner(process: ProcessStates, by_pid: dict[int, ProcessStates], trainers: set[int]) -> int | None:
    """The nearest ancestor that trains; whoever trains alone where the chain is broken."""
    parent: int | None = process.parent
    for _ in range(len(by_pid)):
        if parent is None or parent in trainers:
            break
        above = by_pid.get(parent)
        parent = above.parent if above else None
    return parent if parent in trainers else (next(iter(trainers)) if len(trainers) == 1 else None)


def _trainer(
    process: ProcessStates,
    thread: SeenThread,
    threads: list[SeenThread],
    workers: list[ProcessStates],
    on_cpu: bool,
) -> Trainer:
    def doing(stack: CallStack) -> str:
        what = stacks.class_of(stack)
        if what == "sync" and on_cpu:
            # Nothing is waited for there: within a model it is the model's computing.
            return stacks.training_part(stack) or what
        return stacks.VALIDATION[what] if what in stacks.VALIDATION and stacks.is_validation(stack) else what

    tally = Tally.of([thread], doing)
    shares = {what: share for what in stacks.CLASSES if (share := tally.share(what))}
    return Trainer(
        by=thread,
        rank=process.rank,
        cpu=_cpu([process]),
        shares={what: wilson(share, thread.looks) for what, share in shares.items()},
        waits=tally.divided(stacks.data_wait_kind, "data wait"),
        validation_waits=tally.divided(stacks.data_wait_kind, "validation wait"),
        stages=tally.divided(_stage, "data making", "validation making"),
        top={what: tally.top(what, of_all=True) for what in tally.stacks},
        pin_thread=any(stacks.is_pin_thread(s) for t in threads if t.pid == process.pid for s in t.stacks),
        workers=_workers(workers, threads) if workers else None,
        tally=tally,
    )


def _stage(stack: CallStack) -> str:
    return (stage_of(stack) or (SAMPLE, ""))[0]


def _workers(processes: list[ProcessStates], threads: list[SeenThread]) -> Workers:
    pids = {p.pid for p in processes}
    mine = [t for t in threads if t.pid in pids and any(map(stacks.is_worker, t.stacks))]
    tally = Tally.of(mine, lambda stack: IDLE if stage_of(stack) is None else MAKING)
    return Workers(
        count=sum(p.present for p in processes),
        seen=len(processes),
        cpu=_cpu(processes),
        looks=sum(thread.looks for thread in mine),
        busy=tally.share(MAKING) if mine else None,
        stages=tally.divided(_stage, MAKING),
        top=tally.top(MAKING),
        read_bytes_per_s=_per_s(processes, "read_bytes"),
        read_chars_per_s=_per_s(processes, "read_chars"),
        tally=tally,
    )


def _cpu(processes: Sequence[ProcessStates]) -> Cpu:
    looks = sum(p.looks for p in processes)
    running, queued, main = (_per_s(processes, name, 1e9) for name in ("cpu_ns", "main_queue_ns", "main_cpu_ns"))
    return Cpu(running, queued, sum(p.states.get("D", 0) for p in processes) / looks if looks else None, main)


def _per_s(processes: Sequence[ProcessStates], name: str, of_one: float = 0.0) -> float | None:
    """The rise of a counter a second, of all processes together; `of_one`: of one on average, in so many."""
    told = [(getattr(p, name), p.seconds) for p in processes if getattr(p, name) is not None and p.seconds > 0]
    if not told:
        return None
    rise = float(sum(each for each, _ in told))
    return rise / sum(s for _, s in told) / of_one if of_one else rise / max(s for _, s in told)
