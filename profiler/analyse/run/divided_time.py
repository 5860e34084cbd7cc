"""How one rank's time is divided, and what of that is known: all that a look at many ranks shows of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, PauseKind
from ..shares import MOSTLY
from .gil import Gil, gil_of, with_gil
from .stall_breakdown import PARTS, UNTOLD, Partition, partition
from .training_thread import OwnTime, own_time
from .window import Window, batch_size_of


@dataclass(frozen=True)
class DividedTime:
    """One rank's window, and where its time went."""

    window: Window
    parts: Partition
    device_kind: str
    batch_size: int | None
    samples: int
    unfed_share: float
    """Share of the steps whose fetch was not seen: what they waited for data counts as other time."""

    @property
    def samples_known(self) -> bool:
        """Whether the samples of most steps are known. Otherwise figures of samples are 0, and not to be shown."""
        return self.batch_size is not None

    @property
    def input_known(self) -> bool:
        """Whether the fetches of most steps were seen."""
        return self.unfed_share <= MOSTLY

    @property
    def told_apart(self) -> bool:
        """Whether computing is told from waiting for data: where no fetch is seen, by the copies of a device's queue
        only, which lead a step's computation."""
        return self.input_known or (
            self.device_kind != "cpu" and float(np.mean(self.window.steps["copy_bytes"] > 0)) > MOSTLY
        )

    @property
    def shares(self) -> dict[str, float]:
        """Parts of the wall time that are known, 0..1, and as `UNTOLD` what is not told apart."""
        shares = {part: self.parts.share(part) for part in PARTS}
        if self.told_apart:
            return {part: share for part, share in shares.items() if part != "input" or self.input_known}
        # Of the time outside the steps, validation without a loader is not seen either.
        known = {part: shares[part] for part in ("copy", "sync", "boundary") if part != "boundary" or shares[part] > 0}
        return known | {UNTOLD: 1 - sum(known.values())}

    @property
    def untold_share(self) -> float:
        """Of the wall time, 0..1: of which it is not known whether it is computing, waiting for data or evaluating."""
        return self.shares.get(UNTOLD, 0.0)

    @property
    def samples_per_s(self) -> float:
        return self.samples * 1e9 / self.parts.wall_ns


def divided_time(
    window: Window, events: Records, pauses: Records, host: Records, device_kind: str
) -> tuple[DividedTime, OwnTime, Gil | None]:
    """(the time divided, what the training's thread did by itself, what it waited for Python's global lock)"""
    queued = device_kind != "cpu"
    parts = partition(window, events, pauses, asynchronous=queued)
    own = own_time(window, pauses, events, backward_elsewhere=device_kind == "cuda")
    gil = gil_of(window, own, events, host)
    parts = with_gil(parts, gil, window, queued)
    unfed = float(np.mean(_unfed(window.steps, pauses)))
    return DividedTime(window, parts, device_kind, batch_size_of(window, events), window.samples, unfed), own, gil


def _unfed(steps: Records, pauses: Records) -> npt.NDArray[np.bool_]:
    """Which steps have neither a fetch at their begin nor one within."""
    within = np.isin(steps["step"], pauses["step"][pauses["what"] == PauseKind.FETCH])
    return np.asarray((steps["fetch_end_ns"] == NOT_MEASURED) & ~within)
