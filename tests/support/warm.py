"""`whyidle` and trainings as processes that need not start Python and import torch first, which takes a test of a
short training most of its time: they are forked from one that has done both (`warm_server.py`).

For tests of what happens while a training runs and when it ends. How a recording gets into a Python that is started,
`test_run.py` shows with such.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import IO, Any

SERVER = Path(__file__).with_name("warm_server.py")
LONGEST_S = 240
"""For what takes seconds, on a machine that is as busy as it may be: a server's imports, a training to its end."""
COMMAND = "whyidle.commands.main"
TRAINING = (
    "numpy.ma",
    "numpy.random",
    "torch",
    "torch.nested._internal.nested_tensor",
    "whyidle.capture.hooks.install",
)
MODULES = {"commands": (COMMAND,), "trainings": (COMMAND, *TRAINING)}
"""What a server has imported: for commands that start a program, and for those whose program is a training."""


class Process:
    """A process that a server forked."""

    def __init__(
        self,
        server: str,
        kind: str,
        arguments: list[str],
        streams: tuple[int, int, int],
        *,
        env: dict[str, str] | None = None,
        cwd: str | Path | None = None,
        terminal: bool = False,
        session: bool = False,
    ) -> None:
        """`kind`: a command, "whyidle", or with the program it runs, "recorded"; or a "program" of Python.

        `terminal`: `streams` are one, which shall control it. `session`: it shall lead one of its own.
        """
        self.args = arguments
        self.returncode: int | None = None
        self._reply, theirs = os.pipe()
        request = {
            "kind": kind,
            "argv": arguments,
            "env": dict(os.environ if env is None else env),
            "cwd": os.fspath(cwd or Path.cwd()),
            "terminal": terminal,
            "session": session or terminal,
        }
        try:
            socket.send_fds(_server(server), [json.dumps(request).encode()], [*streams, theirs])
        finally:
            os.close(theirs)
        self.pid = self._told(LONGEST_S)
        """Of the command, which is no child of this process."""
        assert self.pid is not None, "the server did not answer"

    def poll(self) -> int | None:
        return self.wait(0) if self.returncode is None else self.returncode

    def wait(self, seconds: float = LONGEST_S) -> int | None:
        """What it ended with, as `Popen.returncode`; `None` while it runs."""
        if self.returncode is None:
            self.returncode = self._told(seconds)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _told(self, seconds: float) -> int | None:
        until, told = time.monotonic() + seconds, b""
        while not told.endswith(b"\n"):
            if not select.select([self._reply], [], [], max(0, until - time.monotonic()))[0]:
                return None
            byte = os.read(self._reply, 1)
            assert byte, "the server is gone"
            told += byte
        return int(told)

    def __del__(self) -> None:
        os.close(self._reply)


def run(
    folder: Path,
    *command: str | Path,
    options: tuple[str, ...] = ("--no-live",),
    training: bool = True,
    input: str = "",
    **more: Any,
) -> subprocess.CompletedProcess[str]:
    """As `runs.run`. `training`: the command is one, whose Python is forked; all others are started."""
    arguments = ["run", *options, "--out", str(folder), "--", *map(str, command)]
    return _to_its_end("recorded" if training else "whyidle", arguments, input, **more)


def bare(*arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """A training without us."""
    return _to_its_end("program", list(map(str, arguments)), "", **more)


def _to_its_end(kind: str, arguments: list[str], given: str, **more: Any) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(given.encode())
        stdin.seek(0)
        process = Process("trainings", kind, arguments, (stdin.fileno(), stdout.fileno(), stderr.fileno()), **more)
        if process.wait(LONGEST_S) is None:
            process.kill()
            raise subprocess.TimeoutExpired(arguments, LONGEST_S, _read(stdout), _read(stderr))
        return subprocess.CompletedProcess(arguments, process.returncode, _read(stdout), _read(stderr))


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@cache
def _server(name: str) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen([sys.executable, SERVER, *MODULES[name]], stdin=theirs)
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours
