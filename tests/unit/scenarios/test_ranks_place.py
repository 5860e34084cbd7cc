"""Where ranks of one trial find each other."""

from __future__ import annotations

from pathlib import Path

import pytest

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
