"""Activity windows: every so many steps, a few in which each kernel, copy and waiting call is recorded.

Opt-in. A window costs the training: tracing makes launches slower, and its end waits once for the device. So windows
are rare, watch their own cost, and end for good when it is too high or when another profiler wants the device.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from ..record.schema import KERNEL
from ..record.segment import RecordWriter
from .activity_trace import KinetoTrace, OthersWatch, Rows, Traced, has_cupti, in_use, rows_of

MOST_RECORDS = 20_000
"""Pieces of work kept of one window; a window with more is cut short."""
RING_BYTES = 16 << 20
"""For kernels in memory: those of a window come all at once."""
MOST_EVENTS = 200_000
"""A window of which torch hands out more events is thrown away: reading them would hold up the training."""
MOST_WINDOWS = 200
"""256 MB of records at most."""
BASELINE_STEPS = 10
"""Steps timed just before a window, to see how much slower the window's are."""
MOST_COST_NS = 1_000_000_000
"""A window that takes longer to begin and to end is too costly."""
MOST_SLOWDOWN = 3.0
"""So is one whose steps are so many times as long as those just before it."""
MOST_COSTLY = 3
"""Windows that were too costly, after which there are no more."""
MOST_CLOCK_CHANGE_NS = 5_000_000
"""If epoch time moves more than this against CLOCK_MONOTONIC within a window, it was set, not slewed."""
CLOCK_SLACK_NS = 200_000
"""The device's stamps of a step and CUPTI's may disagree by so much."""
FINISH_LIMIT_NS = 1_000_000_000
"""How long the end of a training waits for a window that is still open."""
APART_NS = 5_000_000_000
"""Between two windows, at the least: Kineto detaches CUPTI some time after a trace has ended, within a later call of
CUDA's, and a trace that begins meanwhile may hang or see nothing (pytorch/kineto issues 1169 and 1554)."""
TEARDOWN_FROM_CUDA = (12, 6)
"""Older runtimes may crash when CUPTI is detached and CUDA graphs are used."""

_NEVER = sys.maxsize
"""Number of a step that does not come."""
_cuda: Any = torch.cuda

OnWindow = Callable[[int, int, int], None]
"""Told of each window: its number, begin and end, ns."""


