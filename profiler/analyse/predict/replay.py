"""One setting of a loader replayed: torch's DataLoader protocol, event by event, on recorded times.

To be read beside `torch/utils/data/dataloader.py`, whose names it uses. Workers get W x P batches
at first, batch i goes to worker i mod W, and for each batch handed over the training draws and
orders another. It takes finished batches in the order in which they were finished, pays the
hand-over of each, and lays aside what came before its turn, so that those count among the W x P.

A batch is read, then waited for, then computed. All that compute share the CPUs evenly, the
training among them; reads share the storage. Each kind has a clock that runs at the speed its users
have: what a worker has to do ends at a fixed time of that clock, and a change of speed touches one
number instead of one a worker. A device begins a step when the training does or its last step is
done, and ends it no sooner than the training.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from heapq import heappop, heappush
from math import inf

import numpy as np
import numpy.typing as npt

from ...record.tuning import LoaderSettings

Times = npt.NDArray[np.float64]
"""ns, one for each recorded batch or step."""
MOST_EVENTS = 16
"""Events of a replay for each of its batches, of which one has ten at most."""
MOST_OUTSTANDING = 1 << 14
"""Batches on order in a replay: more are an error of the record."""
LEAST_LOST = 0.05
"""Share of the wall time that has to be lost to the loader before anything of it is called the
limit."""
CPUS_CONTENDED = 0.2
"""Share of the time lost while workers are busy, lost because they have less than a CPU each, from
which the CPUs bind and not the number of workers."""
LEAST_NS = 1.0
"""Time of a step that is left where all of its work is said to vanish: a rate needs one."""
RUN_AHEAD = 4
"""Steps that a training may be ahead of a device it does not wait for: as many common ones as a
launch queue of 1,024 kernels holds. It smooths single late batches and changes no average."""
READ, WAIT, CPU, MAIN = range(4)
"""The clocks: of readers, of time itself, of workers that compute, of the training process. A batch
is made in the order of the first three."""
Act = tuple[float, float]
"""What the training process is at: (until when by its clock, CPUs that it uses meanwhile)."""


@dataclass(frozen=True)
class Workload:
    """What a recorded training costs, apart from its settings. Times in ns; arrays hold one value a
    recorded batch, or step, in the order of recording."""

    settings: LoaderSettings
    """The settings with which it was recorded."""
    batch_size: int
    """Samples in a batch, as recorded."""
    cpu_ns: Times
    """CPU part of making each batch."""
    wait_ns: Times
    """Part of making each batch that waited for neither CPU nor reads: sleeps, locks, network."""
    read_ns: Times
    """Part of making each batch that waited in reads of files."""
    host_ns: Times
    """What the training does of itself from one fetch's end to the next fetch's begin, waiting for
    the device left out; on the processor all of its step."""
    device_ns: Times | None = None
    """Work of each step on a device with a queue, its copy included; `None` where the processor is
    the device."""
    synchronous: bool = True
    """Whether the training waits for the device in each step, or nearly so."""
    handoff_ns: float = 0.0
    """What the training spends in a fetch whose batch lies ready."""
    handoff_known: bool = True
    """Whether `handoff_ns` was measured; not so where no worker prepared batches."""
    latency_ns: float = 0.0
    """From a batch's end in its worker until the training could take it."""
    drawing_ns: float = 0.0
    """What the sampler takes for the indices of a batch, in the training process, before the batch
    can be ordered."""
    delay_ns: float = 0.0
    """What that takes longer while the worker makes its next batch: the thread that sends waits for
    the worker's interpreter, or for a CPU."""
    sharing_ns: float = 0.0
    """CPU time that a worker process needs for a batch beyond `cpu_ns`, which is what the training
    process would need: memory that both see, pickling."""
    main_cpus: float = 1.0
    """CPUs that the training process uses while it works on a step."""
    start_ns: float = 0.0
    """From asking for an iterator until the first worker takes up a batch, for each of the loader's
    processes, the training's own one of them: workers are started one after the other, and before
    any gets work."""
    batches_per_epoch: int | None = None
    """Batches of `batch_size` in an epoch; `None` where that is not known."""
    batch_bytes: int | None = None
    """Bytes of a finished batch; `None` where that is not known."""
    contention: float = 0.0
    """Share by which each further busy worker slows every other one down, beyond the CPUs they
    share."""
    cpus: float = 1.0
    """CPUs that the job may use, affinity and quota counted."""
    storage_parallel: float = inf
    """Readers at full speed at a time, beyond which reads slow each other; infinite where no limit
    was seen."""
    memory_bytes: int | None = None
    """Memory that was still to be had beside the recorded workers; `None`: not known, as of the
    next two."""
    shm_bytes: int | None = None
    """Bytes of /dev/shm that were free beside the recorded workers."""
    worker_bytes: int | None = None
    """Memory that a worker takes of its own."""

    @property
    def making_ns(self) -> Times:
        """What making each batch takes where nothing else wants the CPU."""
        return self.cpu_ns + self.wait_ns + self.read_ns


