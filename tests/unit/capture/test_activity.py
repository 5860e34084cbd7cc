"""Activity windows on a stand-in for torch's profiler, and what is relied on of that profiler."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from whyidle.capture import activity, activity_trace
from whyidle.capture.activity import ActivityWindows
from whyidle.record.reader import RecordFile
from whyidle.record.schema import NOT_MEASURED, KernelKind

OTHERS = activity_trace.OthersWatch._NAMES
CPU = torch.autograd.profiler.DeviceType.CPU
CUDA = torch.autograd.profiler.DeviceType.CUDA
US = 1_000
MS = 1_000_000
EPOCH = 1_800_000_000 * 10**9
"""What epoch time shows when the monotonic clock shows 0."""
TRAINING, AUTOGRAD = 71, 72
"""Kineto's ids of threads."""


class Event(NamedTuple):
    text: str
    begin: int
    end: int
    device: Any = CUDA
    resource: int = 7
    correlation: int = 0
    kind: str = "kernel"
    at: int = 0

    def told(self) -> Any:
        """As torch hands it out, which is asked by calls; the stamps here are on the monotonic clock."""
        given = {
            "name": self.text,
            "start_ns": EPOCH + self.begin,
            "duration_ns": self.end - self.begin,
            "device_type": self.device,
            "device_index": self.at,
            "device_resource_id": self.resource,
            "correlation_id": self.correlation,
            "activity_type": self.kind,
        }
        return SimpleNamespace(**{name: lambda value=value: value for name, value in given.items()})


def call(name: str, begin: int, end: int, thread: int = TRAINING, correlation: int = 0) -> Event:
    return Event(name, begin, end, CPU, thread, correlation, "cuda_runtime", -1)


