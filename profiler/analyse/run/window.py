"""Which steps count (everything after warm-up), which time is whose, and what events tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...record.reader import Records, only, with_column
from ...record.schema import NAN, NOT_MEASURED, EventKind, LoaderFlag, StepFlag
from ..intervals import Intervals, covered, union

Mask = npt.NDArray[np.bool_]
Stamps = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.float64]

MOST_WARMUP_STEPS, MOST_WARMUP_SHARE = 5, 0.05
"""Steps at the beginning of a run that are its warm-up, and share of all steps, at most."""
COUNTED = ("flags", "samples", "skipped", "skipped_samples", "copy_bytes")
"""Fields of the steps that tell what was done in them."""
A_MONTH_NS = 30 * 24 * 3600 * 10**9
"""Distance of a stamp from the typical one at which its bytes must have been overwritten."""


@dataclass(frozen=True)
class Window:
    """From the first fetch after the warm-up to the last event of the training."""

    begin_ns: int
    end_ns: int
    steps: Records
    """Steps after the warm-up that the hooks looked at: all of them, unless they are very short."""
    warmup_steps: int
    all_steps: Records
    """Sampled steps with the warm-up's, whose last work may still run when the window begins."""
    skipped_after: int = 0
    """Steps that ran after the last one the hooks looked at."""
    skipped_samples_after: int = 0
    """Samples of the steps that ran after the last one the hooks looked at."""
    queued: bool = False
    """Whether the device has a queue, and stamps of its own; else it is the processor."""
    device_done_ns: int | None = None
    """When the device had done all that the training queued; `None` where that is not known."""
    after: Records | None = None
    """Passes over loaders after the training that are no validation of it, but testing or predicting: events in the
    order of time. They lie behind the window. `None` where there are none."""

    @property
    def count(self) -> int:
        """All steps that ran in the window, looked at or not."""
        return len(self.steps) + int(self.steps["skipped"][1:].sum()) + self.skipped_after

    @property
    def looked_at(self) -> float:
        """Share of the steps that ran in the window which the hooks looked at, 0..1."""
        return len(self.steps) / self.count

    @property
    def samples(self) -> int:
        """Samples of all steps that ran in the window, looked at or not."""
        let_pass = int(self.steps["skipped_samples"][1:].sum()) + self.skipped_samples_after
        return int(known(self.steps, "samples").sum()) + let_pass

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.begin_ns

    @property
    def firsts(self) -> Mask:
        """Which steps are the first of an epoch."""
        return flagged(self.steps, StepFlag.FIRST_OF_EPOCH)

    def during(self, lasted: Records) -> Records:
        """The events that last into the window."""
        within: Records = lasted[(lasted["end_ns"] > self.begin_ns) & (lasted["t_ns"] < self.end_ns)]
        return within

    def condensed(self) -> Window:
        """It with what counts steps, epochs and samples, and no times of single steps."""
        return replace(self, steps=only(self.steps, COUNTED), all_steps=only(self.all_steps, COUNTED))


def known(records: Records, name: str) -> npt.NDArray[Any]:
    """Pick the values of a field that were measured."""
    values = records[name]
    return np.asarray(values[~np.isnan(values) if values.dtype.kind == "f" else values != NOT_MEASURED])


def mean_of(records: Records, name: str) -> float:
    """Average what was measured of a field; NaN where nothing was."""
    values = known(records, name)
    return float(values.mean()) if len(values) else NAN


def or_nan(value: float | None) -> float:
    """Take a figure as it is, and NaN for one that was not measured, with which no comparison holds."""
    return NAN if value is None else value


def or_none(value: float) -> float | None:
    """Take a figure as it is, and `None` for NaN: for those who show it, and for what is not compared."""
    return None if value != value else value


def measured_or(value: float, otherwise: float = 0.0) -> float:
    """Take a figure as it is, and another value for one that was not measured."""
    return otherwise if value != value else value


def or_zero(values: Stamps) -> Stamps:
    """Take 0 for what was not measured."""
    return np.where(values == NOT_MEASURED, 0, values)


def flagged(steps: Records, flag: int) -> Mask:
    """Tell which steps have any of these `StepFlag` bits."""
    return np.asarray((steps["flags"] & flag) != 0)