BINDS = {
    "training": "the training itself",
    "workers": "still the workers",
    "cpu": "the CPUs",
    "storage": "storage",
    "order": "slow batches that hold back finished ones",
    "handoff": "the hand-over of batches",
    "sampler": "drawing indices in the training process",
    "start": "the beginnings of epochs",
    "serial": "preparing batches in the training process",
}
"""What limits a training's rate, and the same in words, within a sentence."""


def draw(workload: Workload, sequences: int, length: int, rng: np.random.Generator) -> list[Workload]:
    """Draw sequences of batches and their steps from the recorded ones.

    Stretches of the recording in random order, over all sequences each as often as any other: slow
    batches that came in a row stay together, sequences differ as recordings of their length would,
    and all together have the recorded tail. What is left of a difference in the mean is scaled
    away.
    """

    def places(recorded: int) -> npt.NDArray[np.int64]:
        long = int(np.clip(round(2 * recorded ** (1 / 3)), 1, recorded))
        starts = np.arange(0, recorded, long)
        rounds = -(-sequences * length // recorded)
        every = np.concatenate([starts + rng.integers(recorded) for _ in range(rounds)])
        stretches = rng.permutation(every)[:, None] + np.arange(long)
        return stretches.ravel()[: sequences * length] % recorded

    batches = places(len(workload.cpu_ns))
    steps = batches if len(workload.host_ns) == len(workload.cpu_ns) else places(len(workload.host_ns))

    def drawn(times: Times, chosen: npt.NDArray[np.int64]) -> Times:
        found = times[chosen % len(times)]
        mean = found.mean()
        return (found * (times.mean() / mean) if mean > 0 else found).reshape(sequences, length)

    read, wait, cpu = (drawn(times, batches) for times in (workload.read_ns, workload.wait_ns, workload.cpu_ns))
    host = drawn(workload.host_ns, steps)
    device = [None] * sequences if workload.device_ns is None else drawn(workload.device_ns, steps)
    return [
        replace(workload, read_ns=r, wait_ns=w, cpu_ns=c, host_ns=h, device_ns=d)
        for r, w, c, h, d in zip(read, wait, cpu, host, device, strict=True)
    ]


class Replay:
    """A training from a cold start at 0, and what came of it. Times in ns.

    Raises:
        ArithmeticError: too many batches are on order; or times are no numbers, so that it comes to
            no end.
    """

    def __init__(self, workload: Workload, loader: LoaderSettings, steps: int) -> None:
        if loader.outstanding > MOST_OUTSTANDING:
            raise ArithmeticError(f"{loader.outstanding} batches on order")
        self.workload, self.loader, self.steps = workload, loader, steps
        workers = loader.num_workers
        self.ends: list[float] = []
        """When each step was done; on the device where there is one."""
        self.stalls: list[float] = []
        """How long the device, or the training on the processor, waited for its data, in each
        step."""
        self.lost = dict.fromkeys(("cpu", "storage", "order", "workers", "start"), 0.0)
        """Time that the training waited for workers with less than a CPU each, or lacked CPUs
        itself; for workers whose reads slowed each other; while workers had nothing to do, as all
        that was on order were batches whose turn it was not yet; for workers at full speed; for the
        first batches of epochs."""
        self.now = 0.0
        self._clocks = [0.0] * 4
        self._main_due = inf
        """When the training process goes on, by its clock; never while it waits for workers."""
        self._due: list[list[tuple[float, int]]] = [[], [], []]
        """Workers at each part of making a batch: (when they will be through, by its clock; worker)."""
        cpu = workload.cpu_ns + workload.sharing_ns if workers else workload.cpu_ns
        self._making = [workload.read_ns.tolist(), workload.wait_ns.tolist(), cpu.tolist()]
        self._host = workload.host_ns.tolist()
        self._device = None if workload.device_ns is None else workload.device_ns.tolist()
        self._index_queues: list[deque[int]] = [deque() for _ in range(workers)]
        self._workers = [self._worker_loop(worker) for worker in range(workers)]
        self._idle = set(range(workers))
        self._num_tasks = [0] * workers
        """Batches of each worker that were ordered and not handed over."""
        self._result_queue: deque[tuple[int, int, float]] = deque()
        """Finished batches: (which, by which worker, when the training can have it)."""
        self._aside: dict[int, int] = {}
        """Batches that came before their turn, with their workers."""
        self._epoch = workload.batches_per_epoch or 1 << 60
        self._send_idx = self._epoch_end = self._turn = 0
        self._run()
        # They hold on to it: without them it goes as soon as nobody needs it.
        self._workers.clear()

    @property
    def ns_per_batch(self) -> float:
        """Time that a batch takes. Where epochs are longer than what was replayed, the beginning of
        one and the steady rest are put together by the length of an epoch; where they never end
        only the rest counts."""
        ends, steps, epoch = self.ends, self.steps, self.workload.batches_per_epoch or 0
        if not self.loader.num_workers:
            return max(LEAST_NS, ends[-1] / steps)
        if whole := steps // epoch * epoch if epoch else 0:
            return max(LEAST_NS, ends[whole - 1] / whole)
        settled = min(max(self.loader.outstanding, min(32, steps // 4)), steps // 2)
        # Workers that prepare batches equally fast hand them over in bursts of one each: whole
        # bursts.
        settled = min(settled + (steps - settled) % self.loader.num_workers, steps - 1)
        steady = (ends[-1] - ends[settled - 1]) / (steps - settled)
        return max(LEAST_NS, (ends[-1] + (epoch - steps) * steady) / epoch if epoch else steady)

    @property
    def _begins(self) -> float:
        """Weight of the beginning of an epoch that is longer than what was replayed, by its length.
        Without workers the first batch is made as any other."""
        epoch = self.workload.batches_per_epoch
        return 1.0 if not self.loader.num_workers else min(1.0, self.steps / epoch) if epoch else 0.0

    @property
    def stall_share(self) -> float:
        """Share of the wall time, 0..1, that the training or its device waits for data."""
        first = self.stalls[0] * (1 - self._begins)
        return min(max((float(np.sum(self.stalls)) - first) / max(LEAST_NS, self.ends[-1] - first), 0.0), 1.0)

    @property
    def binding(self) -> str:
        """What limits the rate, a key of `BINDS`: what most of the time beyond the training's
        own was lost to; while it waits, by what the workers are at."""
        load, lost, begins, least = self.workload, dict(self.lost), self._begins, LEAST_LOST * self.ends[-1]
        if float(np.sum(self.stalls)) - lost["start"] * (1 - begins) <= least:
            return "cpu" if lost["cpu"] > least else "training"
        if not self.loader.num_workers:
            return "serial" if load.making_ns.mean() >= load.drawing_ns else "sampler"
        if lost["cpu"] > CPUS_CONTENDED * (lost["cpu"] + lost["workers"]):
            # Workers that slow each other leave no CPU to further ones.
            lost["cpu"] += lost.pop("workers")
        lost["start"] *= begins
        lost |= {"handoff": self.steps * load.handoff_ns, "sampler": self.steps * load.drawing_ns}
        return max(lost, key=lambda name: lost[name])

    # The training process

    def _train(self) -> Iterator[Act]:
        load, since = self.workload, 0.0
        for step in range(self.steps):
            asked = self.now
            yield from self._next_data(step) if self.loader.num_workers else self._fetch(step)
            begin = self.now
            self.stalls.append(max(0.0, begin - (asked if self._device is None else since)))
            if step + self._epoch == self._epoch_end:
                self.lost["start"] += self.stalls[-1]
            yield self._works(self._host[step % len(self._host)], load.main_cpus)
            if self._device is None:
                self.ends.append(self.now)
                continue
            since = max(max(since, begin) + self._device[step % len(self._device)], self.now)
            self.ends.append(since)
            goes_on = since if load.synchronous else self.ends[step - RUN_AHEAD] if step >= RUN_AHEAD else 0.0
            if goes_on > self.now:
                yield self._sleeps(goes_on)

    def _fetch(self, step: int) -> Iterator[Act]:
        """`_SingleProcessDataLoaderIter._next_data`."""
        read, wait, cpu = (part[step % len(part)] for part in self._making)
        yield self._works(self.workload.drawing_ns, 1.0)
        yield self._sleeps(self.now + read / min(1.0, self.workload.storage_parallel) + wait)
        yield self._works(cpu, 1.0)

    def _next_data(self, step: int) -> Iterator[Act]:
        """`_MultiProcessingDataLoaderIter._next_data`, and `_process_data`."""
        if step == self._epoch_end:
            yield from self._reset()
        while True:
            if step in self._aside:
                worker = self._aside.pop(step)
                break
            if not self._result_queue:
                yield inf, 0.0
            elif (arrives := self._result_queue[0][2]) > self.now:
                yield self._sleeps(arrives)
            yield self._works(self.workload.handoff_ns, 1.0)
            batch, worker, _ = self._result_queue.popleft()
            if batch == step or not self.loader.in_order:
                break
            self._aside[batch] = worker
        self._num_tasks[worker] -= 1
        yield from self._try_put_index()

    def _reset(self) -> Iterator[Act]:
        """`_reset`: an epoch begins, with new workers unless they persist."""
        start = self.workload.start_ns * (self.loader.num_workers + 1)
        yield self._sleeps(self.now + (0.0 if self.loader.persistent_workers else start))
        self._epoch_end += self._epoch
        self._turn = 0
        for _ in range(min(self.loader.outstanding, self._epoch)):
            yield from self._try_put_index()

    def _try_put_index(self) -> Iterator[Act]:
        """`_try_put_index`: the sampler draws a batch's indices, and a worker gets them."""
        if self._send_idx == self._epoch_end:
            return
        if self.workload.drawing_ns > 0:
            yield self._works(self.workload.drawing_ns, 1.0)
        workers, worker = self.loader.num_workers, self._turn
        if not self.loader.in_order:
            most = self.loader.outstanding // workers
            turns = (turn % workers for turn in range(worker, worker + workers))
            worker = next((turn for turn in turns if self._num_tasks[turn] < most), worker)
        self._turn = (worker + 1) % workers
        self._num_tasks[worker] += 1
        self._index_queues[worker].append(self._send_idx)
        self._send_idx += 1
        if worker in self._idle:
            next(self._workers[worker])

    def _works(self, takes: float, cpus: float) -> Act:
        return self._clocks[MAIN] + takes, cpus

    def _sleeps(self, until: float) -> Act:
        return self._clocks[MAIN] + max(0.0, until - self.now), 0.0

    def _worker_loop(self, worker: int) -> Iterator[None]:
        """`_worker_loop`: goes on whenever what it is at is through, or there is a batch for it."""
        queue, load = self._index_queues[worker], self.workload
        while True:
            while not queue:
                self._idle.add(worker)
                yield
            self._idle.discard(worker)
            batch = queue.popleft()
            for clock, times in enumerate(self._making):
                if (takes := times[batch % len(times)]) > 0:
                    heappush(self._due[clock], (self._clocks[clock] + takes, worker))
                    yield
            # A worker that goes on with its next batch is in the way of its thread that sends this
            # one.
            arrives = self.now + load.latency_ns + (load.delay_ns if queue else 0.0)
            self._result_queue.append((batch, worker, arrives))
            if self._main_due == inf:
                self._main_due, _ = self._sleeps(arrives)

    def _run(self) -> None:
        """Go from event to event: what is due first, by the clock it runs by, and at its present
        speed."""
        load, clocks, workers = self.workload, self._clocks, self.loader.num_workers
        reads, waits, computes = self._due

        @cache
        def speeds(reading: int, computing: int, demand: float) -> tuple[float, float, float]:
            """Speeds of readers, of workers that compute and of the training, which uses so many
            CPUs."""
            share = min(1.0, load.cpus / max(computing + demand, 1e-9))
            storage = min(1.0, load.storage_parallel / max(reading, 1e-9))
            # Only what the training computes is slowed: one that sleeps, or waits for its device,
            # does so in time.
            part = min(1.0, demand)
            contended = share / (1 + load.contention * max(computing - 1, 0))
            return storage, contended, 1 / (part / share + 1 - part)

        training = self._train()
        self._main_due, demand = next(training)
        for _ in range(MOST_EVENTS * (self.steps + self.loader.outstanding + 1)):
            reading, computing = len(reads), len(computes)
            read_speed, cpu_speed, main_speed = speeds(reading, computing, demand)
            passes, part = inf, MAIN
            # Where several workers are through at the same instant they come one after the other.
            if waits:
                passes, part = waits[0][0] - self.now, WAIT
            if reads and (until := (reads[0][0] - clocks[READ]) / read_speed) < passes:
                passes, part = until, READ
            if computes and (until := (computes[0][0] - clocks[CPU]) / cpu_speed) < passes:
                passes, part = until, CPU
            until = (self._main_due - clocks[MAIN]) / main_speed
            goes_on = until <= passes
            if until < passes:
                passes, part = until, MAIN
            self.now += passes
            clocks[WAIT] = self.now
            clocks[READ] += read_speed * passes
            clocks[CPU] += cpu_speed * passes
            clocks[MAIN] += main_speed * passes
            if demand:
                self.lost["cpu"] += passes * (1 - main_speed)
            elif self._main_due == inf and len(self.stalls) + self._epoch != self._epoch_end:
                # It waits, and not for the first batch of an epoch.
                lost = passes / workers
                slow, slowed = lost * computing * (1 - cpu_speed), lost * reading * (1 - read_speed)
                idle = lost * (workers - (len(waits) + reading + computing))
                self.lost["cpu"] += slow
                self.lost["storage"] += slowed
                self.lost["order"] += idle
                self.lost["workers"] += lost * workers - slow - slowed - idle
            if part != MAIN:
                next(self._workers[heappop(self._due[part])[1]])
            if goes_on:
                if (act := next(training, None)) is None:
                    return
                self._main_due, demand = act
        raise ArithmeticError("no end after so many events")
