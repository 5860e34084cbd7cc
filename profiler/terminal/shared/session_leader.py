"""The leader of a command's terminal session, which is not the command itself.

A terminal's session has a leader, and its end hangs up on all that is in the foreground. Were the command the leader,
what it leaves running in the background would be killed when it ends. The leader is also the shell that continues the
command after Ctrl-Z: a terminal stops nobody whom no shell could continue.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import termios
import time
from contextlib import suppress
from typing import NoReturn

from ..child import PASSED_ON, Signals, end_as

STOPPED = b"s"
"""Sent by the leader, after the command's process id and a space: the command has stopped. Any answer continues it."""
PAUSE_SECONDS = 0.1
"""Before a command goes on: it may stop itself again and again."""


def begin_session(terminal: int, control: socket.socket, signals: Signals) -> None:
    """In a new process: lead a session on the terminal, and return in a child of it, the foreground, alone.

    Args:
        terminal: becomes the session's; standard input is the same.
        control: the leader's end.
    """
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    command = os.fork()
    if command:
        _lead(command, control, signals)
    os.setpgid(0, 0)
    _to_foreground(terminal, os.getpgrp())


def _lead(command: int, control: socket.socket, signals: Signals) -> NoReturn:
    """End as the command does, and let what it leaves behind go on."""
    signals.restore()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Who signals every process of a job has reached the command: it may still want to save, and a leader's end would
    # hang up on it. Hanging up is how it learns that the terminal is gone.
    for signum in PASSED_ON - {signal.SIGHUP}:
        signal.signal(signum, signal.SIG_IGN)
    with suppress(OSError):
        control.sendall(b"%d " % command)
    _let_go_of_files(control.fileno())
    while os.WIFSTOPPED(status := os.waitpid(command, os.WUNTRACED)[1]):
        # Who stopped it from outside, with SIGSTOP, continues it from there.
        if os.WSTOPSIG(status) != signal.SIGSTOP:
            with suppress(OSError):
                control.sendall(STOPPED)
                control.recv(1)
            _continue(command)
    # The hang-up that comes with a leader's end goes to the foreground: from here on, this process alone.
    with suppress(OSError):
        _to_foreground(0, os.getpgrp())
    os._exit(end_as(os.waitstatus_to_exitcode(status)))


def _let_go_of_files(kept: int) -> None:
    """Whoever started the command sees by the end of a pipe that it runs; this copy of it must not keep it open."""
    # Far fewer than there might be, which may be a thousand million.
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != kept:
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
