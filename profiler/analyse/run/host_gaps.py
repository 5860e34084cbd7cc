"""Time behind the host: what it does with a batch before its model, other work of its loop, synchronising calls; and
outside the steps, evaluating, what that waited for, and saving. Where, how often, how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, STEP, EventKind, PauseKind, StepFlag
from ..intervals import Intervals, covered, intersect, subtract, total, union, union_of
from ..shares import MOSTLY, NEARLY_ALL
from .exposed_data_wait import Spread, shape_of
from .loader_stats import LoaderStats, loader_of, passes_of
from .stall_breakdown import Partition
from .window import Window, flagged, lasting, measured_or, per_step, under_way

A_STOP_NS = 1_000_000_000
"""A single stretch of the host's own work this long is no part of a training loop."""
SAVING = "saving a checkpoint"
BEFORE_COMPUTING = "between the fetch and the computation"
LEAST_STAGE = 0.03
"""Share of the wall time between batches' arrival and their forward passes, from which work on the batch is seen
there: less is `zero_grad`, a scheduler, the loop's bookkeeping."""
NO_STEP = np.full(1, NOT_MEASURED).astype(STEP.dtype)
"""The one step of a window of which no steps are known."""
LEAST_RESTARTS = 2
"""Validation passes that wait for workers to start, from which each starts them anew."""


@dataclass(frozen=True)
class Idling:
    """Time that the device idled behind some work of the host."""

    when: Intervals
    """When that was, in the steps that were looked at."""
    ns: int
    """All of it, unsampled steps taken to be like the others; on the processor all of that work."""
    words: str
    """How it is spread over the steps, to put into a sentence."""
    longest_ns: int
    """Length of the longest stretch."""
    longest_step: int | None
    """Number of the step that the longest stretch lies in; `None` before the first."""
    places: tuple[tuple[str, float], ...]
    """(place in the step, in words; share of the wall time)"""
    named: tuple[tuple[str, float], ...]
    """(what the program did meanwhile, if known; share of the wall time), the longest first"""
    calls_per_step: float = 0.0
    """Synchronising calls in a step that was looked at, the mean; 0 of other work."""
    calling_steps: int = 0
    """Steps with any such call."""

    @property
    def is_a_stop(self) -> bool:
        """Whether one long stretch makes up nearly all of it: a breakpoint, not the loop."""
        return self.longest_ns >= max(A_STOP_NS, NEARLY_ALL * total(self.when))


Names = Mapping[int, str] | None
"""What the program's phases are called, by number."""


def _idling(window: Window, events: Records, parts: Partition, part: str, when: Intervals, names: Names) -> Idling:
    lengths, steps = when[:, 1] - when[:, 0], window.steps
    place = int(np.searchsorted(steps["fetch_begin_ns"], when[lengths.argmax(), 0], side="right")) - 1
    # Whatever the device idled behind, the host was at it: its own stamps tell the step.
    pace = (parts.wall_ns - total(when)) / max(1, window.count)
    shape = shape_of(per_step(replace(window, queued=False), when), window.firsts, pace)
    return Idling(
        when=when,
        ns=round(parts.of_all_steps(part, total(when))),
        # Also what is spread so thinly that no step stands out is somewhere.
        words="at every step" if shape.spread is Spread.NOWHERE else shape.words,
        longest_ns=int(lengths.max()),
        longest_step=int(steps["step"][place]) if place >= 0 else None,
        places=_places(window, when, parts),
        named=named_within(window, events, when, names),
    )


