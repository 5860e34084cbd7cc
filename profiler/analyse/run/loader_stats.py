"""What the loader's own stamps say: where preparing a batch spends its time, and how fast it could go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.reader import Records, measured
from ...record.schema import NOT_MEASURED, TRANSFORM
from ..intervals import clip, intersect, total, union
from .exposed_data_wait import is_read
from .window import Window
from .worker_records import SlowSample, TransformCost, passes_of, slowest_of, transforms_of, within

WAITING_FOR_CPU = "waiting for a CPU"
WAITING = "waiting otherwise"
WAITS = (WAITING_FOR_CPU, WAITING)
"""Stages of preparing a batch in which nothing is made."""
BUSY = 0.8
"""Share of the time that workers make batches, 0..1, from which they are the limit. Busy for less, they could deliver
more; as many are advised as would be busy for no more."""
QUEUED_PCT = 20.0
"""Waiting for a CPU, in percent of the time spent making batches, from which it is considerable: beside other signs of
a shortage it tells what kind of one that is."""
HEAVILY_QUEUED_PCT = 40.0
"""Waiting for a CPU, in percent of the time spent making batches, from which that alone is the shortage: whatever else
the makers do, they stand in each other's way, or somebody holds them back."""
MADE_IN_FETCH_PCT = 90.0
"""Batch making of which so much happens within the fetches is done by the training itself."""


@dataclass(frozen=True)
class Timed:
    """Making the samples whose transforms were timed."""

    samples: int
    ms_per_sample: float
    transforms_ms_per_sample: float
    """Time that a sample spends in any of the transforms."""


@dataclass(frozen=True)
class LoaderStats:
    """How a loader makes batches. `None`: not told by it. Percentages are of the time spent making batches, unless said
    otherwise."""

    workers: int
    """Worker processes or threads that prepared batches."""
    makers: int
    """Workers that prepared batches by themselves: a pool of threads that works on one batch together is one."""
    read_pct: float | None
    decode_pct: float | None
    transform_pct: float | None
    collate_pct: float | None
    cpu_pct: float | None
    """CPU time of preparing a batch, of its wall time summed over its threads: low means waiting."""
    worker_busy_pct: float | None
    """Share of the time in which the workers made batches, averaged over the workers: of the window, or of its passes
    over the data, from a pass's first batch to its last, where those are known."""
    queue_ready_mean: float | None
    """Batches that lay ready when the training asked for one; the mean."""
    queue_capacity: int | None
    """Batches that it can hold ready."""
    make_ms_per_sample: float | None
    """Wall time from a batch's begin to its end, for each of its samples."""
    work_ms_per_batch: float | None
    """Time spent on a batch, over all threads that work on it."""
    samples_per_s_limit: float | None
    """What the workers would deliver if nobody ever made them wait: their samples over the time they worked."""
    mean_batch_bytes: float | None
    unsplit_pct: float | None
    """Decoding and transforming, where the loader does not tell the one from the other: making samples, without the
    waiting for reads."""
    run_queue_pct: float | None
    """Makers ready to run, but waiting for a CPU."""
    minor_faults_per_batch: float | None
    """Page faults without I/O."""
    major_faults: int | None
    """Page faults that needed I/O, in all."""
    read_chars_bytes_per_sample: float | None
    """Bytes that read calls got for a sample, from cache or storage (`read_chars_bytes` of the record)."""
    storage_bytes_per_sample: float | None
    """Bytes read from storage for a sample (`read_bytes` of the record)."""
    process_cpu_pct: float | None
    """CPU time of all threads of the workers' processes; above `cpu_pct` where others than the making one compute."""
    cpus: int | None
    """CPUs that the workers may run on, taken together."""
    sent_bytes_per_batch: float | None
    """Bytes that a worker wrote for a batch, into the pipe to the training above all."""
    even_workers: float | None
    """How many workers with equal shares of the batches would be as uneven as these."""
    slowest: tuple[SlowSample, ...]
    """The samples that took longest, the longest first."""
    transforms: tuple[TransformCost, ...]
    """What each transform costs, in the order in which the dataset holds them."""
    timed: Timed | None
    """The batches in which transforms were timed; `None` without any."""

    @property
    def prep_pct(self) -> float | None:
        """Decoding and transforming together, in percent of the time spent preparing batches."""
        if self.unsplit_pct is not None:
            return self.unsplit_pct
        parts = [p for p in (self.decode_pct, self.transform_pct) if p is not None]
        return sum(parts) if parts else None

    @property
    def waiting_pct(self) -> float | None:
        """Neither on a CPU nor waiting for one, nor for reads of files: locks, sleeps, the network, other threads."""
        parts = (self.cpu_pct, self.run_queue_pct, self.read_pct)
        return None if None in parts else max(0.0, 100.0 - sum(p for p in parts if p is not None))

    @property
    def costliest(self) -> str | None:
        """The part of preparing a batch that takes most of its time, waiting other than for reads left out."""
        known = {name: share for name, share in self.stages.items() if share is not None and name not in WAITS}
        return max(known, key=lambda name: known[name]) if known else None

    @property
    def stages(self) -> dict[str, float | None]:
        """The parts of preparing a batch that are told apart; they overlap nowhere."""
        if self.unsplit_pct is None:
            inner = {"decoding": self.decode_pct, "transforming": self.transform_pct}
            return {"reading": self.read_pct, **inner, "collating": self.collate_pct}
        waiting, queued = self.waiting_pct, self.run_queue_pct
        waits = (waiting or 0.0) + (queued or 0.0)
        # Where the samples waited is not known: what exceeds their time happened in collating.
        preparing = max(0.0, self.unsplit_pct - waits)
        collate = self.collate_pct
        if collate is not None:
            collate = max(0.0, collate - max(0.0, waits - self.unsplit_pct))
        return {
            "reading": self.read_pct,
            "preparing samples": preparing,
            "collating": collate,
            WAITING_FOR_CPU: queued,
            WAITING: waiting,
        }


