"""Predictions of what other settings of its loader would do to a recorded training, without trying them.

A recorded training without some of its work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from ...record.tuning import DEFAULT_PREFETCH, LoaderSettings
from .predict import predict
from .workload import Binding, Prediction, Times, Workload


@dataclass(frozen=True)
class VanishedWork:
    """Work that would not be done. Times in ns are means over steps; below 0 there would be more of it."""

    making: float = 0.0
    """Share of preparing a batch, 0..1, of its computing, waiting and reading alike."""
    queueing: float = 0.0
    """Share of preparing a batch, 0..1, that is waiting in line: the longest waits are the first to go."""
    loop_ns: float = 0.0
    """Of the training's own part of a step."""
    taking_ns: float = 0.0
    """Of what the training spends on a batch that lies ready: on unpacking it."""
    drawing_ns: float = 0.0
    """Of what the sampler takes for a batch."""
    sending: float = 0.0
    """Share of what workers spend on a finished batch to have it sent, 0..1."""
    moved: bool = False
    """Whether `loop_ns` becomes part of preparing a batch."""

    def times(self, share: float) -> VanishedWork:
        """So much of it."""
        less: dict[str, float] = {name: share * value for name, value in vars(self).items() if name != "moved"}
        return VanishedWork(**less, moved=self.moved)


def without(workload: Workload, gone: VanishedWork, quicker: float = 0.0) -> Workload:
    """The same training without that work.

    Args:
        quicker: share of its time by which other computing would get quicker if all computing beside it vanished, as
            that leaves it caches and memory to itself.
    """
    left = 1 - gone.making
    pace = 1.0 if gone.moved else 1 - quicker * _computing(workload, gone)
    cpu = workload.cpu_ns * left * pace
    host_ns = _less(workload.host_ns, gone.loop_ns)
    return replace(
        workload,
        cpu_ns=cpu + gone.loop_ns if gone.moved else cpu,
        wait_ns=_cut(workload.wait_ns, gone.queueing) * left,
        read_ns=_cut(workload.read_ns, gone.queueing) * left,
        collate_ns=workload.collate_ns * left * pace,
        slowest_ns=workload.slowest_ns * left * pace,
        host_ns=host_ns * pace if workload.device_ns is None else host_ns,
        handoff_ns=max(0.0, workload.handoff_ns - gone.taking_ns),
        drawing_ns=max(0.0, workload.drawing_ns - gone.drawing_ns),
        # A worker that has less to do is out of the way of its sending thread sooner.
        delay_ns=workload.delay_ns * left * (1 - gone.sending),
        sharing_ns=workload.sharing_ns * (1 - gone.sending),
    )


def _computing(workload: Workload, gone: VanishedWork) -> float:
    """Share of what a batch takes of CPUs, made and trained on, that vanishes, 0..1."""
    making, computes = float(workload.cpu_ns.mean()), min(1.0, workload.main_cpus)
    whole = making + computes * float(workload.host_ns.mean()) + workload.handoff_ns + workload.drawing_ns
    gone_ns = gone.making * making + computes * gone.loop_ns + gone.taking_ns + gone.drawing_ns
    return min(1.0, gone_ns / whole) if whole > 0 else 0.0


def _cut(times: Times, share: float) -> Times:
    """Times none of which is above so much that so large a share of their sum is left out."""
    wanted = (1 - min(1.0, share)) * float(times.sum())
    order = np.concatenate(([0.0], np.sort(times)))
    # Sum of all, were each cut at the time that stands at that place.
    sums = np.cumsum(order) + order * np.append(len(times), np.arange(len(times) - 1, -1, -1))
    cut: Times = np.minimum(times, np.interp(wanted, sums, order) if wanted < sums[-1] else np.inf)
    return cut


def _less(times: Times, less: float) -> Times:
    """Times whose mean is less by so much: each in proportion, since it is not known which of them had more of it."""
    mean = float(times.mean())
    left: Times = times * max(0.0, 1 - less / mean) if mean > 0 else np.maximum(0.0, times - less)
    return left


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
    Binding.TRAINING: "the training itself",
    Binding.WORKERS: "still the workers",
    Binding.CPU: "the CPUs",
    Binding.STORAGE: "storage",
    Binding.ORDER: "slow batches that hold back finished ones",
    Binding.HANDOFF: "the hand-over of batches",
    Binding.SAMPLER: "drawing indices in the training process",
    Binding.START: "the beginnings of epochs",
    Binding.SERIAL: "preparing batches in the training process",
}


_LOSS, _POWER = 0.84, 1.2
"""Coefficients of what handing over in order costs, fitted to replays of 2 to 16 workers, prefetch 1 to 8, spreads 0.2
to 1: mean error 4 %, at most 20 %."""


@cache
def largest_of(workers: int) -> float:
    """Expected largest of so many standard normal numbers."""
    if workers < 2:
        return 0.0
    at = np.linspace(0.0, 12.0, 2401)
    above = np.array([0.5 * math.erfc(x / math.sqrt(2)) for x in at])
    least = 1 - (1 - above) ** workers - above**workers
    # By the trapezium rule, which numpy has by one name before 2.0 and by another from then on.
    return float(((least[1:] + least[:-1]) / 2 * np.diff(at)).sum())


def in_order_efficiency(spread: float, workers: int, prefetch: int) -> float:
    """Share of their speed that workers keep although batches are handed over in order, with a training that takes
    them at once. `spread`: standard deviation of preparing a batch, of its mean."""
    return float(1 / (1 + _LOSS * spread**_POWER * largest_of(workers) / prefetch))


def prefetch_needed(spread: float, workers: int, loss: float) -> int:
    """Prefetch factor with which handing over in order costs workers no more than a share `loss` of their speed."""
    if not 0 < loss < 1:
        raise ValueError(f"a loss is between 0 and 1, not {loss}")
    needed: float = _LOSS * spread**_POWER * largest_of(workers) * (1 - loss) / loss
    return max(1, math.ceil(needed - 1e-9))


def making_with(workers: int, cpu: float, other: float, cpus: float) -> float:
    """Time that preparing a batch takes while as many workers as that are busy."""
    making = cpu + other
    return other + cpu * max(1.0, workers * cpu / making / cpus) if making else 0.0


def workers_needed(
    cpu: float,
    other: float,
    step: float,
    *,
    cpus: float,
    spread: float = 0.0,
    prefetch: int = 2,
    most: int = 128,
) -> int | None:
    """Fewest workers whose batches come as fast as the training takes them; `None`: no number of them does.

    `cpu` and `other`: parts of preparing a batch; `step`: of the training on a batch, hand-off included.
    """
    for workers in range(1, most + 1):
        making = making_with(workers, cpu, other, cpus)
        if making / workers <= step * in_order_efficiency(spread, workers, prefetch) * (1 + 1e-9):
            return workers
    return None


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
            self._lighter[asked] = [predict(each, [settings or self.workload.settings])[0] for each in variants]
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
        """Standard deviation of preparing a batch, as a share of the mean."""
        made = self.workload.making_ns
        return float(made.std() / made.mean()) if made.any() else 0.0

    def _asked(self) -> list[LoaderSettings]:
        recorded, load = self.workload.settings, self.workload
        making = float(load.making_ns.mean()) + load.sharing_ns
        own = float(load.host_ns.mean()) + load.handoff_ns + load.drawing_ns
        if load.device_ns is not None:
            own = max(own, float(load.device_ns.mean()))
        even = making / max(own, 1.0)
        cpu, spread = float(load.cpu_ns.mean()), self._spread
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
