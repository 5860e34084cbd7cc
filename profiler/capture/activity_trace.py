"""One trace of all that the device and its runtime do, taken by CUPTI through torch's Kineto, as KERNEL records.

Only torch's backend profiler is used: the public one builds a Python object for every event when it accumulates,
and warns on standard error when it does not.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.autograd.profiler

from ..record.schema import NOT_MEASURED, KernelKind

TRAINING_THREAD = 0
"""What `kernel.thread` says of the training thread; other threads are 1, 2, … as they appear."""
COLUMNS = 6
"""What a piece of work has: kind, stream, thread, launch, begin and end (the fields of KERNEL after `window`)."""
LEAST_WAIT_NS = 50_000
"""A copying call that takes so long did not only queue the copy: it waited for the device."""
ANCHOR_SLACK_NS = 1_000_000
"""How far CUPTI's clock may be off the host's when a call of ours is looked for."""
CLOCK_TRIES = 5
"""Times that both clocks are read, for a pair that was read at nearly one moment."""
_SILENT = "6"
"""Above the highest of Kineto's levels of severity."""

Rows = npt.NDArray[np.int64]

_backend: Any = torch.autograd.profiler
_CPU = _backend.DeviceType.CPU
_CUDA = _backend.DeviceType.CUDA

_NOT_WORK = frozenset({"gpu_user_annotation", "cuda_sync", "cuda_event", "cuda_profiler_range", "overhead"})
"""Kineto's types of activity on the device that are no work of its own."""
_COPY_CALLS = ("cudaMemcpy", "cuMemcpy")
_FREE_CALLS = ("cudaFree", "cuMemFree")
"""Giving memory back waits for the device."""


def has_cupti() -> bool:
    """Whether this torch can trace CUDA at all."""
    return bool(_backend.kineto_available()) and _backend.ProfilerActivity.CUDA in _backend._supported_activities()


def in_use() -> bool:
    """Whether torch's profiler runs in this process."""
    return bool(_backend._is_profiler_enabled)


@dataclass(frozen=True)
class Clocks:
    """Both clocks of the host at one moment: CUPTI stamps in epoch time, records are CLOCK_MONOTONIC."""

    epoch_ns: int
    monotonic_ns: int

    @property
    def offset_ns(self) -> int:
        return self.epoch_ns - self.monotonic_ns