def loader_of(
    window: Window,
    batches: Records,
    transforms: Records | None = None,
    names: Mapping[int, str] | None = None,
) -> LoaderStats:
    """The loader during the window, from the batches of the loaders that train (`worker_records.of_training`).

    Args:
        transforms: what was measured of single transforms, for these loaders.
        names: of transforms and files, by number.
    """
    counted = batches[within(window, batches)]
    ready = window.steps["queue_ready"]
    capacity = window.steps["queue_capacity"]
    known_ready = ready[ready != NOT_MEASURED]
    known_capacity = capacity[capacity != NOT_MEASURED]
    wall = counted["end_ns"] - counted["begin_ns"]
    makers = [_maker(counted[counted["worker"] == w], window) for w in np.unique(counted["worker"])]
    threads = sum(m.threads for m in makers)
    busy = sum(m.busy_ns for m in makers) / (threads * _passes_ns(window, counted)) if threads else None
    limits = [m.threads * m.samples * 1e9 / m.working_ns for m in makers if m.working_ns]
    samples = _sum(counted, "samples") + _sum(counted, "skipped_samples")
    per_sample = (float(wall.sum()) + _sum(counted, "skipped_ns")) / samples if samples else None
    ms_per_sample = per_sample / 1e6 if per_sample else None
    recorded, working = _sum(counted, "samples"), _working_ns(counted)
    return LoaderStats(
        workers=threads,
        makers=len(makers),
        read_pct=_share(counted, working, "read_ns"),
        decode_pct=_share(counted, working, "decode_ns"),
        transform_pct=_share(counted, working, "transform_ns"),
        collate_pct=_share(counted, working, "collate_ns"),
        cpu_pct=_share(counted, working, "cpu_ns"),
        worker_busy_pct=None if busy is None else min(100.0, 100 * busy),
        queue_ready_mean=float(known_ready.mean()) if len(known_ready) else None,
        queue_capacity=int(known_capacity[0]) if len(known_capacity) else None,
        make_ms_per_sample=ms_per_sample,
        work_ms_per_batch=float(working.mean()) / 1e6 if len(counted) else None,
        samples_per_s_limit=sum(limits) or None,
        mean_batch_bytes=_mean(counted, "batch_bytes"),
        unsplit_pct=_unsplit(counted),
        run_queue_pct=_share(counted, working, "run_queue_ns"),
        minor_faults_per_batch=_mean(counted, "minor_faults"),
        major_faults=_sum(counted, "major_faults") if _is_known(counted, "major_faults") else None,
        read_chars_bytes_per_sample=_per_sample(counted, "read_chars_bytes", recorded),
        storage_bytes_per_sample=_per_sample(counted, "read_bytes", recorded),
        process_cpu_pct=_share(counted, working, "process_cpu_ns"),
        cpus=_cpus(counted),
        sent_bytes_per_batch=_sent(counted),
        even_workers=_even(counted),
        slowest=slowest_of(counted, names or {}),
        transforms=transforms_of(np.empty(0, TRANSFORM.dtype) if transforms is None else transforms, names or {}),
        timed=_timed(batches),
    )


