"""Signals that ask this process to end, kept from cutting short what must come to its end."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .errors import WhyidleError

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a supervisor's stop, a closed terminal."""

_PASSES_ON = re.compile(r"Name:\t(?:\w*sh|busybox|systemd)\n.*^SigIgn:\t(\w+)$", re.DOTALL | re.MULTILINE)
"""Of who hands what it ignores on to what it starts. Pythons and others ignore SIGPIPE for themselves alone."""


def ignored_before() -> Callable[[], object]:
    """To be called in a child that will run the user's program: has SIGPIPE and SIGXFSZ ignored where they were when
    this process was started. As Python ignores both, only who started it can tell: a shell, or systemd."""
    told = None
    with contextlib.suppress(OSError):
        told = _PASSES_ON.match(Path(f"/proc/{os.getppid()}/status").read_text(errors="replace"))
    these = [each for each in (signal.SIGPIPE, signal.SIGXFSZ) if told and int(told[1], 16) >> (each - 1) & 1]
    return lambda: [signal.signal(each, signal.SIG_IGN) for each in these]


def start_program(command: Sequence[str], hint: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start the user's command, a script without a first line that names its shell included.

    Args:
        hint: what the message adds.
        options: of `Popen`.

    Raises:
        WhyidleError: there is no such program, or it cannot be run.
    """
    try:
        return subprocess.Popen(command, **options)
    except FileNotFoundError as error:
        raise WhyidleError(f"there is no program {command[0]!r}.{hint}") from error
    except OSError as error:
        if error.errno == errno.ENOEXEC and command[0] != "/bin/sh":
            return start_program(["/bin/sh", *command], "", **options)
        raise WhyidleError(f"{command[0]} cannot be run: {error.strerror}.{hint}") from error


def end_like_ctrl_c() -> None:
    """Have a supervisor's stop and a closed terminal raise KeyboardInterrupt, so that what was measured is kept."""
    for each in ENDING:
        if each != signal.SIGINT:
            signal.signal(each, signal.default_int_handler)


@contextlib.contextmanager
def held(expected: int = 0, then: Callable[[], None] = lambda: None) -> Iterator[list[int]]:
    """Signals of `ENDING` raise nothing inside; yields the list of those that came, which grows.

    Those after the `expected` first call `then` where they come, between any two lines, and the first of them is
    delivered again at the end. Where Python lets no handler be set (outside the main thread, to which all signals go),
    nothing is changed.
    """
    # Handlers and no mask: a mask holds for one thread, libraries have others, and children would inherit it.
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)
        if len(came) > expected:
            then()

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {each: signal.signal(each, note) for each in ENDING}
    try:
        yield came
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
        if len(came) > expected:
            signal.raise_signal(came[expected])
