"""What git is asked about the code of a command, and that it is asked without being noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.fakes.driver import wait_for
from support.repository import git
from whyidle.record import code
from whyidle.record.code import CodeRevision


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a training in it, of one revision."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "train.py").write_text("print(1)\n")
    (folder / "src" / "net.py").write_text("print(2)\n")
    git(folder, "init", "--quiet", "--initial-branch", "a/b")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "all")


def asked(*command: str | Path) -> dict[str, Any] | None:
    """What is found once git has answered."""
    with CodeRevision([str(word) for word in command]) as revision:
        assert revision.process is None or revision.process.wait(60) is not None
    return revision.found()


def test_the_revision_is_that_of_the_script(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = {"revision": git(project, "rev-parse", "HEAD"), "branch": "a/b", "changed": False}
    assert asked("torchrun", "--nproc-per-node", "2", project / "src" / "train.py", "other.py") == expected
    (tmp_path / "link.py").symlink_to(project / "src" / "train.py")
    assert asked("python", "link.py") == expected
    assert asked("python", "-m", "train") is None
    monkeypatch.chdir(project / "src")
    assert asked("python", "-m", "train") == expected
    git(project, "checkout", "--quiet", "--detach")
    assert asked("python", "train.py") == expected | {"branch": None}


def test_changes_are_told_and_files_that_git_does_not_track_are_none_but_the_script(project: Path) -> None:
    def changed(script: str = "train.py") -> object:
        return asked("python", project / "src" / script)["changed"]

    (project / "notes.txt").write_text("x")
    assert changed() is False
    (project / "src" / "net.py").write_text("print(3)\n")
    assert changed() is True
    git(project, "add", "src/net.py")
    assert changed() is True
    commit(project)
    assert changed() is False
    (project / "src" / "new[1].py").write_text("print(4)\n")
    assert changed("new[1].py") is True
    commit(project)
    assert changed("new[1].py") is False
    # More than a pipe holds are changes, too.
    for number in range(700):
        (project / f"{'x' * 100}{number}").write_text("x")
    git(project, "add", ".")
    assert changed() is True


def test_without_repository_nothing_is_found(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    # As in a hook of git's: this is not the script's repository.
    monkeypatch.setenv("GIT_DIR", str(project / ".git"))
    assert asked("python", tmp_path / "train.py") is None
    monkeypatch.delenv("GIT_DIR")
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "--quiet")
    (tmp_path / "empty" / "train.py").touch()
    assert asked("python", tmp_path / "empty" / "train.py") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asked("python", project / "src" / "train.py") is None


def test_nothing_in_the_repository_is_written(project: Path) -> None:
    script = project / "src" / "train.py"
    # Of another time than the index says: a status that may write would write that down.
    os.utime(script, (1e9, 1e9))
    index = project / ".git" / "index"
    before = index.read_bytes(), sorted((project / ".git").iterdir())
    assert asked("python", script)["changed"] is False
    assert (index.read_bytes(), sorted((project / ".git").iterdir())) == before
    git(project, "status")
    assert index.read_bytes() != before[0]


def test_no_filter_of_the_repository_is_run(project: Path, tmp_path: Path) -> None:
    script, ran = project / "src" / "train.py", tmp_path / "ran"
    git(project, "config", "filter.slow.clean", f"touch {ran}; cat")
    os.utime(script, (1e9, 1e9))
    # A filter that no file has, as after `git lfs install`, hides no answer.
    found = asked("python", script)
    assert found["changed"] is False
    (project / ".gitattributes").write_text("*.bin filter=slow\n")
    (project / "model.bin").write_text("x")
    commit(project)
    ran.unlink()
    os.utime(project / "model.bin", (1e9, 1e9))
    assert asked("python", script) == found | {"revision": git(project, "rev-parse", "HEAD"), "changed": None}
    assert not ran.exists()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[[], list[list[str]]]]:
    """Puts a git of these words in the place of the real one. Returns what tells the state, parent, group, session,
    terminal … of the process that each start of it was."""
    log, program = tmp_path / "log", tmp_path / "bin" / "git"

    def stats() -> list[list[str]]:
        return [line.rpartition(") ")[2].split() for line in log.read_text().splitlines()] if log.exists() else []

    def put(words: str) -> Callable[[], list[list[str]]]:
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nread word\ncat /proc/$$/stat >> "{log}"\n{words}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        return stats

    return put


def test_a_git_that_hangs_is_killed_with_what_it_started(
    fake: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the time is up, and when the command has ended before."""
    stats = fake("sleep 1000 & sleep 1000")

    def alive() -> list[str]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError, ValueError):
                state, _, group = stat.read_text().rpartition(") ")[2].split()[:3]
                found += [group] if state not in "ZX" else []
        return [group for _state, _parent, group, *_ in stats() if group in found]

    with CodeRevision(["python", "-c", "pass"]) as revision:
        wait_for(lambda: len(stats()) == 1)
    wait_for(lambda: not alive())
    assert revision.found() is None
    monkeypatch.setattr(code, "IN_TIME", ("timeout", "-k", "0.1", "0.1"))
    assert asked("python", "-c", "pass") is None
    wait_for(lambda: not alive())
    # It has no terminal, nor our session.
    for _state, _parent, group, session, terminal, *_ in stats():
        assert (group, terminal, int(session) == os.getsid(0)) == (session, "0", False)


HASHED = "0123456789" * 4
UNKNOWN = f'case "$*" in *rev-parse*) echo {HASHED}; echo refs/heads/main;; *) exit 128;; esac'


@pytest.mark.parametrize(
    ("words", "found"),
    [
        *((each, None) for each in ("echo nonsense; echo refs/heads/main", "kill -9 $$", "yes | head -c 10000", ":")),
        (UNKNOWN, {"revision": HASHED, "branch": "main", "changed": None}),
    ],
)
def test_what_is_no_answer_of_git_is_none(fake: Callable[..., Any], words: str, found: object) -> None:
    """A status that is not known is not called unchanged."""
    fake(words)
    assert asked("python", "-c", "pass") == found
