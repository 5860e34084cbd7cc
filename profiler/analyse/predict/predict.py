"""Throughput of any loader settings, from what a recorded run cost.

Without workers: every batch is made by the training process when it is asked for. Rates, stalls and what binds,
from replayed steps. What a run without workers cannot tell of them.

Answers of one line, for what is worth replaying and for what a replay is compared with. Times in any one unit;
formulas with the literature they are from in brackets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt

from ...record.tuning import LoaderSettings
from ..run.loader_stats import HandedOver
from .cases import Line, hands, in_processes, prepare, rows_of, together
from .protocol import RUN_AHEAD, replay
from .rows import DrawnTimes, Ints, Replayed, ReplayRows
from .workload import Binding, Prediction, Times, Workload


class Assumed:
    """What torch's loader costs on Linux, where a run does not tell: measured on two virtual CPUs with torch 2.15, at
    batches of 4 kB to 13 MB, of 1 to 100 tensors and 0 to 10,000 other objects."""

    HANDOFF_NS = 800_000.0
    """Taking over a batch that lies ready, whatever is in it."""
    HANDOFF_NS_PER_TENSOR = 450_000.0
    """Each tensor's memory is asked for at a socket, opened and mapped by itself."""
    HANDOFF_NS_PER_OBJECT = 500.0
    """What is no tensor is unpickled."""
    TENSORS = 2
    """In a batch that nobody looked into."""
    TOUCH_NS_PER_BYTE = 0.43
    """Memory that was mapped for a batch costs a page fault for each page when the training first looks at it."""
    SHARE_NS_PER_TENSOR = 225_000.0
    """CPU time of a worker on a batch that the training's own process would not need: memory that all see, pickling."""
    SHARE_NS_PER_BYTE = 0.64
    """What each byte of the batch adds to that."""
    CONTENTION = 0.1
    """Share by which whatever computes takes longer where all other CPUs compute too: caches, memory and power are
    shared. Measured with two: none for most pairs of work, 0.25 beside work that waits for memory."""
    MOST_CONTENTION = 0.25
    """What that may well be."""
    OF_WAITED = 0.6
    """The hand-over's part of the time from a batch's end to the end of the fetch that waited for it."""
    START_NS = 25e6
    """Starting a worker, and ending it with its epoch, as `Workload.start_ns`: 1, 4, 8 and 16 forked workers took 67,
    105, 200 and 470 ms."""

    @staticmethod
    def contention(most: float, cpus: float) -> float:
        """`Workload.contention` of such a share, of so many CPUs."""
        return most / max(1.0, cpus - 1)

    @classmethod
    def handoff_ns(cls, held: HandedOver | None) -> float:
        """What the training spends to take a batch over, its memory untouched."""
        if held is None:
            return cls.HANDOFF_NS + cls.HANDOFF_NS_PER_TENSOR * cls.TENSORS
        return cls.HANDOFF_NS + cls.HANDOFF_NS_PER_TENSOR * held.tensors + cls.HANDOFF_NS_PER_OBJECT * held.objects

    @classmethod
    def sharing_ns(cls, held: HandedOver | None, nbytes: float) -> float:
        """CPU time that a worker spends to hand over a batch of so many bytes."""
        return (
            cls.SHARE_NS_PER_TENSOR * (cls.TENSORS if held is None else held.tensors) + cls.SHARE_NS_PER_BYTE * nbytes
        )


LEAST_LOST = 0.05
"""Share of the wall time that has to be lost to the loader before anything of it is called the limit."""
CPUS_CONTENDED = 0.2
"""Of the time lost while workers are busy, the share lost because they have less than a CPU each, from which the CPUs
bind and not the number of workers."""


