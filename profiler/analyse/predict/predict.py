"""What a training would be with other settings of its loader, or without some of its work, without
trying it: rates, waits and what binds, of replayed steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from ...record.tuning import DEFAULT_PREFETCH, LoaderSettings
from ..run.loader_stats import HandedOver
from ..statistics import Z90
from .replay import Replay, Times, Workload, draw

STEPS, SEQUENCES = 192, 8
"""Steps, and sequences of them, that each setting is replayed with."""
MODEL_SD = 0.06
"""Standard deviation of a predicted log rate that is due to the model itself, beside all that is
counted. A choice."""
UNSEEN_SD = 0.3
"""Standard deviation of the log of a batch's time that a recording of few batches may not have
seen. A choice."""
UNKNOWN_HANDOFF_NS = 3e6
"""Hand-over that may well be where none was measured: the slow end of a prediction's interval."""
TIE = 0.02
"""Share by which predicted rates may differ and still be the same, so that the cheaper setting is
meant; in `tune`, too."""
MOST_WORKERS = 64
"""Worker processes that are proposed at most: each costs memory, and its start time."""
MOST_OFF = 0.25
"""Difference between the log rate that the replay has for the recorded settings and the one that
was measured, up to which it is believed of other settings."""
DEEPER = (2, 4)
"""Prefetch factors that are replayed, as multiples of the recorded one."""
MOST_AHEAD = 16
"""The largest prefetch factor that is proposed."""
AROUND = (1.0, 1.15, 1.35, 1.6, 2.0)
"""Numbers of workers that are replayed, as multiples of those that would do if batches came
evenly."""


class Assumed:
    """What torch's loader costs on Linux, where a run does not tell: measured on two virtual CPUs
    with torch 2.15, at batches of 4 kB to 13 MB, of 1 to 100 tensors and 0 to 10,000 other
    objects."""

    HANDOFF_NS = 800_000.0
    """Taking over a batch that lies ready, whatever is in it."""
    HANDOFF_NS_PER_TENSOR = 450_000.0
    """Each tensor's memory is asked for at a socket, opened and mapped by itself."""
    HANDOFF_NS_PER_OBJECT = 500.0
    """What is no tensor is unpickled."""
    TENSORS = 2
    """In a batch that nobody looked into."""
    TOUCH_NS_PER_BYTE = 0.43
    """Memory that was mapped for a batch costs a page fault for each page when the training first
    looks at it."""
    SHARE_NS_PER_TENSOR = 225_000.0
    """CPU time of a worker on a batch that the training's own process would not need: memory that
    all see, pickling."""
    SHARE_NS_PER_BYTE = 0.64
    """What each byte of the batch adds to that."""
    CONTENTION = 0.1
    """Share by which whatever computes takes longer where all other CPUs compute too: caches,
    memory and power are shared. Measured with two: none for most pairs of work, 0.25 beside work
    that waits for memory."""
    MOST_CONTENTION = 0.25
    """What that may well be."""
    OF_WAITED = 0.6
    """The hand-over's part of the time from a batch's end to the end of the fetch that waited for
    it."""
    START_NS = 25e6
    """Starting a worker, and ending it with its epoch, as `Workload.start_ns`: 1, 4, 8 and 16
    forked workers took 67, 105, 200 and 470 ms."""

    @staticmethod
    def contention(most: float, cpus: float) -> float:
        """`Workload.contention` of such a share, of so many CPUs."""
        return most / max(1.0, cpus - 1)

    @classmethod
    def handoff_ns(cls, held: HandedOver | None) -> float:
        """What the training spends to take a batch over, its memory untouched."""
        tensors, objects = (cls.TENSORS, 0.0) if held is None else (held.tensors, held.objects)
        return cls.HANDOFF_NS + cls.HANDOFF_NS_PER_TENSOR * tensors + cls.HANDOFF_NS_PER_OBJECT * objects

    @classmethod
    def sharing_ns(cls, held: HandedOver | None, nbytes: float) -> float:
        """CPU time that a worker spends to hand over a batch of so many bytes."""
        tensors = cls.TENSORS if held is None else held.tensors
        return cls.SHARE_NS_PER_TENSOR * tensors + cls.SHARE_NS_PER_BYTE * nbytes


@dataclass(frozen=True)
class Prediction:
    """What the replay says of one setting."""

    settings: LoaderSettings
    samples_per_s: float
    """The beginnings of epochs are counted where the length of an epoch is known."""
    low: float
    """Lower end of the 90 % interval of `samples_per_s`."""
    high: float
    """Upper end of that interval."""
    stall_share: float
    """Share of the wall time, 0..1, in which the device (or the training on the processor) waits
    for data."""
    binding: str
    """What binds it: a key of `BINDS`."""
    infeasible: str | None = None
    """Why it cannot run here: what it would need, and what there is."""


