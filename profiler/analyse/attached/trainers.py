"""The processes that train, seen from outside: looks at each thread, from its first sight of training on; what the one
that trains spends its time on, and what its workers do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
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

OWN = ("data wait", "data making", *stacks.VALIDATION.values(), "checkpoint", "logging", "python")
"""What holds up one rank and not by itself the others."""

Counts = defaultdict[str, float]


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


def _lines(seen: Counter[CallStack], time: str) -> tuple[Where, ...]:
    """Of the user's own code, but for those seen too seldom to be more than chance."""
    lines = places(seen.items(), time)
    return tuple(line for line in lines if line.samples >= LEAST_LOOKS and (line.share or 0.0) >= LEAST_SHARE)


@dataclass(frozen=True)
class Cpu:
    """What `/proc` says processes did, as shares of their time."""

    running: float | None
    """On a CPU; above 1 for several threads."""
    queued: float | None
    """The main thread waited for a CPU."""
    io: float | None
    """The main thread waited for a disk (uninterruptible sleep)."""
    main: float | None = None
    """The main thread was on a CPU."""

    @property
    def idle(self) -> float | None:
        """The rest: the main thread waited for something else."""
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
    """Different processes: more than `count` where they were started anew."""
    cpu: Cpu
    looks: int
    """At their stacks, all together."""
    busy: float | None
    """Estimate of their time in which they prepared batches, by their stacks."""
    stages: Mapping[str, float]
    """Shares of the time they prepared batches."""
    top: tuple[tuple[str, float], ...]
    """Function and place → share of the time they prepared batches."""
    read_bytes_per_s: float | None
    read_chars_per_s: float | None
    making: Counter[CallStack] = field(default_factory=Counter)
    """Stacks in which they prepared batches, each with how often it was seen."""

    def lines(self, time: str) -> tuple[Where, ...]:
        """The lines on which they prepare batches; `time`: what their shares are of, in words."""
        return _lines(self.making, time)


@dataclass(frozen=True)
class Trainer:
    """One process that trains: its thread, and its workers."""

    pid: int
    rank: int | None
    command: str
    thread: str
    main_thread: bool
    looks: int
    missed: int
    cpu: Cpu
    shares: Mapping[str, Estimate]
    """Class → share of time; empty where no stacks were read."""
    waits: Mapping[str, float]
    """Of the time spent waiting for data: `waiting`, `unpacking`, `starting workers`, `ending workers`."""
    stages: Mapping[str, float]
    """Of the time in which it prepares batches itself."""
    top: Mapping[str, tuple[tuple[str, float], ...]]
    """Class → function and place → share of time."""
    pin_thread: bool
    workers: Workers | None
    tid: int = 0
    """The kernel's number of its thread."""
    stacks: Mapping[str, Counter[CallStack]] = field(default_factory=dict)
    """Class → the stacks in which its thread was seen doing that, each with how often."""
    validation_waits: Mapping[str, float] = field(default_factory=dict)
    """As `waits`, of the time an evaluation waits for data."""
    before: Counter[CallStack] = field(default_factory=Counter)
    """Stacks of its thread before it was first seen training."""

    def lines(self, time: str, *classes: str) -> tuple[Where, ...]:
        """The lines on which its thread was seen doing this; `time`: what their shares are of, in words."""
        return _lines(sum((self.stacks.get(each, Counter()) for each in classes), Counter()), time)

    @property
    def own(self) -> float:
        """Estimate of time in which other ranks would have to wait for this one."""
        return self.share(*OWN)

    def share(self, *classes: str) -> float:
        return sum(self.shares[c].value for c in classes if c in self.shares)


def spread(thread: SeenThread) -> dict[CallStack, float]:
    """The stacks of a thread with their weights. A look fails because the stack changes while it is read, so the
    looks that failed were at a thread that ran: they are shared out over the stacks it ran in."""
    running = sum(n for stack, n in thread.stacks.items() if not stacks.is_blocked(stack))
    factor = 1 + thread.missed / running if running else 1.0
    return {s: n if stacks.is_blocked(s) else n * factor for s, n in thread.stacks.items()}


def trainers_of(
    threads: list[SeenThread], processes: list[ProcessStates], root: int, on_cpu: bool
) -> tuple[list[Trainer], bool]:
    """The processes that train, by rank, and whether any was seen training."""
    by_pid = {p.pid: p for p in processes}
    chosen: dict[int, SeenThread] = {}
    for thread in threads:
        training = training_looks(thread)
        best = chosen.get(thread.pid)
        if training and (best is None or training > training_looks(best)):
            chosen[thread.pid] = thread
    seen = bool(chosen)
    if not chosen:
        mains = {t.pid: t for t in reversed(threads) if t.is_main}
        chosen = {pid: mains.get(pid, SeenThread(pid, pid)) for pid in _likely(processes, threads, root)}
    pids = set(chosen)
    trainers = [_trainer(pid, thread, threads, processes, by_pid, pids, on_cpu) for pid, thread in chosen.items()]
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
    if process.name.startswith(WORKER_NAME):
        return True
    mains = [t for t in threads if t.pid == process.pid and t.is_main]
    return any(stacks.is_worker(stack) for thread in mains for stack in thread.stacks)


