"""Trainings on an emulated device and a virtual clock: recorded like real ones, with the truth beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from stallscope.capture.session import Session, SpanRecorder
from stallscope.devices.clock import VirtualClock
from stallscope.devices.emulated import COMPUTE, EmulatedDevice, EmulatedSpec
from stallscope.record.run import create_run

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
    compute_ns: int = 10 * MS
    copy_bytes: int = 0
    pinned: bool = True
    ahead: bool = False
    host_ns: int = 0
    """Work of the training loop after the step was queued."""
    sync: bool = False
    """The loss is read at the end of the step."""
    boundary_ns: int = 0
    """Validation after this step, on the host."""


@dataclass
class VirtualRun:
    """A training that happened, and what its engines really did."""

    folder: Path
    device: EmulatedDevice
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    """(what, begin_ns, end_ns)"""

    def busy_ns(self, begin: int, end: int, what: int = COMPUTE) -> int:
        """Time within [begin, end) in which an engine worked, counted the slow way."""
        marks = sorted((max(b, begin), min(e, end)) for k, b, e in self.spans if k == what and e > begin and b < end)
        total, reach = 0, begin
        for low, high in marks:
            total += max(0, high - max(low, reach))
            reach = max(reach, high)
        return total


def train(
    folder: Path,
    epochs: Sequence[Sequence[Step]],
    samples: int = 8,
    trace: Callable[[int, int, int], Any] | None = None,
    spec: EmulatedSpec | None = None,
    queue: Any = None,
) -> VirtualRun:
    """Run and record a planned training. `trace(step, fetch_begin, fetch_end)` makes a batch's trace."""
    clock = VirtualClock(START)
    create_run(folder, _INFO)
    device = EmulatedDevice(spec or EmulatedSpec("test", "Test", 10**12, 10e9, 5e9), clock)
    run = VirtualRun(folder, device)
    recorder = SpanRecorder(folder)

    def sink(number: int, stream: int, what: int, begin: int, end: int, amount: int) -> None:
        run.spans.append((what, begin, end))
        recorder(number, stream, what, begin, end, amount)

    device.sink = sink
    session = Session(folder, device)
    done = 0
    for number, plan in enumerate(epochs):
        steps = iter(plan)
        for _ in session.fetches(partial(_batches, clock, plan, samples, trace, done), number, queue):
            step = next(steps)
            done += 1
            _one_step(session, device, clock, step)
    device.synchronize()
    session.finish()
    recorder.close()
    return run


def _batches(
    clock: VirtualClock, plan: Sequence[Step], samples: int, trace: Callable[[int, int, int], Any] | None, first: int
) -> Iterator[SimpleNamespace]:
    for number, step in enumerate(plan):
        begin = clock.now()
        clock.advance(step.fetch_ns)
        made = trace(first + number, begin, clock.now()) if trace else None
        yield SimpleNamespace(samples=samples, nbytes=step.copy_bytes, trace=made)


def _one_step(session: Session, device: EmulatedDevice, clock: VirtualClock, step: Step) -> None:
    if step.copy_bytes:
        tensors = [torch.empty(step.copy_bytes, dtype=torch.uint8)]
        stream = device.side_stream() if step.ahead else None
        tensors, copy = device.copy(tensors, pinned=step.pinned, stream=stream)
        if step.ahead:
            device.wait_for(copy, tensors)
        session.steps.copied(copy)
    session.steps.compute_begin()
    device.compute(step.compute_ns // 3, kernels=20)
    session.steps.backward_begin()
    device.compute(step.compute_ns - step.compute_ns // 3, kernels=40)
    session.steps.compute_end()
    clock.advance(step.host_ns)
    if step.sync:
        begin = device.now()
        device.synchronize()
        session.steps.synced(begin, device.now())
    if step.boundary_ns:
        with session.boundary():
            device.synchronize()
            clock.advance(step.boundary_ns)
