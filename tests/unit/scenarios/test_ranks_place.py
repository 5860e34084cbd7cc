"""Where ranks of one trial find each other, and which of them is blamed where they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.record.files import write_json
from whyidle.scenarios import ranks
from whyidle.scenarios.trial import TrialSpec


def test_the_meeting_place_is_in_the_run_folder_and_gone_after_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A trial that is killed cannot tidy up: what it leaves must lie with its run, not in the machine's own folder.
    run = tmp_path / "run"
    run.mkdir()
    met: list[Path] = []

    def launch(config: object, entry: object) -> object:
        def start(spec: TrialSpec, folder: str, place: str, train: object) -> None:
            assert Path(place).is_dir()
            met.append(Path(place))

        return start

    monkeypatch.setattr(ranks, "elastic_launch", launch)
    monkeypatch.setattr(ranks, "_stay_on_this_machine", lambda: None)
    spec = TrialSpec(net="x", pipeline="naive", batch_size=1, ranks=2, scenario="x", data="x", folder=str(run))
    ranks.train_ranks(spec, run, lambda *_: None)
    assert [place.parent for place in met] == [run]
    assert not list(run.iterdir())


def told(meeting: Path, rank: int, error: str, at: float) -> None:
    write_json(meeting / f"ended-{rank}.json", {"status": "failed", "error": error, "at": at})


def test_a_rank_that_was_ended_because_another_failed_is_not_to_blame(tmp_path: Path) -> None:
    # The launcher saw rank 1 fail and ended rank 0, which was on its way to fail for that, before it could say so.
    told(tmp_path, 1, "ValueError: no such number", at=1.0)
    assert str(ranks.what_failed(tmp_path, 2, {1: 1})) == "rank 1: ValueError: no such number"


def test_a_rank_that_died_is_to_blame_whatever_the_others_say_of_it(tmp_path: Path) -> None:
    told(tmp_path, 0, "RuntimeError: connection closed by peer", at=1.0)
    assert str(ranks.what_failed(tmp_path, 3, {2: -9})).startswith("rank 2 was killed by SIGKILL (the kernel kills")


def test_of_ranks_that_failed_the_first_is_to_blame(tmp_path: Path) -> None:
    told(tmp_path, 0, "RuntimeError: connection closed by peer", at=2.0)
    told(tmp_path, 1, "OSError: no such file", at=1.0)
    assert str(ranks.what_failed(tmp_path, 2, {0: 1})) == "rank 1: OSError: no such file"


def test_where_none_says_why_that_is_said(tmp_path: Path) -> None:
    assert str(ranks.what_failed(tmp_path, 2, {})).startswith("rank 0 ended without a word")
