"""Which steps count: everything after warm-up."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...record.reader import Records, only
from ...record.schema import NOT_MEASURED, EventKind, StepFlag

MOST_WARMUP_STEPS = 5
"""Steps at the beginning of a run that are its warm-up, at most."""
MOST_WARMUP_SHARE = 0.05
"""Share of a run's steps that are its warm-up, at most."""
COUNTED = ("flags", "samples", "skipped", "skipped_samples", "copy_bytes")
"""Fields of the steps that tell what was done in them."""
A_MONTH_NS = 30 * 24 * 3600 * 10**9
"""Distance of a stamp from the typical one at which its bytes must have been overwritten."""


@dataclass(frozen=True)
class AfterTraining:
    """Passes over loaders after the training that are no validation of it: testing, predicting."""

    begin_ns: int
    end_ns: int
    """Of the last of them."""
    passes: int


@dataclass(frozen=True)
class Window:
    """From the first fetch after the warm-up to the last event of the training."""

    begin_ns: int
    end_ns: int
    steps: Records
    """Steps after the warm-up that the hooks looked at: all of them, unless they are very short."""
    warmup_steps: int
    all_steps: Records
    """Steps that the hooks looked at, with those of the warm-up: its last work may still run when the window begins."""
    skipped_after: int = 0
    """Steps that ran after the last one the hooks looked at."""
    skipped_samples_after: int = 0
    """Samples of the steps that ran after the last one the hooks looked at."""
    device_done_ns: int | None = None
    """When the device had done all that the training queued; `None` where that is not known."""
    after: AfterTraining | None = None
    """What lies behind the window; `None` where nothing was evaluated there."""

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
        looked_at = self.steps["samples"][self.steps["samples"] != NOT_MEASURED]
        return int(looked_at.sum() + self.steps["skipped_samples"][1:].sum()) + self.skipped_samples_after

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.begin_ns

    def condensed(self) -> Window:
        """It with what counts steps, epochs and samples, and no times of single steps."""
        return replace(self, steps=only(self.steps, COUNTED), all_steps=only(self.all_steps, COUNTED))


def plausible(steps: Records) -> Records:
    """The steps without those whose bytes were overwritten since they were stored."""
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
    return kept


def _within(values: npt.NDArray[np.int64], least: int, most: int) -> npt.NDArray[np.bool_] | np.bool_:
    """Which of them lie between these, or were not measured; of whole columns, as a rule, all do."""
    low, high = values.min(), values.max()
    if (low >= least or low == high == NOT_MEASURED) and high <= most:
        return np.True_
    return np.asarray((values == NOT_MEASURED) | ((values >= least) & (values <= most)))


def resolved(steps: Records) -> Records:
    """The steps up to the last whose device stamps are there; the device has not passed those after it yet."""
    known = np.flatnonzero(steps["device_end_ns"] != NOT_MEASURED)
    if len(known) == 0:
        return steps[:0]
    # Steps that computed nothing have no stamps to wait for.
    nothing = (steps["flags"] & StepFlag.COMPUTED_NOTHING) != 0
    end = int(known[-1]) + 1
    while end < len(steps) and nothing[end]:
        end += 1
    return steps[:end]


def warmup_steps(steps: int) -> int:
    """How many of so many steps are the warm-up: at most five, and at most 5 %."""
    return min(MOST_WARMUP_STEPS, int(steps * MOST_WARMUP_SHARE))


def window_of(steps: Records, events: Records) -> Window | None:
    """The window of one rank's steps, in the order they ran; `None` when no step was recorded."""
    if len(steps) == 0:
        return None
    skipped = events[events["what"] == EventKind.SKIPPED_STEPS]
    warmup = warmup_steps(len(steps) + int(steps["skipped"].sum() + skipped["value"].sum()))
    counted = steps[warmup:]
    done = events[events["what"] == EventKind.DEVICE_DONE]
    device_done = int(done["t_ns"].max()) if len(done) else None
    dropped = counted["flags"][-1] & StepFlag.MARKS_DROPPED
    skipped_samples = events[events["what"] == EventKind.SKIPPED_SAMPLES]
    boundaries = events[events["what"] == EventKind.BOUNDARY]
    after = _after(steps, events)
    ended = boundaries["end_ns"]
    if after is not None:
        ended = np.minimum(ended, after.begin_ns)[boundaries["t_ns"] < after.begin_ns]
    last = [
        int(counted["step_end_ns"].max()),
        int(ended.max(initial=NOT_MEASURED)),
        int(skipped["t_ns"].max(initial=NOT_MEASURED)),
        # The device may still work for the last steps when the host is done with them.
        int(counted["device_end_ns"].max(initial=NOT_MEASURED)),
        # Of steps without marks at the end, that is all that is known.
        device_done if dropped and device_done is not None else NOT_MEASURED,
    ]
    return Window(
        begin_of(steps, warmup),
        max(last),
        counted,
        warmup,
        steps,
        int(skipped["value"].sum()),
        int(skipped_samples["value"].sum()),
        device_done,
        after,
    )


def _after(steps: Records, events: Records) -> AfterTraining | None:
    """A pass after the last step is of the training if its data were evaluated between steps as well, or if it is the
    first one after the only epoch. With the first that is not the training is over, whatever comes later."""
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
    none = later[int(belongs.argmin()) :]
    return AfterTraining(int(none["t_ns"][0]), int(none["end_ns"].max()), len(none))


def begin_of(steps: Records, first: int) -> int:
    """When the time of step number `first` of these begins: the steps before it are over, on the device too.

    The device may be many steps behind; what it still has to do for them belongs to them.
    """
    begin = int(steps["fetch_begin_ns"][first])
    return begin if first == 0 else max(begin, int(steps["device_end_ns"][first - 1]))


def batch_size_of(window: Window, events: Records) -> int | None:
    """The commonest number of samples of a batch, `None` where it is not known; of several that are as common, the
    largest: the others are remainders. Where several batches are fetched for one step, each counts."""
    found, counts = np.unique(window.all_steps["samples"], return_counts=True)
    commonest = int(found[::-1][counts[::-1].argmax()]) if len(found) else NOT_MEASURED
    if commonest == NOT_MEASURED:
        return None
    together = events["value"][events["what"] == EventKind.BATCHES_TOGETHER]
    return round(commonest / int(together[-1])) if len(together) else commonest
