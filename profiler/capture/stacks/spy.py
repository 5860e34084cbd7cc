"""py-spy at one process: it looks at the stacks of its Python threads, several times a second, until it is ended.

py-spy tells what it saw only when it ends, on a clock of its own, and of a stack that did not change nothing at all.
When it looked, and whether that failed, it tells at once on a terminal ("Collected 12 samples (1 errors)"): it is given
one that nobody sees. Whoever reads that knows the moment of each look on the clock of the steps, and can ask the
kernel what the threads are at just then.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import importlib.metadata
import os
import re
import shutil
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from ...errors import WhyidleError
from .trace import SpyTrace, read_trace

MOST_RATE = 10
"""Looks a second: the terminal is told no more."""
AFTER_NS = 50_000_000
"""A look's message comes within this time of it."""
MOST_TOLD = 16 << 10
"""Characters kept of what py-spy tells."""
SILENT_NS = 10_000_000_000
"""After so long without a look py-spy hangs."""
_PR_SET_PDEATHSIG = 1
_WINDOW = struct.pack("HHHH", 24, 80, 0, 0)
_LOOK = re.compile(rb"Collected (\d+) samples(?: \((\d+) errors\))? ")
_REFUSED = re.compile(r"permission denied|operation not permitted", re.IGNORECASE)
_SAYS = re.compile(r"(?:[Ee]rror: |(?=Permission)|(?<!\d)0: )(.*)")
_prctl = ctypes.CDLL(None).prctl


