"""A training and its loader on a virtual clock: the plain reference that the replay is held against.

Processes are generators. What one yields is an amount of work of some kind, which the simulation works off at the
speed that kind has at the moment, or `None`: not before something else has happened. Nothing is shared with
`analyse.predict.replay`, so that an error of one shows against the other. Times in ns.

Physics: a worker reads, waits, computes, in this order; finished batches reach the training `latency_ns` later in the
order in which they were finished; taking one out costs the training `handoff_ns`, also where it came too early and
is laid aside. `cpus` are shared evenly by all that compute, reads likewise beyond `storage_parallel` of them. A device
takes up a step when the training begins it, and ends it no sooner than the training has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

import numpy as np

from whyidle.analyse.predict.workload import Times, Workload
from whyidle.record.tuning import LoaderSettings

MS = 1e6
Activity = tuple[str, float] | None


@dataclass(frozen=True)
class Made:
    """Parts of making each batch, one value a batch."""

    cpu_ns: Times
    wait_ns: Times
    read_ns: Times


def _constant(ns: float) -> Callable[[np.random.Generator, int], Times]:
    return lambda rng, batches: np.full(batches, ns)


_none = _constant(0.0)


@dataclass(frozen=True)
class Spec:
    """A training and its data."""

    name: str
    cpu: Callable[[np.random.Generator, int], Times] = _none
    """CPU part of so many batches."""
    wait: Callable[[np.random.Generator, int], Times] = _none
    read: Callable[[np.random.Generator, int], Times] = _none
    host_ns: float = 10 * MS
    host_cv: float = 0.0
    """Standard deviation of it, of its mean; gamma distributed."""
    device_ns: float | None = None
    synchronous: bool = True
    run_ahead: int = 4
    """Steps that the training may be ahead of a device it does not wait for."""
    handoff_ns: float = 0.2 * MS
    drawing_ns: float = 0.0
    """Of the sampler on a batch's indices, in the training, before the batch is ordered."""
    latency_ns: float = 0.1 * MS
    delay_ns: float = 0.0
    """What that takes longer while the worker has more to do."""
    sharing_ns: float = 0.0
    """CPU time of a worker to hand a batch over."""
    main_cpus: float = 1.0
    cpus: float = 8.0
    contention: float = 0.0
    storage_parallel: float | None = None
    start_ns: float = 15 * MS
    """For each process, the training's own one of them."""
    batches_per_epoch: int | None = None
    batch_size: int = 32
    baseline: LoaderSettings = field(default_factory=lambda: LoaderSettings(2, 2))

    def made(self, rng: np.random.Generator, batches: int) -> Made:
        return Made(self.cpu(rng, batches), self.wait(rng, batches), self.read(rng, batches))

    def hosts(self, rng: np.random.Generator, batches: int) -> Times:
        if self.host_cv == 0:
            return np.full(batches, self.host_ns)
        shape = self.host_cv**-2
        return rng.gamma(shape, self.host_ns / shape, batches)


@dataclass(frozen=True)
class Simulated:
    """What came of it."""

    step_ends_ns: Times
    """When each step was done, on the device where there is one."""
    stalled_ns: float
    """Time in which the device, or the training on the processor, waited for data."""
    batch_size: int

    def rate(self, skip: int = 0) -> float:
        """Samples per second from the end of step `skip` - 1 on."""
        begin = self.step_ends_ns[skip - 1] if skip else 0.0
        return (len(self.step_ends_ns) - skip) * self.batch_size * 1e9 / (self.step_ends_ns[-1] - begin)

    @property
    def stall_share(self) -> float:
        return self.stalled_ns / float(self.step_ends_ns[-1])


