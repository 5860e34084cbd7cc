"""How far a training is, and how long the rest takes: what moves between two judgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...record.reader import Records
from ...record.schema import NOT_MEASURED
from .gathered import Epoch, ProcessRecords
from .judged import planned_epoch, planned_steps
from .series import SECOND_NS, grid, sums
from .snapshot import Snapshot

LATELY, BEFORE = 10, 30
"""Seconds that a trend compares."""
LEAST_BEFORE = 10
"""Steps before the recent ones that a trend of the rate is told against, at least."""


def moved(
    view: Snapshot, info: dict[str, Any], steps: int, last_end_ns: int, epoch: Epoch | None, first_ns: int, now_ns: int
) -> Snapshot:
    """The view with what is newer than its judgement.

    Args:
        steps: that ran so far.
        last_end_ns: when the last of them ended.
        first_ns: when the first one began.
    """
    over = view.state != "running"
    pace = view.steps_per_s if not over else None
    planned = planned_steps(info)
    in_epoch, estimated = _length(info, epoch)
    done = steps - epoch.begin if epoch is not None else None
    if in_epoch is not None and done is not None and done > in_epoch:
        in_epoch, estimated = None, False
    return replace(
        view,
        steps=steps,
        planned_steps=planned,
        elapsed_s=max(0, (last_end_ns if over else now_ns) - first_ns) / SECOND_NS,
        left_s=_left(planned, steps, pace),
        quiet_s=None if over else max(0, now_ns - last_end_ns) / SECOND_NS,
        epoch=None if epoch is None else epoch.number,
        epoch_done=done,
        epoch_steps=in_epoch,
        epoch_estimated=estimated,
        epoch_left_s=_left(in_epoch, done, pace),
    )


def rates_of(steps: Records) -> tuple[float, ...]:
    """Samples/s of each whole second up to the last step's end; a step's samples come evenly while it lasts."""
    if len(steps) == 0 or (steps["samples"] == NOT_MEASURED).any():
        return ()
    edges = grid(int(steps["step_end_ns"][-1]), 0)
    edges = edges[edges >= steps["fetch_begin_ns"][0]]
    if len(edges) < 2:
        return ()
    begin, end = steps["fetch_begin_ns"], steps["step_end_ns"]
    # Those let pass came between the step before and this one.
    before = np.minimum(begin, np.concatenate((begin[:1], np.maximum.accumulate(end)[:-1])))
    begin = np.maximum(begin, before)
    stamps = np.stack((before, begin, begin, np.maximum(begin, end)), axis=1).reshape(-1, 2)
    amounts = np.stack((steps["skipped_samples"], steps["samples"]), axis=1).ravel().astype(np.float64)
    amounts[0] = 0.0
    return tuple(sums(stamps[:, 0], stamps[:, 1], amounts, edges).tolist())


def trend_of(rates: Sequence[float]) -> float | None:
    """Percent by which the last seconds differ from those before."""
    lately, before = rates[-LATELY:], rates[-LATELY - BEFORE : -LATELY]
    if len(before) < LEAST_BEFORE or sum(before) <= 0:
        return None
    return 100 * (sum(lately) / len(lately) / (sum(before) / len(before)) - 1)


def steps_of(process: ProcessRecords) -> int:
    """Steps that it ran so far, as far as the last record tells."""
    return int(process.steps["step"][-1]) + 1 if len(process.steps) else 0


def _length(info: dict[str, Any], epoch: Epoch | None) -> tuple[int | None, bool]:
    """(steps of this epoch, whether they are those of the epoch before)."""
    planned = planned_epoch(info)
    if planned is not None or epoch is None:
        return planned, False
    return epoch.previous_steps, epoch.previous_steps is not None


def _left(whole: int | None, done: int | None, pace: float | None) -> float | None:
    return max(0.0, (whole - done) / pace) if whole is not None and done is not None and pace else None
