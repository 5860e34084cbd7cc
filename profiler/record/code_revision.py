"""Which revision of its code a command runs: asked of git while the command runs, which waits for none of it.

Git takes no lock, writes nothing, and runs no program that the repository names. It is in a session of its own, out
of the terminal's reach. Where there is no git, no repository, or no answer, nothing is known, and nothing is said.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .code import CODE, Code

MOST_SECONDS = 10.0
"""For an answer, even of a training that goes on: a folder of files may be on a network that hangs."""
NICE = 10
"""The training comes first."""
REAP_SECONDS = 0.5
"""For what was killed to be gone. What hangs in the kernel goes when it can."""
CHUNK = 65536
"""As much as a pipe holds."""
LONGEST_BRANCH = 250

# The first refuses where a version of git is too old to know it. Neither a file system monitor is started, nor content
# fetched that a partial clone lacks.
GIT = ("git", "--no-optional-locks", "--literal-pathspecs", "-c", "core.fsmonitor=false")
HEAD = ("rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
STATUS = r"""
set -- "$@" --no-literal-pathspecs
submodules=none
if "$@" config --get-regexp '^filter\..*\.(clean|process)$' > /dev/null; then
    filtered=$("$@" ls-files -- ':(top)' ':(top,exclude,attr:!filter)') && test -z "$filtered" || exit 2
    submodules=dirty
fi
exec "$@" status --porcelain --untracked-files=no --no-renames --ignore-submodules="$submodules"
"""
"""For a shell. Of files with a filter, as of git-lfs, status would pass the content through that program, which may
take long or do anything: where there are such, it is not asked. Submodules may have their own."""
TRACKED = ("ls-files", "--error-unmatch", "--")
UNTRACKED = 1
"""Exit code of the last for a file that git does not track."""
_BRANCHES = "refs/heads/"
_ANOTHER_REPOSITORY = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
}
"""Variables that git sets for its hooks: they would answer for another folder than the script's."""


class CodeRevision:
    """Use as a context manager around the command's life. Nothing here raises, or waits for git."""

    def __init__(self, command: Sequence[str], most_seconds: float = MOST_SECONDS) -> None:
        script = _script(command)
        folder = Path() if script is None else script.parent
        self._until = time.monotonic() + most_seconds
        git = (*GIT, "-C", os.fspath(folder))
        self._head = _Question(*git, *HEAD)
        self._status = _Question("sh", "-c", STATUS, "sh", *git)
        self._tracked = None if script is None else _Question(*git, *TRACKED, script.name)
        self.questions = [each for each in (self._head, self._status, self._tracked) if each is not None]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def tick(self) -> None:
        """Due about once a second: an end to what has taken too long."""
        for question in self.questions:
            question.has_ended()  # or it would be a zombie
        if time.monotonic() >= self._until:
            self._end()

    def found(self) -> dict[str, Any] | None:
        """For run.json, of what was answered until now."""
        self._end()
        lines = self._head.answer.decode(errors="replace").splitlines()
        if self._head.code != 0 or len(lines) != 2:
            return None
        branch = lines[1].removeprefix(_BRANCHES)[:LONGEST_BRANCH] if lines[1].startswith(_BRANCHES) else None
        code = Code.of({CODE: {"revision": lines[0], "branch": branch, "changed": self._changed()}})
        return None if code is None else asdict(code)

    def _changed(self) -> bool | None:
        # The first lines are enough, should there be more than the pipe holds.
        if self._status.answer or (self._tracked is not None and self._tracked.code == UNTRACKED):
            return True
        known = self._status.code == 0 and (self._tracked is None or self._tracked.code == 0)
        return False if known else None

    def _end(self) -> None:
        for question in self.questions:
            question.kill()
        for question in self.questions:
            question.read()


class _Question:
    """A git that runs, or has answered."""

    def __init__(self, *words: str) -> None:
        self.answer = b""
        self.code: int | None = None
        """`None`: it could not be asked, or did not end."""
        self.process: subprocess.Popen[bytes] | None = None
        environment = {name: value for name, value in os.environ.items() if name not in _ANOTHER_REPOSITORY}
        with suppress(OSError, ValueError):
            self.process = subprocess.Popen(
                words,
                env=environment | {"GIT_NO_LAZY_FETCH": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=lambda: os.nice(NICE),
            )

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def kill(self) -> None:
        """And whatever it started."""
        if self.process is not None and not self.has_ended():
            with suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def read(self) -> None:
        """Once it has ended: what it left in the pipe, which something else may still hold open."""
        process, self.process = self.process, None
        if process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(REAP_SECONDS)
            self.code = code if code >= 0 else None
        if process.stdout is not None:
            with process.stdout as pipe, suppress(OSError):
                os.set_blocking(pipe.fileno(), False)
                self.answer = os.read(pipe.fileno(), CHUNK)


def _script(command: Sequence[str]) -> Path | None:
    """The program that the command names, where its code lies: behind links, as Python looks for it."""
    for word in command:
        with suppress(OSError, ValueError):
            if word.endswith(".py") and Path(word).is_file():
                return Path(word).resolve()
    return None