def unread_loader(window: Window, batches: Records) -> LoaderStats | None:
    """The loader without the batches that are mostly read from storage, where there are both kinds."""
    read = is_read(batches)
    return None if read.all() or not read.any() else loader_of(window, batches[~read])


def _cpus(batches: Records) -> int | None:
    """CPUs that the makers may run on, taken together: an estimate, since of each one's set only the lowest CPU and the
    size are told, so its CPUs are taken for neighbours."""
    told = batches[(batches["cpus"] != NOT_MEASURED) & (batches["first_cpu"] != NOT_MEASURED)]
    if len(told) == 0:
        return None
    return total(union(told["first_cpu"], told["first_cpu"] + told["cpus"]))


def _sent(batches: Records) -> float | None:
    """Bytes sent for a batch: each record tells of the batches since the one recorded before."""
    told = batches[batches["sent_bytes"] != NOT_MEASURED]
    count = len(told) + _sum(told, "skipped")
    return _sum(told, "sent_bytes") / count if count else None


def _even(batches: Records) -> float | None:
    if len(batches) == 0:
        return None
    worker = np.searchsorted(np.unique(batches["worker"]), batches["worker"])
    made = np.bincount(worker, weights=1 + np.maximum(0, batches["skipped"]))
    shares = made / made.sum()
    return float(1 / (shares**2).sum())


def _timed(batches: Records) -> Timed | None:
    """What was timed of transforms in all batches: a worker's first ones are timed, which may lie before the window."""
    # Where decoding is told apart, transforms are a stage of every batch and not timed one by one.
    timed = batches[(batches["transform_ns"] != NOT_MEASURED) & (batches["decode_ns"] == NOT_MEASURED)]
    samples = _sum(timed, "samples")
    if not samples:
        return None
    wall = float((timed["end_ns"] - timed["begin_ns"]).sum())
    return Timed(samples, wall / samples / 1e6, _sum(timed, "transform_ns") / samples / 1e6)


@dataclass(frozen=True)
class _Maker:
    """One worker process, or one pool of threads."""

    threads: int
    samples: int
    working_ns: float
    """Time spent on batches, over its threads."""
    busy_ns: float
    """Time spent on batches within the window, over its threads."""


