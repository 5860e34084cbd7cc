"""Which processes are looked at, in which turn and how often, and what is recorded of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from whyidle.capture.sampler import stack_looks
from whyidle.capture.sampler.procfs import ProcessStat
from whyidle.capture.sampler.schedule import NS_PER_S
from whyidle.capture.sampler.stack_looks import (
    FIRST_NS,
    JOINED_NS,
    LEAST_RATE,
    OTHERS_AT_ONCE,
    OTHERS_NS,
    STRETCH_NS,
    StackLooks,
)
from whyidle.capture.sampler.start import StackOptions
from whyidle.capture.sampler.tree import Member
from whyidle.capture.stacks.spy import Look, NoStacks, SpyTrace, ThreadStacks
from whyidle.record.reader import RecordFile
from whyidle.record.run import describe_process
from whyidle.record.schema import NOT_MEASURED, ThreadState
from whyidle.record.stacks import Call, CallStack, read_stacks

TRAINING, LAUNCHER = os.getpid(), 70_001
WORKERS = (80_001, 80_002, 80_003)
SIDE = 5
"""Added to a process id: the kernel's number of another thread of it."""
TICK_NS = NS_PER_S // 10
MAIN: CallStack = (Call("main", "/home/u/train.py", 3),)
BEGIN_NS = 1000 * NS_PER_S
BEHIND_NS = 123_456_000
"""What the clock of a py-spy is behind."""


class FakeSpy:
    """Looks at each call of `hear`, at a main thread in `main` and another in `side`; ends when it is told to."""

    now = 0
    begun: list[tuple[int, int, int]]
    """Process, rate and when, in nanoseconds."""
    refused: Collection[int] = ()
    no_python: Collection[int] = ()
    rubbish: Collection[int] = ()
    failing: Collection[int] = ()
    """Processes whose stacks change while they are read."""
    ends: dict[int, int]
    """Process → when it ends."""
    partly: Collection[int] = ()
    """Numbers of looks, from 1, that see the main thread alone."""
    begins_later: Collection[int] = ()
    """Processes whose other thread begins after 8 s."""
    late_ns = 1_000_000
    """How long after a look it is told of."""
    stack: CallStack = MAIN
    costs_ns = 0
    """CPU time of each."""
    closed = 0

    def __init__(self, pid: int, rate: int) -> None:
        FakeSpy.begun.append((pid, rate, FakeSpy.now))
        self.pid, self.over, self.looks, self.cpu_ns = pid, False, 0, 0
        self.changes: list[int] = []

    def hear(self) -> Look | None:
        if self.pid in (*self.refused, *self.no_python) or FakeSpy.now >= self.ends.get(self.pid, 1 << 62):
            self.end()
            return None
        self.looks += 1
        self.changes.append((FakeSpy.now - self.late_ns - BEHIND_NS) // 1000)
        return Look(FakeSpy.now, self.pid in self.failing, 1 if self.looks in self.partly else 2)

    def end(self) -> None:
        self.over, self.cpu_ns = True, self.costs_ns

    def wait(self, seconds: float) -> None:
        self.end()

    def stacks(self) -> tuple[SpyTrace, float]:
        assert self.over
        if self.pid in self.refused:
            raise NoStacks("Permission denied", refused=True)
        if self.pid in self.no_python or self.pid in self.rubbish:
            raise NoStacks("it is none")
        threads = {thread: ThreadStacks() for thread in self.threads_of(self.pid)}
        for at in self.changes:
            for thread, stacks in threads.items():
                stacks.add(at, self.stack if thread == self.pid else (Call("side", "/home/u/side.py", 9),))
        return SpyTrace(threads, self.changes), float(BEHIND_NS)

    def close(self) -> None:
        FakeSpy.closed += 1

    @classmethod
    def threads_of(cls, pid: int) -> set[int]:
        late = pid in cls.begins_later and FakeSpy.now < BEGIN_NS + 8 * NS_PER_S
        return {pid} if late else {pid, pid + SIDE}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeSpy]:
    class Fake(FakeSpy):
        pass

    FakeSpy.begun, FakeSpy.ends, FakeSpy.now, FakeSpy.closed = [], {}, BEGIN_NS, 0
    monkeypatch.setattr(stack_looks, "Spy", Fake)
    monkeypatch.setattr(stack_looks, "is_python", lambda pid: True)
    monkeypatch.setattr(stack_looks, "_threads", Fake.threads_of)
    monkeypatch.setattr(stack_looks, "read", lambda path: f"NSpid:\t{path.split('/')[2]}\n".encode())
    monkeypatch.setattr(stack_looks, "_runs", lambda pid: FakeSpy.now < FakeSpy.ends.get(pid, 1 << 62))
    monkeypatch.setattr(stack_looks, "thread_state", lambda pid, tid: ThreadState.RUNS)
    monkeypatch.setattr(stack_looks.time, "monotonic_ns", lambda: FakeSpy.now)
    monkeypatch.setattr(stack_looks.time, "thread_time_ns", lambda: 0)
    return Fake


