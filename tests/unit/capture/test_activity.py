"""Activity windows with a stand-in for torch's profiler and for the device."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.kineto import MS, US, World
from whyidle.capture import activity, activity_trace
from whyidle.capture.activity import ActivityWindows
from whyidle.record.reader import RecordFile
from whyidle.record.schema import KernelKind

OTHERS = activity_trace.OthersWatch._NAMES


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
