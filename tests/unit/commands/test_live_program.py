"""What `whyidle live` shows one after another, and what its keys do, without a terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.cells import cell_len
from rich.console import Console

from support.recent_runs import training
from support.runs import mistaken
from support.snapshots import device, rank, running
from whyidle.commands.main import main
from whyidle.record.latest import note_latest
from whyidle.record.run import create_run, update_run
from whyidle.report.live import Options
from whyidle.terminal import live_program
from whyidle.terminal.live_program import Following, Program
from whyidle.terminal.progress import MatrixProgress


def pressed(program: Program, keys: str) -> tuple[Options, str]:
    """The options after these keys, and the last row of the screen."""
    for key in keys:
        program.press(key)
    console = Console(width=80, height=24, color_system=None, file=io.StringIO())
    assert program.view is not None
    with console.capture() as captured:
        console.print(program.picture(program.view, 80, has_keys=True))
    return program.options, captured.get().splitlines()[-1].strip()


def test_keys_pause_quit_and_go_through_the_views_there_are() -> None:
    program = Program(SimpleNamespace(next_ones=False), Options())
    program.view = running(devices=(device(0), device(1)), rank_views=(rank(0), rank(1)), ranks=2)
    seen = [pressed(program, keys) for keys in ("", "\t", "\t", "\t", "\t")]
    assert [options.view for options, _ in seen] == ["", "ranks", "devices", "workers", ""]
    assert [foot.rpartition("Tab ")[2] for _, foot in seen] == ["ranks", "devices", "workers", "overview", "ranks"]
    assert pressed(program, "p")[0].paused
    assert "p go on" in pressed(program, "\x1b[Axyz")[1]
    assert not pressed(program, " ")[0].paused
    assert not program.quit
    pressed(program, "q")
    assert program.quit


def test_a_run_that_has_ended_is_shown_at_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training(tmp_path / "run", seed=3, seconds=20)
    assert main(["live", str(folder), "--once"]) == 0
    assert "(last seconds only;" in " ".join(capsys.readouterr().out.split())
    update_run(folder, {"ended": {"status": "failed"}})
    source = Following(folder)
    assert (source.look().state, source.over) == ("failed", True)


def test_after_the_end_the_next_recording_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first = training(tmp_path / "first", seed=3, seconds=5)
    note_latest(first)
    monkeypatch.setattr(live_program, "NEXT_RUN_SECONDS", 1000.0)
    source = Following(first, next_ones=True)
    assert source.look().state == "ok"
    assert not source.over  # for some time
    create_run(tmp_path / "second", {"command": ["second"]})
    note_latest(tmp_path / "second")
    assert [source.look().title for _ in range(2)] == ["second"] * 2


@pytest.mark.parametrize("seconds", ["0.01", "fast", "nan"])
def test_numbers_out_of_range_are_refused_with_the_range(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not a" in mistaken(capsys, "live", f"--interval={seconds}")


def test_without_a_terminal_the_same_line_is_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert main(["live", str(training(tmp_path / "run", seed=3, seconds=5))]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "ended well, 185 steps" in line


def test_of_several_runs_the_one_that_began_last_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, began_s in (("later", 20), ("earlier", 10)):
        create_run(tmp_path / name, {"command": [name], "clock": {"time_ns": began_s * 10**9, "monotonic_ns": 0}})
    update_run(tmp_path / "earlier", {"ended": {"status": "ok"}})
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    assert main(["live", str(tmp_path), "--once"]) == 0
    assert capsys.readouterr().out.lstrip().startswith("later")


def test_the_progress_of_a_comparison_shows_the_run_under_way_and_fits_the_terminal(tmp_path: Path) -> None:
    file = io.StringIO()
    target = Console(file=file, force_terminal=True, width=80, height=24, color_system=None)
    setting = {"device": {"name": "Test", "kind": "cuda"}}
    matrix = SimpleNamespace(setting=setting, cells=(), budget=None, runs_ahead=4)
    progress = MatrixProgress(target, matrix, plain=False)
    progress.begin(tmp_path / "none")
    with progress:
        progress.tick()  # the run's folder is not there yet
        progress.begin(training(tmp_path / "run", seed=3, seconds=5))
        progress.tick()
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    assert all(each in drawn for each in ("run 1 of 4", "185 steps", "samples/s"))
    assert all(cell_len(row) <= 80 for row in re.split("[\r\n]+", drawn))
    assert all(frame.count("\n") <= 24 for frame in drawn.split("run 1 of 4"))
