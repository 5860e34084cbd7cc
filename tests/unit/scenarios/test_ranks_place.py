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


@pytest.mark.parametrize(
    ("said", "died", "blamed"),
    [
        # The launcher saw rank 1 fail and ended rank 0, on its way to fail for that, before it could say so.
        ({1: ("ValueError: no such number", 1.0)}, {1: 1}, "rank 1: ValueError: no such number"),
        ({0: ("RuntimeError: closed by peer", 1.0)}, {2: -9}, "rank 2 was killed by SIGKILL (the kernel kills"),
        ({0: ("RuntimeError: closed", 2.0), 1: ("OSError: no file", 1.0)}, {0: 1}, "rank 1: OSError: no file"),
        ({}, {}, "rank 0 ended without a word"),
    ],
    ids=["ended for another", "died", "first of several", "nobody says"],
)
def test_the_rank_to_blame(
    tmp_path: Path, said: dict[int, tuple[str, float]], died: dict[int, int], blamed: str
) -> None:
    for rank, (error, at) in said.items():
        write_json(tmp_path / f"ended-{rank}.json", {"status": "failed", "error": error, "at": at})
    assert str(ranks.what_failed(tmp_path, 3, died)).startswith(blamed)