class ActivityWindows:
    """Windows of one training. Used from the training thread; nothing here ever raises into it.

    The first step of a window is not counted: CUPTI settles in it.
    """

    def __init__(
        self,
        folder: Path,
        rank: int = 0,
        every_steps: int = 1000,
        steps: int = 4,
        first_step: int = 20,
        *,
        on_window: OnWindow,
        say: Callable[[str], None],
        gpu: Callable[[], int],
        writer: int | None = None,
    ) -> None:
        """
        Args:
            every_steps: from one window to the next.
            steps: that a window counts.
            first_step: number of the step in which the first window opens.
            say: takes sentences for the report.
            gpu: tells the number of the GPU whose kernels are recorded.
            writer: the number that stands for this process in the folder, by default its id.
        """
        _detach_after(os.environ)
        self._gpu = gpu
        self._not_before_ns = 0
        """When the next window may open at the earliest."""
        self._folder = folder
        self._rank = rank
        self._pid = writer
        self._every = max(every_steps, steps + BASELINE_STEPS + 2)
        self._steps = steps
        self._on_window = on_window
        self._say = say
        self._said: set[str] = set()
        self._writer: RecordWriter | None = None
        self._thread = threading.get_ident()
        self._trace: KinetoTrace | None = None
        self._before: deque[int] = deque(maxlen=BASELINE_STEPS + 1)
        """When the steps before the window began."""
        self._within: list[int] = []
        """When the counted steps began, and last when the window ended."""
        self._trace_cost_ns = 0
        """What beginning and ending the latest trace took."""
        self._costly = 0
        """Windows that were too costly."""
        self.windows = 0
        """Windows recorded so far."""
        self.cost_ns = 0
        """Time spent here so far, that of torch and CUPTI included."""
        self._start_at = first_step
        """Number of the step in which the next window opens."""
        self._due = max(0, first_step - BASELINE_STEPS)
        """Number of the next step at which anything is to be done."""
        self._watch: OthersWatch | None = None
        with suppress(Exception):
            self._watch = OthersWatch(self._give_way)

    def graph_replayed(self) -> None:
        """The training replays CUDA graphs: detaching CUPTI from those is known to crash."""
        if self._due != _NEVER:
            self._end(
                "Activity windows are off: the training replays CUDA graphs, which CUPTI cannot be detached from."
            )

    def step(self, number: int) -> None:
        """A step begins. Call it before the step's own clock starts."""
        if number < self._due:
            return
        begin = time.monotonic_ns()
        try:
            self._turn(number, begin)
        except Exception as error:
            self._end(f"Activity windows are off after an error: {type(error).__name__}: {error}")
        self.cost_ns += time.monotonic_ns() - begin

    def finish(self) -> None:
        """End an open window and close the file. Safe to call twice."""
        if self._watch is not None:
            self._watch.remove()
        self._due = _NEVER
        with suppress(Exception):
            if self._trace is not None and _drained(FINISH_LIMIT_NS):
                self._close(time.monotonic_ns())
        self._trace = None
        if self._writer is not None:
            self._writer.close()

    def _turn(self, number: int, now: int) -> None:
        """Open or close a window before this step, or note when it began."""
        self._due = number + 1
        if self._trace is not None:
            self._within.append(now)
            if len(self._within) > self._steps and not _cuda.is_current_stream_capturing():
                self._close(now)
                self._next(number)
            return
        self._before.append(now)
        if number < self._start_at or now < self._not_before_ns:
            return
        if (reason := _impossible(os.environ)) is not None:
            self._end(reason)
        elif in_use():
            self._say_once("An activity window was left out: torch's profiler is in use.")
            self._next(number)
        elif not _cuda.is_current_stream_capturing():
            self._open()

    def _open(self) -> None:
        begin = time.monotonic_ns()
        self._within = []
        if self._watch is not None:
            self._watch.ours = True
        try:
            self._trace = KinetoTrace()
        finally:
            if self._watch is not None:
                self._watch.ours = False
        self._trace_cost_ns = time.monotonic_ns() - begin

    def _close(self, now: int) -> None:
        """End the trace and store what it saw of the counted steps."""
        trace, self._trace = self._trace, None
        if trace is None:
            return
        traced = trace.stop()
        self._not_before_ns = time.monotonic_ns() + APART_NS
        if self._within:
            self._store(traced, self._within[0], now)
        self._trace_cost_ns += time.monotonic_ns() - now
        self._weigh()

    def _store(self, traced: Traced, begin: int, stopping: int) -> None:
        """Record a window whose counted steps lasted from `begin` to `stopping`, ns; or say why there is none."""
        if abs(traced.stopped.offset_ns - traced.started.offset_ns) > MOST_CLOCK_CHANGE_NS:
            self._say_once("An activity window was thrown away: the clock of the machine was set meanwhile.")
            return
        if len(traced.events) > MOST_EVENTS:
            self._say_once(f"An activity window was thrown away: it had {len(traced.events)} events.")
            self._trace_cost_ns += MOST_COST_NS
            return
        rows = rows_of(traced, self._gpu())
        # Calls that began after the steps are ours: the wait at the end of the trace.
        rows = rows[(rows[:, 5] > begin) & ((rows[:, 1] >= 0) | (rows[:, 4] < stopping))]
        if len(rows) == 0:
            self._say_once(
                "An activity window saw no kernel: CUPTI may be in use by another program, or not permitted."
            )
            return
        # What was queued when the trace ended still ran within it: the device may lag some steps behind.
        last = max(stopping, int(rows[:, 5].max()) + CLOCK_SLACK_NS)
        end = min(last, traced.stopped.monotonic_ns)
        if len(rows) > MOST_RECORDS:
            end = int(rows[MOST_RECORDS, 4])
            self._say_once(
                f"An activity window had {len(rows)} pieces of work; the first {MOST_RECORDS} are kept and the window "
                "ends there."
            )
        self._append(rows[:MOST_RECORDS])
        self._on_window(self.windows, begin, end)
        self.windows += 1

    def _append(self, rows: Rows) -> None:
        if self._writer is None:
            self._writer = RecordWriter(self._folder, KERNEL, self._rank, self._pid, length=RING_BYTES)
        append, window = self._writer.append, self.windows
        for row in rows.tolist():
            append(window, *row)

    def _weigh(self) -> None:
        """Take windows that cost too much seldom, and in the end not at all."""
        usual, traced = _typical_ns(self._before), _typical_ns(self._within)
        slower = traced / usual if usual and traced else 1.0
        if self._trace_cost_ns <= MOST_COST_NS and slower <= MOST_SLOWDOWN:
            return
        self._costly += 1
        self._every *= 2
        cost = (
            f"An activity window took {self._trace_cost_ns / 1e9:.1f} s and made its steps {slower:.1f} times as long"
        )
        if self._costly >= MOST_COSTLY:
            self._end(f"{cost}: too costly for the third time, there are no more windows.")
        else:
            self._say_once(f"{cost}: from now on one every {self._every} steps.")

    def _next(self, number: int) -> None:
        """Plan the window after this one."""
        if self._due == _NEVER:
            return
        if self.windows >= MOST_WINDOWS:
            self._end(f"{MOST_WINDOWS} activity windows were recorded; there are no more.")
            return
        self._start_at = max(self._start_at + self._every, number + BASELINE_STEPS + 1)
        self._due = self._start_at - BASELINE_STEPS
        self._before.clear()

    def _give_way(self) -> None:
        """Somebody else starts torch's profiler: there can be only one."""
        if threading.get_ident() == self._thread:
            self._end("Activity windows are off: the training uses torch's profiler itself.")

    def _end(self, reason: str) -> None:
        """No more windows, for good; an open one is thrown away."""
        if self._due == _NEVER and self._trace is None:
            return
        self._due = _NEVER
        trace, self._trace = self._trace, None
        if self._watch is not None:
            self._watch.remove()
        if trace is not None:
            with suppress(Exception):
                trace.stop()
        self._say_once(reason)

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            with suppress(Exception):
                self._say(sentence)


