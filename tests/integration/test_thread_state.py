"""What a thread waits for, told from outside, of real processes that wait for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.fakes.driver import wait_for
from whyidle.capture.stacks.thread_state import CALLS, Gone, parse_call, state_of, thread_state
from whyidle.record.schema import NOT_MEASURED, ThreadState

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
    assert parse_call(None) == (None, None, None)
    assert parse_call(b"") == (None, None, None)
    assert parse_call(b"garbled") == (None, None, None)
    assert parse_call(b"running\n") == (-1, None, None)
    assert parse_call(b"-1 0x7ffc 0x7f3a\n") == (-1, None, None)
    assert parse_call(b"0 0x3 0x7f 0x1 0x0 0x0 0x0 0x7ffc 0x7f3a\n") == (0, 3, 0x7F)


def test_a_read_waits_for_what_its_descriptor_is() -> None:
    told = {target: state_of("read", target) for target in ("socket:[1]", "pipe:[1]", "anon_inode:[eventfd]", "/a")}
    assert list(told.values()) == [
        ThreadState.SOCKET,
        ThreadState.PIPE,
        ThreadState.POLL,
        ThreadState.FILE,
    ]
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
