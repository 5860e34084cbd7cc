"""py-spy's output, its life, and its absence; the target; the states of processes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fakes.driver import wait_for
from whyidle.capture.attach import recording
from whyidle.capture.attach import target as targets
from whyidle.capture.attach.source import SourceLines
from whyidle.capture.attach.speedscope import merge, parse, read_output
from whyidle.capture.attach.spy import MOST_FAILURES, Spy, find_py_spy, share_out
from whyidle.capture.attach.states import States
from whyidle.capture.sampler.schedule import NS_PER_S
from whyidle.errors import WhyidleError
from whyidle.record.attached import Frame, Thread, read_stacks, read_states, write_stacks, write_states

FRAMES = [
    {"name": "main", "file": "/a/train.py", "line": 3, "col": None},
    {"name": "process 7:\"python -c 'a;b\n'\"", "file": "", "line": 0, "col": None},
    {"name": "Model.forward", "file": "/a/model; (x:1).py", "line": 9, "col": None},
]


def no_text(pid: int, file: str, line: int) -> str:
    return f"{Path(file).name}:{line}"


def output(name: str, samples: list[list[int]]) -> dict[str, Any]:
    profile = {"type": "sampled", "name": name, "samples": samples, "weights": [0.1] * len(samples)}
    return {"profiles": [profile], "shared": {"frames": FRAMES}}


@pytest.mark.parametrize(
    ("name", "pid", "tid", "thread"),
    [
        ('Process 7 Thread 7 "MainThread"', 7, 7, "MainThread"),
        ('Process 7 Thread 0x7F10 "Thread-1 (_serve)"', 7, 0x7F10, "Thread-1 (_serve)"),
        ('Process 7 Thread 9 "a "quoted"\n\x1b[2J; name"', 7, 9, 'a "quoted"\n\x1b[2J; name'),
        ('Process 7 Thread 9 ""', 7, 9, ""),
        ("Process 7 Thread 9", 7, 9, ""),
    ],
)
def test_threads_are_known_by_process_and_thread_id_whatever_their_name(
    name: str, pid: int, tid: int, thread: str
) -> None:
    (found,) = parse(output(name, [[1, 0, 2], [1, 0, 2], [0]]), no_text) or []
    assert (found.pid, found.tid, found.name) == (pid, tid, thread)
    main, model = Frame("main", "/a/train.py", 3), Frame("Model.forward", "/a/model; (x:1).py", 9, "model; (x:1).py:9")
    assert found.stacks == {(main, model): 2, (Frame("main", "/a/train.py", 3, "train.py:3"),): 1}


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", '{"profiles": 3, "shared": {"frames": []}}', '{"profiles": [', "\x00\xff"]
)
def test_torn_or_empty_output_is_no_output(tmp_path: Path, text: str) -> None:
    path = tmp_path / "out.json"
    path.write_text(text)
    assert read_output(path, no_text) is None
    assert read_output(tmp_path / "missing", no_text) is None


def test_what_makes_no_sense_within_an_output_is_left_out() -> None:
    content = output('Process 7 Thread 7 "x"', [[0], [99], [-1], [True, 0], [0]])
    content["profiles"] += [{"name": "Process x"}, None, {"name": 'Process 1 Thread 1 "y"', "samples": [[1]]}]
    (found,) = parse(content, no_text) or []
    assert found.stacks.total() in (2, 3)
    assert found.pid == 7


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, json_values)
def test_no_content_breaks_the_parser(profiles: Any, frames: Any) -> None:
    found = parse({"profiles": profiles, "shared": {"frames": frames}}, no_text)
    assert found is None or all(thread.stacks for thread in found)


names = st.text(max_size=12)
frame = st.builds(Frame, names, names, st.integers(0, 2**31 - 1), names)
threads = st.lists(
    st.builds(
        Thread,
        st.integers(1, 10**6),
        st.integers(1, 10**6),
        names,
        st.dictionaries(st.lists(frame, min_size=1, max_size=4).map(tuple), st.integers(1, 1000), max_size=4).map(
            Counter
        ),
    ),
    max_size=4,
)


@given(threads)
def test_stacks_come_back_as_they_were_written_but_for_control_characters(
    tmp_path_factory: pytest.TempPathFactory, seen: list[Thread]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    write_stacks(folder, seen)
    back = read_stacks(folder)
    assert [(t.pid, t.tid, t.looks) for t in back] == [(t.pid, t.tid, t.looks) for t in seen]
    # Nothing that acts on a terminal is left in a name or a line.
    assert not any("\x1b" in f.name + f.file + f.text for t in back for stack in t.stacks for f in stack)


def test_stretches_are_added_up_by_thread() -> None:
    a, b = (Frame("a", "/a.py", 1),), (Frame("b", "/b.py", 2),)
    seen: dict[tuple[int, int], Thread] = {}
    merge(seen, [Thread(1, 1, "M", Counter({a: 2})), Thread(1, 2, "T", Counter({a: 1}))])
    merge(seen, [Thread(1, 1, "M", Counter({a: 1, b: 4}))])
    assert seen[1, 1].stacks == {a: 3, b: 4}
    assert seen[1, 2].looks == 1


def test_failed_looks_go_to_the_processes_that_were_seen_less_often() -> None:
    stack = (Frame("a", "/a.py", 1),)
    seen = [Thread(1, 1, "M", Counter({stack: 80})), Thread(1, 2, "T", Counter({stack: 80}))]
    assert share_out([*seen, Thread(2, 2, "M", Counter({stack: 98}))], 22) == {1: 20, 2: 2}
    assert share_out(seen, 22) == {1: 22}
    assert share_out(seen, 0) == {}
    assert share_out([], 5) == {}


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


def program(folder: Path, body: str) -> str:
    """A stand-in for py-spy: a script that gets its options."""
    path = folder / "py-spy"
    path.write_text(
        f"#!{sys.executable}\nimport signal, sys, time\nout = sys.argv[sys.argv.index('--output') + 1]\n{body}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def run_to_the_end(spy: Spy) -> None:
    """Each stretch ends before the next look: no time passes on the clock that the looks are told."""
    while not spy.over:
        spy.tick(1)
        if spy._process is not None:
            spy._process.wait(60)
    spy.finish()


def test_a_crashing_py_spy_is_tried_a_few_times_and_told_once(tmp_path: Path) -> None:
    spy = Spy(tmp_path, 1, 10, program(tmp_path, "print('Error: \x1b[2Jboom', file=sys.stderr); sys.exit(3)"))
    run_to_the_end(spy)
    assert spy.over
    assert not spy.refused
    assert spy._stretches == MOST_FAILURES
    assert spy.notes == ["py-spy ended without stacks: Error: ?[2Jboom."]
    assert spy.threads == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["py-spy"]


def test_a_py_spy_without_the_right_is_tried_once_and_the_ways_to_get_it_are_told(tmp_path: Path) -> None:
    spy = Spy(tmp_path, 77, 10, program(tmp_path, "sys.exit('Permission Denied: Try running again with …')"))
    run_to_the_end(spy)
    assert spy.refused
    assert spy._stretches == 1
    (note,) = spy.notes
    for way in ("sudo whyidle attach 77", "setcap cap_sys_ptrace", "ptrace_scope=0", "whyidle run"):
        assert way in note


def test_a_py_spy_that_writes_nonsense_leaves_no_stacks_and_no_exception(tmp_path: Path) -> None:
    spy = Spy(tmp_path, 1, 10, program(tmp_path, "open(out, 'w').write('{\"profiles\": [')"))
    run_to_the_end(spy)
    assert spy.threads == []
    assert spy.over


def test_a_py_spy_that_does_not_end_is_ended_and_what_came_before_stays(tmp_path: Path) -> None:
    body = "signal.signal(signal.SIGINT, signal.SIG_IGN)\nopen(out + '.up', 'w')\ntime.sleep(1000)"
    spy = Spy(tmp_path, 1, 10, program(tmp_path, body))
    spy.tick(1)
    process = spy._process
    assert process is not None
    wait_for((tmp_path / ".py-spy.json.up").exists)
    spy.finish(timeout=0.05)
    assert process.poll() == -signal.SIGKILL
    assert any("did not end" in note for note in spy.notes)


@pytest.mark.usefixtures("ctrl_c_raises")
def test_ctrl_c_while_py_spy_is_started_and_a_second_one_while_it_does_not_end_leave_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first comes before the observer knows the process that it has started."""
    body = "signal.signal(signal.SIGINT, signal.SIG_IGN)\nopen(out + '.up', 'w')\ntime.sleep(1000)"
    started: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)
            wait_for((tmp_path / "run" / ".py-spy.json.up").exists)
            signal.raise_signal(signal.SIGINT)

        def wait(self, timeout: float | None = None) -> int:
            if self.poll() is None:
                signal.raise_signal(signal.SIGINT)
            return super().wait(timeout)

    monkeypatch.setattr("whyidle.capture.attach.spy.subprocess.Popen", Interrupted)
    monkeypatch.setattr(recording, "start_sampler", lambda *_: SimpleNamespace(stop=lambda: None, error=None))
    with pytest.raises(KeyboardInterrupt):
        recording.record(
            targets.find(os.getppid()), tmp_path / "run", 10, None, program(tmp_path, body), lambda _: None
        )
    (process,) = started
    assert process.returncode == -signal.SIGKILL
    assert json.loads((tmp_path / "run" / "run.json").read_text())["attach"]["why"] == "user"


