"""Trainings of planned steps on an emulated device: recorded like real ones, with the truth beside them.

On a virtual clock they take no time and are exact; on the real one every planned duration is really waited for,
and the truth is what was achieved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from whyidle import MadeBatch
from whyidle.capture.hooks.install import Hooks, install
from whyidle.capture.session import Session
from whyidle.capture.steps import Thinning
from whyidle.devices.emulated import COMPUTE, Clock, EmulatedDevice, EmulatedSpec, EmulatedStream, VirtualClock
from whyidle.devices.protocol import Copy
from whyidle.record.run import create_run
from whyidle.record.schema import SPAN
from whyidle.record.segment import RecordWriter

from .training import EmulatedNet, EmulatedOptimizer

MS = 1_000_000
START = 1_000 * MS
_INFO = {
    "trial": {"scenario": "ssd", "net": "ssd300", "pipeline": "naive", "batch_size": 8},
    "device": {"kind": "emulated", "title": "emulated Test"},
    "ended": {"status": "ok"},
}


@dataclass
class Step:
    """One step of a planned training; times in ns, bytes to copy."""

    fetch_ns: int = 1 * MS
    """Making the batch: in the training, or by a worker where the training has some."""
    compute_ns: int = 10 * MS
    copy_bytes: int = 0
    pinned: bool = True
    ahead: bool = False
    before_ns: int = 0
    """Work of the training loop between the fetch and the copy."""
    host_ns: int = 0
    """Work of the training loop after the step was queued."""
    sync: bool = False
    """The loss is read at the end of the step."""
    sync_within: bool = False
    """Something is read between the forward and the backward pass."""
    within_ns: int = 0
    """Work of the host inside that reading call, after the device is done."""
    copy_within: int = 0
    """Bytes copied between the backward pass and the optimizer."""
    micro: bool = False
    """Gradients are only accumulated: no optimizer step."""
    beside_ns: int = 0
    """Computation on a second stream, forked off after the forward pass and joined before the optimizer."""
    boundary_ns: int = 0
    """Validation after this step, on the host."""
    kernels: int = 60
    """Launches that the computation takes."""
    parts: int = 1
    """Copies that bring the batch."""
    between_ns: int = 0
    """Work of the host between them."""
    labels_bytes: int = 0
    """Copied between the forward and the backward pass."""
    reads: int = 0
    """Readings one after another in the midst of the backward pass."""
    tail_ns: int = 0
    """Computation after the optimizer that nobody announces."""
    passed_over: bool = False
    """The batch is fetched and then not used."""


@dataclass
class PlantedWorkers:
    """A loader with worker processes: batches in order, at most `prefetch` a worker under way."""

    number: int = 2
    prefetch: int = 2
    start_ns: int = 0
    """Starting them, in the first fetch of an epoch."""


@dataclass
class VirtualRun:
    """A training that happened, and what really took place."""

    folder: Path
    device: EmulatedDevice
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    """(what, begin_ns, end_ns) of the engines."""
    host: list[tuple[str, int, int]] = field(default_factory=list)
    """(what, begin_ns, end_ns) of the training loop: fetch, copy, sync, boundary."""

    def busy_ns(self, begin: int, end: int, what: int = COMPUTE) -> int:
        """Time within [begin, end) in which an engine worked, counted the slow way."""
        marks = sorted((max(b, begin), min(e, end)) for k, b, e in self.spans if k == what and e > begin and b < end)
        total, reach = 0, begin
        for low, high in marks:
            total += max(0, high - max(low, reach))
            reach = max(reach, high)
        return total

    def truth(self, begin: int, end: int) -> dict[str, int]:
        """Where [begin, end) really went: what the engines did decides, then what the host did."""
        engines = [("compute" if what == COMPUTE else "copying", low, high) for what, low, high in self.spans]
        return truth_of(engines + self.host, begin, end)


def truth_of(spans: Sequence[tuple[str, int, int]], begin: int, end: int) -> dict[str, int]:
    """The parts of [begin, end) in ns, summed instant by instant from (what, begin_ns, end_ns).

    `what` is compute, boundary, copying (the device), fetch, copy (the host) or sync, the earlier the more it
    counts; time in which none is under way is the host's.
    """
    changes = sorted(
        change
        for name, low, high in spans
        if high > begin and low < end
        for change in ((max(low, begin), 1, name), (min(high, end), -1, name))
    )
    active = dict.fromkeys((*_ORDER, "host"), 0)
    parts = dict.fromkeys(("compute", "boundary", "copy", "input", "sync", "host"), 0)
    at = begin
    for moment, change, name in [*changes, (end, 0, "host")]:
        cause = next((name for name in _ORDER if active[name]), "host")
        parts[_BLAME.get(cause, cause)] += moment - at
        at = moment
        active[name] += change
    return parts


_ORDER = ("compute", "boundary", "copying", "fetch", "copy", "sync")
_BLAME = {"copying": "copy", "fetch": "input"}


def train(
    folder: Path,
    epochs: Sequence[Sequence[Step]],
    samples: int = 8,
    trace: Callable[[int, int, int], Any] | None = None,
    spec: EmulatedSpec | None = None,
    queue: Any = None,
    workers: PlantedWorkers | None = None,
    thinning: Thinning | None = None,
    clock: Clock | None = None,
) -> VirtualRun:
    """Run and record a planned training, on a virtual clock unless given another.

    `trace(step, fetch_begin, fetch_end)` makes a batch's trace.
    """
    clock = clock or VirtualClock(START)
    create_run(folder, _INFO)
    device = EmulatedDevice(spec or EmulatedSpec("test", "Test", 10**12, 10e9, 5e9), clock)
    run = VirtualRun(folder, device)
    engines = RecordWriter(folder, SPAN)

    def sink(number: int, stream: int, what: int, begin: int, end: int, amount: int) -> None:
        run.spans.append((what, begin, end))
        engines.append(number, stream, what, begin, end, amount)

    device.sink = sink
    # Threads that run here are none of the plan's.
    session = Session(folder, device, thinning=thinning, watch_threads=False)
    hooks = install(session)
    training = _Training(run, hooks)
    done = 0
    for plan in epochs:
        batches = _batches(run, plan, trace, done, workers)
        fetches = hooks.fetches.over(run, lambda _: samples, tells=lambda batch: batch.made, queue=queue)
        for step in plan:
            fetches.fetch(next, batches)
            training.step(step)
        with contextlib.suppress(StopIteration):
            fetches.fetch(next, batches)
        done += len(plan)
    device.synchronize()
    hooks.remove()
    session.finish()
    engines.close()
    return run


def _batches(
    run: VirtualRun,
    plan: Sequence[Step],
    trace: Callable[[int, int, int], Any] | None,
    first: int,
    workers: PlantedWorkers | None,
) -> Iterator[SimpleNamespace]:
    clock = run.device.clock
    issued: list[int] = []
    ready: list[int] = []
    for number, step in enumerate(plan):
        begin = clock.now()
        if workers is None:
            _pass(clock, step.fetch_ns)
        else:
            if number == 0:
                _pass(clock, workers.start_ns)
                issued = [clock.now()] * (workers.number * workers.prefetch)
            # The worker takes this batch up when it has finished its last one and has been told to.
            free = ready[number - workers.number] if number >= workers.number else issued[number]
            ready.append(max(issued[number], free) + step.fetch_ns)
            clock.wait_until(ready[number])
            issued.append(clock.now())
        run.host.append(("fetch", begin, clock.now()))
        told = trace(first + number, begin, clock.now()) if trace else None
        made = None if told is None else MadeBatch(**vars(told), batch_bytes=step.copy_bytes)
        yield SimpleNamespace(made=made)


def _pass(clock: Clock, ns: int) -> None:
    """Let host time pass: work of the training thread."""
    clock.wait_until(clock.now() + ns)


class _Training:
    """An ordinary training program, whose steps are planned."""

    def __init__(self, run: VirtualRun, hooks: Hooks) -> None:
        self._run = run
        self._hooks = hooks
        self._device = run.device
        self._clock = run.device.clock
        self._net = EmulatedNet()
        self._optimizer = EmulatedOptimizer(self._net)

    def step(self, step: Step) -> None:
        if step.passed_over:
            return
        device, compute_ns = self._device, step.compute_ns
        _pass(self._clock, step.before_ns)
        for part in range(step.parts if step.copy_bytes else 0):
            if part:
                _pass(self._clock, step.between_ns)
            self._copy(step, step.copy_bytes // step.parts, step.ahead)
        kernels = -(-step.kernels // 6)
        self._net(partial(self._forward, step, kernels), partial(self._backward, step, kernels)).backward()
        if step.copy_within:
            self._copy(step, step.copy_within, False)
        if not step.micro:
            self._optimizer.step(partial(device.compute, compute_ns - compute_ns // 3 * 2, kernels=kernels))
        if step.tail_ns:
            device.compute(step.tail_ns, kernels=kernels)
        if step.sync:
            self._wait(0)
        _pass(self._clock, step.host_ns)
        if step.boundary_ns:
            self._outside(step.boundary_ns)

    def _forward(self, step: Step, kernels: int) -> None:
        self._device.compute(step.compute_ns // 3, kernels=2 * kernels)
        if step.sync_within:
            self._wait(step.within_ns)
        if step.labels_bytes:
            self._copy(step, step.labels_bytes, False)
        if step.beside_ns:
            _beside(self._device, step.beside_ns)

    def _backward(self, step: Step, kernels: int) -> None:
        for _ in range(step.reads):
            self._device.compute(step.compute_ns // 3 // step.reads, kernels=kernels)
            self._wait(step.within_ns)
        if not step.reads:
            self._device.compute(step.compute_ns // 3, kernels=3 * kernels)

    def _copy(self, step: Step, nbytes: int, ahead: bool) -> None:
        device = self._device
        begin = device.now()
        tensors = [torch.empty(nbytes, dtype=torch.uint8)]
        tensors, copy = device.copy(tensors, pinned=step.pinned, stream=device.side_stream() if ahead else None)
        self._run.host.append(("copy", begin, device.now()))
        if ahead:
            device.wait_for(copy, tensors)

    def _wait(self, then_ns: int) -> None:
        """Read something from the device, and have something to do with it inside the same call."""
        begin = self._device.now()
        self._device.synchronize(then_ns)
        self._run.host.append(("sync", begin, self._device.now()))

    def _outside(self, ns: int) -> None:
        """Something that is no step."""
        begin = self._clock.now()
        self._hooks.tell(lambda loop: loop.boundary_begins())
        self._device.synchronize()
        _pass(self._clock, ns)
        self._hooks.tell(lambda loop: loop.happens(loop.end_boundary))
        self._run.host.append(("boundary", begin, self._clock.now()))


def _beside(device: EmulatedDevice, duration_ns: int) -> None:
    """Fork to a second stream and let the computing one wait for it: what is queued now, and what comes later."""
    beside = EmulatedStream(2)
    beside.after_ns = device.record().time_ns()
    device.compute(duration_ns, kernels=5, stream=beside)
    joined = device.record(beside)
    device.wait_for(Copy(0, 0, 0, pinned=True, ahead=False, begin=joined, end=joined), [])
