"""`whyidle run` follows a recording once for all that it shows of it: the panel, `log_to` and Prometheus."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.recent_runs import training
from whyidle.analyse.recent import reader as recent_reader
from whyidle.analyse.recent.reader import RecentReader, SharedReader
from whyidle.commands import run
from whyidle.commands.run import _View
from whyidle.record import scalars as kept
from whyidle.report.export import scalar_stream as scalars
from whyidle.report.export.scalar_stream import Figures


class Counted:
    """How many readers were made."""

    def __init__(self) -> None:
        self.made: list[RecentReader] = []

    def __call__(self, folder: Path) -> RecentReader:
        self.made.append(RecentReader(folder))
        return self.made[-1]


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()
    monkeypatch.setattr(recent_reader, "RecentReader", counted)
    return counted


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return training(tmp_path / "run", 1, 10)


def broken(*_: object) -> None:
    raise ValueError("broken")


def test_panel_and_figures_look_through_one_reader_that_is_made_when_first_asked(
    recorded: Path, tmp_path: Path, readers: Counted
) -> None:
    reader = SharedReader(recorded)
    view, figures = _View(reader), Figures(reader, tmp_path / "run.prom")
    kept.want(recorded, 1.0)
    assert readers.made == []
    assert "370 steps" in " ".join(view.rows(100, 5))
    figures.tick()
    assert "step 370," in view.line()
    assert len(readers.made) == 1
    assert "whyidle_steps" in (tmp_path / "run.prom").read_text()
    assert kept.told(recorded) is not None


def test_nothing_is_read_for_figures_that_nobody_asked_for(recorded: Path, readers: Counted) -> None:
    Figures(SharedReader(recorded)).tick()
    assert readers.made == []


def test_what_one_cannot_show_the_other_still_does(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    textfile = tmp_path / "run.prom"
    reader = SharedReader(recorded)
    view, figures = _View(reader), Figures(reader, textfile)
    with monkeypatch.context() as patched:
        patched.setattr(run.live, "panel", broken)
        assert "ValueError: broken" in view.rows(100, 5)[-1]
        figures.tick()
        assert textfile.exists()
    with monkeypatch.context() as patched:
        patched.setattr(scalars.prometheus, "of_snapshot", broken)
        Figures(reader, textfile).tick()
        assert "broken" not in " ".join(view.rows(100, 5))


def test_a_recording_that_is_not_there_yet_is_read_as_soon_as_it_is(recorded: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    view = _View(SharedReader(later))
    assert "RecordError" in view.line()
    recorded.rename(later)
    assert "RecordError" not in view.line()


def test_figures_take_no_more_than_a_tenth_of_a_cpu(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = SharedReader(recorded)
    now, used = [100.0], [0.0]
    looked: list[float] = []

    def look() -> object:
        looked.append(now[0])
        used[0] += 3.0
        return RecentReader(recorded).snapshot()

    monkeypatch.setattr(reader, "snapshot", look)
    monkeypatch.setattr(scalars.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(scalars.time, "process_time", lambda: used[0])
    kept.want(recorded, 1.0)
    figures = Figures(reader)
    for _ in range(100):
        figures.tick()
        now[0] += 1
    assert looked == [100.0, 130.0, 160.0, 190.0]


def test_neither_an_error_of_the_folder_nor_an_endless_wish_leaves_a_look(recorded: Path, tmp_path: Path) -> None:
    # The system refuses so long a name, as it may any folder: EACCES, EIO, ESTALE.
    nowhere = tmp_path / ("x" * 300)
    with pytest.raises(OSError, match="name too long"):
        nowhere.exists()
    Figures(SharedReader(nowhere), tmp_path / "nowhere.prom").tick()
    assert not (tmp_path / "nowhere.prom").exists()
    (recorded / kept.WANTED).write_text(f'{{"every_s": 1{"0" * 400}}}')
    Figures(SharedReader(recorded), tmp_path / "run.prom").tick()
    assert "whyidle_steps" in (tmp_path / "run.prom").read_text()


def test_figures_that_cannot_be_told_to_the_training_are_in_the_file(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scalars, "tell", broken)
    kept.want(recorded, 1.0)
    Figures(SharedReader(recorded), tmp_path / "run.prom").tick()
    assert "whyidle_steps" in (tmp_path / "run.prom").read_text()


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(recorded: Path, tmp_path: Path) -> None:
    textfile = tmp_path / "run.prom"
    figures = Figures(SharedReader(recorded), textfile)
    os.mkfifo(textfile)
    figures.tick()
    assert textfile.is_fifo()
