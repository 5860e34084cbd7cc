"""Which processes are looked at, in which turn, and what is recorded of it."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from whyidle.capture.sampler import stack_looks
from whyidle.capture.sampler.procfs import ProcessStat
from whyidle.capture.sampler.schedule import NS_PER_S
from whyidle.capture.sampler.stack_looks import StackLooks
from whyidle.capture.sampler.stack_options import StackOptions
from whyidle.capture.sampler.tree import Member
from whyidle.capture.stacks.memory import Gone, Unreadable
from whyidle.capture.stacks.reader import ThreadStack
from whyidle.record.reader import RecordFile
from whyidle.record.run import describe_process, processes
from whyidle.record.schema import NOT_MEASURED, StackFlag
from whyidle.record.stacks import Call, read_stacks

TRAINING, LAUNCHER = os.getpid(), 70_001
WORKERS = (80_001, 80_002, 80_003)
SIDE = 5
"""Added to a process id: the kernel's number of another thread of it."""


class FakePython:
    """A process with two threads: the main one in `main`, another in `side`."""

    refused: Collection[int] = ()
    """Processes that may not be looked into."""
    none: Collection[int] = ()
    """Processes that are no Python."""
    torn: Collection[int] = ()
    gone: Collection[int] = ()
    looked: list[tuple[int, Collection[int] | None]]
    closed: list[int]

    def __init__(self, pid: int) -> None:
        if pid in self.refused:
            raise Unreadable("not allowed", refused=True)
        if pid in self.none:
            raise Unreadable("no Python")
        self.pid = pid

    def look(self, tids: Collection[int] | None = None) -> list[ThreadStack] | None:
        if self.pid in self.gone:
            raise Gone("it has ended")
        FakePython.looked.append((self.pid, tids))
        if self.pid in self.torn:
            return None
        threads = [
            ThreadStack(self.pid, (Call("main", "/home/u/train.py", 3),), True, True, False),
            ThreadStack(self.pid + SIDE, (Call("side", "/home/u/side.py", 9),), False, None, False),
        ]
        return [thread for thread in threads if tids is None or thread.tid in tids]

    def close(self) -> None:
        FakePython.closed.append(self.pid)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakePython]:
    class Fake(FakePython):
        pass

    FakePython.looked, FakePython.closed = [], []
    monkeypatch.setattr(stack_looks, "RemotePython", Fake)
    return Fake


def member(pid: int, parent: int = 1) -> Member:
    fields = dict.fromkeys(ProcessStat.__annotations__, 0) | {"parent": parent, "started": pid}
    return Member(pid, ProcessStat(**fields))  # type: ignore[arg-type]


def beats(
    folder: Path,
    pids: Collection[int],
    count: int = 24,
    say: Callable[[str], None] = lambda _: None,
    within: bool = True,
) -> StackLooks:
    looks = StackLooks(folder, LAUNCHER, StackOptions(within=within), say)
    for number in range(count):
        looks.look((number + 1) * NS_PER_S, [member(pid, TRAINING if pid in WORKERS else LAUNCHER) for pid in pids])
    looks.close()
    return looks


def trains(folder: Path) -> None:
    describe_process(folder, 0, TRAINING, {"host": socket.gethostname(), "thread": TRAINING + SIDE})


