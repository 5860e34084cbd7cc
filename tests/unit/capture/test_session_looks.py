"""What the session looks at between steps: the other Python threads and the device's allocator."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from support.fakes.driver import wait_for
from support.hooked import Clocked
from whyidle.capture import session as session_module
from whyidle.capture.session import PythonThreads, Session, _clock_of
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, EventKind

MS = 1_000_000
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the clocks of threads are Linux's")


class Beside(threading.Thread):
    """A thread of the program's own, which is `busy` or `idle` within the block."""

    used_ns = 0
    """CPU time that it used by its own account."""

    def __init__(self, work: str) -> None:
        super().__init__()
        self.work, self.over = work, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0 if self.work == "busy" else None):
            sum(range(1000))
        self.used_ns = time.thread_time_ns()

    def cpu_ns(self) -> int:
        """CPU time that it has used so far, by the kernel's."""
        return time.clock_gettime_ns(_clock_of(self.native_id or 0))

    def __enter__(self) -> Beside:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()


def step(session: Session, times: int, ms: int, meanwhile: Callable[[], object] = lambda: None) -> None:
    """So many steps of so long each."""
    device = session.device
    assert isinstance(device, Clocked)
    for _ in range(times):
        session.steps.fetch_begin(0, False, None)
        session.steps.fetch_end(1)
        meanwhile()
        device.take(ms)


def values(folder: Path, what: int) -> list[int]:
    records = open_run(folder).records(EVENT)
    return records[records["what"] == what]["value"].tolist()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(session_module, "THREADS_EVERY_NS", 20 * MS)
    monkeypatch.setattr(session_module, "ALLOCATOR_EVERY_NS", 10 * MS)
    return create_run(tmp_path / "run", {})


@linux_only
@pytest.mark.parametrize("work", ["busy", "idle"])
def test_the_cpu_of_other_python_threads_is_recorded(folder: Path, work: str) -> None:
    session = Session(folder, Clocked())
    with Beside(work) as other:

        def computes() -> None:
            if work == "busy":
                before = other.cpu_ns()
                wait_for(lambda: other.cpu_ns() - before >= MS)

        step(session, 30, 10, computes)
        session.finish()
    used = values(folder, EventKind.PYTHON_THREADS)
    assert len(used) == 15 + 1  # at every second step, and at the end
    assert used == sorted(used)
    # It ran a little before the first look and after the last.
    assert used[-1] - used[0] <= other.used_ns + MS
    if work == "busy":
        assert all(later - earlier >= MS for earlier, later in pairwise(used))
    else:
        assert used[-1] - used[0] < 10 * MS


@linux_only
def test_without_other_threads_there_is_one_zero_at_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = {1: threading.current_thread()}
    monkeypatch.setattr(threading, "_active", alone)
    session = Session(folder, Clocked())
    step(session, 10, 10)
    session.finish()
    assert values(folder, EventKind.PYTHON_THREADS) == [0]


@linux_only
def test_what_an_ended_thread_used_stays_and_the_thread_that_trains_does_not_count() -> None:
    threads = PythonThreads()
    here = threading.get_native_id()
    before = threads.look(here)
    with Beside("busy") as busy:
        wait_for(lambda: threads.look(here) - before >= 50 * MS)
        during = threads.look(here)
    assert during - before <= busy.used_ns + MS
    sum(range(3_000_000))  # of the thread that trains
    after = threads.look()
    assert 0 <= after - during < 50 * MS
    # From here on another thread trains: what this one had used by then is none of the others'.
    with Beside("idle") as other:
        assert other.native_id is not None
        threads.look(other.native_id)
        then = threads.look(other.native_id)
        began = time.thread_time_ns()
        sum(range(3_000_000))
        used = time.thread_time_ns() - began
        assert used <= threads.look(other.native_id) - then < 2 * used + 10 * MS
        assert then - after < 50 * MS


@linux_only
def test_threads_that_python_did_not_start_or_that_are_gone_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = threading.Thread(target=lambda: None)
    gone.start()
    gone.join()

    def unknown_to_the_kernel() -> bool:
        try:
            time.clock_gettime_ns(_clock_of(gone.native_id or 0))
        except OSError:
            return True
        return False

    wait_for(unknown_to_the_kernel)  # Python is done with it a little earlier
    threads = {1: threading.current_thread(), 2: gone, 3: threading.Thread()}
    monkeypatch.setattr(threading, "_active", threads)
    looked = PythonThreads()
    assert looked.look() == 0
    assert not looked.any


def test_an_interpreter_without_such_clocks_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(threading, "_active")
    session = Session(folder, Clocked())
    with contextlib.suppress(AttributeError):
        step(session, 5, 10)
        session.finish()
    monkeypatch.undo()
    assert values(folder, EventKind.PYTHON_THREADS) == []


class Allocating(Clocked):
    """A processor whose memory runs out now and then."""

    def __init__(self, *retries: int | None) -> None:
        super().__init__()
        self.retries = list(retries)
        self.asked = 0

    def allocation_retries(self) -> int | None:
        self.asked += 1
        now = self.retries[0]
        if len(self.retries) > 1:
            self.retries.pop(0)
        if now == -1:
            raise RuntimeError("no such figure")
        return now


@pytest.mark.parametrize(
    ("answers", "recorded", "goes_on"),
    [
        ((0, 0, 2, 2, 5), [2, 5, 5], True),  # as they grow, and at the end
        ((0,), [], True),
        ((None,), [], False),
        ((-1,), [], False),
    ],
)
def test_retries_of_the_allocator_are_recorded(
    folder: Path, answers: tuple[int | None, ...], recorded: list[int], goes_on: bool
) -> None:
    device = Allocating(*answers)
    session = Session(folder, device)
    step(session, 12, 12)
    session.finish()
    assert values(folder, EventKind.ALLOCATOR_RETRIES) == recorded
    assert device.asked > 3 if goes_on else device.asked == 1


def test_the_allocator_is_not_asked_at_each_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "ALLOCATOR_EVERY_NS", 10**12)
    device = Allocating(3)
    session = Session(folder, device)
    step(session, 20, 0)
    assert device.asked == 1
    session.finish()
    assert values(folder, EventKind.ALLOCATOR_RETRIES) == [3, 3]
