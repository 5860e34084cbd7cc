"""Tracks of a loader: one for each worker, with the time of each batch, and which batches held up others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....record.schema import NOT_MEASURED
from .events import Tracks
from .scene import Scene

_MS = {
    "read_ms": "read_ns",
    "decode_ms": "decode_ns",
    "transform_ms": "transform_ns",
    "collate_ms": "collate_ns",
    "cpu_ms": "cpu_ns",
    "waited_for_cpu_ms": "run_queue_ns",
    "idle_before_ms": "idle_ns",
    "slowest_sample_ms": "slowest_ns",
}
_COUNTS = {
    "samples": "samples",
    "bytes": "batch_bytes",
    "read_bytes": "read_bytes",
    "threads": "threads",
    "slowest_sample": "slowest_index",
    "skipped_before": "skipped",
}


def add_loader(
    tracks: Tracks, scene: Scene, pid: int, names: Mapping[int, str]
) -> dict[int, tuple[int, int, int, int]]:
    """Return by step where its batch was prepared: process, track, start and end of the slice."""
    lanes = scene.timeline.lanes
    told = (lanes.batches["begin_ns"] != NOT_MEASURED) & (lanes.batches["end_ns"] >= lanes.batches["begin_ns"])
    # Nothing is before the trace's zero.
    told &= lanes.batches["end_ns"] + scene.offset_ns >= 0
    inside = np.zeros(len(lanes.batches), dtype=bool)
    inside[scene.covers(lanes.batches["begin_ns"], lanes.batches["end_ns"])] = True
    # A batch may be ready long before the step that takes it.
    inside |= np.isin(lanes.batches["step"], scene.steps["step"])
    chosen = np.flatnonzero(inside & told)
    batches = lanes.batches[chosen]
    begin, end = scene.shifted(batches["begin_ns"]), scene.shifted(batches["end_ns"])
    made: dict[int, tuple[int, int, int, int]] = {}
    for worker in np.unique(batches["worker"]).tolist():
        mine = np.flatnonzero(batches["worker"] == worker)

        def label(i: int, mine: Any = mine) -> str:
            step = int(batches["step"][mine[i]])
            return "batch" if step == NOT_MEASURED else f"batch of step {step}"

        def args(i: int, mine: Any = mine) -> dict[str, Any]:
            return _of_batch(batches[mine[i]], names)

        title = "loader" if worker == NOT_MEASURED else f"worker {worker}"
        if scene.timeline.facts.made_in_training:
            title = "batches prepared in the training process"
        threads = tracks.slices(pid, title, begin[mine], end[mine], label, args)
        for place, tid in zip(mine.tolist(), threads.tolist(), strict=True):
            step = int(batches["step"][place])
            if step != NOT_MEASURED:
                made[step] = (pid, tid, int(begin[place]), int(end[place]))
    _blocks(tracks, scene, pid)
    return made


def _of_batch(batch: Any, names: Mapping[int, str]) -> dict[str, Any]:
    told: dict[str, Any] = {shown: int(batch[name]) for shown, name in _COUNTS.items() if batch[name] != NOT_MEASURED}
    told |= {shown: int(batch[name]) / 1e6 for shown, name in _MS.items() if batch[name] != NOT_MEASURED}
    return told | {"slowest_file": names.get(int(batch["slowest_name"]))}


def _blocks(tracks: Tracks, scene: Scene, pid: int) -> None:
    """Add head-of-line blocks: the training waited for one batch while a later one was finished."""
    lanes = scene.timeline.lanes
    blocked = lanes.blocked_end_ns > lanes.blocked_begin_ns
    chosen = scene.covers(lanes.blocked_begin_ns, lanes.blocked_end_ns)
    chosen = chosen[blocked[chosen]]
    batches = lanes.batches[chosen]

    def label(i: int) -> str:
        return f"the batch of step {int(batches['step'][i])} holds up later ones"

    tracks.slices(
        pid,
        "head-of-line blocks",
        scene.shifted(lanes.blocked_begin_ns[chosen]),
        scene.shifted(lanes.blocked_end_ns[chosen]),
        label,
        lambda i: {"worker": int(batches["worker"][i])} if batches["worker"][i] != NOT_MEASURED else {},
    )
