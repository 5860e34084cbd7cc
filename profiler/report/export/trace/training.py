"""Tracks of a training process: its steps, its calls that wait, and its work outside the steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ....record.schema import NOT_MEASURED, EventKind, PauseKind
from .events import Event, Tracks, complete, instant, us
from .scene import Scene

_PAUSES = {
    PauseKind.SYNC: "wait for the device",
    PauseKind.COPY: "copy to the device",
    PauseKind.QUEUED_COPY: "queued copy to the device",
    PauseKind.STREAM_WAIT: "wait queued in a stream",
    PauseKind.COPY_AHEAD: "copy ahead to the device",
    PauseKind.FETCH: "further fetch",
}
_OUTSIDE = {
    EventKind.BOUNDARY: "outside the steps",
    EventKind.EVALUATION: "evaluation",
    EventKind.SAVE: "checkpoint",
    EventKind.COMPILE: "torch's compiler",
}
_INSTANTS = {
    EventKind.TRAINING_BEGIN: "training begins",
    EventKind.TRAINING_END: "training ends",
    EventKind.ALLOCATOR_RETRIES: "the allocator freed its caches",
    EventKind.WORKER_DIED: "a worker died",
}


def add_training(tracks: Tracks, scene: Scene, pid: int, names: Mapping[int, str]) -> tuple[int, int]:
    """Returns the track of the steps, and how many steps there are."""
    tid = tracks.thread(pid, "steps")
    count = _steps(tracks, scene, pid, tid)
    _calls(tracks, scene, pid)
    _lasting(tracks, scene, pid, names)
    _instants(tracks, scene, pid, tid)
    return tid, count


def _steps(tracks: Tracks, scene: Scene, pid: int, tid: int) -> int:
    """A slice a step, and in it those of its phases that were seen."""
    steps = scene.steps
    if len(steps) == 0:
        return 0
    begin, end = scene.shifted(steps["fetch_begin_ns"]), scene.shifted(steps["step_end_ns"])
    # A step ends before the next begins, whatever its stamps say.
    following = np.append(begin[1:], np.iinfo(np.int64).max)
    end = np.minimum(np.maximum(end, begin), np.maximum(following, begin))

    def make(i: int) -> Iterator[Event]:
        step = steps[i]
        yield complete(pid, tid, int(begin[i]), int(end[i]), f"step {int(step['step'])}", _of_step(step), "step")
        cursor = int(begin[i])
        for name, starts, stops in _phases(step):
            low, high = max(scene.shift(starts), cursor), min(scene.shift(stops), int(end[i]))
            if high >= low:
                yield complete(pid, tid, low, high, name, None, "phase")
                cursor = high

    tracks.add(begin, make)
    return len(steps)


def _of_step(step: Any) -> dict[str, Any]:
    fields = {
        "epoch": "epoch",
        "samples": "samples",
        "queue_ready": "queue_ready",
        "queue_capacity": "queue_capacity",
        "copy_bytes": "copy_bytes",
        "skipped_before": "skipped",
    }
    told = {shown: int(step[name]) for shown, name in fields.items() if step[name] != NOT_MEASURED}
    spent = {"sync_ms": "sync_ns", "gc_ms": "gc_ns", "cpu_ms": "cpu_ns", "overhead_ms": "overhead_ns"}
    return told | {shown: int(step[name]) / 1e6 for shown, name in spent.items() if step[name] != NOT_MEASURED}


def _phases(step: Any) -> Iterator[tuple[str, int, int]]:
    """Name, begin and end of what is known of a step, in the order it happens."""
    stamp = {name: int(step[name]) for name in step.dtype.names if name.endswith("_ns")}

    def first(*among: str) -> int | None:
        return next((stamp[name] for name in among if stamp[name] != NOT_MEASURED), None)

    ends = {
        "fetch": ("fetch_begin_ns", first("fetch_end_ns")),
        "forward": ("forward_begin_ns", first("backward_begin_ns", "optimizer_begin_ns", "step_end_ns")),
        "backward": ("backward_begin_ns", first("optimizer_begin_ns", "step_end_ns")),
        "optimizer": ("optimizer_begin_ns", first("optimizer_end_ns")),
    }
    for name, (starts, stops) in ends.items():
        if stamp[starts] != NOT_MEASURED and stops is not None:
            yield name, stamp[starts], stops


def _calls(tracks: Tracks, scene: Scene, pid: int) -> None:
    """Calls of the training thread that wait for the device, or copy to it."""
    steps, pauses = scene.steps, scene.pauses
    copied = steps[(steps["copy_begin_ns"] != NOT_MEASURED) & (steps["copy_end_ns"] != NOT_MEASURED)]
    begin = scene.shifted(np.concatenate((copied["copy_begin_ns"], pauses["begin_ns"])))
    end = scene.shifted(np.concatenate((copied["copy_end_ns"], pauses["end_ns"])))
    number = np.concatenate((copied["step"], pauses["step"]))
    moved = np.concatenate((copied["copy_bytes"], pauses["amount_bytes"]))
    names = ["copy of the batch"] * len(copied) + [_PAUSES.get(what, "call") for what in pauses["what"].tolist()]

    def args(i: int) -> dict[str, Any]:
        told = {"step": int(number[i])}
        return told if moved[i] == NOT_MEASURED else told | {"bytes": int(moved[i])}

    tracks.slices(pid, "calls that wait or copy", begin, end, names.__getitem__, args)


def _lasting(tracks: Tracks, scene: Scene, pid: int, names: Mapping[int, str]) -> None:
    """Things that last: garbage collections, evaluations and the like, the program's own phases."""
    events = scene.events
    events = events[events["end_ns"] != NOT_MEASURED]

    def track(title: str, whats: Mapping[int, str], of_value: bool = False) -> None:
        chosen = scene.within(events[np.isin(events["what"], list(whats))], "t_ns", "end_ns")
        begin, end = scene.shifted(chosen["t_ns"]), scene.shifted(chosen["end_ns"])

        def label(i: int) -> str:
            if of_value:
                return names.get(int(chosen["value"][i]), "phase without a name")
            return whats[int(chosen["what"][i])]

        tracks.slices(pid, title, begin, end, label)

    track("garbage collection", {EventKind.GARBAGE: "garbage collection"})
    track("outside the steps", _OUTSIDE)
    track("phases of the program", {EventKind.PHASE: "phase"}, of_value=True)


