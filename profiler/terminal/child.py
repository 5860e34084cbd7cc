"""A command run in our place, with our descriptors and in our process group: it gets the signals that were meant for
it, stops and goes on with us as a shell's job does, and its ending becomes ours. And the live view beside it."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Self

from ..errors import WhyidleError
from ..interrupts import ignored_before, start_program

TYPED = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP}
"""A terminal sends these to its whole foreground group when Ctrl-C, Ctrl-\\ and Ctrl-Z are typed."""
PASSED_ON = TYPED | {signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
TERMINAL_STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
FROM_KERNEL = 0x80
"""`si_code` of a signal that the terminal sent: it went to the whole foreground group, so a command of ours has it."""
TERMINAL = "/dev/tty"
"""The process's own."""
MOST_SECONDS, MOST_BYTES = 60, 2 << 30
"""That what is made in bounds may take."""
PANE_ROWS = 12
ANSWER_SECONDS = 5.0
"""For tmux to answer, and for the live view to end."""
VIEW_SECONDS = 1.0
"""Between two pictures of the live view."""
_PR_SET_PDEATHSIG = 1
_TO_PANE = ("PYTHONPATH", "LD_LIBRARY_PATH")
"""What our Python may need and a pane, which has the environment of tmux, may lack."""
LOOK_SECONDS = 1.0
"""Between looks at the command where no signal comes."""
SETTLE_SECONDS = 0.05
"""A command that stands still for so long has stopped: not all processes of a group go on at once."""


