"""Activity windows with a stand-in for torch's profiler and for the device."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from whyidle.capture import activity, activity_trace
from whyidle.capture.activity import ActivityWindows
from whyidle.record.reader import RecordFile
from whyidle.record.schema import NOT_MEASURED, KernelKind

CPU = torch.autograd.profiler.DeviceType.CPU
CUDA = torch.autograd.profiler.DeviceType.CUDA
US = 1_000
MS = 1_000_000
EPOCH = 1_800_000_000 * 10**9
"""What epoch time shows when the monotonic clock shows 0."""
TRAINING, AUTOGRAD = 71, 72
"""Kineto's ids of threads."""
OTHERS = activity_trace.OthersWatch._NAMES


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


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def windows_of(world: World, folder: Path, **options: Any) -> ActivityWindows:
    return ActivityWindows(
        folder,
        **options,
        on_window=lambda *event: world.windows.append(event),
        say=world.said.append,
        gpu=lambda: 0,
    )


def kernels_of(folder: Path) -> Any:
    (path,) = folder.glob("kernel-*.rec")
    return RecordFile(path).all()


def test_a_window_opens_one_step_early_and_closes_after_its_steps(world: World, tmp_path: Path) -> None:
    windows = windows_of(world, tmp_path, every_steps=100, steps=4, first_step=20)
    world.train(windows, 250)
    windows.finish()
    assert world.opened_at == [20, 120, 220]
    assert world.closed_at == [25, 125, 225]
    assert [number for number, _, _ in world.windows] == [0, 1, 2]
    assert windows.windows == 3
    assert world.said == []


def test_no_window_opens_while_the_last_trace_may_still_be_detached(world: World, tmp_path: Path) -> None:
    world.patch.setattr(activity, "APART_NS", 2_500 * MS)
    windows = windows_of(world, tmp_path, every_steps=100, steps=4, first_step=20)
    world.train(windows, 420)
    # Steps of 10 ms: the next window would be due a second after the first.
    assert world.opened_at[0] == 20
    assert 25 + 245 < world.opened_at[1] < 25 + 260
    assert world.said == []


def test_a_training_that_replays_cuda_graphs_has_no_further_windows(world: World, tmp_path: Path) -> None:
    windows = windows_of(world, tmp_path, every_steps=100, steps=4, first_step=20)
    world.train(windows, 50)
    windows.graph_replayed()
    windows.graph_replayed()
    world.train(windows, 300)
    assert world.opened_at == [20]
    (sentence,) = world.said
    assert "replays CUDA graphs" in sentence


def test_a_window_spans_from_the_first_counted_step_to_the_last_work_that_was_queued(
    world: World, tmp_path: Path
) -> None:
    windows = windows_of(world, tmp_path, first_step=20)
    stamps: dict[int, int] = {}
    world.stop_ns = 25 * MS
    world.train(windows, 60, lambda number: stamps.update({number: world.now}))
    windows.finish()
    ((_, begin, end),) = world.windows
    assert begin == stamps[21]
    last = int(kernels_of(tmp_path)["end_ns"].max())
    assert stamps[25] < last < end == last + activity.CLOCK_SLACK_NS


def test_records_carry_the_launch_the_thread_and_the_monotonic_clock(world: World, tmp_path: Path) -> None:
    windows = windows_of(world, tmp_path, first_step=20)
    world.train(windows, 40)
    windows.finish()
    found = kernels_of(tmp_path)
    assert set(found["what"]) == {KernelKind.KERNEL}  # the wait at the end of the trace is ours, and left out
    assert list(found["thread"][:6]) == [0, 1, 0, 0, 1, 0]
    assert (found["stream"] == 7).all()
    assert (found["begin_ns"] - found["launch_ns"] == 2 * world.traced_step_ns).all()
    assert (found["end_ns"] - found["begin_ns"] == 50 * US).all()
    assert (np.diff(found["begin_ns"]) >= 0).all()


def test_after_finish_and_between_windows_a_step_costs_nothing(world: World, tmp_path: Path) -> None:
    windows = windows_of(world, tmp_path, first_step=20)
    world.train(windows, 26)
    windows.finish()
    windows.finish()
    cost = windows.cost_ns
    world.train(windows, 3000)
    assert world.opened_at == [20]
    assert windows.cost_ns == cost == world.start_ns + world.stop_ns


def reason(world: World, tmp_path: Path) -> str:
    windows = windows_of(world, tmp_path, every_steps=50)
    world.train(windows, 200)
    windows.finish()
    assert world.opened_at == []
    assert list(tmp_path.glob("kernel-*")) == []
    (sentence,) = world.said
    return sentence


def test_no_cuda_is_said_once(world: World, tmp_path: Path) -> None:
    world.cuda.is_initialized = lambda: False
    world.cuda.current_device = lambda: pytest.fail("this would start CUDA")
    assert "does not use CUDA" in reason(world, tmp_path)