def predict(workload: Workload, settings: Sequence[LoaderSettings]) -> list[Prediction]:
    """Replay a training with each setting: the predictions in their order, each time the same.

    Pinning is predicted as equal: what a copy from pageable memory costs is part of the recorded
    step and not known apart. The interval holds 90 % of what would be measured if the recorded
    batches are what is to come: from sequences drawn from them, from hand-overs or storage limits
    that were not seen, and from what the model is off by.
    """
    rng = np.random.default_rng(0)
    # The replay does not tell these apart; all are of the recorded batch size.
    cases = [replace(each, batch_size=None, pin_memory=False, pipeline=None) for each in settings]
    different = list(dict.fromkeys(cases))
    drawn = draw(workload, SEQUENCES, STEPS, rng)
    replays = [[Replay(sequence, each, STEPS) for each in different] for sequence in drawn]
    ns = np.array([[each.ns_per_batch for each in sequence] for sequence in replays])
    stall = np.array([[each.stall_share for each in sequence] for sequence in replays]).mean(axis=0)
    # The variance of few sequences is mixed with that of settings that are bound by the same.
    own, first = np.log(ns).var(axis=0, ddof=1), replays[0]
    kinds = [(each.loader.num_workers > 0, each.binding) for each in first]
    alike = np.array([own[[kind == other for other in kinds]].mean() for kind in kinds])
    variance = ((SEQUENCES - 1) * own + 3 * alike) / (SEQUENCES + 2)
    # That of sequences is put to the length of the recording.
    away = np.exp(Z90 * np.sqrt((variance * STEPS + UNSEEN_SD**2) / len(workload.cpu_ns) + MODEL_SD**2))
    mean, said = ns.mean(axis=0), {}
    for n, each in enumerate(different):
        slower, faster = (
            Replay(replace(drawn[0], **known), each, STEPS).ns_per_batch / ns[0, n] if known else 1.0
            for known in (_doubts(workload) if each.num_workers else ({}, {}))
        )
        rate = workload.batch_size * 1e9 / mean[n]
        low, high = rate / away[n] / max(1.0, slower), rate * away[n] / min(1.0, faster)
        figures = float(rate), float(low), float(high), float(stall[n])
        said[each] = Prediction(each, *figures, first[n].binding)
    return [
        replace(said[case], settings=each, infeasible=infeasible(workload, each))
        for case, each in zip(cases, settings, strict=True)
    ]


def _doubts(workload: Workload) -> tuple[dict[str, Any], dict[str, Any]]:
    """(fields of the workload at their worst, at their best) that the recording does not tell: the
    hand-over, and what two that compute slow each other by, where no worker did; and reads that may
    slow each other beyond as many as were seen at a time."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    if not workload.handoff_known:
        low["handoff_ns"] = max(2 * workload.handoff_ns, UNKNOWN_HANDOFF_NS)
        high["handoff_ns"] = workload.handoff_ns / 3
    if workload.settings.num_workers == 0:
        low["contention"] = max(workload.contention, Assumed.contention(Assumed.MOST_CONTENTION, workload.cpus))
        high["contention"] = 0.0
    reading, making = float(workload.read_ns.mean()), float(workload.making_ns.mean())
    if workload.storage_parallel == math.inf and reading > 0.01 * making:
        low["storage_parallel"] = max(1.0, max(1, workload.settings.num_workers) * reading / making)
    return low, high


def infeasible(workload: Workload, settings: LoaderSettings) -> str | None:
    """Say why settings cannot run here: what they would need beyond the recorded ones, and what
    there is. `None` where they can, or nothing is known."""
    recorded = workload.settings
    batch = float(workload.batch_bytes or 0)
    # The batch in use is one more.
    held_before, held = (recorded.outstanding + 1) * batch, (settings.outstanding + 1) * batch
    shared = held - held_before * (recorded.num_workers > 0)
    if workload.shm_bytes is not None and settings.num_workers and shared > workload.shm_bytes:
        return (
            f"{settings.outstanding + 1} batches of {_bytes(batch)} take {_bytes(shared)} more of /dev/shm, "
            f"but only {_bytes(workload.shm_bytes)} are free"
        )
    more = held - held_before + (settings.num_workers - recorded.num_workers) * (workload.worker_bytes or 0)
    if workload.memory_bytes is not None and more > workload.memory_bytes:
        pinned = ", all of which may be pinned" if settings.pin_memory else ""
        return (
            f"{settings.num_workers} workers and {settings.outstanding + 1} batches of {_bytes(batch)}{pinned} "
            f"take {_bytes(more)} more memory, but only {_bytes(workload.memory_bytes)} are available"
        )
    return None


def _bytes(count: float) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


@dataclass(frozen=True)
class VanishedWork:
    """Work that would not be done. Times in ns are means over steps; below 0 there would be more of
    it."""

    making: float = 0.0
    """Share of preparing a batch, 0..1, of its computing, waiting and reading alike."""
    queueing: float = 0.0
    """Share of preparing a batch, 0..1, that is waiting in line: the longest waits are the first to
    go."""
    loop_ns: float = 0.0
    """Part of the training's own time in a step."""
    taking_ns: float = 0.0
    """Part of what the training spends on a batch that lies ready: on unpacking it."""
    drawing_ns: float = 0.0
    """Part of what the sampler takes for a batch."""
    sending: float = 0.0
    """Share of what workers spend on a finished batch to have it sent, 0..1."""
    moved: bool = False
    """Whether `loop_ns` becomes part of preparing a batch."""

    def times(self, share: float) -> VanishedWork:
        """Take that share of the work."""
        return replace(self, **{name: share * value for name, value in vars(self).items() if name != "moved"})