def _instants(tracks: Tracks, scene: Scene, pid: int, tid: int) -> None:
    events = scene.events
    moments = [(scene.shift(scene.timeline.begin_ns), "the warm-up ends: reports count from here")]
    for event in events[np.isin(events["what"], [EventKind.EPOCH_BEGIN, *_INSTANTS])]:
        what, value = int(event["what"]), int(event["value"])
        name = f"epoch {value} begins" if what == EventKind.EPOCH_BEGIN else _INSTANTS[what]
        moments.append((scene.shift(int(event["t_ns"])), name))
    moments = [(at, name) for at, name in moments if scene.low <= at < scene.high]
    tracks.add(
        np.array([at for at, _ in moments], dtype=np.int64),
        lambda i: iter((instant(pid, tid, *moments[i]),)),
    )


def add_queue(tracks: Tracks, scene: Scene, pid: int) -> None:
    """Add how many finished batches waited when each fetch began."""
    known = scene.steps[scene.steps["queue_ready"] != NOT_MEASURED]
    tracks.counter(
        pid,
        "finished batches waiting",
        "batches",
        scene.shifted(known["fetch_begin_ns"]),
        known["queue_ready"].astype(np.float64),
    )


def add_flows(tracks: Tracks, scene: Scene, pid: int, tid: int, made: Mapping[int, tuple[int, int, int, int]]) -> None:
    """Add arrows from the worker's slice of a batch to the fetch that handed it over.

    Where the training waited for the batch, the flow ends in a slice of its own within the fetch: the hand-over, from
    the finished batch to the training. Viewers draw arrows from the slice that began first.

    Args:
        made: by number of the step, process, track, begin and end of its batch's slice.
    """
    steps = scene.steps
    steps = steps[(steps["fetch_end_ns"] != NOT_MEASURED) & np.isin(steps["step"], list(made))]
    numbers = {int(step): tracks.flow() for step in steps["step"]}
    ends = np.maximum(scene.shifted(steps["fetch_begin_ns"]), scene.shifted(steps["fetch_end_ns"]) - 1)

    def make(i: int) -> Iterator[Event]:
        step = int(steps["step"][i])
        from_pid, from_tid, begin, end = made[step]
        leaves = max(begin, end - 1)
        # Clocks are one; stamps of two processes may still be taken in the wrong order.
        if leaves > ends[i]:
            return
        if (low := max(end, scene.shift(int(steps["fetch_begin_ns"][i])))) == end:
            yield complete(pid, tid, low, int(ends[i]) + 1, "hand-over", None, "phase")
        told = {"cat": "batch", "name": "batch", "id": numbers[step]}
        yield {"ph": "s", "pid": from_pid, "tid": from_tid, "ts": us(leaves), **told}
        yield {"ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": us(int(ends[i])), **told}

    tracks.add(ends, make)
