"""A recording from outside and what it needs: the target, the states of processes, the reader of their stacks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.fakes.driver import wait_for
from whyidle.capture.attach import recording
from whyidle.capture.attach import target as targets
from whyidle.capture.attach.recording import States
from whyidle.capture.sampler import stack_looks
from whyidle.capture.sampler.schedule import NS_PER_S
from whyidle.capture.stacks.memory import Unreadable
from whyidle.capture.stacks.source import SourceLines
from whyidle.errors import WhyidleError
from whyidle.record.attached import read_states, write_states
from whyidle.record.run import open_run
from whyidle.record.schema import STACK


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    yield process
    process.kill()
    process.wait()


class Refusing:
    """In place of `RemotePython`: a process whose stacks cannot be read."""

    error: Unreadable

    def __init__(self, _: int) -> None:
        raise self.error


def recorded(
    folder: Path, pid: int, monkeypatch: pytest.MonkeyPatch, error: Unreadable | None = None
) -> dict[str, object]:
    """What is noted of a recording that Ctrl-C ends after some looks."""
    if error is not None:
        refusing = type("Refusing", (Refusing,), {"error": error})
        monkeypatch.setattr(recording, "RemotePython", refusing)
        monkeypatch.setattr(stack_looks, "RemotePython", refusing)
    monkeypatch.setattr(recording, "start_sampler", lambda *_: SimpleNamespace(stop=lambda: None, error=None))
    calls = iter(range(1000))

    def tell(_: recording.Progress) -> None:
        if next(calls) == 5:
            signal.raise_signal(signal.SIGINT)

    assert recording.record(targets.find(pid), folder, 50, None, tell) == "user"
    return dict(json.loads((folder / "run.json").read_text()))


@pytest.mark.usefixtures("ctrl_c_raises")
def test_without_the_right_the_ways_to_get_it_are_told(
    child: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = recorded(tmp_path / "run", child.pid, monkeypatch, Unreadable("may not be looked into", refused=True))
    assert told["attach"]["refused"] is True  # type: ignore[index]
    (note,) = told["notices"]  # type: ignore[misc]
    assert f"sudo whyidle attach {child.pid}" in note
    assert "ptrace_scope=0" in note
    assert "whyidle run" in note
    assert len(open_run(tmp_path / "run").records(STACK)) == 0
    assert [each.pid for each in read_states(tmp_path / "run")] == [child.pid]


@pytest.mark.usefixtures("ctrl_c_raises")
def test_an_interpreter_that_is_not_read_is_named(
    child: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = recorded(tmp_path / "run", child.pid, monkeypatch, Unreadable("it runs CPython 3.9: 3.11 to 3.14 are read"))
    assert told["notices"] == ["Stacks were not read: it runs CPython 3.9: 3.11 to 3.14 are read."]
    assert told["attach"]["refused"] is False  # type: ignore[index]


@pytest.mark.usefixtures("ctrl_c_raises")
def test_looks_lie_where_those_of_other_runs_do_and_are_of_the_right_thread(
    child: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = recorded(tmp_path / "run", child.pid, monkeypatch)
    looks = open_run(tmp_path / "run").records(STACK)
    assert len(looks) > 0
    assert {(int(each["process"]), int(each["thread"])) for each in looks} == {(child.pid, child.pid)}
    assert told["notices"] == []


@pytest.mark.usefixtures("ctrl_c_raises")
def test_a_second_ctrl_c_ends_it_and_leaves_what_was_recorded(
    child: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes while the sampler is waited for."""

    def stop() -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(recording, "start_sampler", lambda *_: SimpleNamespace(stop=stop, error=None))
    with pytest.raises(KeyboardInterrupt):
        recording.record(
            targets.find(child.pid), tmp_path / "run", 10, None, lambda _: signal.raise_signal(signal.SIGINT)
        )
    assert json.loads((tmp_path / "run" / "run.json").read_text())["attach"]["why"] == "user"


def test_ranks_of_a_launcher_are_taken_to_train_else_the_outermost_pythons() -> None:
    inner = "import sys; sys.stdin.read()"
    start = f"subprocess.Popen([sys.executable, '-S', '-c', {inner!r}], env=dict(os.environ, **new))"
    for new, of in (({}, "launcher"), ({"RANK": "1"}, "child")):
        code = f"import os, subprocess, sys\nnew = {new!r}\nprint({start}.pid, flush=True)\nsys.stdin.read()"
        command = [sys.executable, "-S", "-c", code]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
            assert launcher.stdout is not None
            child = int(launcher.stdout.readline())
            # Between its fork and what it becomes it has its parent's environment.
            wait_for(lambda child=child: inner in " ".join(targets.command_of(child)[-1:]))  # type: ignore[misc]
            states = States(launcher.pid, 50)
            states.tick(0, last=True)
            expected = launcher.pid if of == "launcher" else child
            assert states.trainings == {expected: expected}
            assert {member.pid for member in states.members} == {launcher.pid, child}
            launcher.kill()