def without(workload: Workload, gone: VanishedWork, quicker: float = 0.0) -> Workload:
    """Leave that work out of a training.

    Args:
        quicker: share of its time by which other computing would get quicker if all computing
            beside it vanished, as that leaves it caches and memory to itself.
    """
    left, own = 1 - gone.making, float(workload.host_ns.mean())
    # Share of what a batch takes of CPUs, made and trained on, that vanishes.
    making, computes = float(workload.cpu_ns.mean()), min(1.0, workload.main_cpus)
    whole = making + computes * own + workload.handoff_ns + workload.drawing_ns
    vanishes = gone.making * making + computes * gone.loop_ns + gone.taking_ns + gone.drawing_ns
    pace = 1 - quicker * min(1.0, vanishes / whole) if whole > 0 and not gone.moved else 1.0
    cpu = workload.cpu_ns * left * pace
    # In proportion, since it is not known which steps had more of it.
    host = workload.host_ns * max(0.0, 1 - gone.loop_ns / own) if own > 0 else workload.host_ns - min(0.0, gone.loop_ns)
    return replace(
        workload,
        cpu_ns=cpu + gone.loop_ns if gone.moved else cpu,
        wait_ns=_capped(workload.wait_ns, gone.queueing) * left,
        read_ns=_capped(workload.read_ns, gone.queueing) * left,
        host_ns=host * pace if workload.device_ns is None else host,
        handoff_ns=max(0.0, workload.handoff_ns - gone.taking_ns),
        drawing_ns=max(0.0, workload.drawing_ns - gone.drawing_ns),
        # A worker that has less to do is out of the way of its sending thread sooner.
        delay_ns=workload.delay_ns * left * (1 - gone.sending),
        sharing_ns=workload.sharing_ns * (1 - gone.sending),
    )


def _capped(times: Times, share: float) -> Times:
    """Cap times at what leaves that share of their sum out."""
    wanted = (1 - min(1.0, share)) * float(times.sum())
    order = np.concatenate(([0.0], np.sort(times)))
    # Sum of all, were each capped at the time that stands at that place.
    sums = np.cumsum(order) + order * np.append(len(times), np.arange(len(times) - 1, -1, -1))
    capped: Times = np.minimum(times, np.interp(wanted, sums, order) if wanted < sums[-1] else np.inf)
    return capped


def prefetch_needed(spread: float, workers: int, loss: float) -> int:
    """Prefetch factor with which handing over in order costs workers no more than a share `loss` of
    their speed.

    The coefficients were fitted to replays of 2 to 16 workers, prefetch 1 to 8, spreads 0.2 to 1:
    the speed is off by 4 % in the mean, by 20 % at most.

    Args:
        spread: standard deviation of preparing a batch, as a share of the mean.
    """
    # The largest of so many normal numbers, by Blom's approximation.
    largest = NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25)) if workers > 1 else 0.0
    return max(1, math.ceil(0.84 * float(spread**1.2) * largest * (1 - loss) / loss))


