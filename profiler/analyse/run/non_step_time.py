"""Time outside the steps: evaluating, what that waited for, and saving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, EventKind, StepFlag
from ..intervals import Intervals, covered, intersect, subtract, total, union, union_of
from ..shares import MOSTLY
from .events import lasting, under_way
from .host_gaps import named_within
from .loader_stats import BUSY
from .stall_breakdown import Partition
from .window import Window

LEAST_RESTARTS = 2
"""Passes of a validation that wait for workers to start, from which these are started anew for each: once they have to
be in any case."""


@dataclass(frozen=True)
class Evaluation:
    """Passes over loaders that train nothing. `None`: not known."""

    passes: int
    ns: int
    """Time that they took outside the steps."""
    waited_ns: int
    """Part of `ns` in which they waited for batches."""
    workers: int | None
    """Worker processes of the loader; of several loaders the fewest."""
    starting_ns: int | None
    """Part of `waited_ns` until a worker took up the first batch of a pass."""
    first_ns: int | None
    """Part of `waited_ns` in which the first batch of a pass was made."""
    busy: float | None
    """Share of the passes, their starts left out, in which a worker prepared batches, 0..1."""
    making_ns: int | None = None
    """Time spent preparing batches in whole passes, summed over the workers."""
    using_ns: int = 0
    """Time of whole passes that did not wait for batches."""
    batches: float | None = None
    """Batches that were made in a pass; the mean."""
    cpu_share: float | None = None
    """CPU that preparing batches took, of the time in which it was not waiting for a CPU, 0..1."""
    slow_starts: int = 0
    """Passes that waited mostly for their first batch, and of that longer until a worker took it up than while it was
    made."""
    renewed: bool = False
    """Whether each pass has an iterator of its own: with persistent workers all passes have the same."""

    @property
    def waits(self) -> bool:
        """Whether most of its time is waiting for batches."""
        return self.waited_ns >= MOSTLY * self.ns

    @property
    def started_once(self) -> bool:
        """Whether most of the waiting is for workers to start, in one pass only."""
        return self._starting and self.slow_starts < LEAST_RESTARTS

    @property
    def cause(self) -> str | None:
        """The contract's code of what its loader lacks; `None` where it is not known, or nothing."""
        if self.workers == 0:
            return "input.serial"
        if self._starting:
            restarted = self.renewed and self.slow_starts >= LEAST_RESTARTS
            return "input.worker_restart" if restarted else None
        if self._first_batches:
            return "input.pipeline_fill"
        return "input.too_few_workers" if self._busy else None

    @property
    def _starting(self) -> bool:
        return self._first_batches and (self.starting_ns or 0) >= (self.first_ns or 0)

    @property
    def _first_batches(self) -> bool:
        """Whether most of the waiting is for first batches of passes: until a worker takes one up, or while it is made.
        Both together count where workers have time to spare; busy ones are waited for afterwards too."""
        if self.workers == 0:
            return False
        starting, making = self.starting_ns or 0, self.first_ns or 0
        return (max(starting, making) if self._busy else starting + making) >= max(1.0, MOSTLY * self.waited_ns)

    @property
    def _busy(self) -> bool:
        return self.busy is not None and self.busy >= BUSY


@dataclass(frozen=True)
class Outside:
    """Time outside the steps, and what it was spent on."""

    evaluation: Evaluation | None
    """`None` where nothing was evaluated."""
    saves: int
    """Checkpoints saved."""
    saving_ns: int
    stretches: int
    """Stretches outside the steps."""
    longest_ns: int
    """The longest of them."""
    named: tuple[tuple[str, float], ...]
    """(phase of the program or checkpoint, share of the wall time), the longest first"""
    epochs_ended: int = 0
    """Ends of epochs that another one followed."""
    epochs_ending_ns: int = 0
    """Time between the ends of epochs and the beginnings that follow, neither evaluating nor saving nor in a phase."""


def outside_of(
    window: Window, events: Records, batches: Records, parts: Partition, names: Mapping[int, str] | None
) -> Outside | None:
    """`None` where there is none. `batches`: of all loaders."""
    if total(parts.outside) == 0:
        return None
    saves = lasting(events, EventKind.SAVE)
    lengths = parts.outside[:, 1] - parts.outside[:, 0]
    spans = under_way(saves)
    ends = _epoch_ends(window)
    phases = under_way(lasting(events, EventKind.PHASE))
    explained = union_of(union_of(spans, phases), under_way(lasting(events, EventKind.EVALUATION)))
    during = (saves["end_ns"] > window.begin_ns) & (saves["t_ns"] < window.end_ns)
    return Outside(
        evaluation=_evaluation(window, events, batches, parts.outside, spans),
        saves=int(during.sum()),
        saving_ns=total(intersect(parts.outside, spans)),
        stretches=len(parts.outside),
        longest_ns=int(lengths.max()),
        named=named_within(window, events, parts.outside, names),
        epochs_ended=len(ends),
        epochs_ending_ns=total(subtract(intersect(parts.outside, ends), explained)),
    )


