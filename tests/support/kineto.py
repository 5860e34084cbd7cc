"""A stand-in for torch's profiler: what it records of a training, on a clock and a device of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from whyidle.capture import activity, activity_trace
from whyidle.capture.activity import ActivityWindows

CPU = torch.autograd.profiler.DeviceType.CPU
CUDA = torch.autograd.profiler.DeviceType.CUDA
US = 1_000
MS = 1_000_000
EPOCH = 1_800_000_000 * 10**9
"""What epoch time shows when the monotonic clock shows 0."""
TRAINING, AUTOGRAD = 71, 72
"""Kineto's ids of threads."""


@dataclass
class Event:
    """One event as torch hands it out; stamps on the monotonic clock."""

    text: str
    begin: int
    end: int
    device: Any = CUDA
    resource: int = 7
    correlation: int = 0
    kind: str = "kernel"
    index: int = 0

    def name(self) -> str:
        return self.text

    def start_ns(self) -> int:
        return EPOCH + self.begin

    def duration_ns(self) -> int:
        return self.end - self.begin

    def device_type(self) -> Any:
        return self.device

    def device_index(self) -> int:
        return self.index

    def device_resource_id(self) -> int:
        return self.resource

    def correlation_id(self) -> int:
        return self.correlation

    def activity_type(self) -> str:
        return self.kind


def call(name: str, begin: int, end: int, thread: int = TRAINING, correlation: int = 0) -> Event:
    return Event(name, begin, end, CPU, thread, correlation, "cuda_runtime", -1)


@dataclass
class World:
    """A training of steps of one length on a device that is two steps behind the host."""

    patch: pytest.MonkeyPatch
    now: int = 1_000 * MS
    step_ns: int = 10 * MS
    traced_step_ns: int = 10 * MS
    start_ns: int = 1 * MS
    stop_ns: int = 2 * MS
    kernels: int = 3
    open: bool = False
    capturing: bool = False
    drained: bool = True
    environment: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    windows: list[tuple[int, int, int]] = field(default_factory=list)
    opened_at: list[int] = field(default_factory=list)
    closed_at: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    number: int = 0
    fails: str = ""
    epoch_slip: int = 0
    """How far epoch time was set on."""
    levels: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.patch.setattr(activity, "APART_NS", 0)
        world = self

        class Profile:
            kineto_results: Any = None

            def __init__(self, **options: Any) -> None:
                assert options == {"use_cpu": False, "use_device": "cuda", "use_kineto": True}

            def __enter__(self) -> None:
                world.backend._prepare_profiler()
                world.levels.append(os.environ.get("KINETO_LOG_LEVEL"))
                if world.fails == "start":
                    raise RuntimeError("no CUPTI today")
                world.now += world.start_ns
                world.open = True
                world.opened_at.append(world.number)
                world.events = []

            def __exit__(self, *_: object) -> None:
                if world.fails == "stop":
                    raise RuntimeError("CUPTI went away")
                stopping = world.now
                world.now += world.stop_ns
                world.open = False
                world.closed_at.append(world.number)
                world.events.append(call("cudaDeviceSynchronize", stopping + US, world.now - US, TRAINING))
                self.kineto_results = SimpleNamespace(events=lambda: world.events)

        self.backend = SimpleNamespace(
            profile=Profile,
            DeviceType=torch.autograd.profiler.DeviceType,
            ProfilerActivity=SimpleNamespace(CUDA="CUDA"),
            _supported_activities=lambda: {"CUDA"},
            kineto_available=lambda: True,
            _is_profiler_enabled=False,
            _prepare_profiler=lambda *_: None,
            _enable_profiler=lambda *_: None,
        )
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            current_device=lambda: 0,
            is_current_stream_capturing=lambda: world.capturing,
            current_stream=lambda: SimpleNamespace(query=lambda: world.drained),
        )
        self.patch.setattr(activity_trace, "_backend", self.backend)
        self.patch.setattr(activity, "_cuda", self.cuda)
        self.patch.setattr(
            activity_trace,
            "time",
            SimpleNamespace(monotonic_ns=lambda: world.now, time_ns=lambda: EPOCH + world.now + world.epoch_slip),
        )
        self.patch.setattr(activity, "time", SimpleNamespace(monotonic_ns=lambda: world.now, sleep=self.sleep))
        self.patch.setattr(torch.version, "cuda", "13.0")
        for name in [n for n in os.environ if n.startswith(("NSYS_", "CUPTI_", "CUDA_INJ", "KINETO_", "TEARDOWN_"))]:
            self.patch.delenv(name)
        # Registered, so that what the code under test sets is taken back.
        self.patch.setenv("TEARDOWN_CUPTI", "x")
        del os.environ["TEARDOWN_CUPTI"]

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)

    def train(self, windows: ActivityWindows, steps: int, at: Callable[[int], None] = lambda _: None) -> None:
        for _ in range(steps):
            at(self.number)
            windows.step(self.number)
            begin = self.now
            if self.open:
                for n in range(self.kernels):
                    launch = begin + n * 100 * US
                    ran = launch + 2 * self.traced_step_ns
                    one = len(self.events) + 1
                    self.events.append(
                        call("cudaLaunchKernel", launch, launch + 5 * US, (TRAINING, AUTOGRAD)[n % 2], one)
                    )
                    self.events.append(Event("gemm", ran, ran + 50 * US, correlation=one))
            self.now = begin + (self.traced_step_ns if self.open else self.step_ns)
            self.number += 1
