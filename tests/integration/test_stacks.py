"""Stacks seen by py-spy, of real processes of every Python that is found, against what those say themselves; and what
becomes of it where the process, py-spy or the system does not do as it should."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from support.fakes.driver import wait_for
from whyidle.capture.sampler.stack_looks import StackLooks
from whyidle.capture.sampler.start import StackOptions
from whyidle.capture.sampler.tree import ProcessTree
from whyidle.capture.stacks import spy as module
from whyidle.capture.stacks.spy import NoStacks, Spy, why_none
from whyidle.capture.stacks.thread_state import CALLS, Gone, parse_call, state_of, thread_state
from whyidle.record.reader import RecordFile, Records
from whyidle.record.schema import NOT_MEASURED, ThreadState
from whyidle.record.stacks import CallStack, read_stacks

STANDING = Path(__file__).parents[1] / "support" / "standing.py"
VERSIONS = [f"3.{minor}" for minor in range(11, 15)]


def says(python: str) -> str:
    """The version of a Python; a shim of pyenv's, or what is no Python, says none."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        return subprocess.run([python, "-c", program], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def pythons() -> dict[str, str]:
    """Version → program; of each minor version the one that runs this, or any that is found."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    for version in VERSIONS:
        installed = Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
        for place in [shutil.which(f"python{version}"), *map(str, installed)]:
            if place and version not in found and says(place) == version:
                found[version] = place
    return found


PYTHONS = pythons()


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    if request.param not in PYTHONS:
        pytest.skip(f"no Python {request.param} here")
    return PYTHONS[request.param]


@contextmanager
def running(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A program that has said a line, with that; it may be told one. It is ended afterwards, with all it began."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        try:
            yield process, process.stdout.readline()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # Nobody reads what it was told last.
            process.communicate()


def talking(program: str) -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    return running(sys.executable, "-c", program)


class Watch:
    """Looks at a tree of processes, as the sampler does."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.folder = folder
        self._tree = ProcessTree(pid)
        self.looks = StackLooks(folder, pid, StackOptions(within=False), lambda _: None, lambda: {pid: pid})

    def until(self, done: Callable[[], bool]) -> None:
        """Look until this is so."""
        while not done():
            self._tree.look()
            self._tree.scan()
            self.looks.look(time.monotonic_ns(), self._tree.alive)
            select.select(self.looks.inputs, [], [], 0.02)

    def records(self) -> Records:
        return np.concatenate([RecordFile(path).all() for path in self.folder.glob("stack-*.rec")])

    def seen(self, thread: int | None = None) -> list[CallStack]:
        """The stacks of a thread (all if none is named) that were recorded, of looks that did not fail."""
        records, table = self.records(), read_stacks(self.folder)
        mine = records if thread is None else records[records["thread"] == thread]
        return [table.stack(number) for number in mine["stack"].tolist() if number != NOT_MEASURED]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[[int], Watch]]:
    made: list[Watch] = []

    def begin(pid: int) -> Watch:
        made.append(Watch(tmp_path, pid))
        return made[0]

    yield begin
    for each in made:
        each.looks.close()
    assert [child for child in psutil.Process().children() if child.name() == "py-spy"] == []


def looks_made(watch: Watch, count: int) -> None:
    """Look until that many looks were told of, and have them recorded."""
    watch.until(lambda: sum(each.looks for each in watch.looks.inputs) >= count)
    watch.looks.close()


@pytest.mark.parametrize("case", ["in_a_thread", "in_functions_of_all_kinds", "in_made_code", "in_recursion"])
def test_a_thread_stands_where_it_says_it_does(python: str, case: str, watch: Callable[[int], Watch]) -> None:
    with running(python, str(STANDING), case) as (_, line):
        told = json.loads(line)
        # One that has said where it stands may be on its way still: the last look of several counts.
        seen = watch(told["pid"])
        looks_made(seen, 4)
        found = seen.seen(told["tid"])[-1]
    # What has no source is called by its bare name.
    expected = [(f, n if f.startswith("/") else n.rpartition(".")[2], line) for f, n, line in told["frames"]]
    frames = [(call.file, call.function, call.line) for call in found]
    assert frames == expected[-len(frames) :]
    assert len(frames) >= min(len(expected), 256)


