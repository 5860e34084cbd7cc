"""Throughput of any loader settings, from what a recorded run cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...record.tuning import LoaderSettings
from .assumed import Assumed
from .cases import prepare, rows_of
from .closed_form import memory_held
from .draws import together
from .outcome import LEAST_LOST, binding, ns_per_batch
from .pools import hands, in_processes
from .protocol import replay
from .rows import DrawnTimes, Ints, Replayed, ReplayRows
from .serial import serial
from .sizes import Line
from .workload import Binding, Prediction, Times, Workload

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
                f"where {_bytes(limits.shm_bytes)} are free"
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
                f"take {_bytes(more)} more memory, where {_bytes(limits.memory_bytes)} can be had"
            )
    return None


def _bytes(count: float) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