def member(pid: int, parent: int = 1) -> Member:
    fields = dict.fromkeys(ProcessStat.__annotations__, 0) | {"parent": parent, "started": pid}
    return Member(pid, ProcessStat(**fields))  # type: ignore[arg-type]


class Watched(NamedTuple):
    looks: StackLooks
    said: list[str]
    seen: np.ndarray
    """The records, as an array."""

    def times(self, process: int) -> int:
        """How often the thread of a process's number was recorded."""
        return int((self.seen["thread"] == process).sum())

    def stack(self, folder: Path, thread: int) -> CallStack:
        """Of the first look at a thread."""
        return read_stacks(folder).stack(int(self.seen["stack"][self.seen["thread"] == thread][0]))


@pytest.fixture
def watched(tmp_path: Path, fake: type[FakeSpy]) -> Callable[..., Watched]:
    """Looks so many seconds, ten times each. Processes that have ended leave the tree."""

    def look(
        *pids: int,
        seconds: float = 6,
        trains: int | None = None,
        trainings: Callable[[], dict[int, int]] | None = None,
        options: StackOptions = StackOptions(),  # noqa: B008
        ends: dict[int, float] | None = None,
        **behaves: Any,
    ) -> Watched:
        """
        Args:
            trains: the thread that the training says it trains in.
            ends: a process → the seconds after which it ends.
            behaves: what a py-spy does.
        """
        for name, value in behaves.items():
            setattr(fake, name, value)
        FakeSpy.ends = {pid: BEGIN_NS + round(after * NS_PER_S) for pid, after in (ends or {}).items()}
        if trains is not None:
            describe_process(tmp_path, 0, TRAINING, {"host": socket.gethostname(), "thread": trains})
        said: list[str] = []
        looks = StackLooks(tmp_path, LAUNCHER, options, said.append, trainings)
        for _ in range(round(10 * seconds)):
            FakeSpy.now += TICK_NS
            alive = [pid for pid in pids if FakeSpy.now < FakeSpy.ends.get(pid, 1 << 62)]
            looks.look(FakeSpy.now, [member(pid, TRAINING if pid in WORKERS else LAUNCHER) for pid in alive])
        looks.close()
        (path,) = tmp_path.glob("stack-*.rec")
        return Watched(looks, said, np.asarray(RecordFile(path).all()))

    return look


def test_the_training_is_looked_at_all_the_time_and_the_others_in_turn(
    watched: Callable[..., Watched], fake: type[FakeSpy]
) -> None:
    found = watched(LAUNCHER, TRAINING, *WORKERS, seconds=40, trains=TRAINING)
    assert (found.seen["process"] == TRAINING).sum() >= 380
    begun = [pid for pid, *_ in fake.begun if pid != TRAINING]
    assert begun[:8] == [LAUNCHER, *WORKERS] * 2
    assert len(begun) == pytest.approx(40e9 / OTHERS_NS * OTHERS_AT_ONCE, abs=OTHERS_AT_ONCE)


def test_the_thread_that_trains_is_recorded_of_each_look_and_all_threads_now_and_then(
    watched: Callable[..., Watched],
) -> None:
    found = watched(TRAINING, trains=TRAINING + SIDE)
    assert found.times(TRAINING + SIDE) >= 55
    assert found.times(TRAINING) == pytest.approx(found.times(TRAINING + SIDE) / stack_looks.OTHER_THREADS_EVERY, abs=2)


def test_a_thread_that_begins_later_is_recorded_from_the_next_stretch_on(watched: Callable[..., Watched]) -> None:
    found = watched(TRAINING, seconds=40, trains=TRAINING, begins_later=(TRAINING,))
    begins = found.seen["t_ns"][found.seen["thread"] == TRAINING + SIDE]
    assert len(begins) > 20
    assert begins.min() > BEGIN_NS + FIRST_NS + STRETCH_NS