class Advice:
    """Replays a run with other settings, or without some of its work; once, and only when somebody
    asks."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._lighter: dict[tuple[object, ...], list[Prediction]] = {}

    @cached_property
    def _predictions(self) -> dict[LoaderSettings, Prediction]:
        return dict(zip(self._candidates, predict(self.workload, self._candidates), strict=True))

    @property
    def now(self) -> Prediction:
        """Prediction of the recorded settings."""
        return self._predictions[self.workload.settings]

    @property
    def most_workers(self) -> int:
        """Largest number of workers that is replayed."""
        return max(settings.num_workers for settings in self._candidates)

    def agrees(self, samples_per_s: float) -> bool:
        """Whether the replay gives the recorded settings about the rate that was measured, so that
        it may be believed of others."""
        try:
            return abs(math.log(self.now.samples_per_s / samples_per_s)) <= MOST_OFF
        except (ValueError, ArithmeticError, LookupError):
            # What cannot be predicted is no reason to have no report.
            return False

    def without(
        self, parts: Sequence[tuple[VanishedWork, float]], settings: LoaderSettings | None = None
    ) -> list[Prediction]:
        """Predict the training without some of its work, with its own settings or others.

        Args:
            parts: (what vanishes, share by which other computing gets quicker: see `without`), of
                each variant.
        """
        asked = *parts, settings
        if asked not in self._lighter:
            lighter = [without(self.workload, gone, quicker) for gone, quicker in parts]
            self._lighter[asked] = [predict(each, [settings or self.workload.settings])[0] for each in lighter]
        return self._lighter[asked]

    def cheapest(self, which: Callable[[LoaderSettings], bool], in_order: bool = True) -> Prediction | None:
        """Choose among the predicted settings: within 2 % of the best of them, those with the
        fewest workers, then with such as need not persist, then the fewest batches under way;
        `None` where there are none that can run here.

        Args:
            which: the settings to choose among.
            in_order: hand batches over in their order.
        """
        in_order = in_order and self.workload.settings.in_order
        able = [
            each
            for settings, each in self._predictions.items()
            if which(settings)
            and settings.in_order == (in_order or not settings.num_workers)
            and each.infeasible is None
        ]
        enough = (1 - TIE) * max((each.samples_per_s for each in able), default=0.0)
        return min(
            (each for each in able if each.samples_per_s >= enough),
            key=lambda each: (each.settings.num_workers, each.settings.persistent_workers, each.settings.outstanding),
            default=None,
        )

    @cached_property
    def _candidates(self) -> list[LoaderSettings]:
        recorded, load = self.workload.settings, self.workload
        making = float(load.making_ns.mean()) + load.sharing_ns
        own = float(load.host_ns.mean()) + load.handoff_ns + load.drawing_ns
        if load.device_ns is not None:
            own = max(own, float(load.device_ns.mean()))
        even = making / max(own, 1.0)
        cpu, made = float(load.cpu_ns.mean()), load.making_ns
        spread = float(made.std() / made.mean()) if made.any() else 0.0
        # As many as the CPUs can run, and no more than make two batches of an epoch.
        run_by_cpus = MOST_WORKERS if cpu <= 0 else int(load.cpus * max(1.0, making / cpu) + 0.05)
        most = max(1, min(MOST_WORKERS, run_by_cpus, (load.batches_per_epoch or 2 * MOST_WORKERS) // 2))
        counts = {max(1, min(most, math.ceil(even * times))) for times in AROUND}
        counts |= {min(most, recorded.num_workers + 1), max(1, min(most, int(load.cpus)))}
        counts |= {max(1, recorded.num_workers - 1)}
        ahead = recorded.prefetch_factor or DEFAULT_PREFETCH
        asked = [recorded, recorded.with_workers(0)]
        asked += [recorded.with_workers(count) for count in sorted(counts)]
        for count in {max(1, recorded.num_workers), min(counts, key=lambda count: abs(count - 1.35 * even))}:
            # A sampler that holds the next order up leaves a queue of one empty, however even the
            # batches are.
            least = DEFAULT_PREFETCH if load.drawing_ns else 1
            enough = min(MOST_AHEAD, max(least, prefetch_needed(spread, count, TIE)))
            depths = {*(ahead * times for times in DEEPER), enough}
            asked += [replace(recorded.with_workers(count), prefetch_factor=depth) for depth in sorted(depths)]
        # Beginning a DataLoader's epochs costs workers that persist nothing; without epochs they
        # begin once.
        if load.batches_per_epoch is not None:
            asked += [replace(each, persistent_workers=True) for each in asked if each.num_workers]
        elif recorded.num_workers:
            asked.append(replace(recorded, persistent_workers=True))
        asked += [replace(each, in_order=False) for each in asked if each.num_workers == recorded.num_workers > 1]
        return list(dict.fromkeys(asked))
