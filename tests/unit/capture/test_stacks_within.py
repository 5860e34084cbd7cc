"""Who looks into a training's stacks: the process itself, and others whom it lets in.

Where processes may look into their children alone, a stand-in for the kernel's call is asked.
"""

from __future__ import annotations

import _thread
import os
import threading
from pathlib import Path

import pytest

from whyidle.capture.stacks import permit as permit_module
from whyidle.capture.stacks import within
from whyidle.capture.stacks.permit import permit, tracer
from whyidle.capture.stacks.within import OwnStacks, look_within
from whyidle.record.reader import RecordFile, Records
from whyidle.record.schema import StackFlag
from whyidle.record.stacks import read_stacks

WANTED = {"rate": 10.0, "source": True, "within": True}


def looked(folder: Path, every: bool = False, source: bool = False) -> Records:
    """What a look from another thread records."""
    looks, seen = OwnStacks(folder, 10.0, source, worker=False), threading.Event()
    _thread.start_new_thread(lambda: (looks.look(every), seen.set()), ())
    assert seen.wait(60)
    (path,) = folder.glob("stack-*.rec")
    return RecordFile(path).all()


def test_the_main_threads_stack_is_recorded_with_its_lines_of_source(tmp_path: Path) -> None:
    (record,) = looked(tmp_path, source=True)
    assert (record["process"], record["thread"], record["parent"]) == (os.getpid(), os.getpid(), os.getppid())
    assert record["flags"] == StackFlag.FROM_WITHIN
    here = [call for call in read_stacks(tmp_path).stack(int(record["stack"])) if call.file == __file__]
    assert [call.text for call in here[-2:]] == ["(record,) = looked(tmp_path, source=True)", "assert seen.wait(60)"]
    assert here[-2].function == "test_the_main_threads_stack_is_recorded_with_its_lines_of_source"


def test_other_threads_are_recorded_under_the_kernels_number(tmp_path: Path) -> None:
    ready, done, numbers = threading.Event(), threading.Event(), []

    def side() -> None:
        numbers.append(threading.get_native_id())
        ready.set()
        done.wait(60)

    thread = threading.Thread(target=side)
    thread.start()
    assert ready.wait(60)
    by_thread = {int(record["thread"]): int(record["stack"]) for record in looked(tmp_path, every=True)}
    done.set()
    thread.join()
    stack = read_stacks(tmp_path).stack(by_thread[numbers[0]])
    assert "side" in [call.function.rpartition(".")[2] for call in stack]
    assert all(call.text == "" for call in stack)


def test_calls_of_what_watches_the_training_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(within, "is_ours", lambda file: file == __file__)
    number = int(looked(tmp_path)[0]["stack"])
    stack = read_stacks(tmp_path).stack(number)
    assert stack
    assert all(call.file != __file__ for call in stack)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    calls: list[object] = []
    monkeypatch.setattr(within, "_looks_in", 0)
    monkeypatch.setattr(within._thread, "start_new_thread", lambda run, given: calls.append(run))
    return calls


def test_one_thread_of_a_process_looks_and_a_forked_child_for_itself(
    tmp_path: Path, started: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_within(tmp_path, lambda: WANTED)
    look_within(tmp_path, lambda: WANTED)
    assert len(started) == 1
    monkeypatch.setattr(within.os, "getpid", lambda: 4_000_001)
    look_within(tmp_path, lambda: WANTED, worker=True)
    assert len(started) == 2


@pytest.mark.parametrize("wanted", [None, {}, WANTED | {"within": False}, "yes", {"within": True}])
def test_it_does_not_where_that_is_switched_off(tmp_path: Path, started: list[object], wanted: object) -> None:
    look_within(tmp_path, lambda: wanted)
    assert started == []


def test_between_two_looks_it_rests_so_long_that_they_cost_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = OwnStacks(tmp_path, 10.0, source=False, worker=False)
    rests: list[float] = []

    class Over(Exception):
        pass

    def sleep(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 2:
            raise Over

    clock = iter((0, 20_000_000))
    monkeypatch.setattr(within.time, "sleep", sleep)
    monkeypatch.setattr(within.time, "thread_time_ns", lambda: next(clock))
    monkeypatch.setattr(looks, "look", lambda every: None)
    looks.run()
    assert rests[0] <= 0.15
    assert rests[1] == pytest.approx(0.02 / within.MOST_OF_CPU)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """What the kernel was asked for, by this process."""
    calls: list[tuple[int, ...]] = []

    class Library:
        @staticmethod
        def prctl(what: int, *given: object) -> int:
            calls.append((what, *(number.value for number in given)))  # type: ignore[attr-defined]
            return 0

    monkeypatch.setattr(permit_module.ctypes, "CDLL", lambda _name: Library)
    monkeypatch.setattr(permit_module, "_permitted", False)
    monkeypatch.setattr(permit_module.os, "register_at_fork", lambda after_in_child: calls.append((after_in_child,)))
    return calls


@pytest.fixture
def scope(tmp_path: Path) -> Path:
    path = tmp_path / "ptrace_scope"
    path.write_text("1\n")
    return path


def test_the_process_that_started_both_is_let_in_and_into_every_fork(asked: list[tuple[int, ...]], scope: Path) -> None:
    permit(tracer(), scope)
    (in_fork,), now = asked
    assert now == (0x59616D61, os.getpid(), 0, 0, 0)
    in_fork()  # type: ignore[operator]
    assert asked[-1] == now
    # It is asked for once.
    permit(tracer(), scope)
    assert len(asked) == 3


@pytest.mark.parametrize("rule", ["0\n", "2\n", "3\n", "", None])
def test_where_the_rule_is_another_one_the_kernel_is_not_asked(
    asked: list[tuple[int, ...]], scope: Path, rule: str | None
) -> None:
    if rule is None:
        scope.unlink()
    else:
        scope.write_text(rule)
    permit(tracer(), scope)
    assert asked == []


@pytest.mark.parametrize("told", [f"{os.getpid()} pid:[1]", None, "nonsense"], ids=["elsewhere", "unseen", "nonsense"])
def test_a_number_of_another_namespace_means_another_process(
    asked: list[tuple[int, ...]], scope: Path, told: str | None
) -> None:
    permit(told, scope)
    assert asked == []
