"""What an infinitely fast loader would give: measured in the stretches of `run --headroom`."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from ...record.notices import NO_HEADROOM, read_notices
from ...record.reader import RecordFile, Records
from ...record.run import Run, Writer
from ...record.schema import EVENT, NOT_MEASURED, STEP, EventKind, StepFlag
from ..intervals import EMPTY, Intervals, covered, subtract, union
from ..statistics import Range
from .drop_intervals import CutRun, Cuts

SETTLING = 4
"""First steps of a stretch that do not count: the device may still have work that steps before them left."""
LEAST_COUNTED = 4
"""Steps that a rate is told by, at least: of a stretch, and of the ordinary steps to either side of it."""
NEAR = 48
"""Ordinary steps before a stretch, and as many after its recovery, that it is compared with."""
CATCHING_UP = 4
"""Steps that a device may take to catch up with the host, over those of a stretch and its recovery."""
A_DAY_NS = 24 * 3600 * 10**9
"""Length from which a step is none: its stamps were overwritten."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MeasuredHeadroom:
    """What an infinitely fast loader would give, of a run that was asked to measure it. `None`: not measured."""

    rate: Range | None = None
    """Samples/s in the stretches, the median over them; of fewer than three, the bounds hold two standard errors of
    their steps as well."""
    speedup: float | None = None
    """Rate in a stretch over that of the ordinary steps near it; the median over the stretches."""
    reason: str | None = None
    """Why it was not measured; `None` where it was."""


@dataclass(frozen=True)
class _Stretch:
    """Successive steps whose batches had been fetched before."""

    samples_per_s: float
    error: float
    """Standard error of `samples_per_s`, from the scatter of its own steps."""
    speedup: float | None
    """Its rate over that of the ordinary steps near it; `None` where there are too few of them."""


def without_stretches(run: Run, writer: Writer | None) -> tuple[Run, MeasuredHeadroom | None, tuple[str, ...]]:
    """(the run as it would be without stretches, what those say, notes).

    Stretches, their fills and their recoveries are cut out of one training process's records; without a writer, of the
    one that ran most steps.
    """
    files = run.files(STEP)
    if files and writer is None:
        header = max(files, key=RecordFile.count).header
        writer = header.rank, header.pid
    steps, events = run.records(STEP, writer), run.records(EVENT, writer)
    said = headroom_of(run, steps, events)
    cuts = cuts_of(steps, events)
    if not cuts:
        return run, said, ()
    stretched = int(((steps["flags"] & StepFlag.HEADROOM) != 0).sum())
    note = (
        f"Headroom: {stretched} steps with batches fetched before, and {len(cuts.steps) - stretched} later steps that "
        "still used them, are in no other figure."
    )
    return CutRun(run.folder, run.info, run.damaged, run.record_files, cuts=cuts), said, (note,)


def cuts_of(steps: Records, events: Records) -> Cuts:
    """What to cut: from the begin of each fill to the end of the recovery after it, but for time outside the steps.

    On a device with a queue, the work of the steps before is still theirs, and what the last step of the recovery has
    queued is not yet that of the next.
    """
    special = _special(steps)
    if not special.any():
        return Cuts(EMPTY, steps["step"][:0])
    fills = events[events["what"] == EventKind.HEADROOM_FILL]
    spans = []
    for first, last in _runs(special):
        begin, end = int(steps["fetch_begin_ns"][first]), int(steps["step_end_ns"][first : last + 1].max())
        before = int(steps["step_end_ns"][first - 1]) if first else begin
        fill = fills[(fills["end_ns"] <= begin) & (fills["t_ns"] >= before)]
        begin = min([begin, *fill["t_ns"].tolist()])
        done = steps["device_end_ns"]
        if first and done[first - 1] != NOT_MEASURED:
            begin = max(begin, min(int(done[first - 1]), end))
        spans.append((begin, max(end, int(done[first : last + 1].max()))))
    edges = np.array(spans, dtype=np.int64)
    return Cuts(subtract(union(edges[:, 0], edges[:, 1]), _boundaries(events)), steps["step"][special])


def headroom_of(run: Run, steps: Records, events: Records) -> MeasuredHeadroom | None:
    """What the stretches of a training process say; `None` for a run that was not asked for any."""
    stretches = stretches_of(steps, events)
    if stretches:
        return _together(stretches)
    if not run.info.get("headroom"):
        return None
    said = [n.removeprefix(NO_HEADROOM).rstrip(".") for n in read_notices(run.folder) if n.startswith(NO_HEADROOM)]
    if not said and (steps["flags"] & StepFlag.HEADROOM).any():
        said = ["its stretches were too short"]
    return MeasuredHeadroom(reason="; ".join(said) or "the recording was not ended")


