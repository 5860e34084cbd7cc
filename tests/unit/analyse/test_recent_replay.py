"""A recorded run at any of its moments, against a reader that looked at that moment."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import support.recent_runs as recent_runs
from support.recent_runs import MS, START, STEP, S
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.recent.replay import ReplayReader
from whyidle.errors import RecordError
from whyidle.record.run import create_run

RUNS = 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [recent_runs.training(tmp_path_factory.mktemp("replay") / "run", seed) for seed in range(RUNS)]


def comparable(view: object) -> dict[str, str]:
    """By field; as texts, in which what was not measured equals itself."""
    fields = asdict(view)  # type: ignore[call-overload]
    for name in ("at_s", "verdict_since_s"):
        del fields[name]
    return {name: repr(value) for name, value in fields.items()}


@settings(max_examples=12)
@given(number=st.integers(0, RUNS - 1), share=st.floats(0.0, 0.999))
def test_a_moment_of_a_replay_is_what_a_reader_saw_then(
    runs: list[Path], tmp_path_factory: pytest.TempPathFactory, number: int, share: float
) -> None:
    replay = ReplayReader(runs[number])
    view = replay.snapshot_at(share * replay.length_s)
    assert view.at_s is not None
    assert view.at_s == pytest.approx(share * replay.length_s, abs=1e-6)
    now = replay.begin_ns + round(view.at_s * S)
    reader = RecentReader(recent_runs.cut(runs[number], tmp_path_factory.mktemp("cut") / "run", now), lambda: now)
    assert comparable(view) == comparable(reader.snapshot())


def test_its_end_is_the_run_that_has_ended(runs: list[Path]) -> None:
    replay, reader = ReplayReader(runs[0]), RecentReader(runs[0])
    view, ended = replay.snapshot_at(10**6), reader.snapshot()
    assert (view.state, view.steps, view.quiet_s) == ("ok", ended.steps, None)
    assert (view.samples_per_s, view.shares, view.rank_views) == (
        ended.samples_per_s,
        ended.shares,
        ended.rank_views,
    )
    assert view.verdict == ended.verdict
    assert replay.snapshot_at(replay.length_s - 0.1).state == "running"


def test_moments_may_be_asked_for_in_any_order(runs: list[Path]) -> None:
    replay = ReplayReader(runs[1])
    moments = [3.0, 25.0, 14.0, 3.0, 0.0]
    fresh = [ReplayReader(runs[1]).snapshot_at(at) for at in moments]
    assert [comparable(replay.snapshot_at(at)) for at in moments] == [comparable(view) for view in fresh]


def test_a_verdict_is_known_to_have_held_from_before_the_moment_that_was_sought(tmp_path: Path) -> None:
    """For half of the run the device computes; then it waits for data."""
    folder = create_run(tmp_path / "run", recent_runs.ON_GPUS | {"ended": {"status": "ok"}})
    recent_runs.store(folder, STEP, recent_runs.steps(2000, [0.1] * 1000 + [30] * 1000))
    # Computing until 20 s, waiting until 70 s; a window of ten seconds shows it a little later.
    replay = ReplayReader(folder)
    assert replay.length_s == pytest.approx(70.1, abs=0.5)
    early, late = replay.snapshot_at(15), replay.snapshot_at(69)
    assert early.verdict is not None
    assert late.verdict is not None
    assert early.verdict.cause == "none"
    assert str(late.verdict.cause).startswith("input.")
    assert late.verdict_since_s is not None
    assert 40 <= late.verdict_since_s <= 49
    # Played on from there, it goes on.
    further = replay.snapshot_at(69.5)
    assert further.verdict_since_s == pytest.approx(late.verdict_since_s + 0.5)


def test_stamps_that_came_later_are_not_known_yet(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run", recent_runs.ON_GPUS)
    recent_runs.store(folder, STEP, recent_runs.steps(100, 5))
    # The device reaches the end of a step 3 ms after the host.
    view = ReplayReader(folder).snapshot_at((2500 - 1) / 1000)
    assert view.steps == 99
    assert view.quiet_s == pytest.approx(0.024)
    assert ReplayReader(folder).snapshot_at(2.501).steps == 100
    assert ReplayReader(folder).end_ns == START + 2503 * MS


def test_a_run_without_steps_has_nothing_to_replay(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run", {})
    with pytest.raises(RecordError, match="has no training step to replay"):
        ReplayReader(folder)


def test_a_damaged_file_is_left_out(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run", recent_runs.ON_GPUS)
    recent_runs.store(folder, STEP, recent_runs.steps(100, 5))
    (folder / "host-0-1.rec").write_bytes(b"torn")
    view = ReplayReader(folder).snapshot_at(2.0)
    assert view.steps == 80
    assert view.host.tree_cpus is None
