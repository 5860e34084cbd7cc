"""py-spy beside a running process: one stretch of samples after another, each kept before the next begins.

Never blocking: py-spy reads the process's memory while that runs on, so nothing is ever stopped (in its blocking mode
a crash at the wrong moment leaves a training stopped). The price is that a stack which changes while it is read is
lost; how many were is counted. In stretches, so that a crash, of py-spy or of this command, loses one of them at most.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ...record.attached import Thread
from ...record.files import plain
from ..sampler.schedule import NS_PER_S
from ..stacks.source import SourceLines
from .speedscope import merge, read_output

FIRST_STRETCH_NS = 5 * NS_PER_S
STRETCH_NS = 20 * NS_PER_S
"""Starting py-spy costs about 0.1 s of CPU time."""
ENDING_NS = 10 * NS_PER_S
"""What py-spy gets to write its output."""
MOST_FAILURES = 3
"""In a row, before no further stretch is tried."""
MOST_THREADS = 20_000
"""Threads kept: a training that starts workers anew every few seconds for days."""

REFUSED = (
    "No right to look into the process (ptrace), so its stacks were not read. Three ways to get it: run it as "
    "`sudo whyidle attach {pid}`; give py-spy the right (`sudo setcap cap_sys_ptrace+ep {spy}`, in a container "
    "`--cap-add SYS_PTRACE`, or `sysctl kernel.yama.ptrace_scope=0` for processes of your own); or start the training "
    "with `whyidle run`, which needs no right."
)
MISSING = "py-spy was not found, so stacks were not read. Install it beside whyidle: `pip install py-spy`."
_COUNTS = re.compile(r"Samples: (\d+) Errors: (\d+)")
_REFUSAL = re.compile(r"permission denied|operation not permitted|os error (?:1|13)\)", re.IGNORECASE)
_BEHIND = re.compile(r"behind in sampling")


def find_py_spy() -> str | None:
    """Its program: of the environment whyidle is installed in, else on the PATH."""
    places = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        files = importlib.metadata.files("py-spy") or ()
        places += [Path(str(file.locate())).resolve().parent for file in files if file.name == "py-spy"]
    for place in places:
        if os.access(place / "py-spy", os.X_OK) and (place / "py-spy").is_file():
            return str(place / "py-spy")
    return shutil.which("py-spy")


def may_look_into(pid: int) -> bool:
    """Whether this process has the right that py-spy needs; true of a process that has ended."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return False
    except OSError:
        return True
    return True


