"""`whyidle run` names the revision of the code that it records, and waits for git no moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runs import run

TRAINING = "import time\ntime.sleep(3)\nprint('out')\n"
HANGS = """#!/bin/sh
echo $$ >> "{log}"
sleep 1000
"""


def git(folder: Path, *words: str) -> str:
    someone = ["-c", "user.name=x", "-c", "user.email=x"]
    return subprocess.run(
        ["git", *someone, *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAINING)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder / "train.py"


def code_of(folder: Path, script: Path, **environment: str) -> object:
    """What is recorded of the code of a command that ran well, and wrote what it writes."""
    done = run(folder, sys.executable, script, cwd=script.parents[1], env=os.environ | environment)
    assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
    assert "fatal" not in done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads((folder / "run.json").read_text())
    assert told["ended"]["status"] == "ok"
    return told["code"]


def test_the_code_of_a_training_is_named_and_whether_it_was_changed(tmp_path: Path, script: Path) -> None:
    revision = git(script.parent, "rev-parse", "HEAD")
    expected = {"revision": revision, "branch": "main", "changed": False}
    assert code_of(tmp_path / "clean", script) == expected
    script.write_text(TRAINING + "# changed\n")
    assert code_of(tmp_path / "changed", script) == expected | {"changed": True}


def test_outside_a_repository_no_code_is_named(tmp_path: Path) -> None:
    script = tmp_path / "folder" / "train.py"
    script.parent.mkdir()
    script.write_text(TRAINING)
    assert code_of(tmp_path / "run", script, GIT_CEILING_DIRECTORIES=str(tmp_path.parent)) is None


def test_a_git_that_hangs_holds_up_nothing_and_is_not_left_behind(tmp_path: Path, script: Path) -> None:
    log, program = tmp_path / "log", tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(HANGS.format(log=log))
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    # Were it waited for, this would take 1,000 s.
    assert code_of(tmp_path / "run", script, PATH=path) is None
    begun = log.read_text().split()
    assert len(begun) == 3
    # One of them is not ours to bury: a shell's.
    assert not any(runs(pid) for pid in begun)


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def test_signals_reach_the_command_while_git_hangs(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(HANGS.format(log=tmp_path / "log"))
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    # The command signals who runs it, and gets the signal back.
    command = "trap 'echo caught; exit 7' USR1; kill -USR1 $PPID; while :; do sleep 0.1; done"
    done = run(tmp_path / "run", "sh", "-c", command, env=os.environ | {"PATH": path})
    assert (done.returncode, done.stdout) == (7, "caught\n"), done.stderr