def test_the_training_is_looked_at_at_every_beat_and_its_workers_in_turn(
    tmp_path: Path, fake: type[FakePython]
) -> None:
    trains(tmp_path)
    beats(tmp_path, (LAUNCHER, TRAINING, *WORKERS))
    looked = [pid for pid, _ in fake.looked]
    assert looked.count(TRAINING) == 24
    others = [pid for pid in looked if pid != TRAINING]
    assert len(others) == 24 * stack_looks.OTHERS_A_BEAT
    assert {others.count(pid) for pid in (LAUNCHER, *WORKERS)} == {len(others) // 4}


def test_the_thread_that_trains_is_looked_at_and_all_threads_now_and_then(
    tmp_path: Path, fake: type[FakePython]
) -> None:
    trains(tmp_path)
    beats(tmp_path, (TRAINING,))
    asked = [tids for _, tids in fake.looked]
    assert asked.count(None) == 24 // stack_looks.OTHER_THREADS_EVERY
    assert all(tids in (None, {TRAINING + SIDE}) for tids in asked)


def test_until_a_process_says_that_it_trains_the_one_that_was_started_counts_as_it(
    tmp_path: Path, fake: type[FakePython]
) -> None:
    beats(tmp_path, (LAUNCHER, *WORKERS))
    assert [pid for pid, _ in fake.looked].count(LAUNCHER) == 24


def test_what_was_seen_is_recorded_with_when_whose_and_by_whom_it_was_started(
    tmp_path: Path, fake: type[FakePython]
) -> None:
    beats(tmp_path, (LAUNCHER, WORKERS[0]), count=1)
    (path,) = tmp_path.glob("stack-*.rec")
    first, second = RecordFile(path).all()
    assert (first["process"], first["thread"], first["parent"]) == (LAUNCHER, LAUNCHER, LAUNCHER)
    assert (second["process"], second["parent"]) == (WORKERS[0], TRAINING)
    assert first["flags"] == StackFlag.MAIN_THREAD | StackFlag.GIL_KNOWN | StackFlag.HOLDS_GIL
    assert read_stacks(tmp_path).stack(int(first["stack"])) == (Call("main", "/home/u/train.py", 3),)


def test_frames_of_whyidle_are_left_out_of_whichever_installation(
    tmp_path: Path, fake: type[FakePython], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Call("main", "/home/u/train.py", 3)
    ours = [Call("hook", stack_looks.__file__), Call("hook", "/o/site-packages/whyidle/capture/hooks/loop.py")]
    stood = ThreadStack(LAUNCHER, (ours[0], train, *ours), True, True, False)  # type: ignore[arg-type]
    monkeypatch.setattr(fake, "look", lambda *_: [stood])
    beats(tmp_path, (LAUNCHER,), count=1)
    (path,) = tmp_path.glob("stack-*.rec")
    (look,) = RecordFile(path).all()
    assert read_stacks(tmp_path).stack(int(look["stack"])) == (train,)


def test_who_trains_may_be_told_by_whoever_knows(tmp_path: Path, fake: type[FakePython]) -> None:
    looks = StackLooks(tmp_path, LAUNCHER, StackOptions(), lambda _: None, lambda: {TRAINING: TRAINING})
    for number in range(8):
        looks.look((number + 1) * NS_PER_S, [member(pid) for pid in (LAUNCHER, TRAINING, *WORKERS)])
    looks.close()
    looked = [pid for pid, _ in fake.looked]
    assert looked.count(TRAINING) == 8
    assert looked.count(LAUNCHER) == 4
    assert looks.made == len(looked)


def test_a_look_that_failed_is_recorded_as_such(tmp_path: Path, fake: type[FakePython]) -> None:
    fake.torn = (LAUNCHER,)
    beats(tmp_path, (LAUNCHER,), count=3)
    (path,) = tmp_path.glob("stack-*.rec")
    assert RecordFile(path).all()["stack"].tolist() == [NOT_MEASURED] * 3


def test_a_process_that_ends_is_let_go_and_the_others_go_on(tmp_path: Path, fake: type[FakePython]) -> None:
    fake.gone = (WORKERS[0],)
    beats(tmp_path, (LAUNCHER, *WORKERS), count=12)
    assert WORKERS[0] in fake.closed
    assert {pid for pid, _ in fake.looked} == {LAUNCHER, WORKERS[1], WORKERS[2]}


def test_a_process_that_is_no_python_is_given_up_after_some_tries(tmp_path: Path, fake: type[FakePython]) -> None:
    fake.none = (LAUNCHER,)
    beats(tmp_path, (LAUNCHER, WORKERS[0]), count=40)
    assert [pid for pid, _ in fake.looked] == [WORKERS[0]] * 40


def test_where_the_training_may_not_be_looked_into_it_is_told_to_look_itself(
    tmp_path: Path, fake: type[FakePython]
) -> None:
    fake.refused = (TRAINING,)
    trains(tmp_path)
    said: list[str] = []
    assert beats(tmp_path, (TRAINING,), say=said.append).refused
    assert "a thread of its own looks at its stacks" in said[0]
    assert "whyidle doctor" in said[0]


def test_where_it_is_not_to_look_itself_nothing_is_known(tmp_path: Path, fake: type[FakePython]) -> None:
    fake.refused = (TRAINING,)
    trains(tmp_path)
    said: list[str] = []
    assert not beats(tmp_path, (TRAINING,), say=said.append, within=False).refused
    assert "its stacks are not known" in said[0]


def test_a_command_that_does_not_train_yet_may_still_let_the_sampler_in(tmp_path: Path, fake: type[FakePython]) -> None:
    fake.refused = (LAUNCHER,)
    said: list[str] = []
    assert not beats(tmp_path, (LAUNCHER,), count=60, say=said.append).refused
    assert said == []


def test_looks_that_cost_much_become_fewer(
    tmp_path: Path, fake: type[FakePython], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**12, 30_000_000))
    monkeypatch.setattr(stack_looks.time, "thread_time_ns", lambda: next(clock))
    looks = StackLooks(tmp_path, LAUNCHER, StackOptions(), lambda _: None)
    looks.look(NS_PER_S, [member(LAUNCHER)])
    assert looks.wait_ns(NS_PER_S) >= 30_000_000 / stack_looks.MOST_OF_CPU


def test_who_trains_is_read_again_only_where_the_folder_changed(
    tmp_path: Path, fake: type[FakePython], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    monkeypatch.setattr(stack_looks, "processes", lambda folder: read.append(folder) or processes(folder))
    changed = tmp_path.stat().st_mtime_ns
    monkeypatch.setattr(stack_looks.time, "time_ns", lambda: changed + 9 * stack_looks.SETTLED_NS)
    looks = StackLooks(tmp_path, LAUNCHER, StackOptions(), lambda _: None)
    beat = itertools.count(1)

    def look(times: int, changed_ns: int) -> int:
        """How often the files of processes were read in so many looks, the folder having changed before."""
        os.utime(tmp_path, ns=(changed_ns, changed_ns))
        read.clear()
        for _ in range(times):
            looks.look(next(beat) * NS_PER_S, [member(pid) for pid in (LAUNCHER, TRAINING)])
        return len(read)

    look(2, changed)
    assert look(6, changed + 1) == 1
    trains(tmp_path)
    fake.looked.clear()
    assert look(6, changed + 2) == 1
    looks.close()
    assert [pid for pid, _ in fake.looked].count(TRAINING) == 6
