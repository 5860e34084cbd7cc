"""What is known about a run, gathered once; every cause is judged on these alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..record.names import read_names
from ..record.reader import RecordFile, Records
from ..record.run import Run, Writer
from ..record.schema import (
    BATCH,
    DEVICE,
    EVENT,
    HOST,
    KERNEL,
    NOT_MEASURED,
    PAUSE,
    STEP,
    TRANSFORM,
    EventKind,
    LoaderFlag,
    PauseKind,
    StepFlag,
)
from .activity import Activity, activity_of
from .intervals import intersect, total, union
from .loader import Loader, loader_of
from .making import blocked_pct, of_loaders, of_training, within
from .partition import PARTS, UNTOLD, Partition, partition
from .sampled import Sampled, sampled, swings_to_zero_pct
from .window import Window, resolved, window_of

A_MONTH_NS = 30 * 24 * 3600 * 10**9
MADE_IN_FETCH_PCT = 90.0
"""Batch making of which so much happens within the fetches is done by the training itself."""


@dataclass(frozen=True)
class Facts:
    """One rank's window, where its time went, and what loader, device and host showed."""

    window: Window
    parts: Partition
    loader: Loader
    sampled: Sampled
    device_kind: str
    batch_size: int | None
    samples: int
    pinned: bool | None
    """Whether batches were copied from page-locked memory; `None` when nothing was copied."""
    copied_ahead: bool
    made_in_fetch_pct: float | None
    """Share of the batch making that happened while the training waited in the fetch."""
    handoff_pct: float | None
    """Share of the exposed wait for data that came after the worker had finished the batch."""
    blocked_pct: float | None
    """Share of the exposed wait for data in which a later batch was finished and the one that was due was not."""
    machine_cpus: int | None
    """All CPUs of the machine, whether the job may use them or not."""
    zero_windows_pct: float | None
    """Utilisation windows that read 0 %."""
    activity: Activity | None
    """What activity windows saw inside the steps; `None` where there were none."""
    set_workers: int | None
    """Worker processes of torch's DataLoader, as it is set; `None` for other loaders."""
    clock_uncertainty_ns: int | None
    """How far the device's times may be from the host's clock; `None` where that is not known."""
    cut_steps: int
    """Steps at the end that the device had not finished; they are not in the window."""
    other_processes: int
    """Training processes of the same rank in the same folder that these facts leave out."""
    unfed_share: float
    """Share of the steps whose fetch was not seen: what they waited for data counts as other time."""
    overhead_ns: float
    """Time spent in stallscope's own hooks in a step that they look at: the median, since a hook that the scheduler
    interrupts counts the interruption, which would have come anyway."""
    set_prefetch: int | None = None
    """Batches that each of torch's worker processes prepares ahead, as it is set; `None` where that is not known."""
    persistent_workers: bool | None = None
    """Whether torch's worker processes outlive an epoch, as it is set; `None` where that is not known."""

    @property
    def samples_known(self) -> bool:
        """Whether the samples of most steps are known. Otherwise figures of samples are 0, and not to be shown."""
        return self.batch_size is not None

    @property
    def waiter(self) -> str:
        """Who waits, in a sentence: where the processor is the device, nothing idles but the training."""
        return "training" if self.device_kind == "cpu" else "device"

    @property
    def input_known(self) -> bool:
        """Whether the fetches of most steps were seen."""
        return self.unfed_share <= 0.5

    @property
    def told_apart(self) -> bool:
        """Whether computing is told from waiting for data: where no fetch is seen, by the copies of a device's queue
        only, which lead a step's computation."""
        return self.input_known or (
            self.device_kind != "cpu" and float(np.mean(self.window.steps["copy_bytes"] > 0)) > 0.5
        )

    @property
    def shares(self) -> dict[str, float]:
        """The parts of the wall time that are known, 0..1, and as `UNTOLD` what is not told apart."""
        shares = {part: self.parts.share(part) for part in PARTS}
        if self.told_apart:
            return {part: share for part, share in shares.items() if part != "input" or self.input_known}
        # Of the time outside the steps, validation without a loader is not seen either.
        known = {part: shares[part] for part in ("copy", "sync", "boundary") if part != "boundary" or shares[part] > 0}
        return known | {UNTOLD: 1 - sum(known.values())}

    @property
    def samples_per_s(self) -> float:
        return self.samples * 1e9 / self.parts.wall_ns

    @property
    def overhead_share(self) -> float:
        """The hooks' typical cost over the wall time."""
        return self.overhead_ns * len(self.window.steps) / self.parts.wall_ns

    @property
    def overhead_ns_per_step(self) -> float:
        """The same, spread over all steps that ran."""
        return self.overhead_ns * self.window.looked_at

    @property
    def made_in_training(self) -> bool:
        """Whether batches are made in the training process, when it asks for them."""
        if self.set_workers is not None:
            return self.set_workers == 0
        made = self.made_in_fetch_pct
        return made is not None and made >= MADE_IN_FETCH_PCT and self.loader.queue_capacity is None

    def without(self, removed_ns: int) -> float | None:
        """Samples/s if so much of the wall time vanished; `None` where loader and training share the CPU:
        work taken from the one speeds up the other, by an amount that this recording does not hold."""
        if self.device_kind == "cpu" or not self.samples_known:
            return None
        return self.samples * 1e9 / max(1, self.parts.wall_ns - removed_ns)

    @property
    def foreign_cpus(self) -> float | None:
        """CPUs that other programs of the machine kept busy."""
        busy, mine = self.sampled.machine_busy_pct, self.sampled.tree_cpus
        if busy is None or mine is None or self.machine_cpus is None:
            return None
        return max(0.0, busy / 100 * self.machine_cpus - mine)


