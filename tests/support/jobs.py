"""Recordings of jobs of several ranks that average their gradients, on a virtual clock: as the hooks store them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from support.crafted import events_of, store
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.record.files import write_json
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, NOT_MEASURED, STEP, EventKind, StepFlag
from whyidle.scenarios.planted import MS

SECOND = 1000 * MS
START = 10**12
WALL = 1_700_000_000 * 10**9
Lengths = npt.NDArray[np.int64]


@dataclass
class Rank:
    """One rank's own times in ns, a value for all steps or one for each."""

    fetch_ns: Any = 1 * MS
    forward_ns: Any = 3 * MS
    backward_ns: Any = 6 * MS
    """Its own part of the backward pass; then it waits for the last rank."""
    host_ns: Any = 0
    boundary_ns: Any = 0
    """Time outside the steps, after the step."""
    host: str = "alpha"
    workers: int = 0
    steps: int | None = None
    """It is killed after so many."""
    cpu_ns: int | None = None
    """CPU time of its thread, a step: of all that it does itself where it is not given."""
    every: int = 1
    """Gradients are averaged at every so many steps only."""


@dataclass
class Job:
    """Where it was recorded, and what really happened."""

    folders: list[Path]
    waits_ns: npt.NDArray[np.int64]
    """[ranks, steps]: what each waited in the backward pass."""
    wall_ns: int
    shifts: dict[str, int] = field(default_factory=dict)


def record(
    folder: Path,
    ranks: Sequence[Rank] | Mapping[int, Rank],
    steps: int = 200,
    samples: int = 8,
    *,
    lockstep: bool = True,
    shifts: Mapping[str, int] | None = None,
    drifts: Mapping[str, float] | None = None,
    apart: bool = False,
    world_size: int | None = -1,
    device: str = "cpu",
    wall_off_ns: Mapping[str, int] | None = None,
) -> Job:
    """Train and record. `shifts` and `drifts` are how far and how fast each host's monotonic clock is ahead of the
    first's; with `apart` each host has a run folder of its own in `folder`."""
    numbered = dict(enumerate(ranks)) if not isinstance(ranks, Mapping) else dict(ranks)
    shifts, drifts = dict(shifts or {}), dict(drifts or {})
    plan = list(numbered.values())

    def lengths(name: str) -> Lengths:
        return np.stack([np.broadcast_to(np.asarray(getattr(r, name), dtype=np.int64), steps) for r in plan])

    fetch, forward, backward = lengths("fetch_ns"), lengths("forward_ns"), lengths("backward_ns")
    host, boundary = lengths("host_ns"), lengths("boundary_ns")
    count = len(plan)
    averages = np.arange(steps) % plan[0].every == plan[0].every - 1
    at = np.full(count, START, dtype=np.int64)
    stamps = np.zeros((6, count, steps), dtype=np.int64)
    waits = np.zeros((count, steps), dtype=np.int64)
    for k in range(steps):
        begun = at
        fetched = begun + fetch[:, k]
        arrived = fetched + forward[:, k]
        done = arrived + backward[:, k]
        left = np.full(count, done.max()) if lockstep and averages[k] else done
        waits[:, k] = left - done
        end = left + MS // 2
        ended = end + host[:, k]
        stamps[:, :, k] = begun, fetched, arrived, left, end, ended
        at = ended + boundary[:, k]
    job = Job([], waits, int(at.max()) - START, shifts)
    for name in dict.fromkeys(rank.host for rank in plan):
        path = folder / name if apart else folder
        if path not in job.folders:
            job.folders.append(path)
            clock = {"time_ns": WALL, "monotonic_ns": START + shifts.get(name, 0)}
            create_run(path, {"ended": {"status": "ok"}, "clock": clock, "host": {"name": name, "cpus": 8}})
    size = len(numbered) if world_size == -1 else world_size
    for place, (number, rank) in enumerate(numbered.items()):
        path = folder / rank.host if apart else folder
        shift, drift = shifts.get(rank.host, 0), drifts.get(rank.host, 0.0)
        mine = stamps[:, place, : rank.steps]
        mine = mine + shift + np.round((mine - START) * drift).astype(np.int64)
        _write(path, number, mine, samples, rank, boundary[place], queued=device != "cpu")
        off = (wall_off_ns or {}).get(rank.host, 0)
        told = {"rank": number, "pid": os.getpid(), "host": rank.host, "world_size": size}
        told |= {"device": {"kind": device, "title": "a processor", "count": 1}}
        told |= {"clock": {"time_ns": WALL + off, "monotonic_ns": START + shift}}
        write_json(path / f"process-{number}-{os.getpid()}.json", told)
    return job


def _write(
    folder: Path, number: int, stamps: Lengths, samples: int, rank: Rank, boundary: Lengths, queued: bool
) -> None:
    nothing, first, rows = NOT_MEASURED, int(stamps[0, 0]), []
    events = [
        (first, EventKind.TRAINING_BEGIN, nothing, nothing),
        (first, EventKind.LOADER_WORKERS, rank.workers, nothing),
    ]
    for step, (begun, fetched, arrived, left, end, ended) in enumerate(stamps.T.tolist()):
        learns = step % rank.every == rank.every - 1
        row: dict[str, float] = dict.fromkeys(
            ("epoch", "copy_bytes", "sync_ns", "gc_ns", "skipped", "skipped_samples"), 0
        )
        row |= {
            "step": step,
            "flags": StepFlag.OPTIMIZER * learns + StepFlag.FIRST_OF_EPOCH * (step == 0),
            "samples": samples,
            "fetch_begin_ns": begun,
            "fetch_end_ns": fetched,
            "forward_begin_ns": fetched,
            "backward_begin_ns": arrived,
            "step_end_ns": ended,
            "cpu_ns": ended - begun if rank.cpu_ns is None else rank.cpu_ns,
            "overhead_ns": 20_000,
        }
        row |= {"optimizer_begin_ns": left, "optimizer_end_ns": end} if learns else {}
        row |= {"device_begin_ns": fetched, "device_end_ns": end} if queued else {}
        rows.append(row)
        if boundary[step]:
            events.append((ended, EventKind.BOUNDARY, nothing, ended + int(boundary[step])))
    events.append((int(stamps[5, -1]), EventKind.TRAINING_END, nothing, nothing))
    store(folder, STEP, rows, number, closed=rank.steps is None)
    store(folder, EVENT, events_of(events), number, closed=rank.steps is None)


def analysed(job: Job) -> Analysis:
    return analyse(*(open_run(folder) for folder in job.folders))


def late_ms(analysis: Analysis) -> dict[int, float]:
    """By how much each rank is late, a step."""
    return {rank: ns / 1e6 for rank, ns in analysis.job.late_ns.items()}


def said(analysis: Analysis, words: str) -> bool:
    """Whether a note holds these words."""
    return any(words in note for note in analysis.notes)
