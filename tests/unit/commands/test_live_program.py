"""What the keys of the live view do, without a terminal."""

from __future__ import annotations

import io
import re
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.cells import cell_len
from rich.console import Console

from support.recent_runs import training
from support.snapshots import device, rank, running, worker
from whyidle.analyse.recent import sources
from whyidle.analyse.recent.snapshot import Snapshot
from whyidle.analyse.recent.sources import Following
from whyidle.analyse.run.analysis import analyse
from whyidle.commands.main import main
from whyidle.record.latest import note_latest
from whyidle.record.run import create_run, open_run, update_run
from whyidle.report.live import Options
from whyidle.terminal import live_program
from whyidle.terminal.live_program import LastWord, Program
from whyidle.terminal.progress import MatrixProgress
from whyidle.terminal.screen import Keys


class Given:
    """Shows one moment, and counts the looks."""

    over = False
    folder = None

    def __init__(self, view: Snapshot) -> None:
        self.view = view
        self.looks = 0

    def look(self) -> Snapshot:
        self.looks += 1
        return replace(self.view, steps=self.looks)


def program(**view: object) -> Program:
    made = Program(Given(running(**view)), Options(keys=True))
    made.rows(100, 40)
    return made


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[B", ["up", "down"]),
        (b"\x1bOA\x1b[5~\x1b[6~", ["up", "page up", "page down"]),
        (b" \t\x1b[Z", ["space", "tab", "back tab"]),
        (b"\x1b", ["escape"]),
        ("é+".encode(), ["é", "+"]),
        (b"\x1b[15~\x00s", ["s"]),
    ],
)
def test_bytes_become_keys_also_in_pieces_and_unknown_ones_nothing(data: bytes, keys: list[str]) -> None:
    assert Keys().feed(data) == keys
    read = Keys()
    assert read.feed(b"s\x1b[5") == ["s"]
    assert read.feed(b"~") == ["page up"]


def test_a_pause_shows_the_same_moment_until_it_ends() -> None:
    made = program()
    made.press("p")
    assert "paused" in made.rows(100, 40)[0].plain
    made.press("space")
    assert any("2/1000 steps" in row.plain for row in made.rows(100, 40))


def test_tab_goes_through_the_lists_there_are_and_back_to_none() -> None:
    made = program(devices=(device(0), device(1)), rank_views=(rank(0), rank(1)), ranks=2)
    seen = []
    for _ in range(4):
        made.press("tab")
        seen.append(made.options.focus)
    assert seen == ["ranks", "devices", "workers", ""]
    made.press("back tab")
    assert made.options.focus == "workers"
    alone = program(makers=(worker(0),))
    alone.press("tab")
    assert alone.options.focus == ""


def test_arrows_begin_in_the_workers_and_stay_within_them() -> None:
    made = program()
    chosen = []
    for key in ("down", "down", "page down", "down", "up", "page up", "up"):
        made.press(key)
        chosen.append(made.options.chosen)
    assert made.options.focus == "workers"
    assert chosen == [0, 1, 3, 3, 2, 0, 0]


def test_a_chosen_device_is_the_one_shown_in_detail() -> None:
    made = program(devices=tuple(device(i, sm_active_pct=()) for i in range(6)), makers=())
    made.press("tab")
    made.press("down")
    rows = [row.plain for row in made.rows(80, 24)]
    at = next(i for i, row in enumerate(rows) if row.startswith("▸GPU 1"))
    (busy,) = [number for number, row in enumerate(rows) if row.startswith("  busy")]
    assert at < busy < at + 5


def test_sorting_and_its_reverse_are_said_beside_the_workers() -> None:
    made = program()
    made.press("s")
    made.press("r")
    rows = [row.plain for row in made.rows(100, 40)]
    assert any("by busy ↓" in row for row in rows)
    numbers = [row.replace("▸", " ").split()[0] for row in rows if row.endswith("/batch")]
    assert numbers == ["3", "2", "1", "0"]


def test_help_and_quit() -> None:
    made = program()
    made.press("?")
    assert any("this help, and back" in row.plain for row in made.rows(100, 40))
    made.press("escape")
    assert not made.options.help
    made.press("q")
    assert made.quit


def test_one_look_at_a_large_run_is_at_its_end_and_else_as_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = training(tmp_path / "run", seed=3, seconds=20)
    ended = LastWord().told(folder, Following(folder, next_ones=False).look())
    assert (ended.verdict, ended.verdict_of_whole_run) == (analyse(open_run(folder)).verdict, True)
    monkeypatch.setenv("COLUMNS", "200")
    for most, said in ((1, "(last seconds only"), (10**9, "of the whole run)")):
        monkeypatch.setattr(live_program, "LARGE_BYTES", most)
        assert main(["live", str(folder), "--once"]) == 0
        assert said in " ".join(capsys.readouterr().out.split())


def test_a_long_analysis_keeps_no_screen_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def slow(view: Snapshot, _: Path) -> Snapshot:
        done.wait(60)
        return replace(view, verdict_of_whole_run=True)

    monkeypatch.setattr(live_program, "of_whole_run", slow)
    word, view = LastWord(), running(verdict_since_s=3.0)
    ended = replace(view, state="ok")
    assert word.told(tmp_path, view, 0) is view
    assert word.told(tmp_path, ended, 0) is ended
    done.set()
    word._thread.join(60)
    assert word.told(tmp_path, ended, 0).verdict_of_whole_run


def test_after_the_end_the_next_recording_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first = training(tmp_path / "first", seed=3, seconds=5)
    note_latest(first)
    monkeypatch.setattr(sources, "NEXT_RUN_SECONDS", 1000.0)
    source = Following(first, next_ones=True)
    assert source.look().state == "ok"
    assert not source.over  # for some time
    create_run(tmp_path / "second", {"command": ["second"]})
    note_latest(tmp_path / "second")
    source._looked = 0.0
    assert source.look().title == "second"
    ended = Following(first, next_ones=False)
    ended.look()
    assert ended.over


@pytest.mark.parametrize("seconds", ["0.01", "fast", "nan"])
def test_numbers_out_of_range_are_refused_with_the_range(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["live", f"--interval={seconds}"])
    assert "is not a" in capsys.readouterr().err


def test_without_a_terminal_the_same_line_is_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    run = training(tmp_path / "run", seed=3, seconds=5)
    assert main(["live", str(run)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "ok, step 185" in line


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