def facts_of(run: Run, mine: Writer | None = None) -> Facts | None:
    """Gather the facts of one training process; by default of the one that ran most steps.

    `None` when no step was recorded, or when the device has stamped none.
    """
    files = run.files(STEP)
    if not files:
        return None
    if mine is None:
        header = max(files, key=RecordFile.count).header
        mine = header.rank, header.pid
    recorded = _plausible(run, run.records(STEP, mine))
    events = run.records(EVENT, mine)
    steps, cut = recorded, 0
    done = (events["what"] == EventKind.DEVICE_DONE).any()
    if (run.info.get("device") or {}).get("kind", "cpu") != "cpu" and not done:
        steps = resolved(recorded)
        cut = len(recorded) - len(steps)
        if len(steps) == 0:
            return None
    if cut:
        # What came after the last step that is known belongs to none.
        events = events[events["t_ns"] <= steps["step_end_ns"][-1]]
    window = window_of(steps, events)
    if window is None or window.wall_ns <= 0:
        return None
    facts = judge(
        window,
        events,
        run.records(PAUSE, mine),
        run.records(KERNEL, mine),
        run.records(BATCH, mine),
        run.records(DEVICE),
        run.records(HOST),
        run.info,
        run.records(TRANSFORM, mine),
        read_names(run.folder),
    )
    others = sum(f.header.rank == mine[0] and f.header.pid != mine[1] and f.count() > 0 for f in files)
    return replace(facts, cut_steps=cut, other_processes=others)


def judge(
    window: Window,
    events: Records,
    pauses: Records,
    kernels: Records,
    batches: Records,
    device: Records,
    host: Records,
    info: dict[str, Any],
    transforms: Records | None = None,
    names: Mapping[int, str] | None = None,
) -> Facts:
    """The facts of a window, from the records around it; `info` is run.json, `names` what records name by number."""
    device_kind = str((info.get("device") or {}).get("kind", "cpu"))
    batches = of_training(batches, window.all_steps)
    parts = partition(window, events, pauses, asynchronous=device_kind != "cpu")
    flags = window.steps["flags"]
    copied = window.steps["copy_bytes"] > 0
    return Facts(
        window=window,
        parts=parts,
        loader=loader_of(window, batches, None if transforms is None else of_loaders(transforms, batches), names),
        sampled=sampled(window, device, host),
        device_kind=device_kind,
        batch_size=_commonest(window.steps["samples"]),
        samples=window.samples,
        pinned=_pinned(window.steps[copied], pauses[pauses["step"] >= window.steps["step"][0]]),
        copied_ahead=bool(copied.any() and np.mean((flags[copied] & StepFlag.COPIED_AHEAD) != 0) > 0.5),
        made_in_fetch_pct=_made_in_fetch(window, batches),
        handoff_pct=_handed_off(window, batches, parts),
        blocked_pct=blocked_pct(window, batches, parts.loading),
        machine_cpus=(info.get("host") or {}).get("cpus"),
        zero_windows_pct=swings_to_zero_pct(window, device),
        activity=activity_of(window, events, kernels),
        set_workers=_last_told(events, EventKind.LOADER_WORKERS),
        set_prefetch=_last_told(events, EventKind.LOADER_PREFETCH),
        persistent_workers=_flag(_last_told(events, EventKind.LOADER_FLAGS), LoaderFlag.PERSISTENT_WORKERS),
        clock_uncertainty_ns=_last_told(events, EventKind.CLOCK_UNCERTAINTY),
        cut_steps=0,
        other_processes=0,
        unfed_share=float(np.mean(_unfed(window.steps, pauses))),
        overhead_ns=float(np.median(window.steps["overhead_ns"])),
    )


