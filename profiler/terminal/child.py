"""A command run in our place: it gets the signals that were meant for it, and its ending becomes ours."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from ..errors import WhyidleError

PASSED_ON = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
FROM_KERNEL = 0x80
"""`si_code` of a signal that the terminal sent: it went to the whole foreground group, so the child has it already."""


class Signals:
    """Within the block signals are not acted on but waited for, so that where they came from is known.

    A signal that is ignored, as SIGHUP under `nohup`, stays so, for the child too.
    """

    def __init__(self) -> None:
        ignored = {s for s in PASSED_ON if signal.getsignal(s) is signal.SIG_IGN}
        self.watched = (PASSED_ON - ignored) | {signal.SIGCHLD, signal.SIGWINCH, signal.SIGCONT}
        self.before: set[signal.Signals] = set()
        self.forgets_children = False
        """We were started with SIGCHLD ignored. The kernel would keep no child's end, and one that failed seem well."""

    def __enter__(self) -> Self:
        self.forgets_children = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        if self.forgets_children:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.before = {signal.Signals(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, self.watched)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What came too late for the child is not for us.
        while signal.sigtimedwait(self.watched, 0) is not None:
            pass
        if self.forgets_children:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)

    def next(self, seconds: float) -> signal.struct_siginfo | None:
        """The next signal within so many seconds."""
        return signal.sigtimedwait(self.watched, seconds)


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    signals: Signals,
    streams: Sequence[int | None] = (None, None, None),
    prepare: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start the command with our descriptors, or with `streams` for its input, output and errors.

    What else whoever started us has left open, such as a shell's `<(…)` or a lock, the command gets too. What we have
    opened ourselves closes when a program is executed.

    Args:
        prepare: run in the child, before the command.

    Raises:
        WhyidleError: there is no such program, or it cannot be run; or `prepare` failed.
    """

    def in_child() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, signals.before)
        if prepare is not None:
            prepare()
        if signals.forgets_children:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    stdin, stdout, stderr = streams
    hint = f" To run a script write: whyidle run -- python {command[0]}" if command[0].endswith(".py") else ""
    try:
        return subprocess.Popen(
            command,
            env=dict(environment),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            preexec_fn=in_child,
            close_fds=False,
        )
    except FileNotFoundError as error:
        raise WhyidleError(f"there is no program {command[0]!r}.{hint}") from error
    except subprocess.SubprocessError as error:
        raise WhyidleError(f"{command[0]} got no terminal of its own. Use --no-live.") from error
    except OSError as error:
        if error.errno == errno.ENOEXEC and command[0] != "/bin/sh":
            # A script without a first line that names its shell.
            return start(["/bin/sh", *command], environment, signals, streams, prepare)
        raise WhyidleError(f"{command[0]} cannot be run: {error.strerror}.{hint}") from error


def wait(child: subprocess.Popen[bytes], signals: Signals, on_tick: Callable[[], object], tick_seconds: float) -> int:
    """The child's end, as `Popen.returncode`. Meanwhile signals are passed on, and `on_tick` is called, whose errors
    are nothing to the child."""
    while (code := child.poll()) is None:
        caught = signals.next(tick_seconds)
        if caught is None:
            with suppress(Exception):
                on_tick()
        elif caught.si_signo in PASSED_ON and caught.si_code != FROM_KERNEL:
            with suppress(ProcessLookupError):
                child.send_signal(caught.si_signo)
    return code


def end_as(code: int) -> int:
    """The exit code that says what the child's did; a child that a signal killed takes us along the same way."""
    if code >= 0:
        return code
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signum = -code
    with suppress(OSError, ValueError):
        signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    return 128 + signum
