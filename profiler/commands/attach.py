"""`whyidle attach PID`: records and judges a process that already runs, from outside."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path

from rich.markup import escape
from rich.status import Status

from ..analyse.attached.trainers import so_far
from ..capture.attach import Target, find, record, require_python
from ..capture.sampler.schedule import NS_PER_S, Cadence
from ..errors import RecordError
from ..interrupts import end_like_ctrl_c
from ..record.files import plain
from ..record.latest import note_latest
from ..record.run import new_folder, open_run
from ..results.recordings import AttachedResult
from ..terminal.console import console, show_result, shown_again
from . import options

PLAIN_SECONDS = 5.0
"""Between lines where the output is no terminal."""
LINE_SECONDS = 0.5
FIRST_NS = 2 * NS_PER_S
SUMMING_OF_CPU = 0.005
"""Share of a CPU that it may take to sum up what was seen so far: the longer a recording, the more seldom."""
PID = options.number("is not a process id", 1, 2**31 - 1, int)
SECONDS = options.number("is not a number of seconds above 0", 0, 86400 * 30, above=True)
RATE = options.number("is not a whole number from 1 to 50", 1, 50, int)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", metavar="PID", type=PID, help="process of the training, or its launcher")
    parser.add_argument(
        "--duration", type=SECONDS, metavar="S", help="seconds to observe (default: until Ctrl-C or its end)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the recording (default: runs/…)")
    parser.add_argument("--rate", type=RATE, default=10, metavar="HZ", help="looks a second (10; more: at states)")
    options.add_full(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    end_like_ctrl_c()
    # A command in the background of a script is started with Ctrl-C ignored; it is how a recording ends.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    target = find(arguments.pid)
    require_python(target)
    folder = arguments.out or new_folder(f"attach-{target.pid}")
    new = not folder.exists()
    terminal = console(stderr=True)
    status = terminal.status("", spinner="line") if terminal.is_terminal else None
    try:
        with status or nullcontext():
            tell = _Teller(target, folder, arguments.duration, status)
            record(target, folder, arguments.rate, arguments.duration, tell)
    except BaseException:
        if new and folder.exists() and not any(folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    note_latest(folder)
    result = AttachedResult([open_run(folder)])
    show_result(result.document, result.contract, "-" if arguments.json else None, arguments.full)
    print(shown_again(folder, arguments.full), file=sys.stderr)
    return 0


class _Teller:
    """One line that is drawn again on a terminal, a line every few seconds elsewhere."""

    def __init__(self, target: Target, folder: Path, seconds: float | None, status: Status | None) -> None:
        self._folder, self._status = folder, status
        name = plain(target.name).replace("\n", "?")
        self._what = f"observing {target.pid} ({name})"
        self._until = " (Ctrl-C ends it and reports)" if seconds is None else f" of {seconds:g} s"
        self._shares = ""
        begin_ns = time.monotonic_ns()
        self._summing = Cadence(round(PLAIN_SECONDS * NS_PER_S), begin_ns + FIRST_NS, SUMMING_OF_CPU)
        self._telling = Cadence(round((LINE_SECONDS if status else PLAIN_SECONDS) * NS_PER_S))

    def __call__(self, seconds: float, processes: int) -> None:
        now_ns = time.monotonic_ns()
        if self._summing.due(now_ns):
            begin = time.thread_time_ns()
            shares: dict[str, float] = {}
            # What says so for good is the report.
            with suppress(RecordError):
                shares = so_far(open_run(self._folder))
            parts = [f"{name} {100 * part:.0f} %" for name, part in shares.items() if part >= 0.01]
            self._shares = f"; so far {', '.join(parts[:4])}" if parts else "; no training seen yet"
            self._summing.cost(now_ns, time.thread_time_ns() - begin)
        if not self._telling.due(now_ns):
            return
        number = f"{processes} process{'' if processes == 1 else 'es'}"
        line = f"{self._what}, {number}, {seconds:.0f} s{self._until}{self._shares}"
        if self._status is not None:
            self._status.update(escape(line))
        else:
            print(f"whyidle: {line}", file=sys.stderr, flush=True)
