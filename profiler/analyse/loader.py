"""What the loader's own stamps say: where making a batch spends its time, and how fast it could go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..record.reader import Records, measured
from ..record.schema import NOT_MEASURED
from .intervals import clip, total, union
from .window import Window


@dataclass(frozen=True)
class Loader:
    """Shares are of the time spent making batches, 0..100; `None` where the loader did not say."""

    workers: int
    """Worker processes or threads that made batches."""
    read_pct: float | None
    decode_pct: float | None
    transform_pct: float | None
    collate_pct: float | None
    cpu_pct: float | None
    """CPU time of making a batch, of its wall time summed over its threads: low means waiting."""
    worker_busy_pct: float | None
    """Share of the window in which the workers made batches, averaged over the workers."""
    queue_ready_mean: float | None
    queue_capacity: int | None
    make_ms_per_sample: float | None
    """Wall time from a batch's begin to its end, for each of its samples."""
    samples_per_s_limit: float | None
    """What the workers would deliver if nobody ever made them wait: their samples over the time they worked."""
    mean_batch_bytes: float | None

    @property
    def prep_pct(self) -> float | None:
        """Decoding and transforming together."""
        parts = [p for p in (self.decode_pct, self.transform_pct) if p is not None]
        return sum(parts) if parts else None

    @property
    def costliest(self) -> str | None:
        """The part of making a batch that takes most of its time."""
        parts = {
            "reading": self.read_pct,
            "decoding": self.decode_pct,
            "transforming": self.transform_pct,
            "collating": self.collate_pct,
        }
        known = {name: share for name, share in parts.items() if share is not None}
        return max(known, key=lambda name: known[name]) if known else None


def loader_of(window: Window, batches: Records) -> Loader:
    """The loader during the window, from the batches its steps consumed."""
    first_step = int(window.steps["step"][0])
    counted = batches[batches["step"] >= first_step]
    ready = window.steps["queue_ready"]
    capacity = window.steps["queue_capacity"]
    known_ready = ready[ready != NOT_MEASURED]
    known_capacity = capacity[capacity != NOT_MEASURED]
    wall = counted["end_ns"] - counted["begin_ns"]
    working = _working_ns(counted)
    makers = [_maker(counted[counted["worker"] == w], window) for w in np.unique(counted["worker"])]
    threads = sum(m.threads for m in makers)
    # Batches of steps that nobody looked at were made as the others were.
    busy = sum(m.busy_ns for m in makers) / (threads * window.wall_ns * window.looked_at) if threads else None
    limits = [m.threads * m.samples * 1e9 / m.working_ns for m in makers if m.working_ns]
    samples = int(counted["samples"].sum())
    per_sample = float(wall.sum()) / samples if samples else None
    return Loader(
        workers=threads,
        read_pct=_share(counted, "read_ns", working),
        decode_pct=_share(counted, "decode_ns", working),
        transform_pct=_share(counted, "transform_ns", working),
        collate_pct=_share(counted, "collate_ns", working),
        cpu_pct=_share(counted, "cpu_ns", working),
        worker_busy_pct=None if busy is None else min(100.0, 100 * busy),
        queue_ready_mean=float(known_ready.mean()) if len(known_ready) else None,
        queue_capacity=int(known_capacity[0]) if len(known_capacity) else None,
        make_ms_per_sample=per_sample / 1e6 if per_sample else None,
        samples_per_s_limit=sum(limits) or None,
        mean_batch_bytes=float(counted["batch_bytes"].mean()) if len(counted) else None,
    )


@dataclass(frozen=True)
class _Maker:
    """One worker process, or one pool of threads."""

    threads: int
    samples: int
    working_ns: float
    """Time spent on batches, over its threads."""
    busy_ns: float
    """The part of it within the window."""


def _maker(batches: Records, window: Window) -> _Maker:
    threads = int(max(1, batches["threads"].max()))
    samples = int(batches["samples"].sum())
    if threads == 1:
        spans = union(batches["begin_ns"], batches["end_ns"])
        return _Maker(1, samples, total(spans), total(clip(spans, window.begin_ns, window.end_ns)))
    # A pool works on several batches at a time and lets samples wait in between: only its stages are work.
    working = _working_ns(batches)
    return _Maker(threads, samples, working, working)


def _working_ns(batches: Records) -> float:
    """Time spent on samples, over all threads: the stages' sum where known, else the wall time of batches."""
    stages = sum(
        np.nan_to_num(measured(batches[name])) for name in ("read_ns", "decode_ns", "transform_ns", "collate_ns")
    )
    wall = (batches["end_ns"] - batches["begin_ns"]).astype(np.float64)
    return float(np.where(batches["threads"] > 1, stages, np.maximum(stages, wall)).sum())


def _share(batches: Records, name: str, working: float) -> float | None:
    values = measured(batches[name])
    if not working or np.isnan(values).all():
        return None
    return 100 * float(np.nansum(values)) / working