def elements_of(steps: Records) -> Stamps:
    """Count the elements of each batch's tensors; 0 where they are not known."""
    return np.asarray((steps["flags"] >> StepFlag.ELEMENTS_SHIFT) & StepFlag.MOST_ELEMENTS)


def spans_of(window: Window) -> tuple[Stamps, Stamps]:
    """Begin and end of each step of the window; empty where they are not known.

    On a device with a queue a step lasts from the end of the computation before it to the end of its own: with what the
    device idled before it could compute. Elsewhere from its fetch to the next.
    """
    steps = window.steps
    if not window.queued:
        return steps["fetch_begin_ns"], steps["step_end_ns"]
    ends = window.all_steps["device_end_ns"]
    ended = np.where(ends == NOT_MEASURED, window.begin_ns, ends)
    before = np.maximum.accumulate(np.concatenate(([window.begin_ns], ended)))[-len(steps) - 1 : -1]
    end = steps["device_end_ns"]
    # Steps that were let pass lie before this one: only its own computation is known to be its.
    alone = (steps["skipped"] > 0) & (steps["device_begin_ns"] != NOT_MEASURED)
    begin = np.where(alone, steps["device_begin_ns"], before)
    return np.where(end == NOT_MEASURED, 0, begin), np.where(end == NOT_MEASURED, 0, end)


def per_step(window: Window, intervals: Intervals) -> Lengths:
    """How much of each step's span the set covers, ns."""
    return covered(intervals, *spans_of(window)).astype(np.float64)


def one_of(values: Stamps, wanted: Iterable[int]) -> Mask:
    """Which of these are one of a few: numpy.isin takes too long for each of many ranks."""
    found = np.zeros(len(values), dtype=bool)
    for each in wanted:
        found |= values == each
    return found


def lasting(events: Records, what: int) -> Records:
    """The events of a kind whose end is known."""
    which: Records = events[(events["what"] == what) & (events["end_ns"] != NOT_MEASURED)]
    return which


def under_way(lasted: Records) -> Intervals:
    """When any of these events was under way."""
    return union(lasted["t_ns"], lasted["end_ns"])


def last_told(events: Records, what: int) -> int | None:
    """The value of the last event of a kind."""
    told = events["value"][events["what"] == what]
    return int(told[-1]) if len(told) else None


def loader_flag(events: Records, flag: int) -> bool | None:
    """Whether this `LoaderFlag` is set for the training loader; `None`: not torch's."""
    flags = last_told(events, EventKind.LOADER_FLAGS)
    return None if flags is None else bool(flags & flag)


def own_workers(events: Records) -> int | None:
    """Worker processes of a loader within the data set, 0: others of its own; `None`: none."""
    flags = last_told(events, EventKind.LOADER_FLAGS) or 0
    return flags // LoaderFlag.INNER_WORKER if flags & LoaderFlag.OWN_WORKERS else None


def plausible(steps: Records) -> Records:
    """The steps without those whose bytes were overwritten since they were stored. Where it was not measured how many
    were let pass before a step, none were."""
    if len(steps) == 0:
        return steps
    typical = int(np.median(steps["fetch_begin_ns"]))
    lasted = steps["step_end_ns"] - steps["fetch_begin_ns"]
    good = (np.abs(steps["fetch_begin_ns"] - typical) < A_MONTH_NS) & (lasted >= 0) & (lasted < A_MONTH_NS)
    for name in ("step", "skipped", "samples", "skipped_samples"):
        good &= _within(steps[name], 0, 10**12 - 1)
    for name in ("device_before_ns", "device_begin_ns", "device_end_ns", "skipped_end_ns", "fetch_end_ns"):
        good &= _within(steps[name], typical - A_MONTH_NS + 1, typical + A_MONTH_NS - 1)
    kept: Records = steps[good]
    for name in ("skipped", "skipped_samples"):
        if (kept[name] == NOT_MEASURED).any():
            kept = with_column(kept, name, or_zero(kept[name]))
    return kept


