"""py-spy at one process: it looks at the stacks of its Python threads, several times a second, until it is ended.

py-spy tells what it saw only when it ends, on a clock of its own, and of a stack that did not change nothing at all.
When it looked, and whether that failed, it tells at once on a terminal ("Collected 12 samples (1 errors)"): it is given
one that nobody sees. Whoever reads that knows the moment of each look on the clock of the steps, and can ask the
kernel what the threads are at just then.

What it tells is a chrome trace (`read_trace`), which has two events a frame, when it was first seen and when it was
seen no more. A stack that the next look finds unchanged has none, so the file alone does not tell how often was looked.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import importlib.metadata
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import termios
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from ...errors import WhyidleError
from ...record.stacks import Call, CallStack

MOST_RATE = 10
"""Looks a second: the terminal is told no more."""
AFTER_NS, SOON_NS, EARLY_NS = 50_000_000, 5_000_000, 1_000_000
"""A look's message comes within the first of these after it, mostly within the second; and by as much as the third it
may seem to come before."""
MOST_BYTES = 32 << 20
"""Of what py-spy writes; one that writes more is ended by that."""
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
    threads: int
    """That were seen."""


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

    def __init__(self, pid: int, rate: int) -> None:
        """Start to look `rate` times a second, at random distances.

        Raises:
            NoStacks: py-spy is not there, or cannot be started.
        """
        self._told = b""
        self._samples = self._errors = 0
        self._looked_ns: list[int] = []
        self._heard_ns = time.monotonic_ns()
        self._asked = False
        self.looks = 0
        """Those that were told of."""
        self.over = False
        """Whether it has ended."""
        self.code: int | None = None
        """Its exit code, once it has ended."""
        self.cpu_ns = 0
        """CPU time that it took, once it has ended."""
        command = [program(), "record", "--format", "chrometrace", "--full-filenames", "--nonblocking", "--idle"]
        command += ["--threads", "--capture", "--rate", str(rate), "--pid", str(pid)]
        try:
            # In memory: no folder is full, no link leads out of one, and nothing is left behind.
            self._output = os.memfd_create("py-spy")
        except OSError as error:
            raise NoStacks(f"there is no memory for py-spy's output ({error.strerror})") from None
        try:
            self._fd, terminal = os.openpty()
        except OSError as error:
            os.close(self._output)
            raise NoStacks(f"there is no terminal for py-spy ({error.strerror})") from None
        try:
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, _WINDOW)
            self._process = subprocess.Popen(
                [*command, "--output", f"/proc/self/fd/{self._output}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=terminal,
                env={"TERM": "xterm", "PATH": os.environ.get("PATH", os.defpath)},
                pass_fds=(self._output,),
                start_new_session=True,
                preexec_fn=_begin_alone,
            )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(self._fd)
            os.close(self._output)
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
        # A line may come in two parts.
        found = _LOOK.findall(self._told[-len(told) - 80 :]) if told else []
        if not found:
            return None
        samples, errors = int(found[-1][0]), int(found[-1][1] or 0)
        if (samples, errors) == (self._samples, self._errors):
            return None
        failed = samples == self._samples
        if not failed:
            self._looked_ns.append(now)
        look = Look(now, failed, samples - self._samples)
        self._samples, self._errors, self._heard_ns = samples, errors, now
        self.looks += 1
        return look

    def end(self) -> None:
        """Tell it to write what it saw and end, which it does two looks later."""
        if not self._asked and not self.over:
            self._asked = True
            with contextlib.suppress(ProcessLookupError):
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
        content = os.pread(self._output, MOST_BYTES, 0)
        if not content:
            raise _unseen(self._told, self.code)
        try:
            trace = read_trace(content)
        except ValueError as error:
            raise NoStacks(f"py-spy's output cannot be read ({error})") from None
        if not trace.changes_us or not self._looked_ns:
            raise NoStacks("py-spy saw no stack")
        return trace, _offset_ns(trace.changes_us, self._looked_ns)

    def close(self) -> None:
        """Leave nothing behind."""
        self._reap()
        os.close(self._output)

    def _reap(self) -> None:
        if self.over:
            return
        # One that has closed its terminal is about to end, and has written. The methods of Popen would wait for it, and
        # what it used would not be known; where nobody is told of ended children (SIGCHLD) it is not known either.
        self.over = True
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._process.pid, signal.SIGKILL)
            _, status, used = os.wait4(self._process.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)
            self.cpu_ns = round(1e9 * (used.ru_utime + used.ru_stime))
        self._process.returncode = self.code or 0
        os.close(self._fd)


def _offset_ns(changes_us: list[int], looked_ns: list[int]) -> float:
    """What py-spy's clock is behind ours: that by which most looks were told of soon after they were made."""
    changes = [1000.0 * each for each in changes_us[:: 1 + len(changes_us) // 100]]

    def delays(offset: float) -> list[float]:
        found = []
        for at in changes:
            place = bisect_left(looked_ns, at + offset - EARLY_NS)
            if place < len(looked_ns) and looked_ns[place] - at - offset < AFTER_NS:
                found.append(looked_ns[place] - at - offset)
        return found

    candidates = (looked - 1000.0 * at for looked in looked_ns[:8] for at in changes_us[:8])
    offset = max(candidates, key=lambda each: sum(late < SOON_NS for late in delays(each)))
    late = sorted(delays(offset))
    # What comes late is told from what comes next; what seems early, from what came before.
    return offset + late[len(late) // 10]


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


def _begin_alone() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
    # Its starter may ignore or hold back what is to end it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


APART_US = 1000
"""Changes that are nearer to each other were seen by one look, of several threads."""
MOST_DEPTH = 256
"""Calls of a stack that are kept, the innermost ones."""
_THREAD = re.compile(r"thread \((\d+)\)")
_ROOTS = re.compile(r"<module>|_run_module_as_main|_bootstrap")
"""Functions that a whole stack may begin with."""
_COMMON = 0.5
"""Share of a thread's stacks that another function has to begin, to be a root as well."""


class _Args(msgspec.Struct):
    filename: str
    line: int | None = None


class _Event(msgspec.Struct):
    name: str
    ph: str
    tid: int
    """The pthread library's: the kernel's is in the name of the outermost frame."""
    ts: int
    """Microseconds on py-spy's clock."""
    args: _Args


class ThreadStacks:
    """The stacks of one thread, each from the look that saw it first."""

    def __init__(self) -> None:
        self._begins_us: list[int] = []
        self._stacks: list[CallStack] = []

    def add(self, at_us: int, stack: CallStack) -> None:
        self._begins_us.append(at_us)
        self._stacks.append(stack)

    def at(self, at_us: float) -> CallStack:
        """What the last look until then saw; empty before the first one, and of a thread that ran no Python."""
        place = bisect_right(self._begins_us, at_us) - 1
        return self._stacks[place] if place >= 0 else ()

    def drop_torn(self) -> None:
        """Empty what does not begin where a thread does: its frames changed while py-spy followed them."""
        roots = Counter(stack[0].function for stack in self._stacks if stack)
        least = _COMMON * roots.total()
        whole = {root for root, count in roots.items() if _ROOTS.fullmatch(root) or count >= least}
        if whole:
            self._stacks = [stack if stack and stack[0].function in whole else () for stack in self._stacks]
        self._stacks = [stack[-MOST_DEPTH:] for stack in self._stacks]


class SpyTrace:
    """What one py-spy saw of a process, on its own clock in microseconds."""

    def __init__(self, threads: dict[int, ThreadStacks], changes_us: list[int]) -> None:
        """`threads`: by the kernel's number, as the process itself knows it; `changes_us`: looks that saw a change."""
        self.threads = threads
        self.changes_us = changes_us

    def last_change_us(self, until_us: float) -> int | None:
        """When the last look until then that saw any thread's stack changed was made."""
        place = bisect_right(self.changes_us, until_us) - 1
        return self.changes_us[place] if place >= 0 else None


def read_trace(content: bytes) -> SpyTrace:
    """Read what py-spy wrote.

    Raises:
        ValueError: it is no chrome trace of py-spy's.
    """
    try:
        events = msgspec.json.decode(content, type=list[_Event])
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    threads: dict[int, ThreadStacks] = {}
    open_frames: dict[int, list[Call]] = {}
    changes: list[int] = []
    # At its end py-spy closes what is open, which is no look.
    last_us = max((event.ts for event in events), default=0)
    for (pthread, at_us), group in groupby(events, attrgetter("tid", "ts")):
        if at_us == last_us:
            continue
        frames = open_frames.setdefault(pthread, [])
        before = _thread_of(frames)
        for event in group:
            if event.ph == "B":
                frames.append(Call(event.name, event.args.filename, event.args.line or 0))
            elif event.ph != "E" or not frames:
                raise ValueError("a frame ends that did not begin")
            else:
                frames.pop()
        thread = _thread_of(frames)
        if before is not None and before != thread:
            threads[before].add(at_us, ())
        if thread is not None:
            threads.setdefault(thread, ThreadStacks()).add(at_us, tuple(frames[1:]))
        if not changes or at_us > changes[-1] + APART_US:
            changes.append(at_us)
    for each in threads.values():
        each.drop_torn()
    return SpyTrace(threads, changes)


def _thread_of(frames: list[Call]) -> int | None:
    found = _THREAD.match(frames[0].function) if frames else None
    return int(found[1]) if found else None