def ns_per_batch(ends: Times, outstanding: Ints, workers: Ints, epoch: Ints) -> Times:
    """Time that a batch takes in each row. Where epochs are longer than what was replayed, the beginning of one and the
    steady rest are put together by the length of an epoch; 0: it never ends, and only the rest counts."""
    steps = ends.shape[1]
    row = np.arange(len(ends))
    settled = np.clip(outstanding, min(32, steps // 4), steps // 2)
    # Workers that prepare batches equally fast hand them over in bursts of one each: whole bursts.
    settled = np.minimum(settled + (steps - settled) % np.maximum(workers, 1), steps - 1)
    steady = (ends[:, -1] - ends[row, settled - 1]) / (steps - settled)
    whole = np.where(epoch > 0, steps // np.maximum(epoch, 1) * epoch, 0)
    within = ends[row, np.maximum(whole, 1) - 1] / np.maximum(whole, 1)
    beyond = (ends[:, -1] + (epoch - steps) * steady) / np.maximum(epoch, 1)
    taken: Times = np.where(epoch == 0, steady, np.where(whole > 0, within, beyond))
    return taken


def binding(rows: ReplayRows, replayed: Replayed) -> list[str]:
    """What limits each row, as `Binding` has it: what most of the time beyond the training's own was lost to; while it
    waits, by what the workers are at."""
    steps = replayed.ends.shape[1]
    begins = np.where(rows.epoch > 0, np.minimum(1.0, steps / np.maximum(rows.epoch, 1)), 0.0)
    loading = Binding.CPU, Binding.STORAGE, Binding.ORDER, Binding.WORKERS, Binding.START
    names = (*loading, Binding.HANDOFF, Binding.SAMPLER)
    # Workers that slow each other leave no CPU to further ones.
    full = replayed.lost_cpu > CPUS_CONTENDED * (replayed.lost_cpu + replayed.lost_workers)
    lost: npt.NDArray[np.float64] = np.stack(
        [
            replayed.lost_cpu + full * replayed.lost_workers,
            replayed.lost_storage,
            replayed.lost_idle,
            ~full * replayed.lost_workers,
            replayed.lost_first * begins,
            steps * rows.handoff,
            steps * rows.drawing,
        ]
    )
    stalled = replayed.stalls.sum(axis=1) - replayed.lost_first * (1 - begins)
    least = LEAST_LOST * replayed.ends[:, -1]
    waits = stalled > least
    slowed = replayed.lost_cpu > least
    most = lost.argmax(axis=0)
    return [
        names[m] if w else Binding.CPU if s else Binding.TRAINING for m, w, s in zip(most, waits, slowed, strict=True)
    ]


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


def memory_held(outstanding: int, batch_bytes: float) -> float:
    """Bytes of batches under way, and of the one in use."""
    return (outstanding + 1) * batch_bytes


def serial(workload: Workload, drawn: DrawnTimes, step_scale: float = 1.0) -> tuple[Times, Times]:
    """(when each step is done, how long it waited for its indices and its batch), ns, [sequence, step]."""
    limits = workload.limits
    share = min(1.0, limits.cpus)
    part = min(1.0, workload.main_cpus)
    own = 1 / (part * max(1.0, workload.main_cpus / limits.cpus) + 1 - part)
    reads = min(1.0, limits.storage_parallel or 1.0)
    making = workload.scale * (drawn.read / reads + drawn.wait + drawn.cpu / share) + workload.drawing_ns / share
    host = step_scale * drawn.host / own
    if drawn.device is None:
        return np.cumsum(making + host, axis=1), making
    ends, stalls = np.zeros_like(host), np.zeros_like(host)
    now, device = np.zeros(len(host)), np.zeros(len(host))
    for step in range(host.shape[1]):
        begin = now + making[:, step]
        stalls[:, step] = np.maximum(0.0, begin - device)
        now = begin + host[:, step]
        device = np.maximum(np.maximum(begin, device) + step_scale * drawn.device[:, step], now)
        ends[:, step] = device
        if workload.synchronous:
            now = device
        elif step >= RUN_AHEAD:
            now = np.maximum(now, ends[:, step - RUN_AHEAD])
    return ends, stalls


FEW_SETTINGS = (192, 8)
"""(steps, sequences of them) that each setting is replayed with where they are few."""
MANY_SETTINGS = (200, 3)
"""(steps, sequences of them) that each setting is replayed with where they are many: a thousand take less than a
second."""
MODEL_SD = 0.06
"""Standard deviation of a predicted log rate that is due to the model itself, beside all that is counted. A choice."""
UNSEEN_SD = 0.3
"""Standard deviation of the log of a batch's time that a recording of few batches may not have seen. A choice."""
UNKNOWN_HANDOFF_NS = 3e6
"""What a hand-off may well cost where none was measured: the slow end of a prediction's interval."""
LEAST_NS = 1.0
"""Time of a step that is left where all of its work is said to vanish: a rate needs one."""
_Z90 = 1.645
"""Standard deviations to either side of a 90 % interval of a normal value."""


def predict(
    workload: Workload, settings: Sequence[LoaderSettings], *, seed: int = 0, step: Line | None = None
) -> list[Prediction]:
    """What the replay says of each setting, in their order.

    `step` is the time of a step by batch size, where it was measured (see `sizes`). Pinning is predicted as equal: what
    a copy from pageable memory costs is part of the recorded step and not known apart. The interval holds 90 % of what
    would be measured if the recorded batches are what is to come: from sequences drawn from them, from hand-offs
    or storage limits that were not seen, and from what the model is off by.
    """
    return predict_each([workload], settings, seed=seed, step=step)[0]


def predict_each(
    workloads: Sequence[Workload], settings: Sequence[LoaderSettings], *, seed: int = 0, step: Line | None = None
) -> list[list[Prediction]]:
    """What `predict` says of the same settings for each of several variants of one recording, all replayed at once: a
    replay of three times the rows takes hardly longer."""
    if not settings:
        return [[] for _ in workloads]
    asked = [_Asked(each, settings, seed, step) for each in workloads]
    replayed = [each for each in asked if each.different]
    if replayed:
        first = np.cumsum([0, *(len(each.drawn.cpu) for each in replayed)]).tolist()
        rows = [replace(each.rows, draw=each.rows.draw + n) for each, n in zip(replayed, first, strict=False)]
        of_all = replay(ReplayRows.joined(rows), together([each.drawn for each in replayed]), asked[0].steps)
        begin = 0
        for each in replayed:
            each.take(of_all.at(slice(begin, begin + len(each.rows))))
            begin += len(each.rows)
    return [each.predictions() for each in asked]


def _extent(settings: int) -> tuple[int, int]:
    """(steps, sequences of them) that each of so many settings is replayed with."""
    return FEW_SETTINGS if settings <= 100 else MANY_SETTINGS


class _Asked:
    """Settings that are asked for of one workload: what is replayed for them, and what that says."""

    def __init__(self, workload: Workload, settings: Sequence[LoaderSettings], seed: int, step: Line | None) -> None:
        self.workload = workload
        self.steps, self.sequences = _extent(len(settings))
        rng = np.random.default_rng(seed)
        self.cases, self.workloads, self.draws = prepare(workload, settings, self.steps, self.sequences, rng, step)
        self.drawn = together(self.draws)
        self.different = list({case.key: case for case in self.cases if case.hands.workers}.values())
        """What is replayed: of settings that the replay does not tell apart, one."""
        self._said: dict[object, Prediction] = {}
        if self.different:
            plain = rows_of(self.workloads, self.different, self.sequences)
            self._low, self._high = _doubts(self.workloads[0], plain)
            kinds = [replace(plain, draw=plain.draw + k) for k in range(self.sequences)]
            kinds += [doubt for doubt in (self._low, self._high) if doubt is not None]
            self.rows = ReplayRows.joined(kinds)
            """Each sequence of every case, then every case with what is not known at its worst and at its best."""

    def take(self, replayed: Replayed) -> None:
        """What the replay made of `rows`."""
        every, number, sequences = self.rows, len(self.different), self.sequences
        ns = ns_per_batch(replayed.ends, every.outstanding, every.workers, every.epoch).reshape(-1, number)
        ns = np.maximum(LEAST_NS, ns)
        sequence = ns[:sequences]
        bound = binding(every, replayed)[:number]
        spread = _spread(np.log(sequence), bound, self.steps, len(self.workloads[0].cpu_ns))
        slower = ns[sequences] / ns[0] if self._low is not None else np.ones(number)
        faster = ns[-1] / ns[0] if self._high is not None else np.ones(number)
        stall = _stall(replayed.stalls, replayed.ends, every.epoch).reshape(-1, number)[:sequences].mean(axis=0)
        size = np.array([self.workloads[case.workload].batch_size for case in self.different])
        rate, away = size * 1e9 / sequence.mean(axis=0), np.exp(_Z90 * spread)
        low, high = rate / away / np.maximum(1.0, slower), rate * away / np.minimum(1.0, faster)
        for n, case in enumerate(self.different):
            figures = float(rate[n]), float(low[n]), float(high[n]), float(stall[n])
            self._said[case.key] = Prediction(case.settings, *figures, bound[n])

    def predictions(self) -> list[Prediction]:
        """Of each setting, in their order."""
        alone = {
            case.workload: _serial(self.workloads[case.workload], self.draws[case.workload], self.steps)
            for case in self.cases
            if not case.hands.workers
        }
        said = [self._said[case.key] if case.hands.workers else alone[case.workload] for case in self.cases]
        return [
            replace(each, settings=case.settings, infeasible=infeasible(self.workload, case.settings))
            for each, case in zip(said, self.cases, strict=True)
        ]


def _doubts(workload: Workload, rows: ReplayRows) -> tuple[ReplayRows | None, ReplayRows | None]:
    """(rows with what is not known at its worst, at its best): the hand-off, and what two that compute slow each
    other by, where no worker did; and reads that may slow each other beyond as many as were seen at a time. `None`:
    nothing of the kind is unknown."""
    low = high = None
    if not workload.handoff_known:
        low = replace(rows, handoff=np.maximum(2 * rows.handoff, UNKNOWN_HANDOFF_NS))
        high = replace(rows, handoff=rows.handoff / 3)
    if workload.settings.num_workers == 0:
        most = Assumed.contention(Assumed.MOST_CONTENTION, workload.limits.cpus)
        low = replace(low or rows, contention=np.maximum(rows.contention, most))
        high = replace(high or rows, contention=np.zeros(len(rows)))
    reading = float(workload.read_ns.mean())
    making = reading + float(workload.wait_ns.mean() + workload.cpu_ns.mean())
    if workload.limits.storage_parallel is None and reading > 0.01 * making:
        recorded = hands(workload.settings, workload.threads_per_worker)
        seen = max(1.0, max(1, recorded.workers * recorded.threads) * reading / making)
        low = replace(low or rows, storage=np.full(len(rows), seen))
    return low, high


def _spread(logs: Times, bound: list[str], steps: int, recorded: int) -> Times:
    """Standard deviation of the log rate. That of sequences is put to the length of the recording; with few of them,
    mixed with that of settings that are bound by the same."""
    own = logs.var(axis=0, ddof=1)
    names = np.array(bound)
    pooled = np.empty_like(own)
    for name in set(bound):
        pooled[names == name] = own[names == name].mean()
    free = len(logs) - 1
    mixed = (free * own + 3 * pooled) / (free + 3)
    return _in_all(mixed, steps, recorded)


def _in_all(variance: Times, steps: int, recorded: int) -> Times:
    spread: Times = np.sqrt((variance * steps + UNSEEN_SD**2) / recorded + MODEL_SD**2)
    return spread


def _stall(stalls: Times, ends: Times, epoch: Ints) -> Times:
    """Share of the wall time that each row waits for data, the beginnings of epochs weighed by their length."""
    steps = ends.shape[1]
    first = stalls[:, 0] * np.where(epoch == 0, 1.0, np.clip(1 - steps / np.maximum(epoch, 1), 0.0, 1.0))
    share: Times = np.clip((stalls.sum(axis=1) - first) / np.maximum(LEAST_NS, ends[:, -1] - first), 0.0, 1.0)
    return share


def _serial(workload: Workload, drawn: DrawnTimes, steps: int) -> Prediction:
    ends, stalls = serial(workload, drawn)
    ends, stalls = ends[:, :steps], stalls[:, :steps]
    per = np.maximum(LEAST_NS, ends[:, -1] / steps)
    stall = float((stalls.sum(axis=1) / (per * steps)).mean())
    (spread,) = _in_all(np.log(per).var(ddof=1, keepdims=True), steps, len(workload.cpu_ns))
    rate = workload.batch_size * 1e9 / float(per.mean())
    away = float(np.exp(_Z90 * spread))
    most = Binding.SERIAL if workload.scale * workload.making_ns.mean() >= workload.drawing_ns else Binding.SAMPLER
    bound = most if stall > LEAST_LOST else Binding.TRAINING
    return Prediction(LoaderSettings(0), rate, rate / away, rate * away, stall, bound)


def infeasible(workload: Workload, settings: LoaderSettings) -> str | None:
    """Why settings cannot run here: what they would need beyond the recorded ones, and what there is. `None` where they
    can, or nothing is known."""
    limits, recorded = workload.limits, workload.settings
    size = settings.batch_size or workload.batch_size
    batch = (workload.batch_bytes or 0) * size / workload.batch_size
    before = memory_held(recorded.outstanding, float(workload.batch_bytes or 0))
    after = memory_held(settings.outstanding, batch)
    if limits.shm_bytes is not None and in_processes(settings) and settings.num_workers:
        shared = after - (before if in_processes(recorded) and recorded.num_workers else 0.0)
        if shared > limits.shm_bytes:
            return (
                f"{settings.outstanding + 1} batches of {_bytes(batch)} take {_bytes(shared)} more of /dev/shm, "
                f"but only {_bytes(limits.shm_bytes)} are free"
            )
    if limits.memory_bytes is not None:
        processes = (settings.num_workers if in_processes(settings) else 0) - (
            recorded.num_workers if in_processes(recorded) else 0
        )
        more = after - before + processes * (limits.worker_bytes or 0)
        if more > limits.memory_bytes:
            pinned = ", all of which may be pinned" if settings.pin_memory else ""
            return (
                f"{settings.num_workers} workers and {settings.outstanding + 1} batches of {_bytes(batch)}{pinned} "
                f"take {_bytes(more)} more memory, but only {_bytes(limits.memory_bytes)} are available"
            )
    return None


def _bytes(count: float) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
