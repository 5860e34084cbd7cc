"""Samples that were made and never computed with: thrown away by `collate_fn`, made by several workers alike, or in
batches that the training passes over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, StepFlag
from ..shares import MOSTLY
from .window import Window

LEAST_BATCHES = 8
"""Batches that have to be looked at before anything is said of them."""
LEAST_STREAMED = 2
"""The same of batches of which it was seen how an iterable dataset makes its samples."""
LEAST_PLACES = 4
"""Places in the workers' streams that two of them have to have reached for their batches to be compared."""
MOSTLY_DIFFERENT = 0.5
"""Share of a worker's own batches that differ from each other, below which its data are always the same, and being
equal to another worker's says nothing."""
MOST_PASSED_OVER = 0.95
"""Share of the steps that may compute nothing."""
_PASS = 1 << 32


@dataclass(frozen=True)
class WastedSamples:
    """Shares, 0..1, of the samples that were made; 0 also where nothing of the kind was found."""

    dropped: float
    """Left out of their batch by `collate_fn`; or, as a share of the time, made by a stream and not given."""
    repeated: float
    """In batches that another worker made too."""
    passed_over: float
    """In batches that the training fetched and computed nothing with."""

    @property
    def share(self) -> float:
        """Of the samples made, those that were made for nothing."""
        return 1 - (1 - self.dropped) * (1 - self.repeated) * (1 - self.passed_over)


def wasted_samples_of(window: Window, contents: Records, iterable: bool | None, queued: bool) -> WastedSamples | None:
    """What became of the samples of the loaders that train; `None` where nothing of theirs was looked at and every
    step computed.

    Args:
        contents: CONTENT records of the training's rank.
        iterable: whether the dataset is iterated over: only then can workers make the same.
        queued: whether the device has stamps of its own.
    """
    loaders = window.all_steps["loader"]
    mine = contents[(contents["loader"] == NOT_MEASURED) | np.isin(contents["loader"], loaders)]
    found = WastedSamples(_dropped(mine), _repeated(mine) if iterable else 0.0, _passed_over(window, queued))
    return found if len(mine) or found.passed_over else None


def _dropped(contents: Records) -> float:
    known = contents[(contents["made"] > 0) & (contents["kept"] != NOT_MEASURED)]
    left = 1.0
    if len(known) >= LEAST_BATCHES:
        made, present, kept = (known[name] for name in ("made", "present", "kept"))
        left = float(present.sum()) / float(made.sum())
        # So many samples to each row, every time: they are put together, views of one thing say, and not left out.
        together = len(np.unique(kept)) == 1 and kept[0] > 0 and (present % kept[0] == 0).all()
        left *= 1.0 if together or not present.any() else float(kept.sum()) / float(present.sum())
    streamed = contents[(contents["stream_ns"] > 0) & (contents["unused_ns"] != NOT_MEASURED)]
    if len(streamed) >= LEAST_STREAMED:
        left *= 1 - float(streamed["unused_ns"].sum()) / float(streamed["stream_ns"].sum())
    return 1 - left


def _repeated(contents: Records) -> float:
    """Batches that are equal to the one that another worker made at the same place of its stream, as the share that
    one worker could have saved."""
    known = contents[(contents["fingerprint"] != NOT_MEASURED) & (contents["batch"] != NOT_MEASURED)]
    places: dict[tuple[int, int, int], list[int]] = {}
    for loader in np.unique(known["loader"]):
        of_loader = known[known["loader"] == loader]
        for number in np.unique(of_loader["batch"] // _PASS):
            of_pass = of_loader[of_loader["batch"] // _PASS == number]
            for worker in np.unique(of_pass["worker"]):
                own = np.sort(of_pass[of_pass["worker"] == worker], order="batch")
                if len(np.unique(own["fingerprint"])) < MOSTLY_DIFFERENT * len(own):
                    return 0.0
                for place, fingerprint in enumerate(own["fingerprint"].tolist()):
                    places.setdefault((int(loader), int(number), place), []).append(fingerprint)
    compared = [prints for prints in places.values() if len(prints) > 1]
    if len(compared) < LEAST_PLACES:
        return 0.0
    saved = sum(len(prints) - len(set(prints)) for prints in compared)
    share = saved / sum(len(prints) for prints in compared)
    workers = max(len(prints) for prints in compared)
    return share if share >= MOSTLY * (1 - 1 / workers) else 0.0


def _passed_over(window: Window, queued: bool) -> float:
    steps = window.steps
    flags = steps["flags"]
    if queued:
        nothing = (flags & StepFlag.COMPUTED_NOTHING) != 0
    else:
        nothing = (steps["backward_begin_ns"] == NOT_MEASURED) & (steps["optimizer_end_ns"] == NOT_MEASURED)
        nothing &= (flags & (StepFlag.FORWARD_SEEN | StepFlag.OPTIMIZER | StepFlag.FORWARD_AFTER)) == 0
    share = float(np.mean(nothing & (steps["fetch_end_ns"] != NOT_MEASURED))) if len(steps) else 0.0
    # Where nothing is ever computed, computing is not seen.
    return share if share <= MOST_PASSED_OVER else 0.0