def _maker(batches: Records, window: Window) -> _Maker:
    threads = int(max(1, batches["threads"].max()))
    samples = _sum(batches, "samples") + _sum(batches, "skipped_samples")
    # Of steps that nobody looked at there are no batches, unless the worker itself recorded all it made.
    seen = 1.0 if (batches["loader"] != NOT_MEASURED).any() else window.looked_at
    left_out = _sum(batches, "skipped_ns")
    if threads == 1:
        spans = union(batches["begin_ns"], batches["end_ns"])
        within_ns = total(clip(spans, window.begin_ns, window.end_ns))
        return _Maker(1, samples, total(spans) + left_out, (within_ns + left_out) / seen)
    # A pool works on several batches at a time and lets samples wait in between: only its stages are work.
    working = float(_working_ns(batches).sum())
    return _Maker(threads, samples, working, working / seen)


def _passes_ns(window: Window, batches: Records) -> int:
    """Time in which the workers could have been busy: they are started, and a validation may run, between passes."""
    numbered = batches[batches["loader"] != NOT_MEASURED]
    if len(numbered) == 0:
        return window.wall_ns
    of_pass = passes_of(numbered)
    passes = np.unique(of_pass)
    of_pass = np.searchsorted(passes, of_pass)
    begin = np.full(len(passes), np.iinfo(np.int64).max)
    end = np.zeros_like(begin)
    np.minimum.at(begin, of_pass, numbered["begin_ns"])
    np.maximum.at(end, of_pass, numbered["end_ns"])
    return total(clip(union(begin, end), window.begin_ns, window.end_ns)) or window.wall_ns


def _working_ns(batches: Records) -> npt.NDArray[np.float64]:
    """Time spent on each batch, over all threads: the stages' sum where known, else its wall time."""
    stages = sum(np.nan_to_num(measured(batches[name])) for name in ("read_ns", "decode_ns", "collate_ns"))
    # Where decoding is not told apart, transforms are timed by themselves, with what they wait for.
    apart = batches["decode_ns"] != NOT_MEASURED
    stages = stages + np.where(apart, np.nan_to_num(measured(batches["transform_ns"])), 0)
    wall = (batches["end_ns"] - batches["begin_ns"]).astype(np.float64)
    return np.where(batches["threads"] > 1, stages, np.maximum(stages, wall))


def _share(batches: Records, working_ns: npt.NDArray[np.float64], name: str) -> float | None:
    """A field in percent of the time spent on the batches for which it was measured; `working_ns`: on each."""
    values = batches[name]
    known = values != NOT_MEASURED
    working = float(working_ns[known].sum())
    return 100 * float(values[known].astype(np.float64).sum()) / working if working else None


def _unsplit(batches: Records) -> float | None:
    read, collate = measured(batches["read_ns"]), measured(batches["collate_ns"])
    known = ~np.isnan(read + collate) & (batches["decode_ns"] == NOT_MEASURED) & (batches["threads"] == 1)
    working = _working_ns(batches[known])
    if not working.sum():
        return None
    rest = np.maximum(0, working - read[known] - collate[known])
    return 100 * float(rest.sum()) / float(working.sum())


def _is_known(batches: Records, name: str) -> bool:
    return bool((batches[name] != NOT_MEASURED).any())


def _sum(batches: Records, name: str) -> int:
    """A field summed over the batches for which it was measured."""
    values = batches[name]
    return int(values[values != NOT_MEASURED].sum())


def _mean(batches: Records, name: str) -> float | None:
    values = batches[name][batches[name] != NOT_MEASURED]
    return float(values.mean()) if len(values) else None


def _per_sample(batches: Records, name: str, samples: int) -> float | None:
    return _sum(batches, name) / samples if samples and _is_known(batches, name) else None


def made_in_fetch_pct(window: Window, batches: Records) -> float | None:
    """Share of the batch making that happened within the training's fetches, in percent; `None` where none is
    known."""
    counted = batches[within(window, batches)]
    making = union(counted["begin_ns"], counted["end_ns"])
    if total(making) == 0:
        return None
    fetches = union(window.steps["fetch_begin_ns"], window.steps["fetch_end_ns"])
    return 100 * total(intersect(making, fetches)) / total(making)
