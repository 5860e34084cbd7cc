"""The live view's look at a run that is being recorded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import whyidle
from golden.singles import with_stacks
from support.crafted import analysis_of_run, rows_of
from support.planted_stacks import DECODING, FETCHING, FORWARD, OPENING, WAITING, WORKER, look
from support.recent_runs import (
    MS,
    ON_GPUS,
    START,
    S,
    at,
    batches,
    looks,
    recorded,
    steps,
    store,
)
from whyidle.analyse.recent import gathered
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.recent.tail import Tail
from whyidle.capture.active import recorded as recording
from whyidle.devices.clock import VirtualClock
from whyidle.devices.emulated import EmulatedDevice, EmulatedSpec
from whyidle.errors import RecordError
from whyidle.record import segment
from whyidle.record.processes import describe_process
from whyidle.record.reader import Records
from whyidle.record.run import create_run, open_run, update_run
from whyidle.record.schema import STEP, EventKind
from whyidle.record.segment import RecordWriter
from whyidle.record.stacks import MOST_AT_A_LOOK, STACKS, Call, StackFollower, StackNames
from whyidle.scenarios.planted import START as PLANTED_START
from whyidle.scenarios.training import EmulatedNet, EmulatedOptimizer


def test_shares_while_recording_are_those_of_the_finished_run(tmp_path: Path) -> None:
    """Steps are stored before the device has passed them: the view must not take that for idling."""
    clock = VirtualClock(PLANTED_START)
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
    with recording(folder, device):
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
    reader = RecentReader(folder, lambda: START, judge_s=0)
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


def test_settings_told_long_ago_still_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gathered.KEPT, "event", 20)
    of = steps(400, 30)
    told = [{"t_ns": START, "what": EventKind.LOADER_WORKERS, "value": 0}]
    told += [{"t_ns": START + n * MS, "what": EventKind.GARBAGE, "end_ns": START + n * MS + 1} for n in range(1, 200)]
    folder = recorded(tmp_path / "run", step=of, event=told)
    assert at(folder, 20).made_in_training is True


def test_a_verdict_does_not_hold_for_longer_than_its_run(tmp_path: Path) -> None:
    of = steps(400, 30)
    end_ns = of[-1]["step_end_ns"]
    folder = recorded(tmp_path / "run", ON_GPUS | {"ended": None}, step=of, host=looks(40))
    now_s = [(end_ns - START) / S - 10]
    reader = RecentReader(folder, lambda: START + round(S * now_s[0]))
    before = reader.snapshot()
    assert before.verdict is not None
    update_run(folder, {"ended": {"status": "ok"}})
    view = reader.snapshot()
    assert view.state == "ok"
    assert view.elapsed_s == pytest.approx((end_ns - START) / S, abs=0.1)
    assert view.verdict_since_s is None or view.verdict_since_s <= view.elapsed_s


def test_files_that_appear_later_or_are_torn_are_taken_in_when_they_are_whole(tmp_path: Path) -> None:
    folder, now = create_run(tmp_path / "run", ON_GPUS), [START]
    reader = RecentReader(folder, lambda: now[0])
    assert reader.snapshot().state == "starting"
    whole = store(folder, STEP, steps(100, 5)).read_bytes()
    path = next(folder.glob("step-*"))
    path.write_bytes(whole[:1000])
    now[0] += S
    assert reader.snapshot().state == "starting"
    path.write_bytes(whole[:-100])
    now[0] += S
    view = reader.snapshot()
    assert (view.state, view.steps) == ("running", 99)
    update_run(folder, {"ended": {"status": "failed"}})
    assert reader.snapshot().state == "failed"


def test_an_end_that_is_told_in_the_same_tick_of_the_clock_is_not_missed(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", ON_GPUS, step=steps(100))
    reader = RecentReader(folder, lambda: START + 3 * S)
    assert reader.snapshot().state == "running"
    stamp = folder.stat()
    update_run(folder, {"ended": {"status": "ok"}})
    os.utime(folder, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert reader.snapshot().state == "ok"
    # A crash of the machine: this process has the number of the one that recorded, but the clock began anew.
    update_run(folder, {"ended": None})
    assert RecentReader(folder, lambda: 60 * S).snapshot().state == "lost"


def test_a_folder_that_is_removed_is_said_to_be_gone(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", step=steps(100, 5))
    reader = RecentReader(folder, lambda: START + 3 * S)
    reader.snapshot()
    shutil.rmtree(folder)
    with pytest.raises(RecordError, match=r"run is gone: the run's folder was removed or moved"):
        reader.snapshot()


def test_what_was_read_of_a_file_that_is_removed_stays(tmp_path: Path) -> None:
    of = steps(400, 5)
    folder = recorded(tmp_path / "run", step=of, batch=batches(of))
    reader = RecentReader(folder, lambda: START + 10 * S, judge_s=0)
    before = reader.snapshot()
    for path in folder.glob("*.rec"):
        path.unlink()
    after = reader.snapshot()
    assert (after.steps, after.shares, repr(after.makers)) == (400, before.shares, repr(before.makers))


def test_between_two_judgements_only_the_progress_moves(tmp_path: Path) -> None:
    folder, now = create_run(tmp_path / "run", ON_GPUS | {"plan": {"steps": 1000}}), [START + 5 * S]
    writer, rows = RecordWriter(folder, STEP), rows_of(STEP, steps(400, 5))

    def write(first: int, after: int) -> None:
        for body in rows[first:after]:
            writer.append(*body)
        writer.flush()

    write(0, 200)
    reader = RecentReader(folder, lambda: now[0], judge_s=1.0)
    first = reader.snapshot()
    write(200, 220)
    now[0] += S // 2
    second = reader.snapshot()
    assert (first.steps, second.steps) == (200, 220)
    assert (first.elapsed_s, second.elapsed_s) == (5, 5.5)
    assert second.left_s == pytest.approx((1000 - 220) * 0.025, rel=0.02)
    assert (second.quiet_s, second.verdict_since_s) == (0, 0.5)
    assert second.shares is first.shares
    assert second.verdict is first.verdict
    write(220, 400)
    now[0] = START + 15 * S
    third = reader.snapshot()
    assert third.steps == 400
    assert third.shares is not first.shares
    assert (third.quiet_s, third.verdict_since_s) == pytest.approx((5, 10))
    writer.close()


def test_a_run_of_another_machine_is_looked_at_by_its_own_clock(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", ON_GPUS | {"host": {"name": "elsewhere", "cpus": 4}}, step=steps(400, 5))
    view = RecentReader(folder, lambda: START + 10**6 * S).snapshot()
    assert (view.state, view.quiet_s) == ("running", 0)
    assert view.elapsed_s == pytest.approx(10)


def test_an_older_recording_does_not_tell_what_it_did_not_measure(tmp_path: Path) -> None:
    of = steps(800, 5)
    folder = recorded(tmp_path / "run", step=of, batch=[row | {"run_queue_ns": 0} for row in batches(of)])
    assert at(folder, 20).makers[0].queued_pct == 0
    told = open_run(folder).info["fields"]
    told["batch"] = [field for field in told["batch"] if field[0] != "run_queue_ns"]
    update_run(folder, {"fields": told})
    assert at(folder, 20).makers[0].queued_pct is None


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A training that computes for 20 s, then waits for 20; one worker opens archives, the other has no order."""
    run = recorded(tmp_path / "run", step=steps(1600))
    later = START + 20 * S
    look(run, range(START, START + 40 * S, 50 * MS), lambda _, when: FETCHING if when > later else FORWARD)
    look(run, range(START, START + 40 * S, 100 * MS), lambda n, _: OPENING if n % 4 else DECODING, WORKER)
    look(run, range(START, START + 40 * S, 100 * MS), lambda *_: WAITING, WORKER + 1)
    return run


