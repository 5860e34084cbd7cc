"""What each worker that makes batches did over the last seconds."""

from __future__ import annotations

import numpy as np

from ...record.reader import Records, measured
from ...record.schema import NOT_MEASURED
from .gathered import ProcessRecords
from .series import MAKERS_S, SECOND_NS, Stamps, Values, in_turn, means, told
from .snapshot import WorkerView

STAGES = ("read_ns", "decode_ns", "transform_ns", "collate_ns")


def makers_of(process: ProcessRecords, since_ns: int, now_ns: int, edges: Stamps) -> tuple[WorkerView, ...]:
    """The makers of batches, by number: workers that an epoch starts anew have the numbers of those before them.

    Args:
        since_ns: shares and times are of what was made since then.
        edges: seconds of the history.
    """
    batches = process.batches[process.batches["end_ns"] > edges[-1] - (MAKERS_S + 1) * SECOND_NS]
    # What no step names is a validation's, whose workers have the same numbers.
    numbered = batches["loader"] != NOT_MEASURED
    batches = batches[~numbered | np.isin(batches["loader"], _loaders(process.steps))]
    edges = edges[-MAKERS_S - 1 :]
    return tuple(
        _view(int(number), batches[batches["worker"] == number], since_ns, now_ns, edges)
        for number in np.unique(batches["worker"][batches["worker"] >= 0])
    )


def _loaders(steps: Records) -> Stamps:
    """Each loader's number where its steps begin: a handful among thousands."""
    numbers = steps["loader"]
    return numbers[np.concatenate(([True], numbers[1:] != numbers[:-1]))] if len(numbers) else numbers


def _view(number: int, batches: Records, since_ns: int, now_ns: int, edges: Stamps) -> WorkerView:
    begin, end, busy = _stretches(batches)
    within = np.maximum(0, end - np.maximum(begin, since_ns))
    within[np.isnan(busy)] = 0
    known_ns = float(within.sum())
    late = batches[batches["end_ns"] > since_ns]
    wall = (late["end_ns"] - late["begin_ns"]).astype(np.float64)
    return WorkerView(
        number,
        busy_pct=float(np.nansum(within * busy)) / known_ns if known_ns else None,
        reading_pct=_share(late, wall, "read_ns"),
        queued_pct=_share(late, wall, "run_queue_ns"),
        batch_ms=float(np.median(wall)) / 1e6 if len(late) else None,
        quiet_s=max(0.0, (now_ns - int(batches["end_ns"].max())) / SECOND_NS),
        history=told(means(begin, end, busy, edges)),
    )


def _stretches(batches: Records) -> tuple[Stamps, Stamps, Values]:
    """(begin, end, percent busy) of each batch and of the time before it, in which skipped batches were made.

    They overlap nowhere. After its last batch nothing is known: it may make another one, or have none to make.
    """
    end = np.maximum.accumulate(batches["end_ns"])
    before = np.concatenate((batches["begin_ns"][:1], end[:-1]))
    begin = np.minimum(np.maximum(batches["begin_ns"], before), end)
    skipped = np.where(batches["skipped_ns"] == NOT_MEASURED, 0, batches["skipped_ns"])
    # Of the first one it is not known how long it was idle before.
    before[:1] -= skipped[:1]
    share = np.minimum(100.0, 100 * skipped / np.maximum(1, begin - before))
    starts, ends = np.empty(2 * len(end), dtype=np.int64), np.empty(2 * len(end), dtype=np.int64)
    starts[0::2], starts[1::2], ends[0::2], ends[1::2] = before, begin, begin, end
    return starts, ends, in_turn(share, _working_pct(batches))


def _working_pct(batches: Records) -> Values:
    """Share of a batch's time in which its makers worked.

    A pool of threads has several batches at a time and lets their samples wait in between: only its stages are work.
    """
    if (batches["threads"] <= 1).all():
        return np.full(len(batches), 100.0)
    stages = np.stack([measured(batches[name]) for name in STAGES])
    spent = np.where(np.isnan(stages).all(axis=0), np.nan, np.nansum(stages, axis=0))
    wall = np.maximum(1, batches["end_ns"] - batches["begin_ns"]) * np.maximum(1, batches["threads"])
    return np.where(batches["threads"] > 1, np.minimum(100.0, 100 * spent / wall), 100.0)


def _share(batches: Records, wall: Values, name: str) -> float | None:
    """Of the time in which these were made, over the threads that made them."""
    known = batches[name] != NOT_MEASURED
    working = float((wall * np.maximum(1, batches["threads"]))[known].sum())
    return min(100.0, 100 * float(batches[name][known].sum()) / working) if working else None