class Spy:
    """Call `tick` often; `finish` at the end. Neither raises, nor waits for longer than py-spy takes to end."""

    def __init__(
        self, folder: Path, pid: int, rate: float, program: str | None, pids: Callable[[], list[int]] = list
    ) -> None:
        """`pids`: the processes of the tree, to ask which right is missing when nothing could be read."""
        self._pids = pids
        self._folder = folder
        self._pid = pid
        self._rate = rate
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._begin_ns = self._asked_ns = 0
        self._stretches = 0
        self._failures = 0
        self._lines = SourceLines()
        self._threads: dict[tuple[int, int], Thread] = {}
        self.missed: Counter[int] = Counter()
        """Process → looks at its stacks that failed, estimated where several processes share the count."""
        self.errors = 0
        self.behind = 0
        """Times that py-spy came late."""
        self.refused = False
        self.notes: list[str] = [] if program else [MISSING]
        self.over = program is None
        """No further stretch will be tried."""

    @property
    def threads(self) -> list[Thread]:
        return list(self._threads.values())

    def tick(self, now_ns: int) -> bool:
        """Start, end and collect stretches as they come due; true when stacks have come in."""
        if self._process is None:
            if not self.over:
                self._start(now_ns)
            return False
        if self._process.poll() is not None:
            return self._collect()
        length = STRETCH_NS if self._stretches > 1 else FIRST_STRETCH_NS
        if not self._asked_ns and now_ns - self._begin_ns >= length:
            self._ask(now_ns)
        elif self._asked_ns and now_ns - self._asked_ns >= ENDING_NS:
            self._process.kill()
            self.notes.append("py-spy did not end when asked to; the stacks of one stretch are lost.")
        return False

    def finish(self, timeout: float = 5.0) -> None:
        """End the stretch that runs and keep it."""
        self.over = True
        process = self._process
        if process is None:
            return
        try:
            self._ask(0)
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.notes.append("py-spy did not end when asked to; the stacks of its last stretch are lost.")
            process.kill()
            process.wait()
        self._collect()

    def kill(self) -> None:
        """End py-spy at once; the stretch that runs is lost. May be called from a signal handler."""
        self.over = True
        if self._process is not None:
            self._process.kill()

    def _start(self, now_ns: int) -> None:
        assert self._program is not None
        command = [self._program, "record", "--nonblocking", "--idle", "--threads", "--subprocesses"]
        command += ["--full-filenames", "--format", "speedscope", "--rate", str(round(self._rate))]
        # Were this command killed, py-spy would end by itself.
        command += ["--duration", str(2 * STRETCH_NS // NS_PER_S), "--output", str(self._output)]
        command += ["--pid", str(self._pid)]
        self._stretches += 1
        self._begin_ns, self._asked_ns = now_ns, 0
        try:
            with open(self._log, "wb") as log:
                # A group of its own: Ctrl-C in the terminal is for this command, which then ends py-spy.
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ | {"RUST_BACKTRACE": "0", "RUST_LOG": "off"},
                    process_group=0,
                )
        except OSError as error:
            self.over = True
            self.notes.append(f"py-spy could not be started ({error.strerror}): stacks were not read.")

    @property
    def _output(self) -> Path:
        return self._folder / ".py-spy.json"

    @property
    def _log(self) -> Path:
        return self._folder / ".py-spy.log"

    def _ask(self, now_ns: int) -> None:
        self._asked_ns = now_ns or 1
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.send_signal(signal.SIGINT)

    def _collect(self) -> bool:
        process, self._process = self._process, None
        log = ""
        with contextlib.suppress(OSError), open(self._log, "rb") as file:
            log = file.read(65536).decode(errors="replace")
        threads = read_output(self._output, self._lines)
        for path in (self._output, self._log):
            with contextlib.suppress(OSError):
                path.unlink()
        self.behind += len(_BEHIND.findall(log))
        if threads is None:
            self._failed(process.returncode if process else None, log)
            return False
        self._failures = 0
        if len(self._threads) + len(threads) <= MOST_THREADS:
            merge(self._threads, threads)
        counts = _COUNTS.search(log)
        errors = int(counts[2]) if counts else 0
        self.errors += errors
        self.missed.update(share_out(threads, errors))
        return bool(threads)

    def _failed(self, code: int | None, log: str) -> None:
        if _REFUSAL.search(log) or not all(map(may_look_into, self._pids())):
            self.over = self.refused = True
            self.notes.append(REFUSED.format(pid=self._pid, spy=self._program))
            return
        if self._asked_ns and not log.strip().startswith("Error"):
            # It was ended before it could begin.
            return
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            self.over = True
        reason = next((line.strip() for line in log.splitlines() if line.startswith("Error")), f"exit code {code}")
        note = f"py-spy ended without stacks: {plain(reason)[:200]}."
        if note not in self.notes:
            self.notes.append(note)


def share_out(threads: list[Thread], errors: int) -> Counter[int]:
    """Failed looks by process. py-spy tells their sum: each process was looked at equally often, if it was there."""
    seen: Counter[int] = Counter()
    for thread in threads:
        seen[thread.pid] = max(seen[thread.pid], thread.looks)
    if not seen or not errors:
        return Counter()
    rounds = max(max(seen.values()), round((seen.total() + errors) / len(seen)))
    short = {pid: rounds - count for pid, count in seen.items() if rounds > count}
    scale = min(1.0, errors / total) if (total := sum(short.values())) else 0.0
    return Counter({pid: round(count * scale) for pid, count in short.items()})
