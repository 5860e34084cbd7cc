"""Run by `warm.py`, with the names of modules: imports them once, and forks processes that have them already.

What it is sent over its standard input, a socket, it makes of a fork: `whyidle …` as of the command line, or a
Python program. `whyidle run` forks the program as well, which it would have started. The command's `main`, the
`sitecustomize` of the environment, hooks, sampler and loader workers are those of any other recording.
"""

from __future__ import annotations

import atexit
import fcntl
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import threading
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

MOST_BYTES = 1 << 18
"""Of a request: arguments and an environment."""
OURS = os.environ.get("PYTHONPATH", "")
USUAL = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
"""Signals that have their usual effect, as Ctrl-C has, however pytest was started: in the background of a shell, under
nohup and in xdist's processes some are ignored, which would be inherited."""
PATH = [folder for folder in sys.path[1:] if folder not in OURS.split(os.pathsep)]
"""Where modules are looked for without the folder of this file, and without PYTHONPATH."""


def serve(requests: socket.socket) -> None:
    while True:
        text, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, 4)
        if not text:
            return
        if not os.fork():
            requests.close()
            keep(json.loads(text), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def keep(request: dict[str, Any], stdin: int, stdout: int, stderr: int, reply: int) -> NoReturn:
    """Fork what is asked for; tell who it is, and how it ended."""
    pid = os.fork()
    if not pid:
        for number in USUAL:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        become(request["env"], (stdin, stdout, stderr))
        os.chdir(request["cwd"])
        if request["session"]:
            os.setsid()
        if request["terminal"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        kind: Callable[[list[str]], int | None] = KINDS[request["kind"]]
        end_with(lambda: kind(request["argv"]))
    for descriptor in (0, 1, 2, stdin, stdout, stderr):
        with suppress(OSError):
            os.close(descriptor)
    os.write(reply, b"%d\n" % pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(BrokenPipeError):
        os.write(reply, b"%d\n" % code)
    os._exit(0)


def become(environment: dict[str, str], streams: tuple[int, int, int]) -> None:
    """A process of this environment with these streams, and none of the descriptors of the one it was forked from."""
    above = 1 + max(2, *streams)
    for number, stream in enumerate([fcntl.fcntl(stream, fcntl.F_DUPFD, above) for stream in streams]):
        os.dup2(stream, number)
    os.closerange(3, 256)
    os.environ.clear()
    os.environ.update(environment)
    errors = ("surrogateescape", "surrogateescape", "backslashreplace")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        lines = number == 2 or os.isatty(number)
        mode = "w" if number else "r"
        stream = open(number, mode, encoding="utf-8", errors=errors[number], closefd=False)  # noqa: SIM115
        stream.reconfigure(line_buffering=lines)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def end_with(call: Callable[[], int | None]) -> NoReturn:
    """As Python ends after `call`."""
    code = 0
    try:
        code = call() or 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_globals is globals():
            trace = trace.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        code = 1
    with suppress(BaseException):
        threading._shutdown()
    with suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code & 0xFF)


def whyidle(arguments: list[str]) -> int:
    from whyidle.commands import main

    sys.argv = ["whyidle", *arguments]
    return main.main(arguments)


def whyidle_and_program(arguments: list[str]) -> int:
    from whyidle.terminal import child

    child.subprocess = types.SimpleNamespace(**{**vars(subprocess), "Popen": started})
    return whyidle(arguments)


def started(command: list[str | os.PathLike[str]], **more: Any) -> Any:
    """Instead of `Popen`: a program whose Python has torch already, where that is what the command is."""
    first, *arguments = [os.fspath(part) for part in command]
    if first != sys.executable or not arguments or (arguments[0].startswith("-") and arguments[0] != "-c"):
        return subprocess.Popen(command, **more)
    return Forked(arguments, **more)


class Forked:
    """A Python program, with as much of `Popen` as `whyidle.terminal.child` needs."""

    def __init__(self, arguments: list[str], env: dict[str, str], preexec_fn: Callable[[], None], **_: Any) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            preexec_fn()
            become(env, (0, 1, 2))
            end_with(lambda: python(arguments))

    def poll(self) -> int | None:
        if self.returncode is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.returncode = os.waitstatus_to_exitcode(ended[1])
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def python(arguments: list[str]) -> None:
    """`-c code …` or `program.py …`."""
    given = os.environ.get("PYTHONPATH", "")
    sys.path[:] = [*(os.path.abspath(folder) for folder in given.split(os.pathsep) if given), *PATH]  # noqa: PTH100
    importlib.invalidate_caches()
    sys.modules.pop("sitecustomize", None)
    with suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    if arguments[0] == "-c":
        sys.argv, where, code = ["-c", *arguments[2:]], "", compile(arguments[1], "<string>", "exec")
    else:
        path = Path(arguments[0])
        module.__file__ = str(path)
        sys.argv, where, code = arguments, str(path.resolve().parent), compile(path.read_bytes(), path, "exec")
    sys.path.insert(0, where)
    exec(code, module.__dict__)


KINDS = {"whyidle": whyidle, "recorded": whyidle_and_program, "program": python}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    with suppress(KeyboardInterrupt):
        serve(socket.socket(fileno=0))
