"""Stacks read from outside, of real processes of every Python that is found, against what those say themselves."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

import psutil
import pytest

from support.fakes.driver import wait_for
from whyidle.capture.stacks import reader
from whyidle.capture.stacks.memory import Gone, ProcessMemory, Torn, Unreadable
from whyidle.capture.stacks.reader import RemotePython, ThreadStack

SUPPORT = Path(__file__).parents[1] / "support"
STANDING = SUPPORT / "standing.py"
BUSY = SUPPORT / "busy.py"
CASES = [
    node.name
    for node in ast.parse(STANDING.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("in_")
]


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
    for minor in range(11, 15):
        version = f"3.{minor}"
        places = [
            shutil.which(f"python{version}"),
            *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
        ]
        for place in places:
            if place and version not in found and says(place) == version:
                found[version] = place
    return found


PYTHONS = pythons()
VERSIONS = [f"3.{minor}" for minor in range(11, 15)]


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    if request.param not in PYTHONS:
        pytest.skip(f"no Python {request.param} here")
    return PYTHONS[request.param]


@contextmanager
def running(*command: str) -> Iterator[str]:
    """What a program says in its first line; it is ended afterwards, with all that it began."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def frames(stack: ThreadStack) -> list[list[object]]:
    return [[place.file, place.function, place.line, place.first_line] for place in stack.places]


def stack_of(stacks: list[ThreadStack] | None, tid: int) -> ThreadStack | None:
    return next((stack for stack in stacks or () if stack.tid == tid), None)


@pytest.mark.parametrize("case", CASES)
def test_a_thread_stands_where_it_says_it_does(python: str, case: str) -> None:
    with running(python, str(STANDING), case) as line:
        told = json.loads(line)
        with RemotePython(told["pid"]) as process:

            def found() -> ThreadStack | None:
                stack = stack_of(process.look(), told["tid"])
                awake = case in ("in_sleep", "in_a_lambda") and stack and stack.holds_gil
                return stack if stack and frames(stack) == told["frames"] and not awake else None

            seen: list[ThreadStack] = []
            wait_for(lambda: seen.extend(filter(None, [found()])) or seen)
            [stack] = seen
            assert stack.main == (told["tid"] == told["pid"])
            assert stack.cut == (told["depth"] > 256)
            if case == "in_c_with_the_lock":
                assert stack.holds_gil is True
            only = process.look({told["tid"]})
            assert only is not None
            assert [(one.tid, frames(one)) for one in only] == [(told["tid"], told["frames"])]


def test_a_python_of_the_systems_is_read_that_is_linked_otherwise() -> None:
    """Debian's has no libpython, and lies where its file says (no position-independent program)."""
    system = shutil.which("python3", path="/usr/bin")
    if system is None or says(system) not in VERSIONS:
        pytest.skip("the system has no Python from 3.11 on")
    with running(system, str(STANDING), "in_a_generator") as line:
        told = json.loads(line)
        with RemotePython(told["pid"]) as process:
            wait_for(lambda: [frames(one) for one in process.look() or ()] == [told["frames"]])


def test_the_main_thread_is_read_without_the_others(python: str) -> None:
    with running(python, str(STANDING), "in_a_thread") as line:
        told = json.loads(line)
        with RemotePython(told["pid"]) as process:
            for _ in range(2):
                stacks = process.look({told["pid"]})
                assert stacks is not None
                [stack] = stacks
                assert stack.main
                assert stack.places[0].function == "<module>"
                assert "in_a_thread" in [place.function for place in stack.places]
            everything = process.look()
            assert everything is not None
            assert {one.tid for one in everything} == {told["pid"], told["tid"]}


def lines_of(code: CodeType) -> Iterator[tuple[str, int]]:
    yield from ((code.co_qualname, line) for _, _, line in code.co_lines() if line)
    yield code.co_qualname, code.co_firstlineno
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from lines_of(constant)


def test_what_is_found_of_a_program_that_never_stands_still_is_all_of_it(python: str) -> None:
    real = {(str(BUSY), *found) for found in lines_of(compile(BUSY.read_text(), str(BUSY), "exec"))}
    # A comprehension is a function of its own up to 3.11, and part of the one around it from 3.12 on: there, or here.
    lines = {line for _, function, line in real if function.startswith("listing")}
    real |= {(str(BUSY), name, line) for name in ("listing", "listing.<locals>.<listcomp>") for line in lines}
    real |= {("<string>", "<module>", 1), ("<string>", "<lambda>", 1)}
    with running(python, str(BUSY)) as line, RemotePython(int(line)) as process:
        found: set[tuple[str, str, int]] = set()
        succeeded = 0
        # The program may not run for a while: until it was seen where it is most.
        while succeeded < 2000 or not {"<module>", "top", "calls", "leaf"} <= {function for _, function, _ in found}:
            stacks = process.look()
            if stacks is not None:
                succeeded += 1
                found |= {(place.file, place.function, place.line) for stack in stacks for place in stack.places}
        assert found - real == set()
        assert process.looks == succeeded + process.failed


