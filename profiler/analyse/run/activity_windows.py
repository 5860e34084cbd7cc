"""What activity windows saw inside the steps: the model's kernels, the loader's, and why the device idled between.

Two stamps a step tell when its computation began and ended; whether the device worked all the time between, only a
record of each kernel can say. All figures are of the steps whose computation lies whole inside a window and was
launched within it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, TRAINING_THREAD, EventKind, KernelKind
from ..intervals import Intervals, clip, intersect, subtract, total, union
from .window import Window

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Activity:
    """Sums over all activity windows, ns. `busy_ns` and the four idle parts sum to `spans_ns` exactly."""

    windows: int
    steps: int
    window_ns: int
    """Length of all windows together."""
    spans_ns: int
    """Time of the steps' computations, each from its first event to its last."""
    busy_ns: int
    """Time in which a kernel of the model ran."""
    idle_launch_ns: int
    """Idle time after which the next kernel was launched only when the device had nothing more to do."""
    idle_sync_ns: int
    """Idle time in which a thread that launches the model's kernels was in a call that waits for the device."""
    idle_copy_ns: int
    """Idle time in which memory was copied or set on a stream of the model."""
    idle_other_ns: int
    """Idle time though the next kernel was launched in time: dependencies between streams, or others on the device."""
    loader_ns: int | None
    """Time in which kernels of the loader ran, over the whole windows; `None` if they cannot be told from the
    model's."""
    loader_alone_ns: int | None
    """Part of `loader_ns` in which no kernel of the model ran: a utilisation counter shows it as busy."""
    kernels_per_step: float
    """Kernels of the model in a step; the mean."""
    median_kernel_ns: float | None
    """Length of the model's kernels, the median; `None` if there were none."""
    slowdown: float | None
    """Median computation of the steps in the windows over that of the others: tracing slows launches."""

    @property
    def launch_share(self) -> float:
        """Launch-bound idling as a share of the computation, 0..1, less all that tracing may have added to it."""
        factor = max(1.0, self.slowdown or 1.0)
        untraced = self.spans_ns / factor
        return max(0.0, self.idle_launch_ns - (self.spans_ns - untraced)) / untraced if untraced else 0.0


def activity_of(window: Window, events: Records, kernels: Records) -> Activity | None:
    """What the activity windows of one rank say; `None` if no step lies whole inside one."""
    opened = events[(events["what"] == EventKind.ACTIVITY_WINDOW) & (events["end_ns"] != NOT_MEASURED)]
    seen = []
    inside = np.zeros(len(window.steps), dtype=bool)
    for event in opened:
        begin, end = int(event["t_ns"]), int(event["end_ns"])
        whole = _whole_steps(window.steps, begin, end)
        if whole.any():
            inside |= whole
            within = kernels[kernels["window"] == event["value"]]
            seen.append(_look(window, window.steps[whole], within, begin, end))
    if not seen:
        return None
    loader = [(one.loader, one.alone) for one in seen if one.loader is not None]
    lengths = np.concatenate([one.lengths for one in seen])
    return Activity(
        windows=len(seen),
        steps=int(inside.sum()),
        window_ns=sum(one.window_ns for one in seen),
        spans_ns=sum(one.spans for one in seen),
        busy_ns=sum(one.busy for one in seen),
        idle_launch_ns=sum(one.launch for one in seen),
        idle_sync_ns=sum(one.sync for one in seen),
        idle_copy_ns=sum(one.copy for one in seen),
        idle_other_ns=sum(one.other for one in seen),
        loader_ns=sum(ns for ns, _ in loader) if len(loader) == len(seen) else None,
        loader_alone_ns=sum(ns for _, ns in loader) if len(loader) == len(seen) else None,
        kernels_per_step=len(lengths) / int(inside.sum()),
        median_kernel_ns=float(np.median(lengths)) if len(lengths) else None,
        slowdown=_slowdown(window.steps, inside),
    )


@dataclass(frozen=True)
class _Seen:
    """One window; times in ns."""

    window_ns: int
    spans: int
    busy: int
    copy: int
    sync: int
    launch: int
    other: int
    loader: int | None
    alone: int
    lengths: npt.NDArray[np.int64]


