"""What other settings of its loader would do to a recorded training: predicted, and not tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

from ...record.tuning import DEFAULT_PREFETCH, LoaderSettings
from .closed_form import prefetch_needed, workers_needed
from .predict import predict, predict_each
from .what_if import VanishedWork, without
from .workload import Binding, Prediction, Workload

TIE = 0.02
"""Share by which predicted rates may differ and still be the same, so that the cheaper setting is meant; in `tune`,
too."""
MOST_WORKERS = 64
"""Worker processes that are proposed at most: each costs memory, and its start time."""
MOST_OFF = 0.25
"""Difference between the log rate that the replay has for the recorded settings and the one that was measured, up to
which it is believed of other settings."""
DEEPER = (2, 4)
"""Prefetch factors that are replayed, as multiples of the recorded one."""
MOST_AHEAD = 16
"""The largest prefetch factor that is proposed."""
AROUND = (1.0, 1.15, 1.35, 1.6, 2.0)
"""Numbers of workers that are replayed, as multiples of those that would do if batches came evenly."""

BINDS = {
    Binding.TRAINING: "the training itself is the limit",
    Binding.WORKERS: "the workers are still the limit",
    Binding.CPU: "the CPUs are the limit",
    Binding.STORAGE: "storage is the limit",
    Binding.ORDER: "slow batches that hold back finished ones are the limit",
    Binding.HANDOFF: "taking batches over is the limit",
    Binding.SAMPLER: "drawing indices, in the training's own process, is the limit",
    Binding.START: "the beginnings of epochs are the limit",
    Binding.SERIAL: "batches are made while the training waits",
}


class Advice:
    """Replays a run with other settings, or without some of its work; once, and only when somebody asks."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._lighter: dict[tuple[object, ...], list[Prediction]] = {}

    @cached_property
    def _said(self) -> dict[LoaderSettings, Prediction]:
        asked = self._asked()
        return dict(zip(asked, predict(self.workload, asked), strict=True))

    def agrees(self, samples_per_s: float) -> bool:
        """Whether the replay gives the recorded settings about the rate that was measured, so that it may be believed
        of others."""
        try:
            off = math.log(self.now.samples_per_s / samples_per_s)
        except (ValueError, ArithmeticError, LookupError):
            # What cannot be predicted is no reason to have no report.
            return False
        return abs(off) <= MOST_OFF

    @property
    def now(self) -> Prediction:
        """What the replay says of the recorded settings."""
        return self._said[self.workload.settings]

    def without(
        self, parts: Sequence[tuple[VanishedWork, float]], settings: LoaderSettings | None = None
    ) -> list[Prediction]:
        """What the replay says of the training without some of its work, with its own settings or others.

        Args:
            parts: (what vanishes, share by which other computing gets quicker: see `what_if.without`), of each variant.
        """
        asked = *parts, settings
        if asked not in self._lighter:
            variants = [without(self.workload, gone, quicker) for gone, quicker in parts]
            self._lighter[asked] = [said for (said,) in predict_each(variants, [settings or self.workload.settings])]
        return self._lighter[asked]

    def cheapest(self, which: Callable[[LoaderSettings], bool], in_order: bool = True) -> Prediction | None:
        """Of such settings within 2 % of the best of them, those with the fewest workers, then with such as need not
        persist, then the fewest batches under way; `None` where there are none that can run here. `in_order`: hand
        batches over in their order."""
        in_order = in_order and self.workload.settings.in_order
        said = [
            each
            for settings, each in self._said.items()
            if which(settings)
            and settings.in_order == (in_order or not settings.num_workers)
            and each.infeasible is None
        ]
        if not said:
            return None
        enough = (1 - TIE) * max(each.samples_per_s for each in said)
        near = [each for each in said if each.samples_per_s >= enough]
        return min(
            near,
            key=lambda each: (each.settings.num_workers, each.settings.persistent_workers, each.settings.outstanding),
        )

    @property
    def most_workers(self) -> int:
        """The largest number of workers that is replayed."""
        return max(settings.num_workers for settings in self._asked())

    @property
    def _spread(self) -> float:
        """Standard deviation of making a batch, as a share of the mean."""
        made = self.workload.making_ns
        return float(made.std() / made.mean()) if made.any() else 0.0

    def _asked(self) -> list[LoaderSettings]:
        recorded, load = self.workload.settings, self.workload
        making = float(load.making_ns.mean()) * load.scale + load.sharing_ns
        own = float(load.host_ns.mean()) + load.handoff_ns + load.drawing_ns
        if load.device_ns is not None:
            own = max(own, float(load.device_ns.mean()))
        even = making / max(own, 1.0)
        cpu, spread = float(load.cpu_ns.mean()) * load.scale, self._spread
        # As many as the CPUs can run, and no more than make two batches of an epoch.
        run_by_cpus = MOST_WORKERS if cpu <= 0 else int(load.limits.cpus * max(1.0, making / cpu) + 0.05)
        most = max(1, min(MOST_WORKERS, run_by_cpus, (load.batches_per_epoch or 2 * MOST_WORKERS) // 2))
        counts = {max(1, min(most, math.ceil(even * times))) for times in AROUND}
        counts |= {min(most, recorded.num_workers + 1), max(1, min(most, int(load.limits.cpus)))}
        counts |= {max(1, recorded.num_workers - 1)}
        ahead = recorded.prefetch_factor or DEFAULT_PREFETCH
        needed = workers_needed(
            cpu, making - cpu, max(own, 1.0), cpus=load.limits.cpus, spread=spread, prefetch=ahead, most=most
        )
        if needed is not None:
            counts.add(needed)
        asked = [recorded, recorded.with_workers(0)]
        asked += [recorded.with_workers(count) for count in sorted(counts)]
        for count in {max(1, recorded.num_workers), min(counts, key=lambda count: abs(count - 1.35 * even))}:
            # A sampler that holds the next order up leaves a queue of one empty, however even the batches are.
            least = DEFAULT_PREFETCH if load.drawing_ns else 1
            enough = min(MOST_AHEAD, max(least, prefetch_needed(spread, count, TIE)))
            depths = {*(ahead * times for times in DEEPER), enough}
            asked += [replace(recorded.with_workers(count), prefetch_factor=depth) for depth in sorted(depths)]
        # Beginning a DataLoader's epochs costs workers that persist nothing; without epochs they begin once.
        if load.batches_per_epoch is not None:
            asked += [replace(each, persistent_workers=True) for each in asked if each.num_workers]
        elif recorded.num_workers:
            asked.append(replace(recorded, persistent_workers=True))
        asked += [replace(each, in_order=False) for each in asked if each.num_workers == recorded.num_workers > 1]
        return list(dict.fromkeys(asked))