def test_source_lines_come_only_from_plain_python_files(tmp_path: Path) -> None:
    lines = SourceLines()
    source = tmp_path / "a.py"
    source.write_text("one\n    loss.item()\n")
    assert lines(os.getpid(), str(source), 2) == "loss.item()"
    assert lines(os.getpid(), str(source), 9) == ""
    os.mkfifo(tmp_path / "pipe.py")
    assert lines(os.getpid(), str(tmp_path / "pipe.py"), 1) == ""
    assert lines(os.getpid(), "/etc/passwd", 1) == ""
    assert lines(os.getpid(), "a.py", 1) == ""
    assert lines(os.getpid(), "/nul\0.py", 1) == ""


def test_a_process_that_is_no_candidate_is_refused_with_what_to_do(child: subprocess.Popen[bytes]) -> None:
    assert targets.find(child.pid).alive
    with pytest.raises(WhyidleError, match="there is no process 4194305 here"):
        targets.find(4194305)
    with pytest.raises(WhyidleError, match="this command itself"):
        targets.find(os.getpid())
    with pytest.raises(WhyidleError, match="kernel"):
        targets.find(2) if not targets.command_of(2) and targets.state_of(2) != "X" else _raise("kernel")
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    with pytest.raises(WhyidleError, match=f"a thread of process {os.getpid()}"):
        targets.find(thread.native_id or 0)
    release.set()
    thread.join()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(WhyidleError, match="has ended"):
        targets.find(child.pid)


def _raise(text: str) -> None:
    raise WhyidleError(text)


def test_a_tree_without_python_is_refused_and_a_shell_around_one_is_not() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        with pytest.raises(WhyidleError, match="not a Python process"):
            targets.require_python(targets.find(process.pid))
        process.kill()
    inner = f"{sys.executable} -S -c 'print(flush=True); input()'; true"
    with subprocess.Popen(["sh", "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"\n"  # it is Python by now
        targets.require_python(targets.find(shell.pid))
        shell.communicate(b"\n")


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "print(flush=True)\\nwhile True: pass"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


def cpu_ns(pid: int) -> int:
    """Of the main thread."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def test_states_tell_a_busy_from_an_idle_process(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"RANK": "3"}) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        # From here on the one waits for input and the other computes, until they are killed.
        wait_for(lambda: targets.state_of(parent.pid) == "S")
        states = States(parent.pid, 50)
        for second in range(30):
            states.tick(second * NS_PER_S)
        used = cpu_ns(child)
        wait_for(lambda: cpu_ns(child) - used >= 50_000_000)
        states.tick(30 * NS_PER_S, last=True)
        write_states(tmp_path, states.result())
        assert sorted(states.pids) == sorted([parent.pid, child])
        for pid in states.pids:
            os.kill(pid, signal.SIGKILL)
    idle, busy = sorted(read_states(tmp_path), key=lambda p: p.main_cpu_ns or 0)
    assert idle.pid == parent.pid
    assert idle.rank == busy.rank == 3
    assert idle.python
    assert busy.parent == parent.pid
    assert (idle.looks, busy.looks) == (31, 31)
    assert idle.states == {"S": 31}
    # A page that has to come from the disk makes it wait, once.
    assert busy.states.get("R", 0) > 20
    assert (idle.seconds, busy.seconds) == (30, 30)
    assert (idle.main_cpu_ns or 0) < 50_000_000 <= (busy.main_cpu_ns or 0)


def test_processes_of_whyidle_are_told_apart() -> None:
    # Not the whole name in one piece: it would be in the parent's command, too.
    start = "subprocess.Popen([sys.executable, '-c', waits, '-m', 'whyidle.capture' + '.sampler'])"
    code = f"import subprocess, sys\nwaits = 'import sys; sys.stdin.read()'\n{start}\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as parent:
        states = States(parent.pid, 50)

        def ours_is_left_out() -> bool:
            states.tick(time.monotonic_ns(), last=True)
            return len(states.result()) == 2 and states.pids == [parent.pid]

        # Between its fork and what it becomes it is like its parent, and it is met there.
        wait_for(ours_is_left_out)
        parent.kill()