def _epoch_ends(window: Window) -> Intervals:
    """From the end of an epoch's last step until the first fetch of the next one."""
    steps = window.steps
    first = 1 + np.flatnonzero((steps["flags"][1:] & StepFlag.FIRST_OF_EPOCH) != 0)
    begin, end = steps["step_end_ns"][first - 1], steps["fetch_begin_ns"][first]
    later = end > begin
    return union(begin[later], end[later])


def _evaluation(
    window: Window, events: Records, batches: Records, outside: Intervals, saving: Intervals
) -> Evaluation | None:
    passes = lasting(events, EventKind.EVALUATION)
    passes = passes[(passes["end_ns"] > window.begin_ns) & (passes["t_ns"] < window.end_ns)]
    if len(passes) == 0:
        return None
    within = intersect(outside, under_way(passes))
    spent = total(subtract(within, saving))
    whole = int((passes["end_ns"] - passes["t_ns"]).sum())
    # Of a pass that began before the window, or while the device still had work, the waiting counts in proportion.
    exposed = total(within) / whole if whole else 0.0
    told = events[events["what"] == EventKind.EVALUATION_WORKERS]
    told = told[(told["t_ns"] >= passes["t_ns"].min()) & (told["value"] >= 0)]
    workers = int(told["value"].min()) if len(told) else None
    waited = int(passes["value"].clip(0).sum())
    made = _made(window, passes, batches, workers)
    return Evaluation(
        passes=len(passes),
        ns=spent,
        waited_ns=min(spent, round(waited * exposed)),
        workers=workers,
        starting_ns=None if made is None else round(made.starting_ns * exposed),
        first_ns=None if made is None else round(made.first_ns * exposed),
        busy=None if made is None else made.busy,
        # Without workers the pass waits for as long as its batches take.
        making_ns=waited if workers == 0 else None if made is None else made.making_ns,
        using_ns=max(0, whole - waited),
        batches=None if made is None else made.batches,
        cpu_share=None if made is None else made.cpu_share,
        slow_starts=0 if made is None else made.slow_starts,
        renewed=made is not None and made.renewed,
    )


@dataclass(frozen=True)
class _Made:
    """What the makers of batches did in passes of a validation; fields as in `Evaluation`, of whole passes."""

    starting_ns: int
    first_ns: int
    making_ns: int
    busy: float | None
    batches: float
    cpu_share: float | None
    slow_starts: int
    renewed: bool


def _made(window: Window, passes: Records, batches: Records, workers: int | None) -> _Made | None:
    """`None` where nothing is known of how they were made."""
    theirs = batches[(batches["loader"] != NOT_MEASURED) & ~np.isin(batches["loader"], window.all_steps["loader"])]
    starting = first = working = ran = slow_starts = 0
    told = []
    iterators: set[int] = set()
    for one in passes:
        begin, end = int(one["t_ns"]), int(one["end_ns"])
        mine = theirs[(theirs["begin_ns"] >= begin) & (theirs["begin_ns"] < end)]
        if len(mine) == 0:
            continue
        told.append(mine)
        taken_up = mine["begin_ns"].argmin()
        until = int(mine["begin_ns"][taken_up]) - begin
        starting += until
        making = int(mine["end_ns"][taken_up] - mine["begin_ns"][taken_up])
        slow_starts += until >= making and until + making >= MOSTLY * int(one["value"])
        iterators.add(int(mine["loader"][taken_up]))
        first += making
        ran += end - int(mine["begin_ns"][taken_up])
        working += sum(
            int(covered(union(each["begin_ns"], each["end_ns"]), np.array([begin]), np.array([end]))[0])
            for each in (mine[mine["worker"] == worker] for worker in np.unique(mine["worker"]))
        )
    if not ran:
        return None
    busy = min(1.0, working / (ran * workers)) if workers else None
    every = np.concatenate(told)
    number = (len(every) + int(every["skipped"].clip(0).sum())) / len(told)
    renewed = len(iterators) == len(told)
    return _Made(starting, first, working, busy, number, _cpu_share(every), slow_starts, renewed)


def _cpu_share(batches: Records) -> float | None:
    known = batches[batches["cpu_ns"] != NOT_MEASURED]
    queued = np.where(known["run_queue_ns"] == NOT_MEASURED, 0, known["run_queue_ns"])
    lasted = int((known["end_ns"] - known["begin_ns"] - queued).sum())
    return min(1.0, float(known["cpu_ns"].sum()) / lasted) if lasted > 0 else None