def stretches_of(steps: Records, events: Records) -> list[_Stretch]:
    """Each stretch that has enough steps."""
    flags = steps["flags"]
    in_stretch = (flags & StepFlag.HEADROOM) != 0
    if not in_stretch.any():
        return []
    plain = ~_special(steps)
    stamped = steps["device_end_ns"] != NOT_MEASURED
    ends = steps["device_end_ns"] if stamped.any() else steps["step_end_ns"]
    # What a step took: from the end of the step before to its own.
    follows = np.zeros(len(steps), dtype=bool)
    follows[1:] = (np.diff(steps["step"]) == 1) & (np.diff(steps["epoch"]) == 0)
    if stamped.any():
        follows[1:] &= stamped[1:] & stamped[:-1]
    follows &= steps["samples"] > 0
    boundaries = _boundaries(events)
    took = np.zeros(len(steps), dtype=np.int64)
    rows = np.flatnonzero(follows)
    took[rows] = ends[rows] - ends[rows - 1] - covered(boundaries, ends[rows - 1], ends[rows])
    follows &= took > 0
    found = []
    for first, last in _runs(in_stretch):
        counted = first + SETTLING + np.flatnonzero(follows[first + SETTLING : last + 1])
        if len(counted) < LEAST_COUNTED:
            continue
        pace = _pace(steps, took, counted)
        beside = plain & follows
        beside[1:] &= plain[:-1]
        near = [_pace(steps, took, rows) for rows in _near(beside, plain, first, last) if len(rows) >= LEAST_COUNTED]
        lengths = took[counted].astype(np.float64)
        spread = float(lengths.std(ddof=1) / lengths.mean() / np.sqrt(len(lengths)))
        found.append(_Stretch(1e9 / pace, spread * 1e9 / pace, sum(near) / len(near) / pace if near else None))
    return found


def _special(steps: Records) -> npt.NDArray[np.bool_]:
    """Which steps are none like the others: those of stretches and of recoveries.

    In a stretch the host may get ahead of a device with a queue as nowhere else. The recovery lasts until the device
    has caught up as far as before.
    """
    special: npt.NDArray[np.bool_] = (steps["flags"] & (StepFlag.HEADROOM | StepFlag.RECOVERY)) != 0
    if not special.any():
        return special
    lasted = steps["step_end_ns"] - steps["fetch_begin_ns"]
    special &= (lasted >= 0) & (lasted < A_DAY_NS)
    stamped = steps["device_end_ns"] != NOT_MEASURED
    behind = np.where(stamped, steps["device_end_ns"] - steps["step_end_ns"], 0)
    flagged = _runs(special)
    for first, last in flagged if stamped.any() else []:
        usually = int(behind[max(0, first - NEAR) : first].max(initial=0))
        after = slice(last + 1, last + 1 + CATCHING_UP * (last + 1 - first))
        caught_up = np.flatnonzero(stamped[after] & (behind[after] <= usually))
        special[after][: int(caught_up[0]) if len(caught_up) else None] = True
    return special


def _near(beside: npt.NDArray[np.bool_], plain: npt.NDArray[np.bool_], first: int, last: int) -> tuple[Rows, Rows]:
    """Ordinary steps before a stretch, and after its recovery."""
    after = np.flatnonzero(plain[last:])
    begin = last + int(after[0]) if len(after) else len(plain)
    return np.flatnonzero(beside[:first])[-NEAR:], begin + np.flatnonzero(beside[begin:])[:NEAR]


def _pace(steps: Records, took: Rows, rows: Rows) -> float:
    """Time that these steps took for each of their samples, ns."""
    return float(took[rows].sum() / steps["samples"][rows].sum())


def _together(stretches: list[_Stretch]) -> MeasuredHeadroom:
    rates = [s.samples_per_s for s in stretches]
    errors = [2 * s.error if len(stretches) < 3 else 0.0 for s in stretches]
    speedups = [s.speedup for s in stretches if s.speedup is not None]
    return MeasuredHeadroom(
        Range(
            median(rates),
            min(rate - error for rate, error in zip(rates, errors, strict=True)),
            max(rate + error for rate, error in zip(rates, errors, strict=True)),
            len(stretches),
        ),
        median(speedups) if speedups else None,
    )


def _runs(which: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """(first, last) row of each run of rows that are so."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], which, [False]))))
    return [(int(first), int(after) - 1) for first, after in edges.reshape(-1, 2)]


def _boundaries(events: Records) -> Intervals:
    known = events[(events["what"] == EventKind.BOUNDARY) & (events["end_ns"] != NOT_MEASURED)]
    return union(known["t_ns"], known["end_ns"])
