"""The live view's look at a run that is being recorded: its files, lines of code, devices, workers and series."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import whyidle
from golden.singles import with_stacks
from support.crafted import analysis_of_run, rows_of
from support.planted_stacks import DECODING, FETCHING, FORWARD, OPENING, WAITING, WORKER, look
from support.recent_runs import (
    BATCH,
    MS,
    ON_GPUS,
    START,
    S,
    at,
    batches,
    looks,
    recorded,
    ring,
    states,
    steps,
    store,
)
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.recent import gathered
from whyidle.analyse.recent.judged import HOLD_NS, Steady
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.recent.series import grid, held, means, rate_since, rates, sums
from whyidle.analyse.recent.snapshot import Series
from whyidle.analyse.recent.tail import Tail
from whyidle.capture.active import recorded as recording
from whyidle.devices.clock import VirtualClock
from whyidle.devices.emulated import EmulatedDevice, EmulatedSpec
from whyidle.errors import RecordError
from whyidle.record import segment
from whyidle.record.run import SampledDevice, create_run, describe_process, note_devices, open_run, update_run
from whyidle.record.schema import NOT_MEASURED, STEP, EventKind
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
            for writer in list(segment._alone):
                writer.flush()
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
    """A training that computes for 20 s, then waits for 30; one worker opens archives, the other has no order."""
    run = recorded(tmp_path / "run", step=steps(2000))
    later = START + 20 * S
    look(run, range(START, START + 50 * S, 50 * MS), lambda _, when: FETCHING if when > later else FORWARD)
    look(run, range(START, START + 50 * S, 100 * MS), lambda n, _: OPENING if n % 4 else DECODING, WORKER)
    look(run, range(START, START + 50 * S, 100 * MS), lambda *_: WAITING, WORKER + 1)
    return run


def test_the_top_line_is_of_the_last_thirty_seconds(run: Path) -> None:
    workers, training = at(run, 50).code
    assert (training.whose, training.line, training.code) == ("training", 24, "for images, labels in loader:")
    assert training.share_pct == pytest.approx(100, abs=0.3)
    assert training.looks == pytest.approx(600, abs=5)
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


def named(kind: str) -> dict[str, Any]:
    return {"device": {"kind": kind, "title": "a device", "count": 1, "uuids": []}}


def last(series: Series, count: int) -> list[float]:
    return [round(value, 6) for value in series[-count:]]


def test_every_device_is_shown_on_one_grid(tmp_path: Path) -> None:
    gpm = [{"t_ns": START + n * S // 5, "device": 1, "window_ns": S // 5, "sm_active_pct": 30.0} for n in range(1, 51)]
    state = {
        "memory_used_bytes": 2 * 10**9,
        "memory_total_bytes": 8 * 10**9,
        "power_mw": (100_000, 1000),
        "sm_clock_mhz": 1200,
        "sm_clock_max_mhz": 1980,
        "memory_clock_mhz": 2600,
        "temperature_c": 61,
        "pcie_rx_bytes": (0, 10**9),
        "pcie_tx_bytes": (10**12, 10**6),
        "pcie_generation": 4,
        "pcie_width": 8,
        "pcie_max_generation": 5,
        "pcie_max_width": 16,
    }
    rows = [*ring(0, 10, 25.0), *ring(1, 10, 75.0), *gpm, *states(1, 10, **state, throttle_reasons=0x4)]
    view = at(recorded(tmp_path / "run", device=rows), 10.5)
    one, other = view.devices
    assert (one.name, one.number, one.emulated, other.number) == ("GPU 0", 0, False, 1)
    assert len(one.busy_pct) == len(other.busy_pct) == len(other.power_w) == 240
    assert last(one.busy_pct, 3) == [25, 25, 25]
    assert math.isnan(one.busy_pct[0])
    assert one.sm_active_pct == one.memory_pct == one.power_w == one.pcie_rx_bytes_s == ()
    assert (one.memory_used_bytes, one.temperature_c, one.held_down) == (None, None, None)
    assert last(other.busy_pct, 2) == [75, 75]
    assert last(other.sm_active_pct, 2) == [30, 30]
    assert last(other.memory_pct, 2) == [25, 25]
    assert last(other.power_w, 2) == [108, 109]  # each reading stands for the second before it
    assert last(other.pcie_rx_bytes_s, 2) == [1e9, 1e9]
    assert last(other.pcie_tx_bytes_s, 2) == [1e6, 1e6]
    assert (other.sm_clock_mhz, other.sm_clock_max_mhz, other.memory_clock_mhz) == (1200, 1980, 2600)
    assert (other.temperature_c, other.held_down) == (61, "power cap")
    assert (other.pcie_generation, other.pcie_width, other.pcie_max_generation, other.pcie_max_width) == (4, 8, 5, 16)


@pytest.mark.parametrize(
    ("reasons", "said"),
    [(0, None), (0x1, None), (0x1 | 0x4, None), (0x20, "heat"), (0x4 | 0x40, "heat"), (0x8, "hardware slowdown")],
)
def test_why_clocks_are_held_down_is_said_unless_the_device_idles(
    tmp_path: Path, reasons: int, said: str | None
) -> None:
    rows = states(0, 3, throttle_reasons=0x4) + states(0, 1, START + 3 * S, throttle_reasons=reasons)
    assert at(recorded(tmp_path / "run", device=rows), 5).devices[0].held_down == said


@pytest.mark.parametrize(
    ("info", "rings", "noted", "told"),
    [
        (named("emulated"), 1, [("NVIDIA Other", 1000)], [("a device", None)]),
        (named("cuda"), 1, [], [("a device", None)]),
        (named("cuda"), 1, [("NVIDIA Other", 1000)], [("NVIDIA Other", 1.0)]),
        ({}, 2, [], [("GPU 0", None), ("GPU 1", None)]),
        ({}, 2, [("NVIDIA H200\x1b", 700_000), (None, None)], [("NVIDIA H200?", 700.0), ("GPU 1", None)]),
    ],
)
def test_devices_are_called_what_the_run_or_the_driver_calls_them(
    tmp_path: Path,
    info: Any,
    rings: int,
    noted: list[tuple[str | None, int | None]],
    told: list[tuple[str, float | None]],
) -> None:
    rows = (row for device in range(rings) for row in ring(device, 3, 10.0))
    folder = recorded(tmp_path / "run", info, device=sorted(rows, key=lambda row: row["t_ns"]))
    if noted:
        note_devices(folder, [SampledDevice(number, *each) for number, each in enumerate(noted)])
    view = at(folder, 3)
    assert [(device.name, device.power_limit_w) for device in view.devices] == told
    assert {device.emulated for device in view.devices} == {info.get("device", {}).get("kind") == "emulated"}


def test_workers_show_what_they_did_lately(tmp_path: Path) -> None:
    of = steps(800, 5)  # 25 ms each: 20 s
    made = batches(of, workers=2, making_ms=30)
    for row in made[::2]:
        row |= {"skipped": 1, "skipped_samples": 32, "skipped_ns": 10 * MS}
    made = [row for row in made if not (row["worker"] == 1 and row["end_ns"] > START + 17 * S)]
    view = at(recorded(tmp_path / "run", step=of, batch=made), 20)
    one, other = view.makers
    assert view.made_in_training is False
    # A batch each 50 ms: 30 ms for it, and 10 ms for one that was let pass.
    assert one.busy_pct == pytest.approx(80, abs=0.5)
    assert other.busy_pct == pytest.approx(60, abs=0.5)
    assert (one.batch_ms, other.batch_ms) == (30, 30)
    assert one.reading_pct == pytest.approx(25)
    assert one.queued_pct == pytest.approx(10)
    assert one.quiet_s == pytest.approx(0.115, abs=0.03)
    assert other.quiet_s == pytest.approx(3, abs=0.1)
    assert len(one.history) == 60
    assert last(one.history, 1)[0] == pytest.approx(80, abs=1)
    assert math.isnan(other.history[-1])


def test_workers_of_a_new_epoch_go_on_under_their_numbers_and_a_validations_are_left_out(tmp_path: Path) -> None:
    of = steps(800, 5, per_epoch=400)
    made = batches(of, workers=2, making_ms=30)
    validation = [row | {"loader": 99, "worker": 5} for row in made[500:510]]
    folder = recorded(tmp_path / "run", step=of)
    for slot, epoch in enumerate((1, 2)):
        path = store(folder, BATCH, [row for row in made + validation if row["loader"] in (epoch, 99)])
        path.rename(path.with_name(f"{path.stem}.w{slot}.rec"))
    view = at(folder, 20)
    assert [maker.number for maker in view.makers] == [0, 1]
    assert view.epoch == 1
    assert last(view.makers[0].history[:-1], 15) == pytest.approx([60] * 15, abs=5)


def test_batches_made_in_the_training_are_no_workers(tmp_path: Path) -> None:
    of = steps(400, 30, begin=START)
    made = batches(of, workers=1, making_ms=29, ahead_ms=0)
    told = [{"t_ns": START, "what": EventKind.LOADER_WORKERS, "value": 0}]
    view = at(recorded(tmp_path / "run", step=of, batch=made, event=told), 20)
    assert (view.made_in_training, view.makers) == (True, ())
    assert (view.workers, view.worker_busy_pct) == (0, None)


def test_the_host_shows_rates_of_the_last_seconds(tmp_path: Path) -> None:
    rows = looks(
        20,
        tree_cpu_ns=(10**15, 500 * MS),
        steal_pct=2.0,
        machine_busy_pct=60.0,
        machine_iowait_pct=5.0,
        read_chars_bytes=(0, 10**8),
        read_storage_bytes=(0, 10**7),
        throttled_us=(10**9, 20_000),
        tree_pss_bytes=3 * 10**9,
        tree_rss_bytes=9 * 10**9,
        memory_available_bytes=10**11,
        shm_used_bytes=10**8,
        shm_total_bytes=10**9,
    )
    host = at(recorded(tmp_path / "run", host=rows), 20).host
    assert host.tree_cpus == pytest.approx(2.5)
    assert last(host.cpus, 2) == [2.5, 2.5]
    assert (host.cpu_budget, host.steal_pct, host.iowait_pct, host.machine_busy_pct) == (4.0, 2.0, 5.0, 60.0)
    assert (host.read_bytes_s, host.storage_bytes_s) == (pytest.approx(5e8), pytest.approx(5e7))
    assert host.throttled_pct == pytest.approx(10)
    assert (host.memory_used_bytes, host.memory_available_bytes) == (3 * 10**9, 10**11)
    assert (host.shm_used_bytes, host.shm_total_bytes, host.machine_cpus) == (10**8, 10**9, os.cpu_count())
    assert last(host.machine_busy, 2) == [60.0, 60.0]


def test_a_sampler_that_was_given_no_job_tells_of_the_machine_alone_and_what_was_not_measured_is_nothing(
    tmp_path: Path,
) -> None:
    rows = looks(20, tree_cpu_ns=(0, 2 * MS), machine_busy_pct=60.0, tree_pss_bytes=10**7, read_chars_bytes=(0, 10))
    host = at(recorded(tmp_path / "run", {"watching": True}, host=rows), 20).host
    assert (host.machine_busy_pct, last(host.machine_busy, 1)) == (60.0, [60.0])
    assert (host.tree_cpus, host.cpus, host.memory_used_bytes, host.read_bytes_s) == (None, (), None, None)
    nothing = at(recorded(tmp_path / "nothing", host=[{"t_ns": START + S}, {"t_ns": START + 2 * S}]), 2).host
    assert {value for name, value in vars(nothing).items() if name != "machine_cpus"} == {None, ()}


def test_throughput_of_each_second_and_its_trend(tmp_path: Path) -> None:
    of = steps(1600, [5.0] * 1200 + [30.0] * 400)  # 40 steps of 32 samples a second, then 20
    view = at(recorded(tmp_path / "run", step=of), 50)
    assert last(view.rates, 4) == pytest.approx([640] * 4)
    assert view.rates[0] == pytest.approx(1280)
    assert len(view.rates) == 50
    assert view.samples_per_s == pytest.approx(640)
    assert view.trend_pct == pytest.approx(-40, abs=1)  # 10 s at 640; before, 20 s at 1280 and 10 s at 640
    assert view.steps_per_s == pytest.approx(20)
    assert view.recent_s == pytest.approx(10, abs=0.1)
    early = at(recorded(tmp_path / "early", step=steps(400, 5)), 10)
    assert early.trend_pct is None


def test_an_epochs_progress_is_told_from_the_epoch_before(tmp_path: Path) -> None:
    first = at(recorded(tmp_path / "first", step=steps(90, 5, per_epoch=200)), 2.25)
    assert (first.epoch, first.epoch_done, first.epoch_steps, first.epoch_left_s) == (0, 90, None, None)
    view = at(recorded(tmp_path / "run", step=steps(450, 5, per_epoch=200)), 11.25)
    assert (view.epoch, view.epoch_done, view.epoch_steps, view.epoch_estimated) == (2, 50, 200, True)
    assert view.epoch_left_s == pytest.approx(150 * 0.025, rel=0.02)
    assert view.left_s is None
    longer = [row | {"epoch": min(row["epoch"], 1)} for row in steps(450, 5, per_epoch=200)]
    beyond = at(recorded(tmp_path / "longer", step=longer), 11.25)
    assert (beyond.epoch_done, beyond.epoch_steps, beyond.epoch_estimated) == (250, None, False)


def test_a_plan_is_known_from_the_first_step(tmp_path: Path) -> None:
    info = ON_GPUS | {"plan": {"steps": 400, "steps_per_epoch": 200}}
    view = at(recorded(tmp_path / "run", info, step=steps(100, 5, per_epoch=200)), 2.5)
    assert (view.planned_steps, view.epoch_steps, view.epoch_estimated) == (400, 200, False)
    assert view.left_s == pytest.approx(7.5, rel=0.02)
    assert view.epoch_left_s == pytest.approx(2.5, rel=0.02)


def test_every_rank_that_was_recorded_here_is_shown(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", step=steps(400, 5))
    store(folder, STEP, steps(390, 15), 1, os.getpid())
    store(folder, STEP, steps(3, 15), 1, os.getpid() + 10_000_000)  # a process of the same rank that gave up
    describe_process(folder, 1, os.getpid(), {"device": ON_GPUS["device"]})
    view = at(folder, 14)
    assert (view.rank, view.ranks) == (0, 2)
    one, other = view.rank_views
    assert (one.rank, one.steps, other.rank, other.steps) == (0, 400, 1, 390)
    assert one.samples_per_s == pytest.approx(1280)
    assert other.samples_per_s == pytest.approx(32 / 0.035)
    assert one.shares == view.shares
    assert other.shares["input"] > one.shares["input"]


def test_before_the_first_step_devices_and_host_are_shown(tmp_path: Path) -> None:
    rows = {"device": ring(0, 5, 50.0), "host": looks(5, tree_cpu_ns=(0, 200 * MS))}
    view = at(recorded(tmp_path / "run", **rows), 5)
    assert (view.state, view.steps, view.verdict, view.quiet_s) == ("starting", 0, None, None)
    assert last(view.devices[0].busy_pct, 1) == [50]
    assert view.host.tree_cpus == pytest.approx(1)
    attached = {"attach": {"pid": 1}, "device": {"kind": "cuda", "title": "GPU", "count": 1}}
    for number, info in enumerate(({"watching": True}, attached)):
        watched = at(recorded(tmp_path / f"watched-{number}", info, **rows), 5)
        assert watched.state == "watching"
        assert [device.name for device in watched.devices] == ["GPU 0"]


def test_a_pool_of_threads_works_as_long_as_its_stages_say(tmp_path: Path) -> None:
    of = steps(800, 5)
    stages = {"read_ns": 5 * MS, "decode_ns": 10 * MS, "transform_ns": 4 * MS, "collate_ns": MS}
    pool = {"threads": 2, "worker": 0} | stages
    made = [row | pool for row in batches(of, workers=1, making_ms=25)]
    view = at(recorded(tmp_path / "run", step=of, batch=made), 20)
    assert view.makers[0].busy_pct == pytest.approx(40)  # 20 ms of work in 25 ms of two threads
    assert view.makers[0].reading_pct == pytest.approx(10)


EDGES = np.arange(6, dtype=np.int64) * S


def stamps(*seconds: float) -> np.ndarray:
    return np.array([round(S * each) for each in seconds], dtype=np.int64)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 300), st.integers(0, 100)), min_size=1, max_size=30),
    st.integers(1, 900),
)
def test_means_are_those_of_counting_every_hundredth(spans: list[tuple[int, int, int]], length: int) -> None:
    edges = np.array([0, length, 2 * length, 1000 + 2 * length], dtype=np.int64)
    rows, at = [], 0
    for gap, lasts, value in spans:
        rows.append((at + gap, at + gap + lasts, value))
        at += gap + lasts
    begin, end, value = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    moments = np.arange(edges[-1]) + 0.5
    inside = (moments[:, None] > begin) & (moments[:, None] < end)
    for found, first, after in zip(means(begin, end, value.astype(float), edges), edges, edges[1:], strict=False):
        seen = inside[first:after]
        counted = (seen * value).sum() / seen.sum() if seen.any() else np.nan
        assert found == pytest.approx(counted, nan_ok=True, abs=1e-9)


def test_a_counter_that_was_reset_leaves_a_gap_and_never_a_negative_rate() -> None:
    times, counter = stamps(0, 1, 2, 3, 4, 5), np.array([100, 200, 50, NOT_MEASURED, 450, 500])
    assert rates(times, counter, EDGES) == pytest.approx([100, np.nan, 200, 200, 50], nan_ok=True)
    assert rate_since(times, counter, 0) is None
    assert rate_since(times, counter, 2 * S) == 150
    assert rate_since(times, counter, 5 * S) is None


def test_a_reading_stands_for_the_time_before_it_but_not_for_long() -> None:
    found = held(stamps(1, 2, 5), np.array([10, 30, 50]), EDGES)
    assert found == pytest.approx([10, 30, 50, 50, 50], nan_ok=True)
    found = held(stamps(1, 5), np.array([10, 50]), EDGES)
    assert found == pytest.approx([10, np.nan, 50, 50, 50], nan_ok=True)


def test_amounts_are_spread_over_the_time_they_came_in() -> None:
    assert sums(stamps(0.5, 2.0), stamps(1.5, 4.0), np.array([8.0, 6.0]), EDGES).tolist() == [4, 4, 3, 3, 0]


def test_the_grid_is_of_whole_seconds_that_are_over() -> None:
    assert grid(round(12.7 * S), S, 3).tolist() == [8 * S, 9 * S, 10 * S, 11 * S]


@given(st.lists(st.integers(0, 90), min_size=1, max_size=12), st.integers(1, 50))
def test_a_tail_holds_the_last_records_however_the_file_grew(
    tmp_path_factory: pytest.TempPathFactory, grown: list[int], limit: int
) -> None:
    writer = RecordWriter(tmp_path_factory.mktemp("tail"), STEP)
    tail = Tail(writer.path, limit)
    written = 0
    for more in grown:
        for _ in range(more):
            writer.append(*rows_of(STEP, [{"step": written}])[0])
            written += 1
        writer.flush()
        fresh = tail.look()
        assert fresh["step"].tolist() == list(range(written - min(more, limit), written))
        assert tail.records()["step"].tolist() == list(range(max(0, written - limit), written))
        assert tail.seen == written
    writer.close()


def test_late_fields_are_read_again_however_many_steps_came_since(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, STEP)
    handles = [writer.append(*rows_of(STEP, [{"step": number}])[0]) for number in range(50)]
    writer.flush()
    tail = Tail(writer.path, 500)
    tail.look()
    tail.refresh(10)
    handles += [writer.append(*rows_of(STEP, [{"step": number}])[0]) for number in range(50, 350)]
    writer.flush()
    tail.look()
    for handle in handles[40:]:
        writer.patch(handle, "device_end_ns", handle)
    writer.flush()
    tail.refresh(10)
    assert tail.records()["device_end_ns"].tolist() == [NOT_MEASURED] * 40 + handles[40:]
    writer.close()


@pytest.mark.parametrize("count", [0, 3, 2000])
def test_a_complete_file_is_held_as_it_is_and_asked_no_more_for_what_is_held(tmp_path: Path, count: int) -> None:
    """Small ones are read with their headers."""
    writer = RecordWriter(tmp_path, STEP)
    for number in range(count):
        writer.append(*rows_of(STEP, [{"step": number}])[0])
    writer.close()
    tail = Tail(writer.path, 500)
    held = range(max(0, count - 500), count)
    assert tail.look()["step"].tolist() == list(held)
    assert len(tail.look()) == 0
    tail.refresh(10)
    writer.path.unlink()
    assert tail.records()["step"].tolist() == list(held)
    assert [int(tail.at(number)["step"][0]) for number in held[::100]] == list(held[::100])
    assert len(tail.at(count)) == 0
    assert (len(tail.at(0)) == 0) is (0 not in held)
    assert tail.seen == count


def finding(cause: str | None, share: float) -> Finding:
    return Finding(cause, f"{cause} {share}", share, 0.9)


def judgement(*findings: Finding) -> SimpleNamespace:
    return SimpleNamespace(findings=findings, verdict=findings[0])


def test_a_verdict_does_not_flicker_between_causes_that_are_about_as_good() -> None:
    steady, shown = Steady(), []
    for second in range(20):
        one, other = finding("input.storage", 0.30), finding("input.straggler", 0.31 - 0.02 * (second % 2))
        best = sorted((one, other), key=lambda f: -f.share)
        shown.append(steady.told(judgement(*best), second * S))
    assert {(found.cause, since) for found, since in shown} == {("input.straggler", 0)}
    # Its figures are those of the moment.
    assert shown[1][0].share == 0.29


def test_a_better_cause_takes_over_after_a_while_and_counts_from_when_it_first_led() -> None:
    steady = Steady()
    steady.told(judgement(finding("input.storage", 0.30)), 0)
    told = []
    for second in range(1, 10):
        now = judgement(finding("host.sync", 0.50), finding("input.storage", 0.10))
        told.append(steady.told(now, second * S))
    assert [found.cause for found, _ in told] == ["input.storage"] * 5 + ["host.sync"] * 4
    assert {since for found, since in told if found.cause == "host.sync"} == {S}
    assert HOLD_NS == 5 * S


def test_no_verdict_gives_way_at_once() -> None:
    steady = Steady()
    steady.told(judgement(finding(None, 0.0)), 0)
    assert steady.told(judgement(finding("host.gc", 0.2)), S) == (finding("host.gc", 0.2), S)
