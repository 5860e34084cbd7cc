"""What is known about a run, gathered once; every cause is judged on these alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..record.reader import Records
from ..record.run import Run
from ..record.schema import BATCH, DEVICE, EVENT, HOST, STEP, StepFlag
from .intervals import intersect, total, union
from .loader import Loader, loader_of
from .partition import Partition, partition
from .sampled import Sampled, sampled, swings_to_zero_pct
from .window import Window, window_of


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
    drained_before_fetch_pct: float | None
    """Steps whose fetch began on an idle device."""
    zero_windows_pct: float | None
    """Utilisation windows that read 0 %."""
    overhead_ns: float
    """Time spent in stallscope's own hooks in a step: the median, since a hook that the scheduler interrupts
    counts the interruption, which would have come anyway."""

    @property
    def samples_per_s(self) -> float:
        return self.samples * 1e9 / self.parts.wall_ns

    @property
    def overhead_share(self) -> float:
        """The hooks' typical cost over the wall time."""
        return self.overhead_ns * len(self.window.steps) / self.parts.wall_ns

    @property
    def compute_samples_per_s(self) -> float | None:
        """Throughput if the device never idled."""
        return self.samples * 1e9 / self.parts.compute_ns if self.parts.compute_ns else None


def facts_of(run: Run, rank: int | None = None) -> Facts | None:
    """Gather the facts of one rank (`None`: the only one); `None` when no step was recorded."""
    steps = run.records(STEP, rank)
    events = run.records(EVENT, rank)
    window = window_of(steps, events)
    if window is None or window.wall_ns <= 0:
        return None
    return judge(
        window,
        events,
        run.records(BATCH, rank),
        run.records(DEVICE),
        run.records(HOST),
        str((run.info.get("device") or {}).get("kind", "cpu")),
    )


def judge(window: Window, events: Records, batches: Records, device: Records, host: Records, device_kind: str) -> Facts:
    """The facts of a window, from the records around it."""
    flags = window.steps["flags"]
    copied = window.steps["copy_bytes"] > 0
    known = (flags & StepFlag.DRAINED_KNOWN) != 0
    return Facts(
        window=window,
        parts=partition(window, events, asynchronous=device_kind != "cpu"),
        loader=loader_of(window, batches),
        sampled=sampled(window, device, host),
        device_kind=device_kind,
        batch_size=_commonest(window.steps["samples"]),
        samples=int(window.steps["samples"].sum()),
        pinned=bool(np.mean((flags[copied] & StepFlag.PINNED) != 0) > 0.5) if copied.any() else None,
        copied_ahead=bool(copied.any() and np.mean((flags[copied] & StepFlag.COPIED_AHEAD) != 0) > 0.5),
        made_in_fetch_pct=_made_in_fetch(window, batches),
        drained_before_fetch_pct=(
            100 * float(np.mean((flags[known] & StepFlag.DRAINED_AT_ENTRY) != 0)) if known.any() else None
        ),
        zero_windows_pct=swings_to_zero_pct(window, device),
        overhead_ns=float(np.median(window.steps["overhead_ns"])),
    )


def _commonest(values: npt.NDArray[np.int64]) -> int | None:
    found, counts = np.unique(values, return_counts=True)
    return int(found[counts.argmax()]) if len(found) else None


def _made_in_fetch(window: Window, batches: Records) -> float | None:
    counted = batches[batches["step"] >= window.steps["step"][0]]
    making = union(counted["begin_ns"], counted["end_ns"])
    if total(making) == 0:
        return None
    fetches = union(window.steps["fetch_begin_ns"], window.steps["fetch_end_ns"])
    return 100 * total(intersect(making, fetches)) / total(making)