def read_clocks() -> Clocks:
    """Both clocks now: epoch time, read between two looks at the monotonic clock. Of a few tries the closest."""
    best: tuple[int, Clocks] | None = None
    for _ in range(CLOCK_TRIES):
        before = time.monotonic_ns()
        epoch = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, Clocks(epoch, (before + after) // 2))
    assert best is not None
    return best[1]


def to_monotonic(epoch_ns: Rows, started: Clocks, stopped: Clocks) -> Rows:
    """Epoch stamps on the monotonic clock. Epoch time is slewed, so the offset is drawn as a line between the pairs."""
    drift = stopped.offset_ns - started.offset_ns
    length = max(1, stopped.epoch_ns - started.epoch_ns)
    past = (epoch_ns - started.epoch_ns) / length
    return epoch_ns - started.offset_ns - np.rint(drift * past).astype(np.int64)


@dataclass(frozen=True)
class Traced:
    """What a trace saw, and both clocks when it began and ended."""

    events: Sequence[Any]
    """Kineto's events, as torch hands them out."""
    started: Clocks
    stopping: Clocks
    """Before the device was waited for."""
    stopped: Clocks


class KinetoTrace:
    """A trace under way. Begin and end it on the same thread."""

    def __init__(self) -> None:
        self._profile = _backend.profile(use_cpu=False, use_device="cuda", use_kineto=True)
        self._started = read_clocks()
        try:
            with _silent_kineto():
                self._profile.__enter__()
        except Exception:
            # torch sets its flag before it tries; left set it would tell the training that a profiler runs.
            _backend._is_profiler_enabled = False
            raise

    def stop(self) -> Traced:
        """End the trace. torch waits for the device here: what is still queued belongs to the trace."""
        stopping = read_clocks()
        self._profile.__exit__(None, None, None)
        stopped = read_clocks()
        return Traced(self._profile.kineto_results.events(), self._started, stopping, stopped)


class OthersWatch:
    """Tells when somebody else starts torch's profiler: two at a time would be an error in the training.

    Whoever begins a profile prepares or enables it through these two names of torch's module.
    """

    _NAMES = ("_prepare_profiler", "_enable_profiler")

    def __init__(self, on_other: Callable[[], None]) -> None:
        self._on_other = on_other
        self._replaced: dict[str, tuple[Any, Any]] = {}
        self.ours = False
        """Set while we start a trace ourselves."""
        for name in self._NAMES:
            original = getattr(_backend, name, None)
            if original is not None:
                watched = self._watched(name, original)
                self._replaced[name] = (original, watched)
                setattr(_backend, name, watched)

    def remove(self) -> None:
        """Put torch's own functions back, unless somebody has replaced ours since: then ours only pass on."""
        for name, (original, watched) in self._replaced.items():
            if getattr(_backend, name, None) is watched:
                setattr(_backend, name, original)
        self._replaced = {}

    def _watched(self, name: str, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._replaced and not self.ours:
                with suppress(Exception):
                    self._on_other()
                if name == "_enable_profiler":
                    # The other one has set torch's flag just before, and the end of our trace has cleared it.
                    _backend._is_profiler_enabled = True
            return original(*args, **kwargs)

        return call


@contextmanager
def _silent_kineto() -> Iterator[None]:
    """Keeps Kineto's progress lines off standard error: it reads its level when it is first used."""
    name = "KINETO_LOG_LEVEL"
    if name in os.environ:
        yield
        return
    os.environ[name] = _SILENT
    try:
        yield
    finally:
        os.environ.pop(name, None)


def rows_of(traced: Traced, device: int) -> Rows:
    """The work of one device and the host calls that waited, sorted by begin: `[n, COLUMNS]`."""
    calls: dict[int, tuple[int, int]] = {}
    waits: list[tuple[int, int, int]] = []
    work: list[tuple[int, int, int, int, int]] = []
    threads: set[int] = set()
    anchor: tuple[int, int] | None = None
    for event in traced.events:
        where = event.device_type()
        if where == _CUDA:
            kind = _kind(event) if event.device_index() == device else None
            if kind is not None:
                begin = event.start_ns()
                end = begin + event.duration_ns()
                work.append((kind, event.device_resource_id(), event.correlation_id(), begin, end))
        elif where == _CPU:
            name = event.name()
            if not name.startswith("cu"):
                continue
            begin, thread = event.start_ns(), event.device_resource_id()
            duration = event.duration_ns()
            threads.add(thread)
            known = calls.get(event.correlation_id())
            if known is None or begin < known[0]:
                calls[event.correlation_id()] = (begin, thread)
            if begin >= traced.stopping.epoch_ns - ANCHOR_SLACK_NS and name.startswith("cudaDeviceSynchronize"):
                anchor = max(anchor or (begin, thread), (begin, thread))
            if _waits(name, duration):
                waits.append((thread, begin, begin + duration))
    return _sorted(work, waits, calls, _numbering(threads, anchor), traced)


def _sorted(
    work: list[tuple[int, int, int, int, int]],
    waits: list[tuple[int, int, int]],
    calls: dict[int, tuple[int, int]],
    number: dict[int, int],
    traced: Traced,
) -> Rows:
    """The same as rows on the monotonic clock, by begin.

    Args:
        work: (kind, stream, number that its call has too, begin, end) of each piece of work on the device.
        waits: (thread, begin, end) of each call that waited.
        calls: (begin, thread) of the call that queued a piece of work, by that number.
        number: ours for each of Kineto's threads.
    """
    found = []
    for kind, stream, correlation, begin, end in work:
        launch, thread = calls.get(correlation, (NOT_MEASURED, None))
        found.append((kind, stream, NOT_MEASURED if thread is None else number[thread], launch, begin, end))
    for thread, begin, end in waits:
        found.append((KernelKind.SYNC, NOT_MEASURED, number[thread], NOT_MEASURED, begin, end))
    rows = np.array(found, dtype=np.int64).reshape(-1, COLUMNS)
    stamps = rows[:, 3:]
    known = stamps != NOT_MEASURED
    stamps[known] = to_monotonic(stamps[known], traced.started, traced.stopped)
    return rows[np.argsort(rows[:, 4], kind="stable")]


def _numbering(threads: set[int], anchor: tuple[int, int] | None) -> dict[int, int]:
    """Our numbers for Kineto's threads.

    The thread that ends the trace waits for the device just then, which finds it however Kineto numbers threads.
    Where that call is missing, Kineto's numbers are tried: the thread id of the system, or, for a thread it has not
    met by name, the lower half of the pthread id.
    """
    training = anchor[1] if anchor is not None else None
    if training is None:
        low = threading.get_ident() & 0xFFFFFFFF
        candidates = (low - (1 << 32) if low >= 1 << 31 else low, low, threading.get_native_id())
        training = next((c for c in candidates if c in threads), None)
    others = sorted(threads - {training})
    number = {thread: place for place, thread in enumerate(others, TRAINING_THREAD + 1)}
    if training is not None:
        number[training] = TRAINING_THREAD
    return number


def _kind(event: Any) -> int | None:
    """KernelKind of an event on the device; `None` for marks that are no work. Old torch knows names only."""
    activity = event.activity_type() if hasattr(event, "activity_type") else ""
    if activity in _NOT_WORK:
        return None
    if activity in ("gpu_memcpy", "gpu_memset") or (not activity and event.name().startswith(("Memcpy", "Memset"))):
        return KernelKind.COPY
    return KernelKind.KERNEL


def _waits(name: str, duration_ns: int) -> bool:
    """Whether a call of the runtime or the driver waited for the device."""
    if "Synchronize" in name or name.startswith(_FREE_CALLS):
        return True
    return name.startswith(_COPY_CALLS) and duration_ns >= LEAST_WAIT_NS
