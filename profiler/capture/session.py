"""A recording of one training process: its files, its steps, its events."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from threading import get_native_id

from ..devices.protocol import Device
from ..record.notices import TRAINING_NOTICES, Notices
from ..record.run import write_image_files
from ..record.schema import BATCH, EVENT, NOT_MEASURED, PAUSE, STEP, EventKind
from ..record.segment import RecordWriter
from ..record.stacks import Call, StackNames
from . import scalars
from .bootstrap import stack_options
from .hooks.switch import hand_on
from .imports import record_before
from .stacks.source import SourceLines
from .stacks.within import look_within
from .steps import StepRecorder, Thinning

LEAST_COLLECTION_NS = 100_000
"""Shorter garbage collections are not recorded one by one."""
MOST_LASTING = 1000
"""Garbage collections and compilations remembered until they are recorded, between two steps; the latest ones."""
THREADS_EVERY_NS = 1_000_000_000
"""How often, at most, the CPU time of other Python threads is looked at."""
ALLOCATOR_EVERY_NS = 200_000_000
"""How often, at most, the device's allocator is asked."""


MOST_THREADS = 256
"""Threads looked at each time."""
PINNING, FEEDING = "_pin_memory_loop", "QueueFeederThread"
"""The function that DataLoader's pinning thread runs, and the name of the thread behind a queue of multiprocessing:
what they do is handing batches over, and waiting for them is waiting for data."""


class PythonThreads:
    """Adds up the CPU time of all Python threads but the one that trains, and those that hand over batches.

    Whoever holds the interpreter's lock runs, as a rule: threads that use no CPU keep nobody waiting for it. The kernel
    keeps a clock for each thread, which any thread of the process may read by its number. Linux; elsewhere nothing is
    known.

    A thread that ended keeps what it had used at the last look. What begins and ends between two looks is not seen.
    """

    def __init__(self) -> None:
        self._used: dict[int, int] = {}
        """CPU time at the last look, by the kernel's number of the thread."""
        self._trains = 0
        self._total_ns = 0
        self.measured = sys.platform == "linux"
        self.any = False
        """Whether there ever was another thread."""

    def look(self, trains: int = 0) -> int:
        """CPU time so far, ns. `trains`: the kernel's number of the training thread, by default the last one told."""
        self._trains = trains = trains or self._trains or threading.get_native_id()
        before, self._used = self._used, {}
        for thread in islice(list(threading._active.values()), MOST_THREADS):  # type: ignore[attr-defined]
            number = thread.native_id
            # What Python did not start has a stand-in, made when it first ran Python.
            if number is None or isinstance(thread, threading._DummyThread) or _hands_over(thread):
                continue
            try:
                used = time.clock_gettime_ns(_clock_of(number))
            except OSError:
                continue  # it has ended since
            self._used[number] = used
            if number != trains:
                self.any = True
                grown = used - before.get(number, 0)
                # Less than before: another thread was given the number of one that ended.
                self._total_ns += grown if grown >= 0 else used
        return self._total_ns


def _hands_over(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)  # gone when it has ended
    return thread.name == FEEDING or getattr(target, "__name__", None) == PINNING


def _clock_of(number: int) -> int:
    """The kernel's clock of the CPU time of a thread, which is an error to read once that has ended."""
    per_thread, scheduled = 4, 2
    return (~number << 3) | per_thread | scheduled


