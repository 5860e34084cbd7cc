"""How the user's command is started, and what is to be said of how it ended."""

from __future__ import annotations

import errno
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import WhyidleError
from ...interrupts import ignored_before

OUTPUT = "output.txt"
KILLED = {-signal.SIGKILL, -signal.SIGBUS, 128 + signal.SIGKILL, 128 + signal.SIGBUS}
"""Exit codes, a shell's among them, of what lacked memory; nobody else has reason to."""


@dataclass(frozen=True)
class Launch:
    """How a training is started."""

    command: Sequence[str]
    environment: Callable[[Path, Mapping[str, Any]], Mapping[str, str]]
    """Of a run folder and the options for `tune`."""
    mark: Callable[[Path], str]
    """The `NAME=value` in it by which its processes are known, of a run folder."""
    after_steps: int = 60
    after_s: float = 2.0
    """What is recorded before the first order: so many steps, and so many seconds."""
    overwrite: bool = False
    budget_s: float | None = None
    """For all of it, from when the bench is made; `None`: no answer is waited for any shorter on its account."""
    most_starts: int = 3
    """It is started again when it ends, so many times in all."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """For the run.json of its recordings."""


def popen(command: list[str], environment: Mapping[str, str], output: Path) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C in our terminal is for us.

    Raises:
        WhyidleError: there is no such program, or it cannot be run.
    """
    hint = script_hint(command)
    try:
        with output.open("ab") as file:
            return subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=ignored_before(),
            )
    except FileNotFoundError as error:
        raise WhyidleError(f"there is no program {command[0]!r}.{hint}") from error
    except OSError as error:
        if error.errno == errno.ENOEXEC and command[0] != "/bin/sh":
            # A script without a first line that names its shell.
            return popen(["/bin/sh", *command], environment, output)
        raise WhyidleError(f"{command[0]} cannot be run: {error.strerror}.{hint}") from error


def script_hint(command: Sequence[str]) -> str:
    """For a message that there is no such program: a script was meant, perhaps."""
    return f" To tune a script, write: whyidle tune -- python {command[0]}" if command[0].endswith(".py") else ""


def last_lines(output: Path, most: int) -> list[str]:
    """The last that a command printed, without empty lines; none where it printed nothing."""
    lines: deque[str] = deque(maxlen=most)
    with suppress(OSError), output.open(errors="replace") as file:
        lines.extend(line.rstrip() for line in file if line.strip())
    return list(lines)


def how_it_ended(code: int) -> str:
    """In words, of an exit code as `subprocess` tells it."""
    if code >= 0:
        return f"with exit code {code}"
    known = -code in set(signal.Signals)
    name = signal.Signals(-code).name if known else str(-code)
    hint = {
        "SIGKILL": " (so the kernel ends a process when memory runs out)",
        "SIGBUS": " (usual when /dev/shm is full)",
    }
    return f"killed by {name}{hint.get(name, '')}"
