"""Time behind what the training does with a batch before its model, behind other work of its loop, and behind
synchronising calls: where, how often, how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, EventKind, PauseKind, StepFlag
from ..intervals import Intervals, intersect, subtract, total, union
from ..shares import NEARLY_ALL
from .events import lasting, under_way
from .exposed_data_wait import Shape, Spread, shape_of
from .outlier_steps import per_step
from .stall_breakdown import Partition
from .window import Window

A_STOP_NS = 1_000_000_000
"""A single stretch of the host's own work this long is no part of a training loop."""
SAVING = "saving a checkpoint"
BEFORE_COMPUTING = "between the fetch and the computation"
LEAST_STAGE = 0.03
"""Share of the wall time between the arrival of batches and their forward passes, from which something is done there
with the batch. What is less is `zero_grad`, a scheduler, the bookkeeping of a loop."""


@dataclass(frozen=True)
class Staging:
    """What the training does with each batch between its arrival and the forward pass, garbage collections left
    out."""

    shape: Shape
    """How it is spread over the steps."""
    ns: int
    """Time that the device idled behind it; on the processor all of it."""
    when: Intervals
    """When that was, in the steps that were looked at."""
    named: tuple[tuple[str, float], ...]
    """(what the program is known to have done meanwhile, share of the wall time), the longest first"""


@dataclass(frozen=True)
class Gaps:
    """Time that the device idled behind the training loop's own work, garbage collections and a stage left out."""

    shape: Shape
    """How it is spread over the steps."""
    longest_ns: int
    """The longest stretch."""
    longest_step: int | None
    """Number of the step that the longest stretch lies in; `None` before the first."""
    total_ns: int
    places: tuple[tuple[str, float], ...]
    """(place in the step, in words; share of the wall time)"""
    named: tuple[tuple[str, float], ...]
    """(what the program is known to have done meanwhile, share of the wall time), the longest first"""

    @property
    def is_a_stop(self) -> bool:
        """Whether one long stretch makes up nearly all of it: a breakpoint, not the loop."""
        return _is_a_stop(self.longest_ns, self.total_ns)

    @property
    def words(self) -> str:
        return words_of(self.shape)


@dataclass(frozen=True)
class Syncs:
    """Synchronising calls, and the time that the device idled behind them."""

    per_step: float
    """Calls in a step that was looked at; the mean."""
    steps: int
    """Steps with any call."""
    of: int
    """Steps that were looked at."""
    longest_ns: int
    """The longest stretch that the device idled behind a call."""
    shape: Shape
    """How that idling is spread over the steps."""

    @property
    def words(self) -> str:
        return words_of(self.shape)


def _is_a_stop(longest_ns: int, total_ns: int) -> bool:
    return longest_ns >= A_STOP_NS and longest_ns >= NEARLY_ALL * total_ns


def words_of(shape: Shape) -> str:
    """Where in the training something is that is spread so thinly that no step stands out, too."""
    return "at every step" if shape.spread is Spread.NOWHERE else shape.words


def staging_of(window: Window, events: Records, parts: Partition, names: Mapping[int, str] | None) -> Staging | None:
    """`None` where there is none worth a word, where the program once stood still there, or where it is not seen when
    the model is called."""
    seen = window.all_steps[(window.all_steps["flags"] & StepFlag.FORWARD_SEEN) != 0]
    arrived = union(seen["fetch_end_ns"], seen["forward_begin_ns"])
    when = intersect(subtract(parts.hosting, under_way(lasting(events, EventKind.GARBAGE))), arrived)
    ns = round(parts.of_all_steps("host", total(when)))
    if ns < LEAST_STAGE * parts.wall_ns or _is_a_stop(int((when[:, 1] - when[:, 0]).max()), total(when)):
        return None
    return Staging(_shape(window, when, parts), ns, when, named_within(window, events, when, names))


