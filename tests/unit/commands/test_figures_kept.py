"""What `whyidle run` keeps of a recording while it is made: for `log_to`, and for Prometheus."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.recent_runs import training
from whyidle.analyse.recent.reader import RecentReader
from whyidle.record import scalars as kept
from whyidle.report.export import scalar_stream as scalars
from whyidle.report.export.scalar_stream import Figures


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return training(tmp_path / "run", 1, 10)


def test_figures_begin_as_soon_as_they_are_wanted_and_there_is_a_recording(recorded: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    figures = Figures(later)
    figures.tick()
    recorded.rename(later)
    figures.tick()
    assert kept.told(later) is None
    kept.want(later, 1.0)
    figures.tick()
    assert kept.told(later) is not None


def test_figures_take_a_tenth_of_a_cpu(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, used = [100.0], [0.0]
    looked: list[float] = []
    snapshot = RecentReader.snapshot

    def look(reader: RecentReader) -> object:
        looked.append(now[0])
        used[0] += 3.0
        return snapshot(reader)

    monkeypatch.setattr(RecentReader, "snapshot", look)
    monkeypatch.setattr(scalars.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(scalars.time, "process_time", lambda: used[0])
    kept.want(recorded, 1.0)
    figures = Figures(recorded)
    for _ in range(100):
        figures.tick()
        now[0] += 1
    assert looked == [100.0, 130.0, 160.0, 190.0]


def test_neither_an_error_of_the_folder_nor_an_endless_wish_leaves_a_look(recorded: Path, tmp_path: Path) -> None:
    # The system refuses so long a name, as it may any folder: EACCES, EIO, ESTALE.
    nowhere = tmp_path / ("x" * 300)
    Figures(nowhere, tmp_path / "nowhere.prom").tick()
    assert not (tmp_path / "nowhere.prom").exists()
    (recorded / kept.WANTED).write_text(f'{{"every_s": 1{"0" * 400}}}')
    Figures(recorded, tmp_path / "run.prom").tick()
    assert "whyidle_steps" in (tmp_path / "run.prom").read_text()


def test_untold_figures_are_in_the_file(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(scalars, "tell")
    kept.want(recorded, 1.0)
    Figures(recorded, tmp_path / "run.prom").tick()
    assert "whyidle_steps" in (tmp_path / "run.prom").read_text()


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(recorded: Path, tmp_path: Path) -> None:
    textfile = tmp_path / "run.prom"
    figures = Figures(recorded, textfile)
    os.mkfifo(textfile)
    figures.tick()
    assert textfile.is_fifo()
