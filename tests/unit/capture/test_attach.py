"""A recording from outside and what it needs: the target, the states of processes, their source."""

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
from whyidle.capture import attach
from whyidle.capture.attach import States
from whyidle.capture.sampler import stack_looks
from whyidle.capture.stacks.source import SourceLines
from whyidle.capture.stacks.spy import NoStacks
from whyidle.errors import WhyidleError
from whyidle.record.run import open_run, read_states
from whyidle.record.schema import STACK


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    yield process
    process.kill()
    process.wait()


class Refusing:
    """In place of `Spy`: a process whose stacks cannot be read."""

    error: NoStacks

    def __init__(self, *_: object) -> None:
        raise self.error


@pytest.mark.usefixtures("ctrl_c_raises")
@pytest.mark.parametrize(
    ("error", "refused", "said"),
    [
        (
            NoStacks("may not be looked into", refused=True),
            True,
            ("sudo whyidle attach PID", "ptrace_scope=0", "whyidle run"),
        ),
        (
            NoStacks("Unsupported version of Python: 3.99.0"),
            False,
            ("Stacks were not read: Unsupported version of Python: 3.99.0.",),
        ),
    ],
)
def test_why_stacks_are_not_read_is_told_with_the_ways_to_get_the_right(
    child: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: NoStacks,
    refused: bool,
    said: tuple[str, ...],
) -> None:
    refusing = type("Refusing", (Refusing,), {"error": error})
    monkeypatch.setattr(stack_looks, "Spy", refusing)
    monkeypatch.setattr(attach, "start_sampler", lambda *_: SimpleNamespace(stop=lambda: None, error=None))
    calls = iter(range(1000))

    def tell(*_: object) -> None:
        if next(calls) == 5:
            signal.raise_signal(signal.SIGINT)

    assert attach.record(attach.find(child.pid), tmp_path / "run", 50, None, tell) == "user"
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (told["attach"]["refused"], told["attach"]["why"]) == (refused, "user")
    (note,) = told["notices"]
    assert all(part.replace("PID", str(child.pid)) in note for part in said)
    assert len(open_run(tmp_path / "run").records(STACK)) == 0
    assert [each.pid for each in read_states(tmp_path / "run")] == [child.pid]


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
    assert attach.find(child.pid).alive
    with pytest.raises(WhyidleError, match="there is no process 4194305 here"):
        attach.find(4194305)
    with pytest.raises(WhyidleError, match="this command itself"):
        attach.find(os.getpid())
    with pytest.raises(WhyidleError, match="kernel"):
        attach.find(2) if not attach.command_of(2) and attach.state_of(2) != "X" else _raise("kernel")
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    with pytest.raises(WhyidleError, match=f"a thread of process {os.getpid()}"):
        attach.find(thread.native_id or 0)
    release.set()
    thread.join()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(WhyidleError, match="has ended"):
        attach.find(child.pid)


def _raise(text: str) -> None:
    raise WhyidleError(text)


def test_a_tree_without_python_is_refused_and_a_shell_around_one_is_not() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        with pytest.raises(WhyidleError, match="not a Python process"):
            attach.require_python(attach.find(process.pid))
        process.kill()
    inner = f"{sys.executable} -S -c 'print(flush=True); input()'; true"
    with subprocess.Popen(["sh", "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"\n"  # it is Python by now
        attach.require_python(attach.find(shell.pid))
        shell.communicate(b"\n")


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