def _look(window: Window, steps: Records, kernels: Records, begin: int, end: int) -> _Seen:
    spans = union(steps["device_begin_ns"], steps["device_end_ns"])
    model, threads = _of_model(window.all_steps, kernels)
    computing = union(kernels["begin_ns"][model], kernels["end_ns"][model])
    idle = subtract(spans, computing)
    copies = (kernels["what"] == KernelKind.COPY) & np.isin(kernels["stream"], kernels["stream"][model])
    copying, left = _take(idle, kernels, copies)
    waits = (kernels["what"] == KernelKind.SYNC) & np.isin(kernels["thread"], threads)
    syncing, left = _take(left, kernels, waits)
    launching = intersect(left, idle[_launched_late(idle, kernels[model])])
    loader = (kernels["what"] == KernelKind.KERNEL) & ~model
    loading = clip(union(kernels["begin_ns"][loader], kernels["end_ns"][loader]), begin, end)
    starts = kernels["begin_ns"][model]
    counted = model.copy()
    counted[model] = _within(starts, spans)
    return _Seen(
        window_ns=end - begin,
        spans=total(spans),
        busy=total(spans) - total(idle),
        copy=total(copying),
        sync=total(syncing),
        launch=total(launching),
        other=total(left) - total(launching),
        loader=total(loading) if TRAINING_THREAD in threads else None,
        alone=total(subtract(loading, computing)),
        lengths=kernels["end_ns"][counted] - kernels["begin_ns"][counted],
    )


def _whole_steps(steps: Records, begin: int, end: int) -> Mask:
    """The steps that were launched and computed within [begin, end].

    The device may lag behind the host: work launched before the window began leaves no record, so a step that was
    launched before would seem to idle.
    """
    launched = np.where(steps["forward_begin_ns"] != NOT_MEASURED, steps["forward_begin_ns"], steps["fetch_begin_ns"])
    known = (steps["device_begin_ns"] != NOT_MEASURED) & (steps["device_end_ns"] != NOT_MEASURED)
    whole: Mask = known & (launched >= begin) & (steps["device_begin_ns"] >= begin) & (steps["device_end_ns"] <= end)
    return whole


def _of_model(steps: Records, kernels: Records) -> tuple[Mask, npt.NDArray[np.int64]]:
    """Which records are kernels of the model, and the threads that launch them.

    The streams on which the training thread launches kernels outside its fetches are the model's. A thread that
    launches on one of these (autograd's) works for the model, so what it launches on others (collectives) does too.
    What the training thread launches while it fetches is the loader's. If the training thread is not known, or
    launched nothing, all kernels count as the model's.
    """
    is_kernel: Mask = kernels["what"] == KernelKind.KERNEL
    training = is_kernel & (kernels["thread"] == TRAINING_THREAD)
    fetching = training & _within(kernels["launch_ns"], union(steps["fetch_begin_ns"], steps["fetch_end_ns"]))
    streams = np.unique(kernels["stream"][training & ~fetching])
    known = is_kernel & (kernels["thread"] != NOT_MEASURED)
    if len(streams) == 0:
        return is_kernel, np.setdiff1d(kernels["thread"][known], [TRAINING_THREAD])
    on_stream = np.isin(kernels["stream"], streams)
    threads = np.unique(kernels["thread"][known & on_stream & ~fetching])
    model = is_kernel & (on_stream | (known & np.isin(kernels["thread"], threads))) & ~fetching
    return model, threads


def _launched_late(idle: Intervals, model: Records) -> Mask:
    """For each idle stretch: whether the kernel that ended it was launched only after it had begun."""
    if len(model) == 0:
        return np.zeros(len(idle), dtype=bool)
    model = model[np.argsort(model["begin_ns"], kind="stable")]
    after = np.searchsorted(model["begin_ns"], idle[:, 1], side="left")
    last = np.minimum(after, len(model) - 1)
    launch = model["launch_ns"][last]
    late: Mask = (after < len(model)) & (launch != NOT_MEASURED) & (launch > idle[:, 0])
    return late


def _take(idle: Intervals, kernels: Records, which: Mask) -> tuple[Intervals, Intervals]:
    """The part of the idle time that these records explain, and what is left of it."""
    taken = intersect(idle, union(kernels["begin_ns"][which], kernels["end_ns"][which]))
    return taken, subtract(idle, taken)


def _within(moments: npt.NDArray[np.int64], intervals: Intervals) -> Mask:
    """Which moments the set covers."""
    if len(intervals) == 0:
        return np.zeros(len(moments), dtype=bool)
    place = np.searchsorted(intervals[:, 0], moments, side="right") - 1
    covered: Mask = (place >= 0) & (moments < intervals[np.maximum(place, 0), 1])
    return covered


def _slowdown(steps: Records, inside: Mask) -> float | None:
    """How much longer steps compute in the windows; `None` if there are no others to compare with."""
    known = (steps["device_begin_ns"] != NOT_MEASURED) & (steps["device_end_ns"] != NOT_MEASURED)
    others = known & ~inside
    if not others.any():
        return None
    lengths = steps["device_end_ns"] - steps["device_begin_ns"]
    usual = float(np.median(lengths[others]))
    return float(np.median(lengths[inside])) / usual if usual > 0 else None