def test_threads_of_a_container_have_the_ids_that_they_have_outside(watch: Callable[[int], Watch]) -> None:
    inside = ["unshare", "--pid", "--fork", sys.executable, str(STANDING), "in_a_thread"]
    if shutil.which("unshare") is None or subprocess.run([*inside[:3], "true"], capture_output=True).returncode:
        pytest.skip("no right to make a namespace of processes here")
    container = subprocess.Popen(inside, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        told = json.loads(container.stdout.readline())
        [process] = psutil.Process(container.pid).children()
        seen = watch(process.pid)
        looks_made(seen, 3)
        assert told["pid"] == 1
        records = seen.records()
        assert set(records["thread"].tolist()) == {thread.id for thread in process.threads()}
        assert seen.seen(process.pid)
    finally:
        os.killpg(container.pid, signal.SIGKILL)
        container.wait()
        container.stdout.close()


def go_on(child: subprocess.Popen[str]) -> None:
    with suppress(BrokenPipeError):
        child.stdin.write("\n")
        child.stdin.flush()


WAITS = "import os, sys, time\nprint(flush=True)\nsys.stdin.readline()\n"


@pytest.mark.parametrize("then", ["os._exit(3)", "os.kill(os.getpid(), 9)", "os.execvp('sleep', ['sleep', '100'])"])
def test_what_was_seen_of_a_process_that_ends_in_the_midst_of_a_stretch_is_kept(
    watch: Callable[[int], Watch], then: str
) -> None:
    with talking(WAITS + then) as (child, _):
        seen = watch(child.pid)
        seen.until(lambda: sum(each.looks for each in seen.looks.inputs) >= 5)
        go_on(child)
        if "sleep" in then:
            wait_for(lambda: psutil.Process(child.pid).name() == "sleep")
        else:
            child.wait()
        seen.looks.close()
        assert len(seen.seen()) >= 4
        assert {stack[0].function for stack in seen.seen()} == {"<module>"}
        if "sleep" not in then:
            assert child.returncode == (3 if "_exit" in then else -9)


def test_a_child_that_is_forked_meanwhile_is_looked_at_as_itself(watch: Callable[[int], Watch]) -> None:
    program = WAITS + "def in_child():\n    time.sleep(1e6)\nif os.fork() == 0: in_child()\ntime.sleep(1e6)\n"
    with talking(program) as (child, _):
        seen = watch(child.pid)
        seen.until(lambda: sum(each.looks for each in seen.looks.inputs) >= 2)
        go_on(child)
        seen.until(lambda: len(seen.looks.inputs) == 2 and all(each.looks >= 3 for each in seen.looks.inputs))
        seen.looks.close()
        [forked] = psutil.Process(child.pid).children()
        assert {stack[-1].function for stack in seen.seen(forked.pid)} == {"in_child"}
        assert {stack[-1].function for stack in seen.seen(child.pid)} == {"<module>"}
        forked.kill()


def test_a_stopped_process_is_seen_and_left_stopped(watch: Callable[[int], Watch]) -> None:
    with talking(WAITS) as (child, _):
        os.kill(child.pid, signal.SIGSTOP)
        wait_for(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED)
        seen = watch(child.pid)
        looks_made(seen, 3)
        assert seen.seen(child.pid)
        assert set(seen.records()["state"].tolist()) == {NOT_MEASURED}
        assert psutil.Process(child.pid).status() == psutil.STATUS_STOPPED


def test_what_a_thread_waits_for_is_recorded_with_its_stack(watch: Callable[[int], Watch]) -> None:
    with talking("import time\nprint(flush=True)\ntime.sleep(1e6)") as (child, _):
        seen = watch(child.pid)
        looks_made(seen, 5)
        assert ThreadState.SLEEP in seen.records()["state"].tolist()


PY_SPY = "#!/bin/sh\n"
BAD = {
    "hangs": "sleep 1000",
    "hangs and ignores": "trap '' INT TERM\nsleep 1000",
    "dies": "exit 7",
    "rubbish": "printf 'Collected 3 samples  ' >&2\nprintf '[{' > \"$output\"",
    "says nothing": "printf '[]' > \"$output\"",
    "refused": "echo 'Error: Operation not permitted (os error 1)' >&2\nexit 1",
    "full": "printf 'Collected 3 samples  ' >&2\necho 'Error: No space left on device (os error 28)' >&2\nexit 1",
}


@pytest.mark.parametrize("kind", BAD)
def test_a_py_spy_that_does_otherwise_costs_only_looks(
    watch: Callable[[int], Watch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    bad = tmp_path / "py-spy-bad"
    bad.write_text(f'{PY_SPY}while [ "$1" != --output ]; do shift; done\noutput=$2\n{BAD[kind]}\n')
    bad.chmod(0o755)
    monkeypatch.setattr(module, "program", lambda: str(bad))
    with talking(WAITS) as (child, _):
        seen = watch(child.pid)
        pids: list[int] = []
        if kind.startswith("hangs"):
            seen.until(lambda: len(seen.looks.inputs) > 0)
            pids = [each.pid for each in psutil.Process().children() if str(bad) in each.cmdline()]
            assert pids
        else:
            seen.until(lambda: bool(seen.looks.hindrances))
            expected = {"refused": "not permitted", "full": "No space left", "dies": "exit code 7"}
            assert expected.get(kind, "") in seen.looks.hindrances[child.pid].reason
            assert seen.looks.hindrances[child.pid].refused is (kind == "refused")
        seen.looks.close()
        assert seen.seen() == []
        assert not any(map(psutil.pid_exists, pids))
        go_on(child)
        assert child.wait() == 0


def test_what_writes_without_end_is_ended_and_only_its_looks_are_lost(
    watch: Callable[[int], Watch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 200)
    with talking(WAITS) as (child, _):
        seen = watch(child.pid)
        seen.until(lambda: bool(seen.looks.hindrances))
        assert "cannot be read" in seen.looks.hindrances[child.pid].reason


def test_where_nobody_is_told_of_ended_children_looks_go_on(
    watch: Callable[[int], Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with running(sys.executable, str(STANDING), "in_sleep") as (_, line):
            seen = watch(json.loads(line)["pid"])
            looks_made(seen, 3)
            assert seen.seen()
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_missing_py_spy_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_installed", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoStacks, match="pip install py-spy"):
        Spy(os.getpid(), 10)
    reason = why_none(os.getpid())
    assert "pip install py-spy" in reason.reason


STARTS = """
import sys, time
sys.path[:0] = {path!r}
from whyidle.capture.stacks.spy import Spy
spy = Spy({pid}, 10)
while not spy.looks:
    spy.hear()
print(spy._process.pid, flush=True)
time.sleep(1e6)
"""


def test_py_spy_does_not_outlive_whoever_started_it() -> None:
    with talking(WAITS) as (child, _):
        program = STARTS.format(path=[p for p in sys.path if p], pid=child.pid)
        with running(sys.executable, "-c", program) as (_, line):
            spy = psutil.Process(int(line))
            starter = spy.parent()
            starter.kill()
            spy.wait(60)


ORDINARY = """
import ctypes, os, sys, time
sys.path[:0] = {path!r}
import encodings.idna
if sys.argv[1] == "watches":
    from whyidle.capture.stacks import spy
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
prctl = ctypes.CDLL(None).prctl
if sys.argv[1] == "watched":
    prctl(4, int(sys.argv[2]), 0, 0, 0)
    prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
    def standing():
        print(os.getpid(), flush=True)
        time.sleep(1e6)
    standing()
spy.program = lambda: sys.argv[3]
reason = spy.why_none(int(sys.argv[2]))
print("seen" if reason is None else "refused" if reason.refused else reason.reason)
"""
"""An ordinary user's process that is watched, with `PR_SET_DUMPABLE` as told and `PR_SET_PTRACER` where the kernel has
it; and its sibling that watches."""


@pytest.mark.parametrize(("dumpable", "told"), [("1", "seen"), ("0", "refused")])
def test_an_ordinary_user_sees_what_permits_it_and_is_told_where_the_right_is_missing(dumpable: str, told: str) -> None:
    """What is not dumpable refuses everyone of its user: as with a kernel with Yama one that permits nobody."""
    program = ORDINARY.format(path=[entry for entry in sys.path if entry])
    # py-spy reads the program of a process: it has to be one that anybody may read.
    watched = shutil.which("python3", path="/usr/bin")
    if watched is None or says(watched) not in VERSIONS:
        pytest.skip("the system has no Python from 3.11 on")
    with tempfile.TemporaryDirectory() as folder, running(watched, "-c", program, "watched", dumpable) as (_, line):
        Path(folder).chmod(0o755)
        anyones = shutil.copy(module.program(), folder)
        command = [sys.executable, "-c", program, "watches", line.strip(), anyones]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == told


PROGRAMS = {
    "runs": (ThreadState.RUNS, "while True: pass"),
    "lock": (ThreadState.LOCK, "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"),
    "shared lock": (
        ThreadState.SHARED_LOCK,
        "import multiprocessing; lock = multiprocessing.Lock(); lock.acquire(); lock.acquire()",
    ),
    "sleep": (ThreadState.SLEEP, "import time; time.sleep(1e6)"),
    "events": (ThreadState.POLL, "import select; select.select([], [], [], 1e6)"),
    "socket": (ThreadState.SOCKET, "import socket; a, b = socket.socketpair(); a.recv(1)"),
    "pipe": (ThreadState.PIPE, "import os; a, b = os.pipe(); os.read(a, 1)"),
    "lock of a file": (
        ThreadState.FILE_LOCK,
        "import fcntl, sys; a, b = open(sys.argv[1], 'w'), open(sys.argv[1], 'w')\n"
        "fcntl.flock(a, fcntl.LOCK_EX); fcntl.flock(b, fcntl.LOCK_EX)",
    ),
    "child": (
        ThreadState.CHILD,
        "import os, time\nchild = os.fork()\nif not child:\n    time.sleep(1e6)\nos.waitpid(child, 0)",
    ),
    "stopped": (NOT_MEASURED, "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"),
}


@pytest.mark.parametrize("waits", PROGRAMS)
def test_a_thread_waits_for_what_its_program_waits_for(waits: str, tmp_path: Path) -> None:
    state, program = PROGRAMS[waits]
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "locked")], start_new_session=True)
    try:
        wait_for(lambda: thread_state(process.pid, process.pid) == state, waits)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    with pytest.raises(Gone):
        thread_state(process.pid, process.pid)


def test_what_the_kernel_does_not_say_is_not_known() -> None:
    assert {parse_call(told) for told in (None, b"", b"garbled")} == {(None, None, None)}
    assert {parse_call(told) for told in (b"running\n", b"-1 0x7ffc 0x7f3a\n")} == {(-1, None, None)}
    assert parse_call(b"0 0x3 0x7f 0x1 0x0 0x0 0x0 0x7ffc 0x7f3a\n") == (0, 3, 0x7F)


def test_a_read_waits_for_what_its_descriptor_is() -> None:
    told = {target: state_of("read", target) for target in ("socket:[1]", "pipe:[1]", "anon_inode:[eventfd]", "/a")}
    assert list(told.values()) == [ThreadState.SOCKET, ThreadState.PIPE, ThreadState.POLL, ThreadState.FILE]
    assert state_of("read", None) == ThreadState.OTHER


@pytest.mark.parametrize("machine", CALLS)
def test_the_calls_of_a_machine_have_the_kernels_numbers(machine: str) -> None:
    header = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}
    if not Path(header[machine]).exists():
        pytest.skip("the kernel's headers are not here")
    lines = [line.split() for line in Path(header[machine]).read_text().splitlines() if line.startswith("#define __NR")]
    generic = {f"__NR3264_{short}": name for short, name in (("fstatat", "newfstatat"), ("lseek", "lseek"))}
    generic |= {f"__NR3264_{name}": name for name in ("fcntl", "ftruncate", "sendfile", "fstat", "fadvise64")}
    numbers = {
        generic.get(fields[1], fields[1].removeprefix("__NR_")): int(fields[2])
        for fields in lines
        if len(fields) > 2 and fields[2].isdigit()
    }
    assert {name: numbers.get(name) for name in CALLS[machine].values()} == {
        name: number for number, name in CALLS[machine].items()
    }