def test_a_torch_without_cupti_is_said_once(world: World, tmp_path: Path) -> None:
    world.backend._supported_activities = lambda: {"CPU"}
    assert "without CUPTI" in reason(world, tmp_path)


@pytest.mark.parametrize("name", ["NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "CUPTI_X", "KINETO_USE_DAEMON"])
def test_another_tool_is_said_once(world: World, tmp_path: Path, name: str) -> None:
    world.patch.setenv(name, "1")
    assert f"{name} is set" in reason(world, tmp_path)


def test_a_running_profiler_skips_windows_until_it_ends(world: World, tmp_path: Path) -> None:
    windows = windows_of(world, tmp_path, every_steps=50)
    world.backend._is_profiler_enabled = True
    world.train(windows, 100)
    assert world.opened_at == []
    world.backend._is_profiler_enabled = False
    world.train(windows, 50)
    assert world.opened_at == [120]
    assert world.said == ["An activity window was left out: torch's profiler is in use."]


def test_the_trainings_own_profiler_ends_an_open_window_before_it_begins(world: World, tmp_path: Path) -> None:
    torchs_own = world.backend._prepare_profiler
    windows = windows_of(world, tmp_path, every_steps=50)
    state: list[bool] = []

    def at(number: int) -> None:
        if number == 23:
            assert world.open
            world.backend._prepare_profiler()
            state.append(world.open)

    world.train(windows, 200, at)
    windows.finish()
    assert state == [False]
    assert world.opened_at == [20]
    assert world.windows == []
    assert world.said == ["Activity windows are off: the training uses torch's profiler itself."]
    assert world.backend._prepare_profiler is torchs_own


def test_no_window_opens_or_closes_while_a_cuda_graph_is_captured(world: World, tmp_path: Path) -> None:
    windows = windows_of(world, tmp_path)

    def at(number: int) -> None:
        world.capturing = number in (20, 21, 27, 28)

    world.train(windows, 60, at)
    assert (world.opened_at, world.closed_at) == ([22], [29])


def test_costly_windows_become_rare_and_then_end(world: World, tmp_path: Path) -> None:
    world.stop_ns = 1500 * MS
    windows = windows_of(world, tmp_path, every_steps=100)
    world.train(windows, 2000)
    assert world.opened_at == [20, 220, 620]
    assert len(world.said) == 3
    assert "from now on one every 200 steps" in world.said[0]
    assert "no more windows" in world.said[2]


def test_windows_that_slow_their_steps_too_much_count_as_costly(world: World, tmp_path: Path) -> None:
    world.traced_step_ns = 40 * MS
    windows = windows_of(world, tmp_path, every_steps=100)
    world.train(windows, 150)
    assert world.opened_at == [20]
    assert "4.0 times as long" in world.said[0]


def test_a_window_with_too_much_work_is_cut_where_its_records_end(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "MOST_RECORDS", 10)
    windows = windows_of(world, tmp_path)
    world.kernels = 8
    world.train(windows, 60)
    windows.finish()
    found = kernels_of(tmp_path)
    ((_, begin, end),) = world.windows
    assert len(found) == 10
    assert begin < int(found["begin_ns"].max()) < end
    # The first piece that was dropped began there.
    assert end - int(found["begin_ns"].max()) == 100 * US
    assert "the first 10 are kept" in world.said[0]


def test_a_window_with_far_too_many_events_is_thrown_away(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "MOST_EVENTS", 10)
    windows = windows_of(world, tmp_path)
    world.train(windows, 60)
    windows.finish()
    assert world.windows == []
    assert "thrown away" in world.said[0]


def test_a_window_in_which_the_clock_was_set_is_thrown_away(world: World, tmp_path: Path) -> None:
    windows = windows_of(world, tmp_path)

    def at(number: int) -> None:
        if number == 23:
            world.epoch_slip = 3600 * 10**9

    world.train(windows, 60, at)
    assert world.windows == []
    assert "clock of the machine was set" in world.said[0]


@pytest.mark.parametrize(("where", "what"), [("start", "no CUPTI today"), ("stop", "CUPTI went away")])
def test_a_failure_switches_windows_off_and_never_reaches_the_training(
    world: World, tmp_path: Path, where: str, what: str
) -> None:
    world.fails = where
    windows = windows_of(world, tmp_path, every_steps=50)
    world.train(windows, 300)
    windows.finish()
    assert world.windows == []
    assert world.said == [f"Activity windows are off after an error: RuntimeError: {what}"]
    assert world.backend._is_profiler_enabled is False


def test_an_unwritable_folder_switches_windows_off(world: World, tmp_path: Path) -> None:
    windows = windows_of(world, tmp_path / "missing")
    world.train(windows, 60)
    windows.finish()
    assert "RecordError" in world.said[0]
    assert not world.open


def test_a_window_without_kernels_is_none_and_says_so(world: World, tmp_path: Path) -> None:
    world.kernels = 0
    windows = windows_of(world, tmp_path)
    world.train(windows, 60)
    windows.finish()
    assert world.windows == []
    assert "saw no kernel" in world.said[0]


def test_the_end_of_a_training_keeps_an_open_window(world: World, tmp_path: Path) -> None:
    windows = windows_of(world, tmp_path)
    world.train(windows, 23)
    windows.finish()
    assert not world.open
    assert len(world.windows) == 1


def test_a_device_that_hangs_does_not_hang_the_end_of_the_training(world: World, tmp_path: Path) -> None:
    windows = windows_of(world, tmp_path)
    world.train(windows, 23)
    world.drained = False
    before = world.now
    windows.finish()
    assert world.windows == []
    assert world.closed_at == []
    assert world.now - before <= activity.FINISH_LIMIT_NS + 2 * MS


@pytest.mark.parametrize(
    ("cuda", "users", "after"), [("13.0", None, "1"), ("12.6", None, "1"), ("12.4", None, None), ("13.0", "0", "0")]
)
def test_cupti_is_detached_after_windows_unless_the_user_or_the_runtime_says_no(
    world: World, tmp_path: Path, cuda: str, users: str | None, after: str | None
) -> None:
    world.patch.setattr(torch.version, "cuda", cuda)
    if users is not None:
        world.patch.setenv("TEARDOWN_CUPTI", users)
    world.train(windows_of(world, tmp_path), 30)
    assert os.environ.get("TEARDOWN_CUPTI") == after


def test_kineto_is_silent_and_the_environment_is_left_as_it_was(world: World, tmp_path: Path) -> None:
    world.train(windows_of(world, tmp_path), 30)
    assert world.levels == ["6"]
    assert "KINETO_LOG_LEVEL" not in os.environ


def rows(events: list[Event], offset: int = EPOCH) -> Any:
    clocks = [activity_trace.Clocks(offset + at, at) for at in (0, 900 * US, 1000 * US)]
    return activity_trace.rows_of(activity_trace.Traced(events, *clocks), device=0)


def test_waiting_calls_copies_and_other_devices_are_told_apart() -> None:
    found = rows(
        [
            call("cudaStreamSynchronize", 10 * US, 20 * US),
            call("cudaMemcpyAsync", 30 * US, 35 * US, correlation=1),  # only queued
            call("cudaMemcpyAsync", 40 * US, 140 * US, correlation=2),  # waited: pageable
            call("cudaFree", 150 * US, 160 * US, AUTOGRAD),
            Event("Memcpy HtoD (Pinned -> Device)", 50 * US, 60 * US, correlation=1, kind="gpu_memcpy"),
            Event("gemm", 70 * US, 80 * US, correlation=99),
            Event("gemm", 70 * US, 80 * US, index=1),
            Event("step", 0, 100 * US, kind="gpu_user_annotation"),
            Event("Activity Buffer Request", 0, 5 * US, CPU, 0, 0, "overhead", -1),
            call("cudaDeviceSynchronize", 900 * US, 990 * US),
        ]
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
    class Old:
        def __init__(self, event: Event) -> None:
            self._event = event

        def __getattr__(self, name: str) -> Any:
            if name == "activity_type":
                raise AttributeError(name)
            return getattr(self._event, name)

    old: Any = [Old(Event("Memset (Device)", 0, US)), Old(Event("gemm", 10, US))]
    assert list(rows(old)[:, 0]) == [KernelKind.COPY, KernelKind.KERNEL]


@pytest.mark.parametrize("numbered", ["low half of the pthread id", "system"])
def test_without_the_last_wait_the_training_thread_is_known_by_its_ids(numbered: str) -> None:
    low = threading.get_ident() & 0xFFFFFFFF
    signed = low - (1 << 32) if low >= 1 << 31 else low
    mine = threading.get_native_id() if numbered == "system" else signed
    found = rows(
        [
            call("cudaLaunchKernel", 0, 5, mine, 1),
            call("cudaLaunchKernel", 6, 9, mine + 1, 2),
            Event("a", 10 * US, 20 * US, correlation=1),
            Event("b", 20 * US, 30 * US, correlation=2),
        ]
    )
    assert list(found[:, 2]) == [0, 1]


def test_an_unknown_training_thread_gets_no_number_of_its_own() -> None:
    found = rows([call("cudaLaunchKernel", 0, 5, 5, 1), Event("a", 10 * US, 20 * US, correlation=1)])
    assert list(found[:, 2]) == [1]


def test_epoch_stamps_follow_a_slewed_clock() -> None:
    started, stopped = activity_trace.Clocks(EPOCH, 0), activity_trace.Clocks(EPOCH + 1_000_100, 1_000_000)
    stamps = np.array([EPOCH, EPOCH + 500_050, EPOCH + 1_000_100])
    assert list(activity_trace.to_monotonic(stamps, started, stopped)) == [0, 500_000, 1_000_000]


def test_a_clock_pair_lies_within_its_bracket() -> None:
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
    for name in OTHERS:
        assert callable(getattr(torch.autograd.profiler, name))
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
