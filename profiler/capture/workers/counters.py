"""What the kernel counts for the thread that makes batches."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from pathlib import Path
from time import monotonic_ns, process_time_ns, thread_time_ns
from typing import NamedTuple

from ...record.schema import NOT_MEASURED
from ...record.segment import tell_of_fork

_PROC = Path("/proc").stat().st_dev
_IO_BEGINS = re.compile(rb"rchar: \d+\nwchar: \d+\n")


class Reading(NamedTuple):
    """All cumulative; `NOT_MEASURED` where the kernel does not tell."""

    t_ns: int
    cpu_ns: int
    """Of the thread."""
    process_cpu_ns: int
    run_queue_ns: int
    """Ready to run, waiting for a CPU."""
    thread_read_bytes: int
    """Through system calls on files, wherever the bytes came from; the counters' own reads are left out."""
    read_chars_bytes: int
    """The same, of all threads where the process does nothing but making batches: datasets may read in threads of
    their own."""
    read_bytes: int
    """Of these, from storage."""
    written_bytes: int
    """By all threads, through system calls on files and pipes; where the process does nothing but making batches."""
    minor_faults: int
    major_faults: int


class ThreadCounters:
    """Reads them for the thread that made this. The files stay open: opening is what costs."""

    def __init__(self, own_process: bool) -> None:
        """`own_process`: this process does nothing but making batches."""
        self._io = _open("/proc/thread-self/io")
        self._process_io = _open("/proc/self/io") if own_process else -1
        self._own_process = own_process
        self._schedule = _open("/proc/thread-self/schedstat")
        self._read_here = 0
        tell_of_fork(self)

    def begin(self) -> Reading:
        """Before the work: the clocks last."""
        counted = self._counted()
        process = process_time_ns()
        clock, cpu = monotonic_ns(), thread_time_ns()
        return Reading(clock, cpu, process, *counted)

    def end(self) -> Reading:
        """After the work: the clocks first."""
        cpu, clock = thread_time_ns(), monotonic_ns()
        process = process_time_ns()
        return Reading(clock, cpu, process, *self._counted())

    def forked(self) -> None:
        """What a child has open tells of its parent."""
        self.close()

    def close(self) -> None:
        for file in (self._io, self._process_io, self._schedule):
            if file >= 0:
                with contextlib.suppress(OSError):
                    # A program may have closed it, and have a file of its own under its number.
                    if os.fstat(file).st_dev == _PROC:
                        os.close(file)
        self._io = self._process_io = self._schedule = -1

    def between(self) -> tuple[int, int, int, int]:
        """In the midst of the work: the clocks and the run queue alone."""
        cpu, clock = thread_time_ns(), monotonic_ns()
        return clock, cpu, process_time_ns(), self._queued()

    def _queued(self) -> int:
        if self._schedule < 0:
            return NOT_MEASURED
        text = os.pread(self._schedule, 128, 0)
        self._read_here += len(text)
        return int(text.split()[1])

    def _counted(self) -> tuple[int, int, int, int, int, int, int]:
        """Run queue, bytes read by the thread and by all, from storage, bytes written, minor and major faults."""
        queued = self._queued()
        mine, stored, _ = self._read(self._io)
        chars, written = mine, NOT_MEASURED
        if self._own_process:
            chars, stored, written = self._read(self._process_io)
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        return queued, mine, chars, stored, written, usage.ru_minflt, usage.ru_majflt

    def _read(self, file: int) -> tuple[int, int, int]:
        """Bytes read, of these from storage, bytes written."""
        if file < 0:
            return NOT_MEASURED, NOT_MEASURED, NOT_MEASURED
        text = os.pread(file, 512, 0)
        end = text.index(b"\n")
        chars = int(text[7:end]) - self._read_here
        self._read_here += len(text)
        written = int(text[end + 8 : text.index(b"\n", end + 1)])
        at = text.index(b"\nread_bytes: ") + 13
        return chars, int(text[at : text.index(b"\n", at)]), written


def affinity() -> tuple[int, int]:
    """How many CPUs the calling thread may run on, and the lowest-numbered; `NOT_MEASURED` where that is not told."""
    try:
        cpus = os.sched_getaffinity(0)
    except (OSError, AttributeError):
        return NOT_MEASURED, NOT_MEASURED
    return len(cpus), min(cpus)


def _open(path: str) -> int:
    """A file descriptor; -1 where the kernel has no such file or does not show it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        text = os.pread(file, 512, 0)
        known = (
            _IO_BEGINS.match(text) is not None and b"\nread_bytes: " in text
            if path.endswith("io")
            else text.count(b" ") > 1
        )
    except OSError:
        known = False
    if not known:
        os.close(file)
        return -1
    return file