def _trainer(
    pid: int,
    thread: SeenThread,
    threads: list[SeenThread],
    processes: list[ProcessStates],
    by_pid: dict[int, ProcessStates],
    trainers: set[int],
    on_cpu: bool,
) -> Trainer:
    process = by_pid.get(pid) or ProcessStates(pid, 0, "?")
    weights = spread(thread)
    total = sum(weights.values())
    classes: Counts = defaultdict(float)
    classified: defaultdict[str, Counter[CallStack]] = defaultdict(Counter)
    waits: Counts = defaultdict(float)
    validation_waits: Counts = defaultdict(float)
    stages: Counts = defaultdict(float)
    places: dict[str, Counts] = {}
    for stack, weight in weights.items():
        what = stacks.class_of(stack)
        if what == "sync" and on_cpu:
            # Nothing is waited for there: within a model it is the model's computing.
            what = stacks.training_part(stack) or what
        validates = what in stacks.VALIDATION and stacks.is_validation(stack)
        what = stacks.VALIDATION[what] if validates else what
        classes[what] += weight
        classified[what][stack] = thread.stacks[stack]
        places.setdefault(what, defaultdict(float))[stacks.leaf_of(stack)] += weight
        if what in ("data wait", "validation wait"):
            (validation_waits if validates else waits)[stacks.data_wait_kind(stack)] += weight
        elif what in ("data making", "validation making"):
            standing = stage_of(stack)
            stages[SAMPLE if standing is None else standing[0]] += weight
    of_it = [p for p in processes if is_worker(p, threads) and _owner(p, by_pid, trainers) == pid]
    return Trainer(
        pid=pid,
        rank=process.rank,
        command=process.command,
        tid=thread.tid,
        thread=thread.name,
        main_thread=thread.is_main,
        looks=thread.looks,
        missed=thread.missed,
        before=thread.before,
        stacks=classified,
        cpu=_cpu([process]),
        shares={c: wilson(classes[c] / total, thread.looks) for c in stacks.CLASSES if classes[c]},
        waits=_parts(waits),
        validation_waits=_parts(validation_waits),
        stages=_parts(stages),
        top={what: _top(counts, total) for what, counts in places.items()},
        pin_thread=any(stacks.is_pin_thread(s) for t in threads if t.pid == pid for s in t.stacks),
        workers=_workers(of_it, threads) if of_it else None,
    )


def _owner(process: ProcessStates, by_pid: dict[int, ProcessStates], trainers: set[int]) -> int | None:
    """The nearest ancestor that trains; whoever trains alone where the chain is broken."""
    parent: int | None = process.parent
    for _ in range(len(by_pid)):
        if parent is None or parent in trainers:
            break
        above = by_pid.get(parent)
        parent = above.parent if above else None
    return parent if parent in trainers else (next(iter(trainers)) if len(trainers) == 1 else None)


def _workers(processes: list[ProcessStates], threads: list[SeenThread]) -> Workers:
    pids = {p.pid: p for p in processes}
    looks = 0
    making = total = 0.0
    stages: Counts = defaultdict(float)
    places: Counts = defaultdict(float)
    stood: Counter[CallStack] = Counter()
    for thread in threads:
        if thread.pid not in pids or not any(stacks.is_worker(stack) for stack in thread.stacks):
            continue
        looks += thread.looks
        for stack, weight in spread(thread).items():
            total += weight
            standing = stage_of(stack)
            if standing is not None:
                making += weight
                stood[stack] += thread.stacks[stack]
                stages[standing[0]] += weight
                places[stacks.leaf_of(stack)] += weight
    return Workers(
        count=sum(p.present for p in processes),
        seen=len(processes),
        cpu=_cpu(processes),
        looks=looks,
        busy=making / total if total else None,
        stages=_parts(stages),
        top=_top(places, making),
        read_bytes_per_s=_per_s(processes, "read_bytes"),
        read_chars_per_s=_per_s(processes, "read_chars"),
        making=stood,
    )


def _cpu(processes: Sequence[ProcessStates]) -> Cpu:
    looks = sum(p.looks for p in processes)
    return Cpu(
        running=_share(processes, "cpu_ns"),
        queued=_share(processes, "main_queue_ns"),
        io=sum(p.states.get("D", 0) for p in processes) / looks if looks else None,
        main=_share(processes, "main_cpu_ns"),
    )


def _share(processes: Sequence[ProcessStates], name: str) -> float | None:
    rate = _per_s(processes, name, mean=True)
    return None if rate is None else rate / 1e9


def _per_s(processes: Sequence[ProcessStates], name: str, mean: bool = False) -> float | None:
    """The rise of a counter a second: of all processes together, or of one on average."""
    told = [(getattr(p, name), p.seconds) for p in processes if getattr(p, name) is not None and p.seconds > 0]
    if not told:
        return None
    if mean:
        return float(sum(rise for rise, _ in told) / sum(seconds for _, seconds in told))
    return float(sum(rise for rise, _ in told) / max(seconds for _, seconds in told))


def _parts(counts: Mapping[str, float]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: n / total for name, n in sorted(counts.items(), key=lambda item: -item[1])} if total else {}


def _top(counts: Mapping[str, float], total: float) -> tuple[tuple[str, float], ...]:
    if not total:
        return ()
    most = sorted(counts.items(), key=lambda item: -item[1])[:MOST_TOP]
    return tuple((name, n / total) for name, n in most)