def _unfed(steps: Records, pauses: Records) -> npt.NDArray[np.bool_]:
    """Which steps have neither a fetch at their begin nor one within."""
    within = np.isin(steps["step"], pauses["step"][pauses["what"] == PauseKind.FETCH])
    return np.asarray((steps["fetch_end_ns"] == NOT_MEASURED) & ~within)


def _commonest(values: npt.NDArray[np.int64]) -> int | None:
    found, counts = np.unique(values, return_counts=True)
    commonest = int(found[counts.argmax()]) if len(found) else NOT_MEASURED
    return None if commonest == NOT_MEASURED else commonest


def _plausible(run: Run, steps: Records) -> Records:
    """The steps without those whose bytes were overwritten since they were stored."""
    if len(steps) == 0:
        return steps
    typical = int(np.median(steps["fetch_begin_ns"]))
    lasted = steps["step_end_ns"] - steps["fetch_begin_ns"]
    good = (np.abs(steps["fetch_begin_ns"] - typical) < A_MONTH_NS) & (lasted >= 0) & (lasted < A_MONTH_NS)
    for name in ("step", "skipped", "samples", "skipped_samples"):
        good &= (steps[name] == NOT_MEASURED) | ((steps[name] >= 0) & (steps[name] < 10**12))
    for name in ("device_before_ns", "device_begin_ns", "device_end_ns", "skipped_end_ns", "fetch_end_ns"):
        good &= (steps[name] == NOT_MEASURED) | (np.abs(steps[name] - typical) < A_MONTH_NS)
    if not good.all():
        damaged = f"{int((~good).sum())} records of steps are damaged and left out."
        if damaged not in run.damaged:
            run.damaged.append(damaged)
    kept: Records = steps[good]
    return kept


def _pinned(copied: Records, pauses: Records) -> bool | None:
    """Whether most bytes were copied from page-locked memory; `None` when nothing was copied."""
    of_first = (copied["flags"] & StepFlag.PINNED) != 0
    pinned = int(copied["copy_bytes"][of_first].sum())
    pageable = int(copied["copy_bytes"][~of_first].sum())
    amount = np.where(pauses["amount_bytes"] == NOT_MEASURED, 0, pauses["amount_bytes"])
    pinned += int(amount[pauses["what"] == PauseKind.QUEUED_COPY].sum())
    pageable += int(amount[pauses["what"] == PauseKind.COPY].sum())
    return pinned > pageable if pinned + pageable else None


def _last_told(events: Records, what: int) -> int | None:
    """The value of the last event of a kind."""
    told = events["value"][events["what"] == what]
    return int(told[-1]) if len(told) else None


def _flag(flags: int | None, flag: int) -> bool | None:
    return None if flags is None else bool(flags & flag)


def _made_in_fetch(window: Window, batches: Records) -> float | None:
    counted = batches[within(window, batches)]
    making = union(counted["begin_ns"], counted["end_ns"])
    if total(making) == 0:
        return None
    fetches = union(window.steps["fetch_begin_ns"], window.steps["fetch_end_ns"])
    return 100 * total(intersect(making, fetches)) / total(making)


def _handed_off(window: Window, batches: Records, parts: Partition) -> float | None:
    """Exposed waiting between the end of a batch in its worker and its arrival, in percent of all of it."""
    if parts.input_ns == 0 or len(batches) == 0:
        return None
    steps, batch_of = np.intersect1d(window.steps["step"], batches["step"], return_indices=True)[0:3:2]
    if len(steps) == 0:
        return None
    known = np.searchsorted(window.steps["step"], steps)
    begun, arrived = window.steps["fetch_begin_ns"][known], window.steps["fetch_end_ns"][known]
    # A batch that is finished while the training waits for an earlier one is not on its way yet.
    on_the_way = union(np.maximum(batches["end_ns"][batch_of], begun), arrived)
    waited = parts.input_ns
    if len(steps) < len(window.steps):
        waited = total(intersect(parts.loading, union(begun, arrived)))
    return 100 * total(intersect(parts.loading, on_the_way)) / waited if waited else None
