"""The leader of a command's terminal session, which is not the command itself.

A terminal's session has a leader, and its end hangs up on all that is in the foreground. Were the command the leader,
what it leaves running in the background would be killed when it ends.
"""

from __future__ import annotations

import fcntl
import os
import signal
import termios
import time
from contextlib import suppress
from typing import NoReturn

from .child import PASSED_ON, end_as

PAUSE_SECONDS = 0.1
"""Before a command that stopped itself goes on: it may do so again and again."""


def begin_session(terminal: int, tell: int) -> None:
    """In a new process: lead a session on the terminal, and return in a child of it, the foreground, alone.

    Args:
        terminal: becomes the session's; standard input is the same.
        tell: the leader writes the child's process id and a space to it.
    """
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    command = os.fork()
    if command:
        _lead(command, tell)
    os.setpgid(0, 0)
    _to_foreground(terminal, os.getpgrp())


def _lead(command: int, tell: int) -> NoReturn:
    """End as the command does, and let what it leaves behind go on."""
    # Who signals every process of a job has reached the command: it may still want to save, and a leader's end would
    # hang up on it. Hanging up is how it learns that the terminal is gone.
    for signum in PASSED_ON - {signal.SIGHUP}:
        signal.signal(signum, signal.SIG_IGN)
    with suppress(OSError):
        os.write(tell, b"%d " % command)
    _let_go_of_files()
    while os.WIFSTOPPED(status := os.waitpid(command, os.WUNTRACED)[1]):
        # Who stopped it from outside, with SIGSTOP, continues it from there. There is no shell to continue what the
        # terminal or the command itself stopped.
        if os.WSTOPSIG(status) != signal.SIGSTOP:
            _continue(command)
    # The hang-up that comes with a leader's end goes to the foreground: from here on, this process alone.
    with suppress(OSError):
        _to_foreground(0, os.getpgrp())
    os._exit(end_as(os.waitstatus_to_exitcode(status)))


def _let_go_of_files() -> None:
    """Whoever started the command sees by the end of a pipe that it runs; this copy of it must not keep it open."""
    try:
        # Far fewer than there might be, which may be a thousand million.
        opened = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    except OSError:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        return
    for number in opened:
        with suppress(OSError):
            os.close(number)


def _continue(command: int) -> None:
    """As a shell's `fg`."""
    time.sleep(PAUSE_SECONDS)
    with suppress(OSError):
        group = os.getpgid(command)
        _to_foreground(0, group)
        os.killpg(group, signal.SIGCONT)


def _to_foreground(terminal: int, group: int) -> None:
    """Put a group into the terminal's foreground, which a process in the background may do only like this."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        os.tcsetpgrp(terminal, group)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