class Changing(ProcessMemory):
    """Memory of which so many readings are torn."""

    torn = 0

    def read(self, address: int, size: int) -> bytes:
        if self.torn:
            self.torn -= 1
            raise Torn("made so")
        return super().read(address, size)


def test_a_look_is_repeated_and_counted_as_failed_when_it_failed_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    memories: list[Changing] = []
    monkeypatch.setattr(reader, "ProcessMemory", lambda pid: memories.append(Changing(pid)) or memories[0])
    with running(sys.executable, str(STANDING), "in_a_lambda") as line:
        told = json.loads(line)
        with RemotePython(told["pid"]) as process:
            wait_for(lambda: [frames(one) for one in process.look() or ()] == [told["frames"]])
            assert process.failed == 0
            for torn, failed in ((1, 0), (2, 0), (3, 1), (0, 1)):
                looks = process.looks
                memories[0].torn = torn
                stacks = process.look()
                assert (stacks is None) == (torn == 3)
                assert [frames(one) for one in stacks or ()] == ([] if torn == 3 else [told["frames"]])
                assert (process.looks, process.failed) == (looks + 1, failed)


def test_threads_of_a_container_have_the_ids_that_they_have_outside(tmp_path: Path) -> None:
    inside = ["unshare", "--pid", "--fork", sys.executable, str(STANDING), "in_a_thread"]
    if shutil.which("unshare") is None or subprocess.run([*inside[:3], "true"], capture_output=True).returncode:
        pytest.skip("no right to make a namespace of processes here")
    container = subprocess.Popen(inside, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert container.stdout is not None
    try:
        told = json.loads(container.stdout.readline())
        [pid] = psutil.Process(container.pid).children()
        with RemotePython(pid.pid) as process:
            stacks = process.look()
            main = process.look({pid.pid})
        assert stacks is not None
        assert main is not None
        assert told["pid"] == 1
        assert {one.tid for one in stacks} == {thread.id for thread in pid.threads()}
        assert [one.tid for one in stacks if one.main] == [one.tid for one in main] == [pid.pid]
    finally:
        os.killpg(container.pid, signal.SIGKILL)
        container.wait()
        container.stdout.close()


def test_a_process_that_ended_is_gone_and_one_that_never_was() -> None:
    with running(sys.executable, str(STANDING), "in_sleep") as line:
        pid = json.loads(line)["pid"]
        process = RemotePython(pid)
        assert process.look() is not None
    with process, pytest.raises(Gone):
        process.look()
    with pytest.raises(Gone):
        RemotePython(pid)


def test_a_program_that_the_process_runs_instead_is_not_read_as_the_old_one() -> None:
    program = (
        "import os, sys; print(os.getpid(), flush=True); sys.stdin.readline(); os.execvp('sleep', ['sleep', '1000'])"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdout.readline()
        with RemotePython(child.pid) as process:
            assert process.look() is not None
            child.stdin.write("\n")
            child.stdin.flush()
            wait_for(lambda: Path(f"/proc/{child.pid}/comm").read_text() == "sleep\n")
            with pytest.raises(Gone):
                process.look()
        with pytest.raises(Unreadable, match="in which no CPython") as error:
            RemotePython(child.pid)
        assert not error.value.refused
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_an_older_python_is_refused_by_its_version() -> None:
    old = next(iter(sorted(Path.home().glob(".pyenv/versions/3.[7-9].*/bin/python"))), None)
    if old is None:
        pytest.skip("no Python older than 3.10 here")
    with running(str(old), "-c", "import time; print(flush=True); time.sleep(1e6)") as line:
        assert line == "\n"
        [pid] = [int(p) for p in os.listdir("/proc") if p.isdigit() and _exe(p) == old.resolve()]
        with pytest.raises(Unreadable, match=re.escape("it is older than 3.11")):
            RemotePython(pid)


def _exe(pid: str) -> Path | None:
    try:
        return Path(f"/proc/{pid}/exe").readlink()
    except OSError:
        return None


ORDINARY = """
import ctypes, os, sys, time
sys.path[:0] = {path!r}
import encodings.idna
from whyidle.capture.stacks.memory import Unreadable
from whyidle.capture.stacks.reader import RemotePython
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
try:
    with RemotePython(int(sys.argv[2])) as process:
        print("read", process.look()[0].places[-1].function)
except Unreadable as error:
    print("refused" if error.refused else error)
"""
"""An ordinary user's process that is watched, with `PR_SET_DUMPABLE` as told and `PR_SET_PTRACER` where the kernel has
it; and its sibling that watches."""


@pytest.mark.parametrize(("dumpable", "says"), [("1", "read standing"), ("0", "refused")])
def test_an_ordinary_user_reads_what_permits_it_and_is_told_where_the_right_is_missing(
    dumpable: str, says: str
) -> None:
    """What is not dumpable refuses everyone of its user: as with a kernel with Yama one that permits nobody."""
    program = ORDINARY.format(path=[entry for entry in sys.path if entry])
    with running(sys.executable, "-c", program, "watched", dumpable) as line:
        done = subprocess.run(
            [sys.executable, "-c", program, "watches", line.strip()], stdout=subprocess.PIPE, text=True, check=True
        )
    assert done.stdout.strip() == says