class Signals:
    """Within the block signals are not acted on but waited for, so that where they came from is known.

    That takes a mask, which holds for one thread: one that a library started earlier may take a signal all the same.
    Then a handler notes it, and only its sender is not known. A signal that is ignored, as SIGHUP under `nohup`, stays
    so, for the command too.
    """

    def __init__(self, around_stops: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        """`around_stops`: makes what surrounds a time in which we are stopped."""
        self.around_stops = around_stops
        ignored = {each for each in PASSED_ON if signal.getsignal(each) is signal.SIG_IGN}
        self.watched = (PASSED_ON - ignored) | {signal.SIGCHLD, signal.SIGWINCH, signal.SIGCONT}
        self._mask: set[signal.Signals] = set()
        self._handlers: dict[signal.Signals, Any] = {}
        self._noted: deque[int] = deque()

    def __enter__(self) -> Self:
        self._mask = {signal.Signals(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, self.watched)}
        # Of SIGCHLD it also ends that it is ignored, as whoever started us may have had it: the kernel would keep no
        # child's end, and a command that failed seem well.
        for each in self.watched:
            self._handlers[each] = signal.signal(each, lambda number, _: self._noted.append(number))
        return self

    def __exit__(self, *_: object) -> None:
        # What came too late for the command is not for us.
        while signal.sigtimedwait(self.watched, 0) is not None:
            pass
        self.restore()

    def restore(self) -> None:
        """As it was before; also in a process forked from this one."""
        for each, handler in self._handlers.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def next(self, seconds: float) -> signal.struct_siginfo | None:
        """The next signal within so many seconds."""
        if not self._noted and (caught := signal.sigtimedwait(self.watched, seconds)) is not None:
            return caught
        if not self._noted:
            return None
        number = self._noted.popleft()
        code = FROM_KERNEL if number in TYPED and in_foreground() else 0
        return signal.struct_siginfo((number, code, 0, 0, 0, 0, 0))

    def stop(self) -> None:
        """Stop this process until a shell continues it. Where no shell watches its group, nothing happens."""
        with self.around_stops():
            handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            # To this thread: another must not take it later.
            signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
            # Here it stands still.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
            signal.sigtimedwait({signal.SIGCONT}, 0)
            signal.signal(signal.SIGTSTP, handler)


def in_foreground() -> bool:
    """Whether we have a terminal, and no shell or other job has it now."""
    with suppress(OSError), Path(TERMINAL).open() as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False


def start(command: Sequence[str], environment: Mapping[str, str], signals: Signals) -> subprocess.Popen[bytes]:
    """Start the command with our descriptors.

    What else whoever started us has left open, such as a shell's `<(…)` or a lock, the command gets too. What we have
    opened ourselves closes when a program is executed.

    Raises:
        WhyidleError: there is no such program, or it cannot be run.
    """

    def in_child() -> None:
        signals.restore()
        ignore()

    ignore = ignored_before()
    hint = f" For a script: whyidle run -- python {command[0]}" if command[0].endswith(".py") else ""
    return start_program(command, hint, env=dict(environment), preexec_fn=in_child, close_fds=False)


def wait(child: subprocess.Popen[bytes], signals: Signals, on_end: Callable[[int], object] = lambda _: None) -> int:
    """The child's end, as `Popen.returncode`, once `on_end` was called with it. Meanwhile signals are passed on, and
    we stop when it does.

    A terminal's Ctrl-Z is followed once the child has stopped, which may have put the terminal in order first, or not
    stop at all. Who stopped it from outside, with SIGSTOP, continues it from there and may not know of us; only Ctrl-Z
    stops us then.
    """
    since: float | None = None
    while (code := child.poll()) is None:
        stopped = _stopped_by(child.pid)
        since = None if stopped is None else since or time.monotonic()
        stands = since is not None and time.monotonic() - since >= SETTLE_SECONDS
        if stands and stopped in TERMINAL_STOPS:
            _stop_with(child.pid, signals)
            since = None
            continue
        caught = signals.next(LOOK_SECONDS if stands or stopped is None else SETTLE_SECONDS)
        if caught is None:
            continue
        number = caught.si_signo
        theirs = caught.si_code == FROM_KERNEL or (number == signal.SIGTSTP and caught.si_pid == child.pid)
        if number == signal.SIGTSTP and stopped is not None:
            _stop_with(child.pid, signals)
        elif number == signal.SIGCONT and stands:
            _continue(child.pid)
        elif number in PASSED_ON and not theirs:
            with suppress(ProcessLookupError):
                child.send_signal(number)
    on_end(code)
    return code


def _stopped_by(pid: int) -> int | None:
    """The signal by which a child stands still; `None`: it does not."""
    with suppress(ChildProcessError):
        told = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        return None if told is None else told.si_status
    return None


def _stop_with(pid: int, signals: Signals) -> None:
    """Stop, until a shell continues us, and then the child where the shell did not.

    Once it went on it may have been stopped again, by a Ctrl-Z that we have yet to get: that is another stop.
    """
    signals.stop()
    while _stopped_by(pid) is not None:
        if signal.sigtimedwait({signal.SIGTSTP}, SETTLE_SECONDS) is None:
            _continue(pid)
            return
        signals.stop()


def _continue(pid: int) -> None:
    """Where a shell's SIGCONT to our group has not done so."""
    with suppress(OSError):
        group = os.getpgid(pid)
        if _stopped_by(pid) is not None:
            os.kill(pid if group == os.getpgrp() else -group, signal.SIGCONT)


def in_bounds(make: Callable[[], None]) -> None:
    """Make something in a process of its own, which ends in any case: of what was recorded nobody knows whether it is
    sound. Ctrl-C ends it too.

    Raises:
        WhyidleError: it took too long, or too much memory.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(MOST_SECONDS)
            # Not RLIMIT_AS: a library's threads reserve more on a large machine, which is no memory in use.
            held = re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())
            most, hard = MOST_BYTES + 1024 * int(held[1] if held else 0), resource.getrlimit(resource.RLIMIT_DATA)[1]
            resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))
            make()
            sys.stderr.flush()
        os._exit(0)
    try:
        ended = os.waitpid(pid, 0)[1]
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    if ended:
        raise WhyidleError(f"it took more than {MOST_SECONDS} s or {MOST_BYTES >> 30} GB of memory.")


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


# The live view beside the command.


class Beside:
    """Within the block `whyidle live` shows a run folder, if there is a place for it, never where the command's output
    goes: on the terminal where all of that goes into files, or in a pane of tmux."""

    def __init__(self, folder: Path) -> None:
        self.how = f"to watch: whyidle live {folder} in another terminal"
        """In words: where it is shown, or how the user gets it."""
        # -P: what lies in the user's working folder must not stand in for a module of ours. The slash: tmux takes a `;`
        # at the end of a word for its own.
        self._view = [sys.executable, "-P", "-m", "whyidle", "live", f"{folder.resolve()}/"]
        self._drawn: subprocess.Popen[bytes] | None = None
        self._pane = ""
        try:
            if _has_free_terminal():
                self._draw()
                self.how = "the terminal shows the live view"
            elif os.environ.get("TMUX") and shutil.which("tmux"):
                self._pane = self._split()
                self.how = "a tmux pane shows the live view"
        except Exception as error:
            self.how += f" ({error})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._undraw()
        if self._pane:
            with suppress(Exception):
                _tmux("kill-pane", "-t", self._pane)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Around a time in which a shell has the terminal."""
        drawn = self._undraw()
        yield
        if drawn and in_foreground():
            with suppress(Exception):
                self._draw()

    def _draw(self) -> None:
        """On our terminal, without keys: what is typed is the command's, also Ctrl-C, of which a group of its own knows
        nothing."""
        library = ctypes.CDLL(None)

        def prepare() -> None:
            library.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM), *[ctypes.c_ulong(0)] * 3)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())

        nowhere = subprocess.DEVNULL
        command = [*self._view, "--interval", f"{VIEW_SECONDS:g}"]
        with Path(TERMINAL).open("wb", buffering=0) as terminal:
            self._drawn = subprocess.Popen(
                command, stdin=nowhere, stdout=terminal, stderr=nowhere, preexec_fn=prepare, process_group=0
            )

    def _undraw(self) -> bool:
        """Give the terminal back; whether it was drawn on."""
        drawn, self._drawn = self._drawn, None
        if drawn is None:
            return False
        with suppress(Exception):
            drawn.terminate()
            try:
                drawn.wait(ANSWER_SECONDS)
            finally:
                drawn.kill()
        return True

    def _split(self) -> str:
        """A pane below ours: its name."""
        given = [f"{name}={os.environ[name]}" for name in _TO_PANE if name in os.environ]
        ours = ["-t", os.environ["TMUX_PANE"]] if "TMUX_PANE" in os.environ else []
        made = ["split-window", "-d", "-l", str(PANE_ROWS), "-P", "-F", "#{pane_id}", *ours]
        return _tmux(*made, "env", *given, *self._view)


def _has_free_terminal() -> bool:
    """Whether there is a terminal in whose foreground we are, and what a command of ours writes goes into files.

    Through a pipe it may come back to the terminal, as from `tee`.
    """
    try:
        kinds = [os.fstat(stream) for stream in (1, 2)]
        nowhere = Path(os.devnull).stat().st_rdev
    except OSError:
        return False  # closed
    return all(stat.S_ISREG(kind.st_mode) or kind.st_rdev == nowhere for kind in kinds) and in_foreground()


def _tmux(*words: str) -> str:
    done = subprocess.run(
        ["tmux", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
    )
    if done.returncode:
        raise OSError(f"tmux: {' '.join(done.stderr.split())}")
    return done.stdout.strip()