class _Training:
    """One run of a training with one setting."""

    def __init__(self, spec: Spec, settings: LoaderSettings, batches: int, made: Made, hosts: Times) -> None:
        self.spec, self.settings, self.batches, self.made, self.hosts = spec, settings, batches, made, hosts
        self.now = 0.0
        workers = settings.num_workers
        self.indices: list[deque[int]] = [deque() for _ in range(workers)]
        self.given = [0] * workers
        """Batches of each worker that were not handed over yet."""
        self.turn = 0
        self.sent: deque[int] = deque()
        """Finished batches that have not arrived: none overtakes another."""
        self.arrived: deque[tuple[int, int]] = deque()
        self.issued, self.epoch_end = 0, 0
        self.launched: deque[int] = deque()
        self.done = 0
        self.taken = 0
        """Batches handed over."""
        self.ends: list[float] = []
        self.launched_ends: dict[int, float] = {}
        self.stalled = 0.0
        self.finished = False
        self.running: list[tuple[Iterator[Activity], str, float]] = []
        self.blocked: list[Iterator[Activity]] = [self.train(), *(self.work(w) for w in range(workers))]
        if spec.device_ns is not None:
            self.blocked.append(self.device(spec.device_ns))

    # The processes

    def issue(self) -> Iterator[Activity]:
        if self.issued >= self.epoch_end:
            return
        yield "draw", self.spec.drawing_ns
        workers = self.settings.num_workers
        for _ in range(workers):
            worker = self.turn
            self.turn = (self.turn + 1) % workers
            if self.settings.in_order or self.given[worker] < (self.settings.prefetch_factor or 0):
                break
        else:
            return
        self.indices[worker].append(self.issued)
        self.given[worker] += 1
        self.issued += 1

    def work(self, worker: int) -> Iterator[Activity]:
        while True:
            while not self.indices[worker]:
                yield None
            batch = self.indices[worker].popleft()
            yield "read", self.made.read_ns[batch]
            yield "wait", self.made.wait_ns[batch]
            yield "cpu", self.made.cpu_ns[batch] + self.spec.sharing_ns
            self.blocked.append(self.travel(worker, batch, self.spec.delay_ns if self.indices[worker] else 0.0))

    def travel(self, worker: int, batch: int, delay_ns: float) -> Iterator[Activity]:
        self.sent.append(batch)
        yield "wait", self.spec.latency_ns + delay_ns
        while self.sent[0] != batch:
            yield None
        self.sent.popleft()
        self.arrived.append((worker, batch))

    def device(self, step_ns: float) -> Iterator[Activity]:
        while True:
            while not self.launched:
                yield None
            step = self.launched.popleft()
            yield "wait", step_ns
            while step not in self.launched_ends:
                yield None
            self.ends.append(self.now)
            self.done += 1

    def begin_epoch(self, first: int) -> Iterator[Activity]:
        spec, workers = self.spec, self.settings.num_workers
        length = spec.batches_per_epoch
        self.epoch_end = first + length if length else len(self.made.cpu_ns)
        self.turn = 0
        if not self.settings.persistent_workers:
            yield "wait", spec.start_ns * (workers + 1)
        for _ in range(self.settings.outstanding):
            yield from self.issue()

    def fetch(self, wanted: int, aside: dict[int, int]) -> Iterator[Activity]:
        if self.settings.num_workers == 0:
            yield "draw", self.spec.drawing_ns
            yield "read", self.made.read_ns[wanted]
            yield "wait", self.made.wait_ns[wanted]
            yield "made here", self.made.cpu_ns[wanted]
            self.taken += 1
            return
        if self.issued >= self.epoch_end and wanted == self.epoch_end:
            yield from self.begin_epoch(wanted)
        while True:
            if self.settings.in_order and wanted in aside:
                worker, batch = aside.pop(wanted), wanted
                break
            while not self.arrived:
                yield None
            worker, batch = self.arrived.popleft()
            yield "handoff", self.spec.handoff_ns
            if batch == wanted or not self.settings.in_order:
                break
            aside[batch] = worker
        self.given[worker] -= 1
        yield from self.issue()
        self.taken += 1

    def train(self) -> Iterator[Activity]:
        aside: dict[int, int] = {}
        on_device = self.spec.device_ns is not None
        for step in range(self.batches):
            asked = self.now
            yield from self.fetch(step, aside)
            if not on_device:
                self.stalled += self.now - asked
            elif self.done == step:
                self.stalled += self.now - (self.ends[-1] if self.ends else 0.0)
            self.launched.append(step)
            yield "host", self.hosts[step]
            self.launched_ends[step] = self.now
            if not on_device:
                self.ends.append(self.now)
            else:
                ahead = 0 if self.spec.synchronous else self.spec.run_ahead
                while self.done < step + 1 - ahead:
                    yield None
        while len(self.ends) < self.batches:
            yield None
        self.finished = True

    # The clock

    def speeds(self) -> dict[str, float]:
        spec = self.spec
        kinds = [kind for _, kind, _ in self.running]
        computing, reading = kinds.count("cpu"), kinds.count("read")
        demand = (
            computing + sum(map(kinds.count, ("draw", "handoff", "made here"))) + spec.main_cpus * kinds.count("host")
        )
        share = min(1.0, spec.cpus / demand) if demand else 1.0
        storage = min(1.0, spec.storage_parallel / reading) if reading and spec.storage_parallel else 1.0
        worker = share / (1 + spec.contention * max(0, computing - 1))
        # Of its own work the training computes no more than `main_cpus` of the time, and only that is slowed.
        host = 1 / (1 + min(1.0, spec.main_cpus) * (1 / share - 1))
        alone = dict.fromkeys(("draw", "handoff", "made here"), share)
        return {"wait": 1.0, "read": storage, "cpu": worker, "host": host, **alone}

    def resume(self, process: Iterator[Activity]) -> None:
        """Lets it go on until it works on something or waits."""
        for activity in process:
            if activity is None:
                self.blocked.append(process)
                return
            if activity[1] > 0:
                self.running.append((process, *activity))
                return

    def state(self) -> tuple[int, ...]:
        """Whatever a process may wait for changes one of these."""
        parts = (self.blocked, self.running, self.arrived, self.launched, self.launched_ends)
        return self.issued, self.done, self.taken, *map(len, parts)

    def run(self) -> None:
        while True:
            before = None
            while before != (before := self.state()):
                waiting, self.blocked = self.blocked, []
                for process in waiting:
                    self.resume(process)
            if self.finished:
                return
            speeds = self.speeds()
            passes = min(left / speeds[kind] for _, kind, left in self.running)
            self.now += passes
            running, self.running = self.running, []
            for process, kind, left in running:
                left -= passes * speeds[kind]
                if left > 1e-3:
                    self.running.append((process, kind, left))
                else:
                    self.blocked.append(process)