def idling_of(
    window: Window, events: Records, pauses: Records, parts: Partition, names: Names
) -> tuple[Idling | None, Idling | None, Idling | None]:
    """Find what the device idled behind: (work on each batch between its arrival and the forward pass, other work of
    the loop, synchronising calls).

    `None` each: none. The first also: none worth a word, a single stop of the program, or the model's call is not seen.
    Garbage collections are in none of them.
    """
    working, syncing = subtract(parts.when["host"], under_way(lasting(events, EventKind.GARBAGE))), parts.when["sync"]
    seen = window.all_steps[flagged(window.all_steps, StepFlag.FORWARD_SEEN)]
    staged = intersect(working, union(seen["fetch_end_ns"], seen["forward_begin_ns"]))
    staging = gaps = syncs = None
    if parts.of_all_steps("host", total(staged)) >= LEAST_STAGE * parts.wall_ns:
        staging = _idling(window, events, parts, "host", staged, names)
    if staging is not None and staging.is_a_stop:
        staging = None
    looping = working if staging is None else subtract(working, staged)
    if total(looping):
        gaps = _idling(window, events, parts, "host", looping, names)
    if total(syncing):
        calls = pauses[(pauses["what"] == PauseKind.SYNC) & np.isin(pauses["step"], window.steps["step"])]["step"]
        idling = _idling(window, events, parts, "sync", syncing, None)
        syncs = replace(idling, calls_per_step=len(calls) / len(window.steps), calling_steps=len(np.unique(calls)))
    return staging, gaps, syncs


def named_within(window: Window, events: Records, intervals: Intervals, names: Names) -> tuple[tuple[str, float], ...]:
    """Find the program's phases and checkpoints within some time, as shares of the wall time."""
    phases = lasting(events, EventKind.PHASE)
    spans = {SAVING: under_way(lasting(events, EventKind.SAVE))}
    for number in np.unique(phases["value"]).tolist():
        name = (names or {}).get(number, "without a name")
        spans[f'the program\'s phase "{name}"'] = under_way(phases[phases["value"] == number])
    found = {name: total(intersect(intervals, when)) / window.wall_ns for name, when in spans.items()}
    return tuple(sorted(((name, share) for name, share in found.items() if share), key=lambda one: -one[1]))


def _places(window: Window, gaps: Intervals, parts: Partition) -> tuple[tuple[str, float], ...]:
    """Where in the step gaps are: before the computation, in its midst, after it."""
    steps = window.all_steps
    ends = np.where(flagged(steps, StepFlag.FORWARD_AFTER), NOT_MEASURED, steps["optimizer_end_ns"])
    copied = np.where(steps["copy_end_ns"] == NOT_MEASURED, steps["fetch_end_ns"], steps["copy_end_ns"])
    found, left = [], gaps
    for name, begin, end in (
        (BEFORE_COMPUTING, copied, steps["forward_begin_ns"]),
        ("between the optimizer and the next fetch", ends, steps["step_end_ns"]),
    ):
        where = union(begin, end)
        found.append((name, total(intersect(left, where))))
        left = subtract(left, where)
    found.append(("during the computation", total(left)))
    return tuple((name, parts.of_all_steps("host", ns) / parts.wall_ns) for name, ns in found if ns)


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
    loader: LoaderStats | None = None
    """How their batches are made."""
    making_ns: int | None = None
    """Time spent preparing batches, summed over the workers: as much of it as falls on `ns`."""
    starting_ns: int = 0
    """Part of `waited_ns` until a worker took up the first batch of a pass."""
    first_ns: int = 0
    """Part of `waited_ns` in which the first batch of a pass was made."""
    slow_starts: int = 0
    """Passes that waited mostly for a worker to take up their first batch."""
    iterators: int | None = None
    """Iterators of these passes: persistent workers keep one."""
    batches: float | None = None
    """Batches that were made in a pass; the mean. `None` also where passes draw on from one iterator."""

    @property
    def waits(self) -> bool:
        """Whether most of its time is waiting for batches."""
        return self.waited_ns >= MOSTLY * self.ns

    @property
    def started_once(self) -> bool:
        """Whether most of the waiting is for workers to start, in one pass only."""
        both = self.starting_ns + self.first_ns >= max(1.0, MOSTLY * self.waited_ns)
        return both and self.starting_ns >= self.first_ns and self.slow_starts < LEAST_RESTARTS


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
    """Time from ends of epochs to the next, without evaluating, saving and phases."""


