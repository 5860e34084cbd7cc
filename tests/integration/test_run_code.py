"""`whyidle run` names the revision of the code that it records, and waits for git no moment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import support.warm as warm
from support.repository import git
from support.terminals import alive
from whyidle.commands import run as run_command
from whyidle.commands.main import main
from whyidle.record import code
from whyidle.record.code import CodeRevision

TRAINING = "print('out')\n"
HANGS = """#!/bin/sh
echo $$ >> "{log}"
sleep 1000
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAINING)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder / "train.py"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git is asked as always. Only that a command ends before it has answered, which is a matter of time, does not
    happen here."""

    class Patient(CodeRevision):
        def found(self) -> dict[str, Any] | None:
            if self.process is not None:
                self.process.wait(100)
            return super().found()

    monkeypatch.setattr(code, "IN_TIME", ())
    monkeypatch.setattr(run_command, "CodeRevision", Patient)


def code_of(folder: Path, script: Path) -> object:
    """What is recorded of the code of a command that ran well."""
    assert main(["run", "--no-live", "--out", str(folder), "--", sys.executable, str(script)]) == 0
    told = json.loads((folder / "run.json").read_text())
    assert told["ended"]["status"] == "ok"
    return told["code"]


def test_the_code_of_a_training_is_named_and_whether_it_was_changed(
    tmp_path: Path, script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    revision = git(script.parent, "rev-parse", "HEAD")
    expected = {"revision": revision, "branch": "main", "changed": False}
    assert code_of(tmp_path / "clean", script) == expected
    script.write_text(TRAINING + "# changed\n")
    assert code_of(tmp_path / "changed", script) == expected | {"changed": True}
    shown = capfd.readouterr()
    assert shown.out == "out\n" * 2
    assert "Traceback" not in shown.err


def test_outside_a_repository_no_code_is_named_and_nothing_is_said_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "folder" / "train.py"
    script.parent.mkdir()
    script.write_text(TRAINING)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert code_of(tmp_path / "run", script) is None
    shown = capfd.readouterr()
    assert shown.out == "out\n"
    assert "fatal" not in shown.err
    assert "Traceback" not in shown.err


@pytest.fixture
def hanging(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A git that hangs: the file that has a line for each that began, and an environment that finds it."""
    log, program = tmp_path / "log", tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(HANGS.format(log=log))
    program.chmod(0o755)
    return log, os.environ | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


def test_a_git_that_hangs_holds_up_nothing_and_is_not_left_behind(
    tmp_path: Path, script: Path, hanging: tuple[Path, dict[str, str]]
) -> None:
    log, environment = hanging
    # It ends once git has begun, or long after git was given up, should that have happened before.
    script.write_text(
        "import os, time\nuntil = time.monotonic() + 30\n"
        f"while time.monotonic() < until and not os.path.exists({str(log)!r}):\n    time.sleep(0.02)\nprint('out')\n"
    )
    # Were it waited for, this would take 1,000 s.
    done = warm.run(tmp_path / "run", sys.executable, script, env=environment, cwd=tmp_path, training=False)
    assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (told["ended"]["status"], told["code"]) == ("ok", None)
    # One of them is not ours to bury: a shell's.
    begun = log.read_text().split() if log.exists() else []
    assert not any(alive(int(pid)) for pid in begun)


def test_signals_reach_the_command_while_git_hangs(tmp_path: Path, hanging: tuple[Path, dict[str, str]]) -> None:
    # The command signals who runs it, and gets the signal back.
    command = "trap 'echo caught; exit 7' USR1; kill -USR1 $PPID; while :; do sleep 0.1; done"
    done = warm.run(tmp_path / "run", "sh", "-c", command, env=hanging[1], training=False)
    assert (done.returncode, done.stdout) == (7, "caught\n"), done.stderr