class Session:
    """Records a training into an existing run folder. One per process; used from the training thread.

    Raises:
        RecordError: the folder cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        device: Device,
        rank: int = 0,
        thinning: Thinning | None = None,
        writer: int | None = None,
        watch_threads: bool = True,
    ) -> None:
        """
        Args:
            device: what the training computes on.
            rank: of this process, in a training of several.
            thinning: which steps are looked at, where that is not to be planned by what they cost.
            writer: the number that stands for this process in the folder, by default its id.
            watch_threads: whether the CPU time of other Python threads of this process belongs to the training.
        """
        self.folder = folder
        self.rank = rank
        self._pid = os.getpid()
        self.writer = self._pid if writer is None else writer
        self.device = device
        self._now = device.now
        self._batches = RecordWriter(folder, BATCH, rank, self.writer)
        self._events = RecordWriter(folder, EVENT, rank, self.writer)
        self._pauses = RecordWriter(folder, PAUSE, rank, self.writer)
        self._steps = RecordWriter(folder, STEP, rank, self.writer)
        self.steps = StepRecorder(self._steps, self._pauses, device, thinning)
        self.notice = Notices(folder / TRAINING_NOTICES)
        """Takes what the report must say about this recording: what could not be seen, and why."""
        self._lasting: deque[tuple[int, int, int]] = deque(maxlen=MOST_LASTING)
        """(kind, begin, end) of what `lasted` was told and is not recorded yet."""
        self._threads = PythonThreads()
        self._threads.measured &= watch_threads
        self._look_at = self._threads_at = 0
        """When to look at the allocator again, and at the threads."""
        self._retries = 0
        """How often the device's allocator had tried again, as last recorded."""
        self._asks_retries: Callable[[], int | None] | None = device.allocation_retries
        """Asks that of the device; `None` once it has no answer."""
        # Called when a collection begins and when it ends, asks each of two arguments for its rank, and each time a
        # stamp is kept. No function in Python: there a Ctrl-C that came meanwhile would be raised, and be swallowed.
        stamps = map(self.steps.collections.append, iter(self._now, None))
        self._gc_watch = partial(max, key=partial(next, map(bool, stamps)))
        self.steps.on_collections = self._count_collections
        scalars.on_begin = self._wakes
        self._started = record_before(self.event)
        """Records what the training's start took; called once, when its first step is over."""
        self.steps.on_step = self._between_steps if self._started is None else self._first_between_steps
        self.event(EventKind.TRAINING_BEGIN)
        gc.callbacks.append(self._gc_watch)

    def event(self, what: int, value: int = NOT_MEASURED, end_ns: int = NOT_MEASURED, t_ns: int = 0) -> None:
        """Record what is no step: its `EventKind`, when it happened (0: now), and when it ended, if it lasted.

        `value`: what goes with it, as `record.schema.EventKind` says.
        """
        self._events.append(t_ns or self._now(), what, value, end_ns)

    def lasted(self, what: int, begin_ns: int, end_ns: int) -> None:
        """Something of this `EventKind` lasted that long, a garbage collection or a compilation.

        Any thread may say so. It is recorded between two steps, by the thread that trains.
        """
        self._lasting.append((what, begin_ns, end_ns))
        self._wakes()

    def _wakes(self) -> None:
        """There is something to do before the next step that is looked at. Any thread may say so."""
        self.steps.due_ns = 0

    def moves_to(self, device: Device) -> None:
        """The training computes on another device than was taken for its own: what follows is recorded of that one."""
        self.device = device
        self._asks_retries = device.allocation_retries
        self._retries = 0
        self.steps.moves_to(device)

    def loader(
        self, workers: int, prefetch: int | None, flags: int, made: Sequence[Call] = (), images: Sequence[str] = ()
    ) -> None:
        """The settings of the loader that trains, where it is torch's DataLoader.

        Args:
            flags: of `LoaderFlag`.
            made: the calls in which the program made it; none where that is not known.
            images: some of the image files that it reads.
        """
        self.event(EventKind.LOADER_WORKERS, workers)
        if prefetch is not None:
            self.event(EventKind.LOADER_PREFETCH, prefetch)
        self.event(EventKind.LOADER_FLAGS, flags)
        if made:
            wanted = stack_options()
            keeps = wanted.get("source", True) if isinstance(wanted, dict) else True
            lines = SourceLines()
            names = StackNames(self.folder, (lambda file, line: lines(os.getpid(), file, line)) if keeps else None)
            self.event(EventKind.LOADER_MADE, names.number(made))
        if images:
            with suppress(OSError):  # a full disk, say: one line less in the report
                write_image_files(self.folder, images)

    def finish(self) -> None:
        """End the recording; safe to call after an error and twice."""
        if self._gc_watch not in gc.callbacks:
            return
        gc.callbacks.remove(self._gc_watch)
        self._has_started()
        try:
            done_ns = self.steps.finish()
        except Exception as error:
            # A device that has failed answers nothing more: what was recorded of it stands.
            done_ns = None
            self.notice(f"The device failed before the recording ended ({type(error).__name__}: {error}).")
        if done_ns is not None:
            self.event(EventKind.DEVICE_DONE, t_ns=done_ns)
        self._count_collections()
        self._record_lasting()
        self._look_at_threads(0)
        self._ask_allocator(ends=True)
        self.event(EventKind.TRAINING_END)
        uncertainty = self.device.clock_uncertainty_ns()
        if uncertainty:
            self.event(EventKind.CLOCK_UNCERTAINTY, uncertainty)
        if self.steps.skipped:
            self.event(EventKind.SKIPPED_STEPS, self.steps.skipped, t_ns=self.steps.skipped_until_ns)
            self.event(EventKind.SKIPPED_SAMPLES, self.steps.skipped_samples, t_ns=self.steps.skipped_until_ns)
        if self.steps.ring_full:
            self.event(EventKind.DEVICE_RING_FULL, self.steps.ring_full)
        for writer in (self._steps, self._pauses, self._batches, self._events):
            writer.close()

    def made(self, row: array[int], last: bool = False) -> None:
        """Record a batch that was made in this process, by the thread that trains.

        Whether a fetch belongs to a step is sure only when the next one begins: call this then. Nothing is recorded of
        a step that was taken back, nor in a forked child.

        Args:
            row: the fields of BATCH after `seq`, in order.
            last: no step is open.
        """
        if row[0] < self.steps.count - (not last) and os.getpid() == self._pid:
            self._batches.store(row)

    def _first_between_steps(self, number: int, now: int) -> bool:
        """The same until the first step is over: then the training has started."""
        if number > 0:
            self._has_started()
        took = self._between_steps(number, now)
        if self._started is not None:
            self._wakes()
        return took

    def _has_started(self) -> None:
        self.steps.on_step = self._between_steps
        started, self._started = self._started, None
        if started is not None:
            started()

    def _between_steps(self, number: int, now: int) -> bool:
        """What is done between two steps: `number` begins, and it is `now`. Returns whether it took notable time.

        Called again when there may be something to do.
        """
        if self._lasting:
            self._record_lasting()
        if now >= self._look_at:
            self._look_at = now + ALLOCATOR_EVERY_NS
            self._ask_allocator()
            if self._steps.refused:
                look_within(self.folder, stack_options)
            if now >= self._threads_at:
                self._threads_at = now + THREADS_EVERY_NS
                self._look_at_threads(get_native_id())
        logged = now >= scalars.due_ns and scalars.log(number, now, self.rank, self.notice)
        self.steps.due_ns = min(self._look_at, scalars.due_ns)
        if self._lasting:
            self.steps.due_ns = 0
        return logged

    def _count_collections(self) -> None:
        stamps = list(self.steps.collections)
        self.steps.collections.clear()
        # Another number: another thread is in the midst of one.
        for begin, end in zip(stamps[::4], stamps[3::4], strict=True) if len(stamps) % 4 == 0 else ():
            self.steps.gc_ns += end - begin
            if end - begin >= LEAST_COLLECTION_NS:
                self.lasted(EventKind.GARBAGE, begin, end)

    def _record_lasting(self) -> None:
        while self._lasting:
            what, begin, end = self._lasting.popleft()
            self.event(what, t_ns=begin, end_ns=end)

    def _look_at_threads(self, trains: int) -> None:
        """Record the CPU time that other Python threads have used so far.

        `trains`: the id of the thread that trains; 0 at the end, which another thread may bring about.
        """
        threads = self._threads
        if not threads.measured:
            return
        try:
            used = threads.look(trains)
        except Exception as error:
            hand_on(error)
            # Of the interpreter's own making, and not promised: without it, nothing is known of other threads.
            threads.measured = False
            return
        if threads.any or not trains:
            self.event(EventKind.PYTHON_THREADS, used)

    def _ask_allocator(self, ends: bool = False) -> None:
        """Record how often the device's allocator had to try again, where that has grown; at the end if it ever did."""
        if self._asks_retries is None:
            return
        try:
            retries = self._asks_retries()
        except Exception as error:
            hand_on(error)
            retries = None
        if retries is None:
            self._asks_retries = None
        elif retries > self._retries or (ends and retries):
            self._retries = retries
            self.event(EventKind.ALLOCATOR_RETRIES, retries)
