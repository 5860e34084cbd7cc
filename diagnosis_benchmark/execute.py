"""A command in a session of its own, of which nothing is left when it has ended, or takes too long."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

LONGEST_S = 240.0
TOOK_TOO_LONG = 124
"""The exit code of a command that was ended because it took too long, as that of `timeout`."""


def execute(
    command: Sequence[str],
    folder: Path,
    output: Path,
    environment: Mapping[str, str] | None = None,
    errors: int = subprocess.STDOUT,
    longest_s: float = LONGEST_S,
) -> int:
    """The exit code of a command that runs in `folder`.

    Args:
        output: the file that keeps what it prints.
        environment: by default this process's own.
        errors: where its standard error goes: `subprocess.STDOUT` (the same file) or `subprocess.DEVNULL`.
        longest_s: after so many seconds it and all that it started is ended.
    """
    with output.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
        )
        try:
            return process.wait(longest_s)
        except subprocess.TimeoutExpired:
            return TOOK_TOO_LONG
        finally:
            # Also where Ctrl-C ends the wait: in a session of its own it gets none.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