def test_of_a_thread_that_a_look_did_not_see_the_last_stack_is_not_recorded_again(
    watched: Callable[..., Watched],
) -> None:
    found = watched(LAUNCHER, seconds=4, partly=range(4, 100))
    assert found.times(LAUNCHER) >= 35
    assert found.times(LAUNCHER + SIDE) == 1


def test_what_was_seen_is_recorded_with_when_whose_and_by_whom_it_was_started(
    watched: Callable[..., Watched], fake: type[FakeSpy], tmp_path: Path
) -> None:
    found = watched(LAUNCHER, WORKERS[0], seconds=0.2)
    first, second = (record for record in found.seen if record["thread"] in (LAUNCHER, WORKERS[0]))
    assert (first["process"], first["thread"], first["parent"]) == (LAUNCHER, LAUNCHER, LAUNCHER)
    assert (second["process"], second["parent"]) == (WORKERS[0], TRAINING)
    # The look was told of at the second tick, and made before that.
    assert first["t_ns"] == BEGIN_NS + 2 * TICK_NS - fake.late_ns
    assert (first["flags"], first["state"]) == (0, ThreadState.RUNS)
    assert found.stack(tmp_path, LAUNCHER) == MAIN


@pytest.mark.parametrize(("late_ns", "state"), [(JOINED_NS, ThreadState.RUNS), (JOINED_NS + 2000, NOT_MEASURED)])
def test_what_the_kernel_says_counts_only_for_looks_just_before(
    watched: Callable[..., Watched], late_ns: int, state: int
) -> None:
    assert set(watched(LAUNCHER, late_ns=late_ns).seen["state"].tolist()) == {state}


def test_frames_of_whyidle_are_left_out_and_functions_named_in_full_from_their_source(
    watched: Callable[..., Watched], tmp_path: Path
) -> None:
    program = tmp_path / "data.py"
    program.write_text("class Shards:\n    def __getitem__(self, index):\n        return index\n")
    ours = [Call("hook", stack_looks.__file__), Call("hook", "/o/site-packages/whyidle/capture/hooks/loop.py")]
    found = watched(TRAINING, seconds=0.2, stack=(ours[0], *MAIN, Call("__getitem__", str(program), 3), *ours))
    *outer, call = found.stack(tmp_path, TRAINING)
    assert (tuple(outer), call.function, call.line) == (MAIN, "Shards.__getitem__", 3)


@pytest.mark.parametrize(
    ("trainings", "whose"), [(None, LAUNCHER), (lambda: {TRAINING: TRAINING}, TRAINING)], ids=["nobody", "told"]
)
def test_until_a_process_says_that_it_trains_the_first_counts_as_it_or_who_is_told(
    watched: Callable[..., Watched], trainings: Callable[[], dict[int, int]] | None, whose: int
) -> None:
    found = watched(LAUNCHER, TRAINING, *WORKERS, trainings=trainings)
    assert (found.seen["process"] == whose).sum() >= 55
    assert found.looks.made == sum(map(found.times, (LAUNCHER, TRAINING, *WORKERS)))


