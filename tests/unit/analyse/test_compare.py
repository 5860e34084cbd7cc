"""The cells of a comparison's folder."""

from __future__ import annotations

from pathlib import Path

from whyidle.analyse.cells.comparison import cell_of, round_of
from whyidle.record.comparison import CellRecord
from whyidle.scenarios.planted import Step, train


def test_runs_that_are_gone_are_told_and_the_others_count_in_their_rounds(tmp_path: Path) -> None:
    for number in (0, 2):
        train(tmp_path / f"naive-b8-r{number}", [[Step()] * 40])
    cell = cell_of(tmp_path, CellRecord("naive", 8, "ok", None, tuple(f"naive-b8-r{number}" for number in range(3))))
    assert cell.error == "1 of its runs is no longer there"
    assert cell.rounds_of_facts == [0, 2]


def test_a_folder_that_was_named_by_hand_tells_no_round() -> None:
    assert (round_of("caffe-b16-r12"), round_of("kept"), round_of("my-run")) == (12, None, None)
