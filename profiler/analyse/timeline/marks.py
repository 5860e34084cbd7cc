"""What happened to a run beside its steps: epochs, validation, checkpoints, phases, activity windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...record.reader import Records
from ...record.schema import EventKind, StepFlag
from ..run.events import lasting
from .timeline import Timeline

_LASTING = {
    EventKind.BOUNDARY: "boundary",
    EventKind.EVALUATION: "evaluation",
    EventKind.SAVE: "checkpoint",
    EventKind.PHASE: "phase",
    EventKind.ACTIVITY_WINDOW: "activity window",
    EventKind.COMPILE: "compiling",
}


@dataclass(frozen=True)
class Mark:
    kind: str
    """`warm-up`, `epoch`, or a value of `_LASTING`."""
    begin_ns: int
    end_ns: int
    """Of an epoch its begin: it is an instant."""
    name: str = ""


def marks_of(timeline: Timeline, names: Mapping[int, str], most: int) -> tuple[list[Mark], int]:
    """(marks by time, how many were left out). Of more than `most` of a kind the longest are kept."""
    kept: list[Mark] = []
    left_out = 0
    for marks in _by_kind(timeline, names):
        longest = sorted(marks, key=lambda mark: mark.begin_ns - mark.end_ns)[:most]
        left_out += len(marks) - len(longest)
        kept += longest
    return sorted(kept, key=lambda mark: mark.begin_ns), left_out


def _by_kind(timeline: Timeline, names: Mapping[int, str]) -> Iterator[list[Mark]]:
    steps, window = timeline.steps, timeline.facts.window
    if window.warmup_steps:
        yield [Mark("warm-up", int(steps["fetch_begin_ns"][0]), window.begin_ns)]
    first = steps[(steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0]
    yield [Mark("epoch", int(at), int(at), str(epoch)) for at, epoch in zip(*_of(first), strict=True)]
    for what, kind in _LASTING.items():
        events = lasting(timeline.events, what)
        events = events[(events["end_ns"] > timeline.begin_ns) & (events["t_ns"] < timeline.end_ns)]
        yield [Mark(kind, int(e["t_ns"]), int(e["end_ns"]), _name(kind, int(e["value"]), names)) for e in events]


def _of(first: Records) -> tuple[np.ndarray, np.ndarray]:
    return first["fetch_begin_ns"], first["epoch"]


def _name(kind: str, value: int, names: Mapping[int, str]) -> str:
    if kind == "phase":
        return names.get(value, "without a name")
    return str(value) if kind == "activity window" else ""