def test_who_trains_is_asked_twice_a_second(watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(stack_looks, "processes", lambda folder: asked.append(folder) or [])
    watched(LAUNCHER, seconds=6)
    assert 6 <= len(asked) <= 12


def test_several_trainings_share_the_looks(watched: Callable[..., Watched], fake: type[FakeSpy]) -> None:
    ranks = {pid: pid for pid in range(90_000, 90_000 + 1000 * 5, 1000)}
    watched(*ranks, seconds=20, trainings=lambda: ranks)
    first = fake.begun[: stack_looks.TRAININGS_AT_ONCE]
    assert {rate for _, rate, _ in first} == {LEAST_RATE}
    assert {pid for pid, *_ in fake.begun} == set(ranks)


@pytest.mark.parametrize(
    ("behaves", "least", "said"),
    [
        ({"failing": (TRAINING,)}, 55, set()),
        ({"rubbish": (TRAINING,)}, 45, {f"Stacks of process {TRAINING} were not recorded: it is none."}),
    ],
)
def test_looks_that_failed_or_whose_stacks_are_lost_are_recorded_as_such(
    watched: Callable[..., Watched], behaves: dict[str, Any], least: int, said: set[str]
) -> None:
    found = watched(TRAINING, trains=TRAINING, **behaves)
    assert len(found.seen) >= least
    assert {(look["stack"], look["thread"]) for look in found.seen} == {(NOT_MEASURED, TRAINING)}
    assert set(found.said) == said


def test_a_process_that_ends_is_let_go_with_what_was_seen_and_the_others_go_on(
    watched: Callable[..., Watched], fake: type[FakeSpy]
) -> None:
    found = watched(LAUNCHER, *WORKERS, seconds=12, ends={WORKERS[0]: 2})
    assert (found.seen["process"] == WORKERS[0]).sum() >= 17
    assert [pid for pid, *_ in fake.begun].count(WORKERS[0]) == 1
    assert set(found.seen["process"].tolist()) == {LAUNCHER, *WORKERS}
    assert fake.closed == len(fake.begun)


@pytest.mark.parametrize("certain", [False, True])
def test_a_process_without_python_is_given_up_after_some_tries_or_at_once_where_that_is_certain(
    watched: Callable[..., Watched], fake: type[FakeSpy], monkeypatch: pytest.MonkeyPatch, certain: bool
) -> None:
    monkeypatch.setattr(stack_looks, "is_python", lambda pid: not certain or pid != LAUNCHER)
    found = watched(LAUNCHER, WORKERS[0], seconds=60, no_python=(LAUNCHER,))
    assert [pid for pid, *_ in fake.begun].count(LAUNCHER) == (0 if certain else stack_looks.MOST_TRIES)
    assert set(found.seen["process"].tolist()) == {WORKERS[0]}


@pytest.mark.parametrize(
    ("within", "says"), [(True, "a thread within it samples them"), (False, "they are not recorded")]
)
def test_where_the_training_may_not_be_looked_into_it_looks_itself_if_it_is_to(
    watched: Callable[..., Watched], within: bool, says: str
) -> None:
    found = watched(TRAINING, trains=TRAINING, options=StackOptions(within=within), refused=(TRAINING,))
    assert found.looks.refused is within
    assert found.looks.wait_ns(FakeSpy.now) > 0
    assert says in found.said[0]
    assert "whyidle doctor" in found.said[0]


def test_a_command_that_does_not_train_yet_may_still_let_the_sampler_in(watched: Callable[..., Watched]) -> None:
    found = watched(LAUNCHER, seconds=30, refused=(LAUNCHER,))
    assert (found.looks.refused, found.said, found.looks.hindrances[LAUNCHER].refused) == (False, [], True)


def test_of_a_training_that_ended_it_is_not_said_that_it_was_not_seen(watched: Callable[..., Watched]) -> None:
    assert watched(TRAINING, trains=TRAINING, no_python=(TRAINING,), ends={TRAINING: 0.2}).said == []


@pytest.mark.parametrize("costs_ns", [0, 100_000_000])
def test_the_first_stretch_is_short_and_the_next_follows_at_once_where_that_may_be_spent(
    watched: Callable[..., Watched], fake: type[FakeSpy], costs_ns: int
) -> None:
    watched(LAUNCHER, seconds=200, costs_ns=costs_ns)
    lengths = np.diff([now for *_, now in fake.begun])
    assert FIRST_NS <= lengths[0] <= FIRST_NS + NS_PER_S
    assert np.all((lengths[1:] >= STRETCH_NS) & (lengths[1:] <= STRETCH_NS + NS_PER_S))


def test_a_lower_rate_is_kept(watched: Callable[..., Watched], fake: type[FakeSpy]) -> None:
    watched(LAUNCHER, seconds=1, options=StackOptions(rate=1.0))
    assert [rate for _, rate, _ in fake.begun] == [1]


@pytest.mark.parametrize("cost_ms", [30, 100, 1000])
def test_looks_that_cost_much_become_fewer_and_then_rest(
    watched: Callable[..., Watched], fake: type[FakeSpy], cost_ms: int
) -> None:
    watched(LAUNCHER, *WORKERS, seconds=300, costs_ns=cost_ms * 1_000_000)
    for trains_here, share in stack_looks.MOST_OF_CPU.items():
        rates = [rate for pid, rate, _ in fake.begun if (pid == LAUNCHER) is trains_here]
        # What is spent may be ahead by one stretch of each that are looked at at once.
        most = (share * 300e9 + stack_looks.SAVED_NS) / fake.costs_ns + OTHERS_AT_ONCE
        assert 0.5 * min(most, 300e9 / STRETCH_NS) <= len(rates) <= most
        assert rates[-1] == (LEAST_RATE if cost_ms >= 1000 else pytest.approx(rates[0], abs=8))
