"""`whyidle run` around a command: what it takes away where there is none, and that it ends as the command did."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from whyidle.capture.sampler.start import Sampler
from whyidle.commands import run
from whyidle.commands.main import main
from whyidle.record.latest import latest, note_latest
from whyidle.terminal import child


@pytest.fixture(autouse=True)
def no_sampler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "start_sampler", lambda *_: Sampler(None))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def ran(folder: Path, *words: str | Path) -> int:
    return main(["run", "--no-live", "--out", str(folder), *map(str, words)])


def broken(*_: object, **__: object) -> None:
    raise ValueError("nobody thought of this")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of the user's."""
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "model.pt").write_text("precious")
    return folder


def test_a_command_that_cannot_start_leaves_nothing(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note_latest(results)
    for command in ("pyhton", tmp_path / "results" / "model.pt"):
        for folder in (results, tmp_path / "new"):
            assert ran(folder, "--", command, "train.py") == 2
    said = capsys.readouterr().err
    assert "there is no program 'pyhton'" in said
    assert "model.pt cannot be run: Permission denied" in said
    assert [path.name for path in results.iterdir()] == ["model.pt"]
    assert not (tmp_path / "new").exists()
    assert latest() == results


def test_without_a_place_for_figures_all_is_left(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for textfile, why in ((pipe, "no file"), (results, "no file"), (tmp_path / "no" / "x.prom", "no folder")):
        for folder in (results, tmp_path / "new"):
            assert ran(folder, "--prometheus", textfile, "--", "touch", tmp_path / "started") == 2
            said = capsys.readouterr().err
            assert said.startswith(f"whyidle: cannot write {textfile}: ")
            assert f"{why}. Name " in said
    assert [path.name for path in results.iterdir()] == ["model.pt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe", "results"]


@pytest.mark.parametrize("step", ["processes", "update_run", "RunResult", "console"])
def test_an_error_nobody_thought_of_leaves_the_commands_exit_code(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, step, broken)
    assert ran(tmp_path / "run", "--", "sh", "-c", "exit 5") == 5
    said = capfd.readouterr().err
    assert said.count("ValueError: nobody thought of this.\n") == 1
    assert "Traceback" not in said


class Full(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("command", ["exit 5", 'rm -r "$WHYIDLE_RUN"; exit 5'])
def test_a_full_disk_leaves_the_exit_code(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    assert ran(tmp_path / "run", "--", "sh", "-c", command) == 5


def test_what_we_show_may_fail_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = tmp_path / "looked"

    def look(_: object) -> None:
        with looked.open("a") as file:
            file.write("x")
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(run, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(run.Figures, "tick", look)
    often = f"until test -e {looked} && test $(wc -c < {looked}) -gt 2; do sleep 0.01; done; exit 7"
    assert ran(tmp_path / "run", "--", "sh", "-c", often) == 7


def test_what_a_shell_opened_for_the_command_the_command_gets(tmp_path: Path) -> None:
    ours, for_it = os.pipe(), os.pipe()
    # A shell's `<(echo hi)`, and a file that was opened here.
    os.set_inheritable(for_it[0], True)
    os.write(for_it[1], b"hi")
    os.close(for_it[1])
    said = tmp_path / "said"
    script = f"exec > {said}; cat <&{for_it[0]}; test -e /proc/self/fd/{ours[0]} || echo , and no more"
    with child.Signals() as signals:
        child.start(["bash", "-c", script], os.environ, signals).wait()
    for each in (*ours, for_it[0]):
        os.close(each)
    assert said.read_text() == "hi, and no more\n"


def test_ctrl_c_after_the_end_costs_no_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = run.update_run

    def interrupted_write(*arguments: object) -> None:
        signal.raise_signal(signal.SIGINT)
        writes(*arguments)  # type: ignore[arg-type]

    def interrupted_report(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(run, "update_run", interrupted_write)
    monkeypatch.setattr(run, "_report", interrupted_report)
    assert ran(tmp_path / "run", "--", "sh", "-c", "exit 9") == 9
    assert json.loads((tmp_path / "run" / "run.json").read_text())["ended"]["exit_code"] == 9


def test_a_command_that_fails_is_seen_to_where_ends_of_children_were_ignored(tmp_path: Path) -> None:
    status = tmp_path / "status"
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        look = "import sys; open(sys.argv[1], 'w').write(open('/proc/self/status').read()); sys.exit(3)"
        assert ran(tmp_path / "run", "--", sys.executable, "-S", "-c", look, status) == 3
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["ended"]["status"] == "failed"
    # The command has what it would have without us.
    ignored = int(re.findall(r"SigIgn:\s*(\w+)", status.read_text())[0], 16)
    assert ignored >> signal.SIGCHLD - 1 & 1


def test_a_training_without_a_description_is_not_called_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(run, "Notices", lambda _: said.append)
    run._say_what_was_missed(tmp_path)
    (tmp_path / "step-0-17.rec").touch()
    run._say_what_was_missed(tmp_path)
    assert "The hooks never loaded" in said[0]
    assert "A training was seen" in said[1]
    assert "was the disk full?" in said[1]