def test_the_top_line_is_of_the_last_twenty_seconds(run: Path) -> None:
    workers, training = at(run, 40).code
    assert (training.whose, training.line, training.code) == ("training", 24, "for images, labels in loader:")
    assert training.share_pct == pytest.approx(100, abs=0.3)
    assert training.looks == pytest.approx(400, abs=5)
    assert (workers.whose, workers.line, workers.calls) == ("workers", 27, "ZipFile._RealGetContents")
    # Three of four looks at one of two workers: the other's waiting counts as time.
    assert workers.share_pct == pytest.approx(37.5, abs=0.5)


def test_looks_that_failed_count_for_no_line_and_a_line_seen_a_few_times_is_none(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", step=steps(400))
    look(run, range(START, START + 10 * S, 100 * MS), lambda n, _: FORWARD if n % 2 else None)
    (training,) = at(run, 10).code
    assert (training.looks, training.share_pct) == (50, 100)
    few = recorded(tmp_path / "few", step=steps(400))
    look(few, [START + 9 * S + n * MS for n in range(4)], lambda *_: FORWARD)
    assert at(few, 10).code == ()


def test_a_program_is_shown_while_it_starts(tmp_path: Path) -> None:
    create_run(tmp_path / "run", {})
    describe_process(tmp_path / "run", 0, WORKER, {})
    loading = (Call("<module>", "/home/me/train.py", 3, "index = build_index(root)"),)
    look(tmp_path / "run", range(START, START + 5 * S, 100 * MS), lambda *_: loading, WORKER)
    view = at(tmp_path / "run", 5)
    assert view.state == "starting"
    (training,) = view.code
    assert (training.whose, training.code) == ("training", "index = build_index(root)")


def test_a_follower_knows_a_stack_once_all_of_it_is_there(tmp_path: Path) -> None:
    names = StackNames(tmp_path / "whole")
    (tmp_path / "whole").mkdir()
    number = names.number(OPENING)
    lines = (tmp_path / "whole" / STACKS).read_bytes().splitlines(keepends=True)
    follower = StackFollower(tmp_path)
    follower.look()
    assert follower.table.stack(number) == ()
    (tmp_path / STACKS).write_bytes(b"".join(lines[-3:]) + lines[0][:20])
    follower.look()
    assert len(follower.table.stack(number)) == 3
    with (tmp_path / STACKS).open("ab") as file:
        file.write(lines[0][20:] + b"".join(lines[1:-3]))
    follower.look()
    assert follower.table.stack(number) == OPENING


def test_a_follower_that_comes_late_reads_a_part_at_a_time(tmp_path: Path) -> None:
    names = StackNames(tmp_path)
    for place in range(60):
        names.number([Call(f"f{place}_{depth}", "/home/me/deep.py", depth, "x" * 250) for depth in range(40)])
    size = (tmp_path / STACKS).stat().st_size
    assert size > 2 * MOST_AT_A_LOOK
    follower = StackFollower(tmp_path)
    counts = []
    for _ in range(size // MOST_AT_A_LOOK + 2):
        follower.look()
        counts.append(len(follower.table))
    assert 0 < counts[0] < counts[1] < counts[-1] == 60 * 40


def test_the_verdict_of_the_last_seconds_names_the_line_that_the_report_names(tmp_path: Path) -> None:
    """Workers open an archive for each sample."""
    with_stacks(tmp_path)
    whole = analysis_of_run(tmp_path / "run").verdict
    live = RecentReader(tmp_path / "run").snapshot().verdict
    assert live is not None
    assert live.cause == whole.cause
    one, other = live.where[0], whole.where[0]
    assert (one.file, one.line, one.time) == (other.file, other.line, other.time)
    assert live.next[0].kind == whole.next[0].kind == "once"
