"""Tracks of a device: what it computed and copied, and what it waited for."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....analyse.intervals import clip
from ....record.reader import Records
from ....record.schema import NOT_MEASURED, SpanKind
from .events import Stamps, Tracks
from .scene import Scene

_PARTS = {"compute": "compute", "boundary": "idle: outside the steps", "untold": "computing or waiting, not told apart"}
_SPANS = {SpanKind.COMPUTE: "compute", SpanKind.COPY: "copy"}


def add_parts(tracks: Tracks, scene: Scene, pid: int, on_processor: bool) -> None:
    """Add where the time went: each recorded instant belongs to one part."""
    kept = []
    for part, spans in scene.timeline.parts.items():
        shown = clip(spans, max(0, scene.low) - scene.offset_ns, scene.high - scene.offset_ns)
        moved = shown + scene.offset_ns
        name = _PARTS.get(part, f"{'waiting' if on_processor else 'idle'}: {part}")
        kept.append((name, moved))
    names = [name for name, spans in kept for _ in range(len(spans))]
    every = np.concatenate([spans for _, spans in kept]) if kept else np.empty((0, 2), dtype=np.int64)
    tracks.slices(pid, "where the time went", every[:, 0], every[:, 1], names.__getitem__)


def add_work(tracks: Tracks, scene: Scene, pid: int) -> None:
    """Add the steps' computation and copies, from start to end on the device's clock."""
    steps, pauses = scene.timeline.steps, scene.timeline.pauses
    computed = steps[scene.covers(steps["device_begin_ns"], steps["device_end_ns"])]
    _track(tracks, scene, pid, "steps on the device", computed, ("device_begin_ns", "device_end_ns"), "compute")
    copied = steps[scene.covers(steps["device_copy_begin_ns"], steps["device_copy_end_ns"])]
    stamps = ("device_copy_begin_ns", "device_copy_end_ns")
    _track(tracks, scene, pid, "copies of batches", copied, stamps, "copy", "copy_bytes")
    held = pauses[scene.covers(pauses["device_begin_ns"], pauses["device_end_ns"])]
    _track(tracks, scene, pid, "pauses within steps", held, ("device_begin_ns", "device_end_ns"), "pause")


def _track(
    tracks: Tracks,
    scene: Scene,
    pid: int,
    title: str,
    records: Records,
    stamps: tuple[str, str],
    name: str,
    amount: str | None = None,
) -> None:
    def args(i: int) -> dict[str, Any]:
        told = {"step": int(records["step"][i])}
        if amount is None or records[amount][i] == NOT_MEASURED:
            return told
        return told | {"bytes": int(records[amount][i])}

    begin, end = scene.shifted(records[stamps[0]]), scene.shifted(records[stamps[1]])
    tracks.slices(pid, title, begin, end, lambda i: f"{name}: step {int(records['step'][i])}", args)


def add_spans(tracks: Tracks, scene: Scene, pid: int, spans: Records) -> None:
    """Add what an emulated device's engines really did: the truth to compare everything else with."""
    spans = spans[scene.covers(spans["begin_ns"], spans["end_ns"])]
    for stream in np.unique(spans["stream"]).tolist():
        mine = spans[spans["stream"] == stream]
        begin: Stamps = scene.shifted(mine["begin_ns"])
        end: Stamps = scene.shifted(mine["end_ns"])
        whats = mine["what"].tolist()
        title = f"emulated engines, stream {stream}"
        tracks.slices(pid, title, begin, end, lambda i, whats=whats: _SPANS.get(whats[i], "work"))  # type: ignore[misc]