def test_without_py_spy_there_is_one_note_and_nothing_is_started(tmp_path: Path) -> None:
    spy = Spy(tmp_path, 1, 10, None)
    run_to_the_end(spy)
    assert spy.notes == [
        "py-spy was not found, so stacks were not read. Install it beside whyidle: `pip install py-spy`."
    ]
    missing = Spy(tmp_path, 1, 10, str(tmp_path / "nothing"))
    run_to_the_end(missing)
    assert "could not be started" in missing.notes[0]


def test_py_spy_is_found_beside_the_interpreter_before_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "bin"
    beside.mkdir()
    program(beside, "")
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setenv("PATH", "")
    assert find_py_spy() == str(beside / "py-spy")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    yield process
    process.kill()
    process.wait()


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
        write_states(tmp_path, states.result(Counter({parent.pid: 4})))
        assert sorted(states.pids) == sorted([parent.pid, child])
        for pid in states.pids:
            os.kill(pid, signal.SIGKILL)
    idle, busy = sorted(read_states(tmp_path), key=lambda p: p.main_cpu_ns or 0)
    assert (idle.pid, idle.missed, busy.missed) == (parent.pid, 4, 0)
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
            return len(states.result(Counter())) == 2 and states.pids == [parent.pid]

        # Between its fork and what it becomes it is like its parent, and it is met there.
        wait_for(ours_is_left_out)
        parent.kill()


def test_a_stack_file_of_nonsense_is_refused_as_damaged(tmp_path: Path) -> None:
    for content in ({}, {"shared": {"frames": []}, "profiles": [{"samples": [[5]], "weights": [1]}]}, [1]):
        (tmp_path / "attach-stacks.json").write_text(json.dumps(content))
        with pytest.raises(WhyidleError, match="damaged"):
            read_stacks(tmp_path)