class NoStacks(WhyidleError):
    """Why a process's stacks are not seen."""

    def __init__(self, reason: str, refused: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused
        """The right to look into the process is missing; else it is nothing that can be read."""


class Look(NamedTuple):
    """One look at all threads of a process."""

    t_ns: int
    failed: bool
    """The stacks changed while they were read."""


def program() -> str:
    """py-spy's path.

    Raises:
        NoStacks: it is not installed.
    """
    found = _installed() or shutil.which("py-spy")
    if found is None:
        raise NoStacks("py-spy is not installed (`pip install py-spy`)")
    return found


@functools.cache
def _installed() -> str | None:
    """The one that was installed with this package."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.distribution("py-spy").files or ():
            if file.name == "py-spy" and os.access(found := str(file.locate()), os.X_OK):
                return found
    return None


class Spy:
    """One py-spy, in a session of its own; it dies with the thread that started it. Close it in the end."""

    def __init__(self, pid: int, rate: int, output: Path) -> None:
        """Start to look.

        Args:
            pid: the process.
            rate: looks a second, at random distances.
            output: the file that py-spy writes in the end.

        Raises:
            NoStacks: py-spy is not there, or cannot be started.
        """
        self._output = output
        self._told = b""
        self._samples = self._errors = 0
        self._first_ns: int | None = None
        self._looked_ns: list[int] = []
        self._heard_ns = time.monotonic_ns()
        self._asked_ns: int | None = None
        self.looks = 0
        """Those that were told of."""
        self.over = False
        """Whether it has ended."""
        self.code: int | None = None
        """Its exit code, once it has ended."""
        self.cpu_ns = 0
        """CPU time that it took, once it has ended."""
        command = [program(), "record", "--format", "chrometrace", "--full-filenames", "--nonblocking", "--idle"]
        command += ["--threads", "--capture", "--rate", str(rate), "--output", str(output), "--pid", str(pid)]
        try:
            self._fd, terminal = os.openpty()
        except OSError as error:
            raise NoStacks(f"there is no terminal for py-spy ({error.strerror})") from None
        try:
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, _WINDOW)
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=terminal,
                env={"TERM": "xterm", "PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(self._fd)
            raise NoStacks(f"py-spy could not be started ({error})") from None
        finally:
            os.close(terminal)
        os.set_blocking(self._fd, False)

    def fileno(self) -> int:
        """Readable when there is something to hear."""
        return self._fd

    def hear(self) -> Look | None:
        """The look that was made since the last call, the last one of several; never waits."""
        now = time.monotonic_ns()
        try:
            told = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            told = None
        except OSError:
            # The other end is closed.
            told = b""
        if told:
            self._told = (self._told + told)[-MOST_TOLD:]
        elif told is not None or now - self._heard_ns > SILENT_NS:
            self._reap()
        found = _LOOK.findall(told or b"")
        if not found:
            return None
        samples, errors = int(found[-1][0]), int(found[-1][1] or 0)
        if (samples, errors) == (self._samples, self._errors):
            return None
        failed = samples == self._samples
        if not failed:
            self._looked_ns.append(now)
        self._samples, self._errors, self._heard_ns = samples, errors, now
        self.looks += 1
        return Look(now, failed)

    def end(self) -> None:
        """Tell it to write what it saw and end, which it does at its next look."""
        if self._asked_ns is None and not self.over:
            self._asked_ns = time.monotonic_ns()
            os.kill(self._process.pid, signal.SIGINT)

    def wait(self, seconds: float) -> None:
        """Wait until it has ended; after so long it is killed, and what it saw is lost."""
        until = time.monotonic() + seconds
        while not self.over and time.monotonic() < until:
            self.hear()
            time.sleep(0.005)
        self._reap()

    def stacks(self) -> tuple[SpyTrace, float]:
        """What it saw once it is over, and what its clock is behind ours, in nanoseconds.

        Raises:
            NoStacks: it saw nothing, or wrote what cannot be read.
        """
        try:
            trace = read_trace(self._output)
        except FileNotFoundError:
            raise _unseen(self._told, self.code) from None
        except (OSError, ValueError) as error:
            raise NoStacks(f"py-spy wrote what cannot be read ({error})") from None
        if not trace.changes_us or not self._looked_ns:
            raise NoStacks("py-spy saw no stack")
        # The first look that succeeds always sees something new.
        offset = self._looked_ns[0] - 1000.0 * trace.changes_us[0]
        later = []
        for at_us in trace.changes_us:
            after = (looked - offset - 1000.0 * at_us for looked in self._looked_ns)
            nearest = min(after, key=abs)
            if abs(nearest) < AFTER_NS:
                later.append(nearest)
        return trace, offset + median(later)

    def close(self) -> None:
        """Leave no process and no file behind."""
        self._reap()
        with contextlib.suppress(OSError):
            self._output.unlink(missing_ok=True)

    def _reap(self) -> None:
        if self.over:
            return
        # One that has closed its terminal is about to end, and its file is written. The methods of Popen would wait for
        # it, and what it used would not be known.
        os.kill(self._process.pid, signal.SIGKILL)
        _, status, used = os.wait4(self._process.pid, 0)
        self.over, self.code = True, os.waitstatus_to_exitcode(status)
        self._process.returncode = self.code
        self.cpu_ns = round(1e9 * (used.ru_utime + used.ru_stime))
        os.close(self._fd)


def why_none(pid: int) -> NoStacks | None:
    """Look once at a process: why its stacks are not seen; `None` where they are."""
    try:
        command = [program(), "dump", "--json", "--nonblocking", "--pid", str(pid)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SILENT_NS / 1e9)
    except NoStacks as error:
        return error
    except (OSError, subprocess.SubprocessError) as error:
        return NoStacks(f"py-spy did not answer ({error})")
    return _unseen(done.stdout + done.stderr, done.returncode) if done.returncode else None


def _unseen(told: bytes, code: int | None) -> NoStacks:
    """Why py-spy saw nothing, in its own words."""
    text = told.decode(errors="replace").partition("Stack backtrace")[0]
    reason = (
        ": ".join(each.strip().rstrip(".") for each in _SAYS.findall(text)) or f"py-spy ended with exit code {code}"
    )
    return NoStacks(reason, refused=bool(_REFUSED.search(reason)))


def _die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Its starter may ignore or hold back what is to end it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