def simulate(
    spec: Spec,
    settings: LoaderSettings,
    batches: int,
    seed: int = 0,
    *,
    made: Made | None = None,
    hosts: Times | None = None,
) -> Simulated:
    """Train on so many batches from a cold start. `made` and `hosts` are drawn by `seed` where they are not given;
    `made` has to hold some batches more than are trained on, as they are prefetched."""
    rng = np.random.default_rng(seed)
    made = made or spec.made(rng, batches + settings.outstanding + 1)
    hosts = spec.hosts(rng, batches) if hosts is None else hosts
    size = settings.batch_size or spec.batch_size
    run = _Training(spec, settings, batches, made, hosts)
    run.run()
    return Simulated(np.array(run.ends), run.stalled, size)


def recorded(spec: Spec, batches: int = 300, seed: int = 0, settings: LoaderSettings | None = None) -> Workload:
    """What an exact recording of so many batches would say, without any noise of its own."""
    rng = np.random.default_rng(seed)
    made = spec.made(rng, batches)
    same = {each.name for each in fields(Spec)} & {each.name for each in fields(Workload)}
    return Workload(
        **{name: getattr(spec, name) for name in same - {"host_ns", "device_ns"}},
        **vars(made),
        settings=settings or spec.baseline,
        host_ns=spec.hosts(rng, batches),
        device_ns=None if spec.device_ns is None else np.full(batches, spec.device_ns),
    )


def _spread(ns: float, cv: float) -> Callable[[np.random.Generator, int], Times]:
    """Lognormal with this mean."""
    sigma = np.sqrt(np.log1p(cv**2))
    return lambda rng, batches: rng.lognormal(np.log(ns) - sigma**2 / 2, sigma, batches)


def _stragglers(ns: float, share: float, times: float) -> Callable[[np.random.Generator, int], Times]:
    return lambda rng, batches: ns * np.where(rng.random(batches) < share, times, 1.0)


SPECS: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        Spec("constant", cpu=_constant(5 * MS), wait=_constant(40 * MS)),
        Spec("cpu_bound", cpu=_spread(35 * MS, 0.1), cpus=4, contention=0.02, host_ns=8 * MS),
        Spec("heavy_tail", cpu=_constant(4 * MS), wait=_spread(40 * MS, 1.0)),
        Spec("stragglers", cpu=_constant(4 * MS), wait=_stragglers(25 * MS, 0.02, 20.0)),
        Spec("large_payload", cpu=_spread(30 * MS, 0.1), handoff_ns=6 * MS, latency_ns=1 * MS),
        Spec("tiny", cpu=_constant(0.15 * MS), host_ns=1 * MS, handoff_ns=0.5 * MS, batches_per_epoch=500),
        Spec("throttled", cpu=_constant(4 * MS), read=_spread(40 * MS, 0.3), storage_parallel=3.0),
    )
}
