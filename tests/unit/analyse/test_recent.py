"""The live view's look at a run that is being recorded: its last seconds, and what is known besides them."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whyidle
from golden.recordings import RECORDINGS
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
    training,
)
from whyidle.analyse import recent
from whyidle.analyse.ranks import figures as of_job
from whyidle.analyse.recent import ONCE_TOLD, RECENT_NS, RecentReader, Series, per_second, rate_since
from whyidle.analyse.run.analysis import analyse
from whyidle.capture.active import recorded as recording
from whyidle.devices.emulated import EmulatedDevice, EmulatedSpec, VirtualClock
from whyidle.errors import RecordError
from whyidle.record import segment
from whyidle.record.reader import RecordFile
from whyidle.record.run import SampledDevice, create_run, describe_process, note_devices, open_run, update_run
from whyidle.record.schema import EVENT, HEADER_BYTES, NOT_MEASURED, STEP, EventKind
from whyidle.record.segment import RecordWriter
from whyidle.record.stacks import MOST_AT_A_LOOK, STACKS, Call, StackNames, StackTable
from whyidle.report import live
from whyidle.scenarios.planted import START as PLANTED_START
from whyidle.scenarios.training import EmulatedNet, EmulatedOptimizer


def cut(folder: Path, to: Path) -> Path:
    """The recording as if all but its last ten seconds, and five steps before them, had not been stored."""
    shutil.copytree(folder, to)
    begins = {}
    for path in sorted(to.glob("*.rec"), key=lambda path: not path.name.startswith("step-")):
        file = RecordFile(path)
        rows, kind, writer = np.array(file.all()), file.kind.name, (file.rank, file.pid)
        if kind == "step":
            rows = rows[max(0, int((rows["fetch_begin_ns"] < rows["step_end_ns"][-1] - RECENT_NS).sum()) - 5) :]
            begins[writer] = int(rows["fetch_begin_ns"][0])
        elif kind == "batch":
            rows = rows[rows["end_ns"] >= begins[writer] - RECENT_NS]
        elif kind == "pause":
            rows = rows[rows["end_ns"] >= begins[writer]]
        elif kind == "event":
            rows = rows[(np.maximum(rows["t_ns"], rows["end_ns"]) >= begins[writer]) | np.isin(rows["what"], ONCE_TOLD)]
        rows["seq"] = np.arange(1, len(rows) + 1)
        path.write_bytes(path.read_bytes()[:HEADER_BYTES] + rows.tobytes())
    return to


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_said_is_what_a_report_of_the_last_seconds_says(tmp_path: Path, seed: int, ranks: int) -> None:
    folder = training(tmp_path / "run", seed, 45)
    for path in folder.glob("*-1-*") if ranks == 1 else ():
        if "-1-1." not in path.name:
            path.unlink()
    view = RecentReader(folder).snapshot()
    report = analysis_of_run(cut(folder, tmp_path / "cut"))
    whole = analysis_of_run(folder)
    assert view.verdict is not None
    assert (view.ranks, view.rank_views != ()) == (ranks, ranks > 1)
    for name in ("cause", "title", "share", "confidence", "evidence", "severity"):
        assert getattr(view.verdict, name) == getattr(report.verdict, name)
    facts = report.facts
    assert view.shares == of_job.shares(report)
    assert view.samples_per_s == (facts if report.job is None else report.job).samples_per_s
    assert (view.queue_ready, view.worker_busy_pct) == (facts.loader.queue_ready_mean, facts.loader.worker_busy_pct)
    for one, other in zip(view.rank_views, report.ranks, strict=True):
        figures = other.analysis.facts
        assert (one.rank, one.samples_per_s, one.shares) == (other.rank, figures.samples_per_s, figures.shares)
    assert view.samples_per_s < 0.95 * (whole.facts if whole.job is None else whole.job).samples_per_s or ranks == 1


def test_shares_while_recording_are_those_of_the_finished_run(tmp_path: Path) -> None:
    """Steps are stored before the device has passed them: the view must not take that for idling."""
    clock = VirtualClock(PLANTED_START)
    device = EmulatedDevice(EmulatedSpec("test", "Test", 10**9, 10e9, 5e9), clock)
    folder = create_run(tmp_path / "run", {"device": device.describe(), "plan": {"steps": 80}})
    source = RecentReader(folder, judge_s=0)
    assert source.snapshot().state == "starting"
    net = EmulatedNet()
    optimizer = EmulatedOptimizer(net)

    def made() -> Iterator[int]:
        for number in range(80):
            clock.advance(15 * MS)
            yield number

    seen = []
    with recording(folder, device):
        for _ in whyidle.watch(made(), batch_size=8):
            net(partial(device.compute, 10 * MS), lambda: None).backward()
            optimizer.step(lambda: None)
            for writer in list(segment._alone):
                writer.flush()
            view = source.snapshot()
            if view.steps >= 30:
                seen.append((view.shares["compute"], view.shares["input"]))
        assert len(seen) == 50
        for compute, waiting in seen:
            assert (compute, waiting) == pytest.approx((2 / 3, 1 / 3), abs=0.03)
        device.synchronize()
    update_run(folder, {"ended": {"status": "ok"}})
    view = source.snapshot()
    assert (view.state, view.steps, view.planned_steps, view.left_s, view.batch_size) == ("ok", 80, 80, None, 8)
    # Nothing is known of how these batches are made.
    assert view.verdict is not None
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
    # The machine was started anew since: the number may be another process's, but the clock began at 0.
    alive = recorded(tmp_path / "alive", ON_GPUS, step=steps(100))
    assert RecentReader(alive, lambda: START + 3 * S).snapshot().state == "running"
    assert RecentReader(alive, lambda: 60 * S).snapshot().state == "lost"


def test_files_come_later_and_torn_the_end_is_seen_at_once_and_a_folder_may_go(tmp_path: Path) -> None:
    folder, now = create_run(tmp_path / "run", ON_GPUS), [START]
    source = RecentReader(folder, lambda: now[0])
    assert source.snapshot().state == "starting"
    whole = store(folder, STEP, steps(100, 5)).read_bytes()
    path = next(folder.glob("step-*"))
    for kept, told in ((whole[:1000], ("starting", 0)), (whole[:-100], ("running", 99))):
        path.write_bytes(kept)
        now[0] += 60 * S
        view = source.snapshot()
        assert (view.state, view.steps) == told
    assert source.snapshot() is view
    update_run(folder, {"ended": {"status": "failed"}})
    assert source.snapshot().state == "failed"
    shutil.rmtree(folder)
    with pytest.raises(RecordError, match=r"run is gone: the run's folder was removed or moved"):
        source.snapshot()


def test_settings_told_long_ago_and_deaths_still_count_however_the_file_grew(tmp_path: Path) -> None:
    told = [{"t_ns": START, "what": EventKind.LOADER_WORKERS, "value": 2}]
    told += [{"t_ns": START + n * MS, "what": what} for n, what in ((1, 32), (2, 33))]
    told += [{"t_ns": START + n * MS, "what": EventKind.GARBAGE, "end_ns": START + n * MS + 1} for n in range(3, 9000)]
    told += [{"t_ns": START + 15 * S, "what": EventKind.LOADER_WORKERS, "value": 0}]
    folder = recorded(tmp_path / "run", step=steps(900, 30))
    writer, seen = RecordWriter(folder, EVENT), []
    source = RecentReader(folder, lambda: START + 45 * S, judge_s=0)
    for number, body in enumerate(rows_of(EVENT, told)):
        writer.append(*body)
        if number < 3 or number >= len(told) - 2:
            writer.flush()
            view = source.snapshot()
            seen.append((view.made_in_training, len(view.deaths)))
    assert (seen[:3], seen[-2:]) == ([(False, 0), (False, 0), (False, 1)], [(False, 1), (True, 1)])
    writer.close()


def test_a_run_of_another_machine_is_looked_at_by_its_own_clock(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", ON_GPUS | {"host": {"name": "elsewhere", "cpus": 4}}, step=steps(400, 5))
    view = RecentReader(folder, lambda: START + 10**6 * S).snapshot()
    assert (view.state, view.quiet_s, view.elapsed_s) == ("running", 0, pytest.approx(10))


def test_the_same_cause_is_counted_from_when_it_was_first_seen(tmp_path: Path) -> None:
    now, folder = [START + 30 * S], recorded(tmp_path / "run", ON_GPUS, step=steps(900, [20.0] * 500 + [0.0] * 400))
    source, seen = RecentReader(folder, lambda: now[0]), []
    for _ in range(3):
        view = source.snapshot()
        seen.append((view.verdict_since_s, view.quiet_s))
        now[0] += 20 * S
    assert [since for since, _ in seen] == [0, 20, 40]


LOADING = (Call("<module>", "/home/me/train.py", 3, "index = build_index(root)"),)


def test_the_top_lines_of_code_are_of_the_last_thirty_seconds(tmp_path: Path) -> None:
    """A training computes for 20 s, then waits for 30; one worker opens archives, the other has no order."""
    run = recorded(tmp_path / "run", step=steps(2000))
    later = START + 20 * S
    look(run, range(START, START + 50 * S, 50 * MS), lambda _, when: FETCHING if when > later else FORWARD)
    look(run, range(START, START + 50 * S, 100 * MS), lambda n, _: OPENING if n % 4 else DECODING, WORKER)
    look(run, range(START, START + 50 * S, 100 * MS), lambda *_: WAITING, WORKER + 1)
    workers, trains = at(run, 50).code
    assert (trains.time, trains.line, trains.code) == ("training", 24, "for images, labels in loader:")
    assert (trains.share, trains.samples) == (pytest.approx(1, abs=0.003), pytest.approx(600, abs=5))
    assert (workers.time, workers.line, workers.calls) == ("workers", 27, "ZipFile._RealGetContents")
    # Three of four samples of one of two workers: the other's waiting counts as time.
    assert workers.share == pytest.approx(0.375, abs=0.005)
    half = recorded(tmp_path / "half", step=steps(400))
    look(half, range(START, START + 10 * S, 100 * MS), lambda n, _: FORWARD if n % 2 else None)
    assert [(each.samples, each.share) for each in at(half, 10).code] == [(50, 1)]
    few = recorded(tmp_path / "few", step=steps(400))
    look(few, [START + 9 * S + n * MS for n in range(4)], lambda *_: FORWARD)
    assert at(few, 10).code == ()
    starts = create_run(tmp_path / "starts", {})
    describe_process(starts, 0, WORKER, {})
    look(starts, range(START, START + 5 * S, 100 * MS), lambda *_: LOADING, WORKER)
    view = at(starts, 5)
    assert (view.state, [each.code for each in view.code]) == ("starting", ["index = build_index(root)"])


@pytest.mark.parametrize("name", ["starting", "storage", "wasted", "transforms", "sampler", "on-cpu", "with-stacks"])
def test_of_a_young_run_all_counts(tmp_path: Path, name: str) -> None:
    """Startup, what batches consist of, transforms, lines of code."""
    RECORDINGS[name].build(tmp_path)
    view, report = RecentReader(tmp_path / "run").snapshot(), analyse(open_run(tmp_path / "run"), briefly=True)
    assert view.verdict == report.verdict
    assert view.shares == report.facts.shares


def test_a_follower_knows_a_stack_once_all_of_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    number = StackNames(tmp_path / "whole").number(OPENING)
    lines = (tmp_path / "whole" / STACKS).read_bytes().splitlines(keepends=True)
    follower = StackTable(tmp_path)
    follower.look()
    assert follower.stack(number) == ()
    (tmp_path / STACKS).write_bytes(b"".join(lines[-3:]) + lines[0][:20])
    follower.look()
    assert len(follower.stack(number)) == 3
    with (tmp_path / STACKS).open("ab") as file:
        file.write(lines[0][20:] + b"".join(lines[1:-3]))
    follower.look()
    assert follower.stack(number) == OPENING


def test_a_follower_that_comes_late_reads_a_part_at_a_time(tmp_path: Path) -> None:
    names = StackNames(tmp_path)
    for place in range(60):
        names.number([Call(f"f{place}_{depth}", "/home/me/deep.py", depth, "x" * 250) for depth in range(40)])
    size = (tmp_path / STACKS).stat().st_size
    assert size > 2 * MOST_AT_A_LOOK
    follower = StackTable(tmp_path)
    counts = []
    for _ in range(size // MOST_AT_A_LOOK + 2):
        follower.look()
        counts.append(len(follower))
    assert 0 < counts[0] < counts[1] < counts[-1] == 60 * 40


def last(series: Series, count: int) -> list[float]:
    return [round(value, 6) for value in series[-count:]]


def test_devices_show_their_last_seconds_and_their_state(tmp_path: Path) -> None:
    gpm = [{"t_ns": START + n * S // 5, "device": 1, "window_ns": S // 5, "sm_active_pct": 30.0} for n in range(1, 51)]
    state = {
        "memory_used_bytes": 2 * 10**9,
        "memory_total_bytes": 8 * 10**9,
        "power_mw": (100_000, 1000),
        "sm_clock_mhz": 1200,
        "sm_clock_max_mhz": 1980,
        "temperature_c": 61,
        "pcie_rx_bytes": (0, 10**9),
        "pcie_tx_bytes": (10**12, 10**6),
    }
    rows = [*ring(0, 10, 25.0), *ring(1, 10, 75.0), *gpm, *states(1, 10, **state, throttle_reasons=0x4)]
    folder = recorded(tmp_path / "run", device=rows)
    one, other = at(folder, 10.5).devices
    assert (one.name, one.number, one.emulated, other.number) == ("GPU 0", 0, False, 1)
    assert len(one.busy_pct) == len(other.busy_pct) == 120
    assert math.isnan(one.busy_pct[0])
    assert (last(one.busy_pct, 3), last(other.busy_pct, 3), last(other.sm_active_pct, 2)) == (
        [25] * 3,
        [75] * 3,
        [30] * 2,
    )
    measured = {name: value for name, value in vars(one).items() if value not in (None, ())}
    assert measured.keys() == {"number", "name", "emulated", "busy_pct"}
    told = {name: getattr(other, name) for name in state if hasattr(other, name)}
    assert told == {name: value for name, value in state.items() if name in told}
    assert (other.power_w, other.pcie_rx_bytes_s, other.pcie_tx_bytes_s) == (110, 1e9, 1e6)
    assert other.held_down == "power cap"
    # What was read long ago is no figure of now; how large the memory is stays so.
    aged = at(folder, 50).devices[1]
    assert (aged.temperature_c, aged.memory_used_bytes, aged.memory_total_bytes) == (None, None, 8 * 10**9)


@pytest.mark.parametrize(
    ("reasons", "said"),
    [(0, None), (0x1, None), (0x1 | 0x4, None), (0x20, "heat"), (0x4 | 0x40, "heat"), (0x8, "hardware slowdown")],
)
def test_why_clocks_are_held_down_is_said_unless_the_device_idles(
    tmp_path: Path, reasons: int, said: str | None
) -> None:
    rows = states(0, 3, throttle_reasons=0x4) + states(0, 1, START + 3 * S, throttle_reasons=reasons)
    assert at(recorded(tmp_path / "run", device=rows), 5).devices[0].held_down == said


def named(kind: str) -> dict[str, Any]:
    return {"device": {"kind": kind, "title": "a device", "count": 1, "uuids": []}}


@pytest.mark.parametrize(
    ("info", "rings", "noted", "told"),
    [
        (named("emulated"), 1, [("NVIDIA Other", 1000)], [("a device", None)]),
        (named("cuda"), 1, [], [("a device", None)]),
        (named("cuda"), 1, [("NVIDIA Other", 1000)], [("NVIDIA Other", 1.0)]),
        (named("cuda") | {"attach": {"pid": 1}}, 1, [], [("GPU 0", None)]),
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
    assert view.state == ("watching" if "attach" in info else "starting")
    assert [(device.name, device.power_limit_w) for device in view.devices] == told
    assert {device.emulated for device in view.devices} == {info.get("device", {}).get("kind") == "emulated"}


def test_workers_show_what_they_did_lately_under_their_numbers(tmp_path: Path) -> None:
    of = steps(800, 5, per_epoch=400)  # 25 ms each: 20 s, in two epochs
    made = batches(of, workers=2, making_ms=30)
    for row in made[::2]:
        row |= {"skipped": 1, "skipped_samples": 32, "skipped_ns": 10 * MS}
    made = [row for row in made if not (row["worker"] == 1 and row["end_ns"] > START + 17 * S)]
    validation = [row | {"loader": 99, "worker": 5} for row in made[500:510]]
    folder = recorded(tmp_path / "run", step=of)
    for slot, epoch in enumerate((1, 2)):
        path = store(folder, BATCH, [row for row in made + validation if row["loader"] in (epoch, 99)])
        path.rename(path.with_name(f"{path.stem}.w{slot}.rec"))
    view = at(folder, 20)
    one, other = view.makers
    assert (view.made_in_training, view.epoch, one.number, other.number) == (False, 1, 0, 1)
    # A batch each 50 ms: 30 ms for it, and 10 ms for one that was let pass.
    assert one.busy_pct == pytest.approx(80, abs=1)
    assert (one.batch_ms, other.batch_ms) == (30, 30)
    assert (one.reading_pct, one.queued_pct) == pytest.approx((25, 10), abs=0.1)
    assert (one.quiet_s, other.quiet_s) == (pytest.approx(0.115, abs=0.03), pytest.approx(3, abs=0.1))


def test_batches_made_in_the_training_are_no_workers(tmp_path: Path) -> None:
    of = steps(400, 30, begin=START)
    told = [{"t_ns": START, "what": EventKind.LOADER_WORKERS, "value": 0}]
    made = batches(of, workers=1, making_ms=29, ahead_ms=0)
    view = at(recorded(tmp_path / "run", step=of, batch=made, event=told), 20)
    assert (view.made_in_training, view.makers, view.workers, view.worker_busy_pct) == (True, (), 0, None)


def test_the_host_shows_rates_of_the_last_seconds_and_what_was_not_measured_is_nothing(tmp_path: Path) -> None:
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
    assert (host.tree_cpus, host.throttled_pct) == pytest.approx((2.5, 10))
    assert (host.cpu_budget, host.steal_pct, host.iowait_pct, host.machine_busy_pct) == (4.0, 2.0, 5.0, 60.0)
    assert (host.read_bytes_s, host.storage_bytes_s) == pytest.approx((5e8, 5e7))
    assert (host.memory_used_bytes, host.memory_available_bytes) == (3 * 10**9, 10**11)
    assert (host.shm_used_bytes, host.shm_total_bytes) == (10**8, 10**9)
    # A sampler that was given no job tells of the machine alone.
    watched = at(recorded(tmp_path / "watched", {"watching": True}, host=rows), 20)
    assert (watched.state, watched.host.machine_busy_pct) == ("watching", 60.0)
    assert {watched.host.tree_cpus, watched.host.memory_used_bytes, watched.host.read_bytes_s} == {None}
    nothing = at(recorded(tmp_path / "nothing", host=[{"t_ns": START + S}, {"t_ns": START + 2 * S}]), 2).host
    assert set(vars(nothing).values()) == {None}


def test_progress_and_throughput_of_each_second(tmp_path: Path) -> None:
    of = steps(1600, [5.0] * 1200 + [30.0] * 400, per_epoch=500)  # 40 steps of 32 samples a second, then 20
    folder = recorded(tmp_path / "run", ON_GPUS | {"plan": {"steps": 2000}}, step=of)
    view = at(folder, 50)
    assert (view.steps, view.epoch, view.planned_steps, view.elapsed_s) == (1600, 3, 2000, 50)
    assert view.left_s == pytest.approx(400 / 20, rel=0.02)
    assert len(view.rates) == 49
    assert (view.rates[-1], view.rates[0]) == pytest.approx((640, 1280), rel=0.05)
    assert (view.samples_per_s, view.steps_per_s) == pytest.approx((640, 20), rel=0.03)
    assert at(folder, 84).quiet_s == pytest.approx(34)
    early = at(recorded(tmp_path / "early", step=steps(20, 5)), 1)
    assert (early.state, early.steps, early.left_s, early.verdict and early.verdict.cause) == (
        "running",
        20,
        None,
        None,
    )


def test_every_rank_is_shown_by_its_process_that_trained_last(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", step=steps(400, 5))
    store(folder, STEP, steps(390, 15), 1, os.getpid())
    store(folder, STEP, steps(3, 15), 1, os.getpid() + 10_000_000)
    describe_process(folder, 1, os.getpid(), {"device": ON_GPUS["device"]})
    view = at(folder, 14)
    assert view.ranks == 2
    one, other = view.rank_views
    assert (one.rank, one.steps, other.rank, other.steps) == (0, 400, 1, 390)
    assert (one.samples_per_s, other.samples_per_s) == pytest.approx((1280, 32 / 0.035))
    assert other.shares["input"] > one.shares["input"]


def test_of_very_many_ranks_some_from_all_over_the_job_are_analysed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recorded(tmp_path / "run", step=steps(400, 5))
    for number in range(1, 5):
        store(folder, STEP, steps(400, 5), number, os.getpid() + 10_000_000 * number)
    monkeypatch.setattr(recent, "MOST_RANKS", 2)
    view = at(folder, 10)
    assert (view.ranks, [each.rank for each in view.rank_views]) == (5, [0, 3])
    assert "on 2 of 5 ranks" in live.line(view)


def test_means_of_a_second_are_of_what_came_in_it_and_gaps_stay() -> None:
    times = np.array([0.2, 0.9, 1.5, 4.4]) * S + 10**6 * S
    series = per_second(times.astype(np.int64), np.array([10.0, 30.0, np.nan, 50.0]), round(10**6 * S + 5.5 * S))
    assert last(series, 4)[-1] == 50
    assert [math.isnan(value) for value in series[-5:]] == [False, True, True, True, False]
    assert series[-5] == 20
    # A driver may tell a few seconds late.
    assert last(per_second(times.astype(np.int64), np.array([1.0] * 4), round(10**6 * S + 7.5 * S)), 1) == [1]
    assert math.isnan(per_second(times.astype(np.int64), np.array([1.0] * 4), round(10**6 * S + 20 * S))[-1])
    assert per_second(times.astype(np.int64), np.array([np.nan] * 4), 10**16) == ()


def test_a_counter_that_was_reset_has_no_rate() -> None:
    times, counter = np.arange(6) * S, np.array([100, 200, 50, NOT_MEASURED, 450, 500])
    assert [rate_since(times, counter, since * S) for since in (0, 2, 5)] == [None, 150, None]