def _within(values: Stamps, least: int, most: int) -> Mask | np.bool_:
    """Which lie between these, or were not measured: of whole columns, as a rule, all."""
    low, high = values.min(), values.max()
    if (low >= least or low == high == NOT_MEASURED) and high <= most:
        return np.True_
    return np.asarray((values == NOT_MEASURED) | ((values >= least) & (values <= most)))


def resolved(steps: Records) -> Records:
    """Cut off the steps at the end that the device has not passed yet."""
    stamped = np.flatnonzero(steps["device_end_ns"] != NOT_MEASURED)
    if len(stamped) == 0:
        return steps[:0]
    # Steps that computed nothing have no stamps to wait for.
    nothing = flagged(steps, StepFlag.COMPUTED_NOTHING)
    end = int(stamped[-1]) + 1
    while end < len(steps) and nothing[end]:
        end += 1
    return steps[:end]


def window_of(steps: Records, events: Records, queued: bool) -> Window | None:
    """The window of one rank's steps, in the order they ran; `None` when no step was recorded."""
    if len(steps) == 0:
        return None
    skipped, skipped_samples, boundaries, done = (
        events[events["what"] == kind]
        for kind in (EventKind.SKIPPED_STEPS, EventKind.SKIPPED_SAMPLES, EventKind.BOUNDARY, EventKind.DEVICE_DONE)
    )
    skipped_after, skipped_samples_after = (int(or_zero(told["value"]).sum()) for told in (skipped, skipped_samples))
    ran = len(steps) + int(steps["skipped"].sum()) + skipped_after
    warmup = min(MOST_WARMUP_STEPS, int(ran * MOST_WARMUP_SHARE))
    counted = steps[warmup:]
    device_done = int(done["t_ns"].max()) if len(done) else None
    after = _after(steps, events)
    ended = boundaries["end_ns"]
    if after is not None:
        ended = np.minimum(ended, after["t_ns"][0])[boundaries["t_ns"] < after["t_ns"][0]]
    last = [
        int(counted["step_end_ns"].max()),
        int(ended.max(initial=NOT_MEASURED)),
        int(skipped["t_ns"].max(initial=NOT_MEASURED)),
        # The device may still work for the last steps when the host is done with them.
        int(counted["device_end_ns"].max(initial=NOT_MEASURED)),
    ]
    if device_done is not None and counted["flags"][-1] & StepFlag.MARKS_DROPPED:
        # Of steps without marks at the end, that is all that is known.
        last.append(device_done)
    begin = int(counted["fetch_begin_ns"][0])
    if warmup:
        # The device may be many steps behind: what it still has to do for the warm-up belongs to it.
        begin = max(begin, int(steps["device_end_ns"][warmup - 1]))
    return Window(
        begin,
        max(last),
        counted,
        warmup,
        steps,
        skipped_after,
        skipped_samples_after,
        queued,
        device_done,
        after,
    )


def _after(steps: Records, events: Records) -> Records | None:
    """A pass after the last step is of the training if its data were evaluated between steps too, or if it is the first
    after the only epoch. With the first that is not, the training is over."""
    passes = events[events["what"] == EventKind.EVALUATION_DATA]
    passes = passes[np.argsort(passes["t_ns"], kind="stable")]
    first, last = steps["fetch_begin_ns"][0], steps["fetch_begin_ns"][-1]
    later = passes[passes["t_ns"] > last]
    between = passes["value"][(passes["t_ns"] > first) & (passes["t_ns"] <= last)]
    belongs = np.isin(later["value"], between)
    if (events["what"] == EventKind.EPOCH_BEGIN).sum() <= 1:
        belongs[:1] = True
    if belongs.all():
        return None
    after: Records = later[int(belongs.argmin()) :]
    return after


def batch_size_of(window: Window, events: Records) -> int | None:
    """Find the commonest number of samples of a batch, the largest of several; `None`: not known.

    Where several batches are fetched for one step, each counts.
    """
    found, counts = np.unique(window.all_steps["samples"], return_counts=True)
    commonest = int(found[::-1][counts[::-1].argmax()]) if len(found) else NOT_MEASURED
    if commonest == NOT_MEASURED:
        return None
    together = events["value"][events["what"] == EventKind.BATCHES_TOGETHER]
    return round(commonest / int(together[-1])) if len(together) else commonest
