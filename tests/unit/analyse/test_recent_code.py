"""The live view's lines of code: where workers and training were in the last 20 s."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden.singles import with_stacks
from support.crafted import analysis_of_run
from support.planted_stacks import DECODING, FETCHING, FORWARD, OPENING, WAITING, WORKER, look
from support.recent_runs import MS, START, S, at, recorded, steps
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.where.looks import Looks, ProcessLooks, process_looks
from whyidle.record.run import create_run, describe_process
from whyidle.record.stacks import MOST_AT_A_LOOK, STACKS, Call, StackFollower, StackNames


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


def test_a_line_seen_a_few_times_is_none(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", step=steps(400))
    look(run, [START + 9 * S + n * MS for n in range(4)], lambda *_: FORWARD)
    assert at(run, 10).code == ()


def test_looks_that_failed_count_for_no_line(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", step=steps(400))
    look(run, range(START, START + 10 * S, 100 * MS), lambda n, _: FORWARD if n % 2 else None)
    (training,) = at(run, 10).code
    assert (training.looks, training.share_pct) == (50, 100)


def test_a_program_is_shown_while_it_starts(tmp_path: Path) -> None:
    create_run(tmp_path / "run", {})
    describe_process(tmp_path / "run", 0, WORKER, {})
    loading = (Call("<module>", "/home/me/train.py", 3, "index = build_index(root)"),)
    look(tmp_path / "run", range(START, START + 5 * S, 100 * MS), lambda *_: loading, WORKER)
    view = at(tmp_path / "run", 5)
    assert view.state == "starting"
    (training,) = view.code
    assert (training.whose, training.code) == ("training", "index = build_index(root)")


def test_without_looks_there_are_no_lines(tmp_path: Path) -> None:
    assert at(recorded(tmp_path / "run", step=steps(400)), 10).code == ()


def test_what_is_recorded_while_it_is_watched_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(tmp_path / "run", step=steps(800))
    now = START + 10 * S
    reader = RecentReader(run, lambda: now)
    look(run, range(START, START + 10 * S, 100 * MS), lambda *_: FORWARD)
    (first,) = reader.snapshot().code
    assert first.code == "loss = model(images, labels)"
    read: list[bytes] = []
    monkeypatch.setattr("whyidle.record.stacks._read", lambda line, _: read.append(line))
    names = StackNames(run)
    names.number(FETCHING)
    now += 2 * S
    reader.snapshot()
    now += 2 * S
    reader.snapshot()
    assert len(read) == len(FETCHING)


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


def test_a_line_of_rubbish_stops_no_follower(tmp_path: Path) -> None:
    (tmp_path / STACKS).write_bytes(b"x" * (MOST_AT_A_LOOK + 100) + b"\n")
    number = StackNames(tmp_path).number(FORWARD)
    follower = StackFollower(tmp_path)
    for _ in range(4):
        follower.look()
    assert follower.table.stack(number) == FORWARD


@pytest.fixture
def opening(tmp_path: Path) -> Path:
    """Workers open an archive for each sample."""
    with_stacks(tmp_path)
    return tmp_path / "run"


def test_the_verdict_of_the_last_seconds_names_the_line_that_the_report_names(opening: Path) -> None:
    whole = analysis_of_run(opening).verdict
    live = RecentReader(opening).snapshot().verdict
    assert live is not None
    assert live.cause == whole.cause
    assert [(line.file, line.line, line.time) for line in live.where[:1]] == [
        (line.file, line.line, line.time) for line in whole.where[:1]
    ]
    assert live.next[0].kind == whole.next[0].kind == "once"


def test_looks_are_sorted_once_a_judgement_and_no_more_than_those_of_the_last_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the run is."""
    run = recorded(tmp_path / "run", step=steps(4000))
    look(run, range(START, START + 100 * S, 100 * MS), lambda *_: FORWARD)
    given: list[int] = []

    def counted(whole: Looks, pid: int, thread: int) -> ProcessLooks:
        given.append(len(whole))
        return process_looks(whole, pid, thread)

    monkeypatch.setattr("whyidle.analyse.recent.judged.process_looks", counted)
    now = START + 100 * S
    reader = RecentReader(run, lambda: now)
    for _ in range(5):
        reader.snapshot()
    assert given == [200 - 1]
    now += 20 * S
    reader.snapshot()
    assert len(given) <= 2