class World:
    """A training of steps of one length on a device that is two steps behind the host."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.patch, self.folder = patch, folder
        self.now = 1_000 * MS
        self.traced_step_ns = 10 * MS
        self.start_ns, self.stop_ns = 1 * MS, 2 * MS
        self.kernels = 3
        self.capturing, self.drained = False, True
        self.fails = ""
        self.epoch_slip = 0
        """How far epoch time was set on."""
        self.number = 0
        self.open = False
        self.said: list[str] = []
        self.windows: list[tuple[int, int, int]] = []
        self.opened_at: list[int] = []
        self.closed_at: list[int] = []
        self.events: list[Event] = []
        self.levels: list[str | None] = []
        world = self

        class Profile:
            kineto_results: Any = None

            def __init__(self, **options: Any) -> None:
                assert options == {"use_cpu": False, "use_device": "cuda", "use_kineto": True}

            def __enter__(self) -> None:
                world.backend._prepare_profiler()
                world.levels.append(os.environ.get("KINETO_LOG_LEVEL"))
                if world.fails == "no CUPTI today":
                    raise RuntimeError(world.fails)
                world.now += world.start_ns
                world.open = True
                world.opened_at.append(world.number)
                world.events = []

            def __exit__(self, *_: object) -> None:
                if world.fails:
                    raise RuntimeError(world.fails)
                stopping = world.now
                world.now += world.stop_ns
                world.open = False
                world.closed_at.append(world.number)
                world.events.append(call("cudaDeviceSynchronize", stopping + US, world.now - US))
                told = [event.told() for event in world.events]
                self.kineto_results = SimpleNamespace(events=lambda: told)

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
        patch.setattr(activity_trace, "_backend", self.backend)
        patch.setattr(activity, "_cuda", self.cuda)
        clock = SimpleNamespace(
            monotonic_ns=lambda: world.now, time_ns=lambda: EPOCH + world.now + world.epoch_slip, sleep=self.sleep
        )
        patch.setattr(activity_trace, "time", clock)
        patch.setattr(activity, "time", clock)
        patch.setattr(activity, "APART_NS", 0)
        patch.setattr(torch.version, "cuda", "13.0")
        for name in [n for n in os.environ if n.startswith(("NSYS_", "CUPTI_", "CUDA_INJ", "KINETO_", "TEARDOWN_"))]:
            patch.delenv(name)
        # Registered, so that what the code under test sets is taken back.
        patch.setenv("TEARDOWN_CUPTI", "x")
        del os.environ["TEARDOWN_CUPTI"]

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)

    def windows_of(self, **options: Any) -> ActivityWindows:
        return ActivityWindows(
            self.folder,
            **options,
            on_window=lambda *event: self.windows.append(event),
            say=self.said.append,
            gpu=lambda: 0,
        )

    def train(self, windows: ActivityWindows, steps: int, at: Callable[[int], object] = lambda _: None) -> None:
        for _ in range(steps):
            at(self.number)
            windows.step(self.number)
            begin = self.now
            for n in range(self.kernels * self.open):
                launch = begin + n * 100 * US
                ran = launch + 2 * self.traced_step_ns
                one = len(self.events) + 1
                self.events.append(call("cudaLaunchKernel", launch, launch + 5 * US, (TRAINING, AUTOGRAD)[n % 2], one))
                self.events.append(Event("gemm", ran, ran + 50 * US, correlation=one))
            self.now = begin + (self.traced_step_ns if self.open else 10 * MS)
            self.number += 1

    def run(self, count: int, at: Callable[[int], object] = lambda _: None, **options: Any) -> ActivityWindows:
        """Train to the end."""
        windows = self.windows_of(**options)
        self.train(windows, count, at)
        windows.finish()
        return windows

    def kernels_found(self) -> Any:
        (path,) = self.folder.glob("kernel-*.rec")
        return RecordFile(path).all()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path)


def test_a_window_opens_one_step_early_and_closes_after_its_steps(world: World) -> None:
    windows = world.run(250, every_steps=100, steps=4, first_step=20)
    assert world.opened_at == [20, 120, 220]
    assert world.closed_at == [25, 125, 225]
    assert [number for number, _, _ in world.windows] == [0, 1, 2]
    assert windows.windows == 3
    assert world.said == []


def test_no_window_opens_while_the_last_trace_may_still_be_detached(world: World) -> None:
    world.patch.setattr(activity, "APART_NS", 2_500 * MS)
    world.run(420, every_steps=100, steps=4, first_step=20)
    # Steps of 10 ms: the next window would be due a second after the first.
    assert world.opened_at[0] == 20
    assert 25 + 245 < world.opened_at[1] < 25 + 260
    assert world.said == []


def test_a_training_that_replays_cuda_graphs_has_no_further_windows(world: World) -> None:
    windows = world.windows_of(every_steps=100)
    world.train(windows, 300, lambda number: number in (50, 51) and windows.graph_replayed())
    assert world.opened_at == [20]
    (sentence,) = world.said
    assert "replays CUDA graphs" in sentence


def test_a_window_and_its_records_are_on_the_monotonic_clock_with_launches_and_threads(world: World) -> None:
    stamps: dict[int, int] = {}
    world.stop_ns = 25 * MS
    world.run(60, lambda number: stamps.update({number: world.now}), first_step=20)
    ((_, begin, end),) = world.windows
    assert begin == stamps[21]
    found = world.kernels_found()
    last = int(found["end_ns"].max())
    assert stamps[25] < last < end == last + activity.CLOCK_SLACK_NS
    assert set(found["what"]) == {KernelKind.KERNEL}  # the wait at the end of the trace is ours, and left out
    assert list(found["thread"][:6]) == [0, 1, 0, 0, 1, 0]
    assert (found["stream"] == 7).all()
    assert (found["begin_ns"] - found["launch_ns"] == 2 * world.traced_step_ns).all()
    assert (found["end_ns"] - found["begin_ns"] == 50 * US).all()
    assert (np.diff(found["begin_ns"]) >= 0).all()


def test_after_finish_and_between_windows_a_step_costs_nothing(world: World) -> None:
    windows = world.run(26, first_step=20)
    windows.finish()
    cost = windows.cost_ns
    world.train(windows, 3000)
    assert world.opened_at == [20]
    assert windows.cost_ns == cost == world.start_ns + world.stop_ns


@pytest.mark.parametrize("name", ["NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "CUPTI_X", "KINETO_USE_DAEMON"])
def test_where_windows_cannot_be_had_it_is_said_once(world: World, name: str) -> None:
    reasons: list[tuple[Callable[[], object], str]] = [
        (lambda: world.patch.setattr(world.cuda, "is_initialized", lambda: False), "does not use CUDA"),
        (lambda: world.patch.setattr(world.backend, "_supported_activities", lambda: {"CPU"}), "without CUPTI"),
        (lambda: world.patch.setenv(name, "1"), f"{name} is set"),
    ]
    for hinder, said in reasons:
        with pytest.MonkeyPatch.context() as world.patch:
            hinder()
            world.number = 0
            world.run(200, every_steps=50)
        assert said in world.said.pop()
        assert (world.said, world.opened_at, list(world.folder.glob("kernel-*"))) == ([], [], [])


def test_a_running_profiler_skips_windows_until_it_ends(world: World) -> None:
    def at(number: int) -> None:
        world.backend._is_profiler_enabled = number < 100

    world.run(150, at, every_steps=50)
    assert world.opened_at == [120]
    assert world.said == ["An activity window was left out: torch's profiler is in use."]


def test_the_trainings_own_profiler_ends_an_open_window_before_it_begins(world: World) -> None:
    torchs_own = world.backend._prepare_profiler
    state: list[bool] = []

    def at(number: int) -> None:
        if number == 23:
            state.append(world.open)
            world.backend._prepare_profiler()
            state.append(world.open)

    world.run(200, at, every_steps=50)
    assert state == [True, False]
    assert world.opened_at == [20]
    assert world.windows == []
    assert world.said == ["Activity windows are off: the training uses torch's profiler itself."]
    assert world.backend._prepare_profiler is torchs_own


def test_no_window_opens_or_closes_while_a_cuda_graph_is_captured(world: World) -> None:
    def at(number: int) -> None:
        world.capturing = number in (20, 21, 27, 28)

    world.run(60, at)
    assert (world.opened_at, world.closed_at) == ([22], [29])


def test_costly_windows_become_rare_and_then_end(world: World) -> None:
    world.stop_ns = 1500 * MS
    world.run(2000, every_steps=100)
    assert world.opened_at == [20, 220, 620]
    assert len(world.said) == 3
    assert "from now on one every 200 steps" in world.said[0]
    assert "no more windows" in world.said[2]


def test_windows_that_slow_their_steps_too_much_count_as_costly(world: World) -> None:
    world.traced_step_ns = 40 * MS
    world.run(150, every_steps=100)
    assert world.opened_at == [20]
    assert "4.0 times as long" in world.said[0]


def test_a_window_with_too_much_work_is_cut_where_its_records_end(world: World) -> None:
    world.patch.setattr(activity, "MOST_RECORDS", 10)
    world.kernels = 8
    world.run(60)
    found = world.kernels_found()
    ((_, begin, end),) = world.windows
    assert len(found) == 10
    assert begin < int(found["begin_ns"].max()) < end
    # The first piece that was dropped began there.
    assert end - int(found["begin_ns"].max()) == 100 * US
    assert "the first 10 are kept" in world.said[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda world: world.patch.setattr(activity, "MOST_EVENTS", 10), "thrown away"),
        (lambda world: setattr(world, "epoch_slip", 3600 * 10**9), "clock of the machine was set"),
        (lambda world: setattr(world, "kernels", 0), "saw no kernel"),
        (lambda world: world.folder.rmdir(), "RecordError"),
    ],
)
def test_a_window_that_cannot_be_used_is_none_and_says_so(
    world: World, change: Callable[[World], object], said: str
) -> None:
    world.run(60, lambda number: change(world) if number == (23 if "clock" in said else 0) else None)
    assert (world.windows, world.open) == ([], False)
    assert said in world.said[0]


@pytest.mark.parametrize("what", ["no CUPTI today", "CUPTI went away"])
def test_a_failure_switches_windows_off_and_never_reaches_the_training(world: World, what: str) -> None:
    world.fails = what
    world.run(300, every_steps=50)
    assert world.windows == []
    assert world.said == [f"Activity windows are off after an error: RuntimeError: {what}"]
    assert world.backend._is_profiler_enabled is False


@pytest.mark.parametrize("hangs", [False, True])
def test_the_end_of_a_training_keeps_an_open_window_unless_the_device_hangs(world: World, hangs: bool) -> None:
    windows = world.windows_of()
    world.train(windows, 23)
    world.drained, before = not hangs, world.now
    windows.finish()
    assert (len(world.windows), len(world.closed_at)) == ((0, 0) if hangs else (1, 1))
    assert world.now - before <= activity.FINISH_LIMIT_NS + 2 * MS


@pytest.mark.parametrize(
    ("cuda", "users", "after"), [("13.0", None, "1"), ("12.6", None, "1"), ("12.4", None, None), ("13.0", "0", "0")]
)
def test_cupti_is_detached_after_windows_unless_the_user_or_the_runtime_says_no(
    world: World, cuda: str, users: str | None, after: str | None
) -> None:
    world.patch.setattr(torch.version, "cuda", cuda)
    if users is not None:
        world.patch.setenv("TEARDOWN_CUPTI", users)
    world.run(30)
    assert os.environ.get("TEARDOWN_CUPTI") == after
    # Kineto is silent meanwhile, and the environment is left as it was.
    assert world.levels == ["6"]
    assert "KINETO_LOG_LEVEL" not in os.environ


def rows(*events: Event, old: bool = False) -> Any:
    """`old`: as torch told events that had no `activity_type`."""
    clocks = [activity_trace.Clocks(EPOCH + at, at) for at in (0, 900 * US, 1000 * US)]
    told = [event.told() for event in events]
    for each in told * old:
        del each.activity_type
    return activity_trace.rows_of(activity_trace.Traced(told, *clocks), device=0)


def test_waiting_calls_copies_and_other_devices_are_told_apart() -> None:
    found = rows(
        call("cudaStreamSynchronize", 10 * US, 20 * US),
        call("cudaMemcpyAsync", 30 * US, 35 * US, correlation=1),  # only queued
        call("cudaMemcpyAsync", 40 * US, 140 * US, correlation=2),  # waited: pageable
        call("cudaFree", 150 * US, 160 * US, AUTOGRAD),
        Event("Memcpy HtoD (Pinned -> Device)", 50 * US, 60 * US, correlation=1, kind="gpu_memcpy"),
        Event("gemm", 70 * US, 80 * US, correlation=99),
        Event("gemm", 70 * US, 80 * US, at=1),
        Event("step", 0, 100 * US, kind="gpu_user_annotation"),
        Event("Activity Buffer Request", 0, 5 * US, CPU, 0, 0, "overhead", -1),
        call("cudaDeviceSynchronize", 900 * US, 990 * US),
    )
    assert [(what, thread, begin // US, end // US) for what, _, thread, _, begin, end in found.tolist()] == [
        (KernelKind.SYNC, 0, 10, 20),
        (KernelKind.SYNC, 0, 40, 140),
        (KernelKind.COPY, 0, 50, 60),
        (KernelKind.KERNEL, NOT_MEASURED, 70, 80),
        (KernelKind.SYNC, 1, 150, 160),
        (KernelKind.SYNC, 0, 900, 990),
    ]
    assert [int(launch) for launch in found[[2, 3], 3]] == [30 * US, NOT_MEASURED]
    assert (found[found[:, 0] == KernelKind.SYNC][:, [1, 3]] == NOT_MEASURED).all()


def test_events_of_an_old_torch_are_told_apart_by_name() -> None:
    found = rows(Event("Memset (Device)", 0, US), Event("gemm", 10, US), old=True)
    assert list(found[:, 0]) == [KernelKind.COPY, KernelKind.KERNEL]


@pytest.mark.parametrize("numbered", ["low half of the pthread id", "system", "unknown"])
def test_without_the_last_wait_the_training_thread_is_known_by_its_ids(numbered: str) -> None:
    low = threading.get_ident() & 0xFFFFFFFF
    signed = low - (1 << 32) if low >= 1 << 31 else low
    mine = {"system": threading.get_native_id(), "unknown": 5}.get(numbered, signed)
    found = rows(
        call("cudaLaunchKernel", 0, 5, mine, 1),
        call("cudaLaunchKernel", 6, 9, mine + 1, 2),
        Event("a", 10 * US, 20 * US, correlation=1),
        Event("b", 20 * US, 30 * US, correlation=2),
    )
    assert list(found[:, 2]) == ([1, 2] if numbered == "unknown" else [0, 1])


def test_epoch_stamps_follow_a_slewed_clock_and_pairs_lie_within_their_brackets() -> None:
    started, stopped = activity_trace.Clocks(EPOCH, 0), activity_trace.Clocks(EPOCH + 1_000_100, 1_000_000)
    stamps = np.array([EPOCH, EPOCH + 500_050, EPOCH + 1_000_100])
    assert list(activity_trace.to_monotonic(stamps, started, stopped)) == [0, 500_000, 1_000_000]
    before, epoch = time.monotonic_ns(), time.time_ns()
    pair = activity_trace.read_clocks()
    assert before <= pair.monotonic_ns <= time.monotonic_ns()
    assert epoch <= pair.epoch_ns <= time.time_ns()


def test_torch_has_the_names_that_windows_rely_on() -> None:
    profile = torch.autograd.profiler.profile(use_cpu=True, use_device=None, use_kineto=True)
    profile.__enter__()
    assert activity_trace.in_use()
    torch.ones(3).add(1)
    profile.__exit__(None, None, None)
    assert not activity_trace.in_use()
    event = profile.kineto_results.events()[0]  # type: ignore[union-attr]
    for name in ("name", "start_ns", "duration_ns", "device_type", "device_index", "device_resource_id"):
        getattr(event, name)()
    assert event.device_type() == activity_trace._CPU
    assert event.correlation_id() >= 0
    # Its stamps are epoch time.
    assert abs(time.time_ns() - event.start_ns()) < 60 * 10**9
    # No list of Python objects was made of the events.
    assert profile._function_events is None
    assert all(callable(getattr(torch.autograd.profiler, name)) for name in OTHERS)
    assert isinstance(activity_trace.has_cupti(), bool)


def test_the_watch_sees_torchs_public_profiler_and_leaves_it_working() -> None:
    originals = [getattr(torch.autograd.profiler, name) for name in OTHERS]
    seen: list[int] = []
    watch = activity_trace.OthersWatch(lambda: seen.append(1))
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as users:
            torch.ones(3).add(1)
    finally:
        watch.remove()
    assert seen
    assert any(average.key == "aten::add" for average in users.key_averages())
    assert [getattr(torch.autograd.profiler, name) for name in OTHERS] == originals
