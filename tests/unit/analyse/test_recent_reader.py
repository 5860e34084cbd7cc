"""Looks at a run that goes on: files that come, go and are torn, and an end that is told meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from support.crafted import rows_of
from support.recent_runs import (
    MS,
    ON_GPUS,
    START,
    STEP,
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
from whyidle.errors import RecordError
from whyidle.record.run import create_run, open_run, update_run
from whyidle.record.schema import EventKind
from whyidle.record.segment import RecordWriter


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


def test_a_run_that_a_crash_of_the_machine_ended_is_lost(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", ON_GPUS, step=steps(100))
    assert RecentReader(folder, lambda: START + 3 * S).snapshot().state == "running"
    # This process has the number of the one that recorded, but the clock began anew.
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
    of = steps(400, 5)
    writer = RecordWriter(folder, STEP)
    rows = rows_of(STEP, of)
    for body in rows[:200]:
        writer.append(*body)
    writer.flush()
    reader = RecentReader(folder, lambda: now[0], judge_s=1.0)
    first = reader.snapshot()
    for body in rows[200:220]:
        writer.append(*body)
    writer.flush()
    now[0] += S // 2
    second = reader.snapshot()
    assert (first.steps, second.steps) == (200, 220)
    assert (first.elapsed_s, second.elapsed_s) == (5, 5.5)
    assert second.left_s == pytest.approx((1000 - 220) * 0.025, rel=0.02)
    assert second.quiet_s == 0
    assert second.verdict_since_s == 0.5
    assert second.shares is first.shares
    assert second.verdict is first.verdict
    for body in rows[220:]:
        writer.append(*body)
    writer.flush()
    now[0] = START + 15 * S
    third = reader.snapshot()
    assert third.steps == 400
    assert third.shares is not first.shares
    assert third.quiet_s == pytest.approx(5)
    assert third.verdict_since_s == pytest.approx(10)
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
