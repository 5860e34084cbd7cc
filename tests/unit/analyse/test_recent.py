"""The live view's look at a run that is being recorded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import whyidle
from support.crafted import rows_of
from support.recent_runs import START as RECENT_START
from support.recent_runs import steps, store
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.recent.tail import Tail
from whyidle.capture.active import recorded
from whyidle.devices.clock import VirtualClock
from whyidle.devices.emulated import EmulatedDevice, EmulatedSpec
from whyidle.errors import RecordError
from whyidle.record import segment
from whyidle.record.reader import Records
from whyidle.record.run import create_run, update_run
from whyidle.record.schema import STEP
from whyidle.record.segment import RecordWriter
from whyidle.scenarios.planted import MS, START
from whyidle.scenarios.training import EmulatedNet, EmulatedOptimizer


def test_shares_while_recording_are_those_of_the_finished_run(tmp_path: Path) -> None:
    """Steps are stored before the device has passed them: the view must not take that for idling."""
    clock = VirtualClock(START)
    device = EmulatedDevice(EmulatedSpec("test", "Test", 10**9, 10e9, 5e9), clock)
    folder = create_run(tmp_path / "run", {"device": device.describe(), "plan": {"steps": 80}})
    reader = RecentReader(folder, judge_s=0)
    assert reader.snapshot().state == "starting"
    net = EmulatedNet()
    optimizer = EmulatedOptimizer(net)

    def batches() -> Iterator[int]:
        for number in range(80):
            clock.advance(15 * MS)
            yield number

    seen = []
    with recorded(folder, device):
        for _ in whyidle.watch(batches(), batch_size=8):
            net(partial(device.compute, 10 * MS), lambda: None).backward()
            optimizer.step(lambda: None)
            segment._write_all(0)
            view = reader.snapshot()
            if view.steps >= 30:
                seen.append((view.shares["compute"], view.shares["input"]))
        assert len(seen) == 50
        for compute, waiting in seen:
            assert compute == pytest.approx(2 / 3, abs=0.03)
            assert waiting == pytest.approx(1 / 3, abs=0.03)
        device.synchronize()
    update_run(folder, {"ended": {"status": "ok"}})
    view = reader.snapshot()
    assert (view.state, view.steps, view.planned_steps, view.left_s) == ("ok", 80, 80, None)
    assert view.batch_size == 8
    assert view.verdict is not None
    # Nothing is known of how these batches are made.
    assert view.verdict.cause == "input.serial"


def test_a_run_whose_process_is_gone_is_lost(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run", {"device": {"kind": "cpu"}})
    script = (
        "import sys, os, signal; from pathlib import Path\n"
        "from whyidle.record.schema import STEP; from whyidle.record.segment import RecordWriter\n"
        "row = STEP.missing(); row[:6] = (0, 0, 0, 8, 1000, 2000); row[STEP.offset('step_end_ns') // 8 - 1] = 9000\n"
        "writer = RecordWriter(Path(sys.argv[1]), STEP); writer.append(*row); writer.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", script, folder])
    assert killed.returncode == -9
    assert RecentReader(folder).snapshot().state == "lost"
    # Of one that ended a moment ago its starter may not have said yet how.
    assert RecentReader(folder, lambda: 10**9).snapshot().state == "running"


def test_a_folder_without_run_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is not a run folder"):
        RecentReader(tmp_path)


def test_of_a_sweep_what_has_ended_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One folder may hold hundreds of trainings, one after another."""
    read: list[int] = []
    look = Tail.look

    def noted(tail: Tail) -> Records:
        read.append(tail.header.pid)
        return look(tail)

    monkeypatch.setattr(Tail, "look", noted)
    folder = create_run(tmp_path / "run", {"device": {"kind": "cpu"}})
    reader = RecentReader(folder, lambda: RECENT_START, judge_s=0)
    trainings = (101, 102, 103)
    for pid in trainings:
        writer = RecordWriter(folder, STEP, 0, pid)
        reader.snapshot()
        for body in rows_of(STEP, steps(40)):
            writer.append(*body)
        # These were not read while it was there.
        writer.close()
    reader.snapshot()
    assert [reader._tails[f"step-0-{pid}.rec"].seen for pid in trainings] == [40] * 3
    read.clear()
    reader.snapshot()
    assert set(read) == {103}, "nobody has looked since whether it is closed"


def test_a_look_goes_through_all_files_once_however_many_trained(tmp_path: Path) -> None:
    class Counted(dict[str, Tail]):
        def items(self) -> Any:
            passes.append(len(self))
            return super().items()

    passes: list[int] = []
    folder = create_run(tmp_path / "run", {"device": {"kind": "cpu"}})
    for pid in range(101, 121):
        store(folder, STEP, steps(20), pid=pid)
    reader = RecentReader(folder, lambda: RECENT_START, judge_s=0)
    reader._files.sources = Counted()
    assert reader.snapshot().steps == 20
    assert passes == [20]