def _impossible(environment: Mapping[str, str]) -> str | None:
    """Why there can be no windows in this process, as a sentence; `None` if there can."""
    # Asked in this order so that nothing here ever starts CUDA.
    if not _cuda.is_initialized() or not _cuda.is_available():
        return "Activity windows are off: the training does not use CUDA."
    if not has_cupti():
        return "Activity windows are off: this torch was built without CUPTI."
    tools = ("NSYS_", "CUPTI_", "CUDA_INJECTION64_PATH", "KINETO_USE_DAEMON")
    other = next((name for name in sorted(environment) if name.startswith(tools)), None)
    if other is not None:
        return f"Activity windows are off: {other} is set, so another program may trace the device."
    return None


def _detach_after(environment: dict[str, str] | os._Environ[str]) -> None:
    """Let Kineto detach CUPTI when a window ends; otherwise it stays attached and slows every launch."""
    version = tuple(int(part) for part in (torch.version.cuda or "0").split(".")[:2] if part.isdigit())
    if "TEARDOWN_CUPTI" not in environment and version >= TEARDOWN_FROM_CUDA:
        environment["TEARDOWN_CUPTI"] = "1"


def _drained(limit_ns: int) -> bool:
    """Whether the device finishes its work within the limit. It may hang: then the training's end must not."""
    deadline = time.monotonic_ns() + limit_ns
    stream = _cuda.current_stream()
    while not stream.query():
        if time.monotonic_ns() > deadline:
            return False
        time.sleep(0.001)
    return True


def _typical_ns(begins: Sequence[int]) -> float | None:
    """The median length of steps that began then; `None` for too few."""
    lengths = [later - earlier for earlier, later in pairwise(begins)]
    return median(lengths) if len(lengths) > 1 else None