def gaps_of(
    window: Window, events: Records, parts: Partition, names: Mapping[int, str] | None, staging: Staging | None = None
) -> Gaps | None:
    """`None` where nothing else than the `staging` kept the device waiting."""
    gaps = subtract(parts.hosting, under_way(lasting(events, EventKind.GARBAGE)))
    if staging is not None:
        gaps = subtract(gaps, staging.when)
    if total(gaps) == 0:
        return None
    lengths = gaps[:, 1] - gaps[:, 0]
    begin = int(gaps[lengths.argmax(), 0])
    place = int(np.searchsorted(window.steps["fetch_begin_ns"], begin, side="right")) - 1
    return Gaps(
        shape=_shape(window, gaps, parts),
        longest_ns=int(lengths.max()),
        longest_step=int(window.steps["step"][place]) if place >= 0 else None,
        total_ns=total(gaps),
        places=_places(window, gaps, parts),
        named=named_within(window, events, gaps, names),
    )


def syncs_of(window: Window, pauses: Records, parts: Partition) -> Syncs | None:
    """`None` where the device never idled behind a synchronising call."""
    if total(parts.syncing) == 0:
        return None
    of_steps = pauses[(pauses["what"] == PauseKind.SYNC) & np.isin(pauses["step"], window.steps["step"])]
    return Syncs(
        per_step=len(of_steps) / len(window.steps),
        steps=len(np.unique(of_steps["step"])),
        of=len(window.steps),
        longest_ns=int((parts.syncing[:, 1] - parts.syncing[:, 0]).max()),
        shape=_shape(window, parts.syncing, parts),
    )


def named_within(
    window: Window, events: Records, intervals: Intervals, names: Mapping[int, str] | None
) -> tuple[tuple[str, float], ...]:
    """The program's phases and checkpoints within some of the time, the longest first, as shares of the wall time."""
    found = {}
    saves = under_way(lasting(events, EventKind.SAVE))
    if within := total(intersect(intervals, saves)):
        found[SAVING] = within / window.wall_ns
    phases = lasting(events, EventKind.PHASE)
    for number in np.unique(phases["value"]).tolist():
        spans = under_way(phases[phases["value"] == number])
        if within := total(intersect(intervals, spans)):
            found[f'the program\'s phase "{(names or {}).get(number, "without a name")}"'] = within / window.wall_ns
    return tuple(sorted(found.items(), key=lambda one: -one[1]))


def _places(window: Window, gaps: Intervals, parts: Partition) -> tuple[tuple[str, float], ...]:
    """Where in the step: the copy, what comes before the computation, the midst of it, what comes after."""
    steps = window.all_steps
    ends = steps["optimizer_end_ns"].copy()
    ends[(steps["flags"] & StepFlag.FORWARD_AFTER) != 0] = NOT_MEASURED
    copied = np.where(steps["copy_end_ns"] == NOT_MEASURED, steps["fetch_end_ns"], steps["copy_end_ns"])
    spans = {
        BEFORE_COMPUTING: (copied, steps["forward_begin_ns"]),
        "between the optimizer and the next fetch": (ends, steps["step_end_ns"]),
    }
    found, left = [], gaps
    for name, (begin, end) in spans.items():
        known = (begin != NOT_MEASURED) & (end != NOT_MEASURED)
        where = union(begin[known], end[known])
        found.append((name, total(intersect(left, where))))
        left = subtract(left, where)
    found.append(("during the computation", total(left)))
    return tuple((name, parts.of_all_steps("host", ns) / parts.wall_ns) for name, ns in found if ns)


def _shape(window: Window, intervals: Intervals, parts: Partition) -> Shape:
    # Whatever the device idled behind, the host was at it: its own stamps tell the step.
    lengths = per_step(window, intervals, asynchronous=False)
    pace = (parts.wall_ns - total(intervals)) / max(1, window.count)
    return shape_of(lengths, (window.steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0, pace)
