"""The code that a recorded command ran, as run.json names it: a revision of git, and whether that is all of it.

Git is asked while the command runs, which waits for none of it. It takes no lock, writes nothing, and runs no program
that the repository names. It is in a session of its own, out of the terminal's reach. Where there is no git, no
repository, or no answer, nothing is known, and nothing is said.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from .files import as_a

CODE = "code"
"""The key of run.json."""
SHOWN = 10
"""Signs of a revision that are shown: enough for git to find it."""
_REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
IN_TIME = ("timeout", "-k", "1", "10")
"""Ends what has not answered within 10 s, even of a training that goes on: a folder may be on a network that hangs."""
NICE = 10
"""The training comes first."""
REAP_SECONDS = 0.5
"""For what was killed to be gone. What hangs in the kernel goes when it can."""
MOST_ANSWER = 4096
"""Bytes of the answers that are read."""
LONGEST_BRANCH = 250

QUESTIONS = r"""
ask() { git --no-optional-locks -c core.fsmonitor=false "$@"; }
cd "$1" && ask rev-parse HEAD --symbolic-full-name HEAD || exit
test -z "$2" || ask ls-files --error-unmatch -- ":(literal)$2" >/dev/null || { test $? = 1 && echo changed; exit 2; }
inner=none
if ask config --get-regexp '^filter\..*\.(clean|process)$' >/dev/null; then
  files=$(ask ls-files -- ':(top)' ':(top,exclude,attr:!filter)') && test -z "$files" || exit 2
  inner=dirty
fi
files=$(ask status --porcelain -uno --no-renames --ignore-submodules=$inner) || exit
test -z "$files" || echo changed
"""
"""For a shell, which is given a folder and the name of a script in it. It prints the revision, the reference, and
`changed` where something differs or the script is not tracked; with exit code 0 that is all there is to say. The first
question refuses where a version of git is too old to know the options: neither is a file system monitor started, nor
content fetched that a partial clone lacks. Status would pass files with a filter, as of git-lfs, through that program,
which may take long or do anything: where there are such, it is not asked. Submodules may have their own."""
_BRANCHES = "refs/heads/"
_ANOTHER_REPOSITORY = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
}
"""Variables that git sets for its hooks: they would answer for another folder than the script's."""


@dataclass(frozen=True)
class Code:
    revision: str
    """The full hash."""
    branch: str | None = None
    """`None`: on none."""
    changed: bool | None = None
    """Whether files that git tracks differed from the revision, or the script is none of them; `None`: not known."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self | None:
        """Read what run.json says; `None` where that is nothing, or no revision."""
        found = as_a(cls, info.get(CODE))
        return found if found is not None and _REVISION.fullmatch(found.revision) else None

    @property
    def short(self) -> str:
        return self.revision[:SHOWN]

    def __str__(self) -> str:
        return self.short + {True: " + changes", False: "", None: " (changes unknown)"}[self.changed]


class CodeRevision:
    """Asks git about a command's code. Use as a context manager around the command's life. Nothing here raises, or
    waits for git."""

    def __init__(self, command: Sequence[str]) -> None:
        script = _script(command)
        folder, name = (script.parent, script.name) if script is not None else (".", "")
        self.process: subprocess.Popen[bytes] | None = None
        """The shell that asks; `None` where it could not be started."""
        self._answer: tuple[int | None, bytes] | None = None
        """Exit code, `None` where it was killed, and what it printed, once it is over."""
        environment = {name: value for name, value in os.environ.items() if name not in _ANOTHER_REPOSITORY}
        with suppress(OSError, ValueError):
            self.process = subprocess.Popen(
                [*IN_TIME, "sh", "-c", QUESTIONS, "sh", folder, name],
                env=environment | {"GIT_NO_LAZY_FETCH": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=lambda: os.nice(NICE),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._end()

    def found(self) -> dict[str, Any] | None:
        """Give what run.json is to say, by what was answered until now."""
        code, answer = self._end()
        lines = answer.decode(errors="replace").splitlines()
        if len(lines) < 2:
            return None
        branch = lines[1].removeprefix(_BRANCHES)[:LONGEST_BRANCH] if lines[1].startswith(_BRANCHES) else None
        changed = True if lines[2:] else False if code == 0 else None
        said = Code.of({CODE: {"revision": lines[0], "branch": branch, "changed": changed}})
        return None if said is None else asdict(said)

    def _end(self) -> tuple[int | None, bytes]:
        process = self.process
        if self._answer is None and process is not None:
            if process.poll() is None:
                with suppress(OSError):
                    # And whatever it started.
                    os.killpg(process.pid, signal.SIGKILL)
            code, answer = -1, b""
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(REAP_SECONDS)
            assert process.stdout is not None
            with process.stdout as pipe, suppress(OSError):
                # Something else may still hold it open.
                os.set_blocking(pipe.fileno(), False)
                answer = os.read(pipe.fileno(), MOST_ANSWER)
            self._answer = code if code >= 0 else None, answer
        return self._answer or (None, b"")


def _script(command: Sequence[str]) -> Path | None:
    """The program that the command names, where its code lies: behind links, as Python looks for it."""
    for word in command:
        with suppress(OSError, ValueError):
            if word.endswith(".py") and Path(word).is_file():
                return Path(word).resolve()
    return None