def outside_of(window: Window, events: Records, batches: Records, parts: Partition, names: Names) -> Outside | None:
    """`None` where there is none. `batches`: of all loaders."""
    outside, steps = parts.when["boundary"], window.steps
    if total(outside) == 0:
        return None
    saves = lasting(events, EventKind.SAVE)
    saving = under_way(saves)
    # From the end of an epoch's last step until the first fetch of the next one.
    first = 1 + np.flatnonzero(window.firsts[1:])
    first = first[steps["fetch_begin_ns"][first] > steps["step_end_ns"][first - 1]]
    ends = union(steps["step_end_ns"][first - 1], steps["fetch_begin_ns"][first])
    told = (under_way(lasting(events, kind)) for kind in (EventKind.PHASE, EventKind.EVALUATION))
    return Outside(
        evaluation=_evaluation(window, events, batches, outside, saving),
        saves=len(window.during(saves)),
        saving_ns=total(intersect(outside, saving)),
        stretches=len(outside),
        longest_ns=int((outside[:, 1] - outside[:, 0]).max()),
        named=named_within(window, events, outside, names),
        epochs_ended=len(ends),
        epochs_ending_ns=total(subtract(intersect(outside, ends), union_of(saving, union_of(*told)))),
    )


def _evaluation(
    window: Window, events: Records, batches: Records, outside: Intervals, saving: Intervals
) -> Evaluation | None:
    passes = window.during(lasting(events, EventKind.EVALUATION))
    if len(passes) == 0:
        return None
    begin, end, waited = passes["t_ns"], passes["end_ns"], passes["value"].clip(0)
    within = intersect(outside, under_way(passes))
    spent, whole, waited_ns = total(subtract(within, saving)), int((end - begin).sum()), int(waited.sum())
    # Of a pass that began before the window, or while the device still had work, the waiting counts in proportion.
    exposed = total(within) / whole if whole else 0.0
    told = events[events["what"] == EventKind.EVALUATION_WORKERS]
    told = told[(told["t_ns"] >= begin.min()) & (told["value"] >= 0)]
    workers = int(told["value"].min()) if len(told) else None
    waited_outside_ns, using_ns = min(spent, round(waited_ns * exposed)), max(0, whole - waited_ns)
    # Without workers the pass waits for as long as its batches take.
    making_ns, of_makers = waited_ns if workers == 0 else None, dict[str, Any]()
    # What the makers of batches did, where that is known.
    theirs = batches[(batches["loader"] != NOT_MEASURED) & ~np.isin(batches["loader"], window.all_steps["loader"])]
    theirs = np.sort(theirs[covered(union(begin, end), theirs["begin_ns"], theirs["end_ns"]) > 0], order="begin_ns")
    if workers and len(theirs):
        loader = loader_of(Window(int(begin.min()), int(end.max()), NO_STEP, 0, NO_STEP), theirs)
        made, iterations = len(theirs) + int(theirs["skipped"].clip(0).sum()), len(np.unique(passes_of(theirs)))
        alone = iterations > (1 - MOSTLY) * len(passes)
        making_ns = round(1e6 * measured_or(loader.work_ms_per_batch) * (made if alone else len(passes)))
        of_makers = {"loader": loader, "iterators": len(np.unique(theirs["loader"]))}
        if alone:
            first = theirs[np.minimum(np.searchsorted(theirs["begin_ns"], begin), len(theirs) - 1)]
            seen = (first["begin_ns"] >= begin) & (first["begin_ns"] < end)
            until, making = (first["begin_ns"] - begin)[seen], (first["end_ns"] - first["begin_ns"])[seen]
            of_makers |= {
                "starting_ns": round(int(until.sum()) * exposed),
                "first_ns": round(int(making.sum()) * exposed),
                "slow_starts": int(((until >= making) & (until + making >= MOSTLY * waited[seen])).sum()),
                "batches": made / iterations,
            }
        else:
            # They draw on from one iterator, whose workers also prepare batches while the training goes on; not all
            # batches are recorded.
            using_ns = max(0, window.wall_ns - waited_ns)
    if making_ns is not None and using_ns:
        making_ns = round(making_ns * (spent - waited_outside_ns) / using_ns)
    return Evaluation(len(passes), spent, waited_outside_ns, workers, making_ns=making_ns, **of_makers)
