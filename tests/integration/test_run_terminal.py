"""`stallscope run` on a terminal: the program above, one line of ours below, never mixed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runs import STALLSCOPE
from stallscope.commands.status_line import between

ROWS, COLUMNS = 24, 80


class Terminal:
    """A terminal with `stallscope run` in its foreground."""

    def __init__(self, folder: Path, *command: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.raw = b""

        def take_over() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*STALLSCOPE, "run", "--out", folder, "--", *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=take_over,
            env=dict(os.environ, TERM="xterm"),
        )

    def read_until(self, text: str, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while text.encode() not in self.raw:
            assert time.monotonic() < until, self.raw[-2000:]
            self._read(0.2)

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self, seconds: float = 60) -> int:
        until = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < until, self.raw[-2000:]
            self._read(0.1)
        while self._read(0.1):
            pass
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self.slave)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        self.raw += os.read(self._master, 65536)
        return True

    @property
    def program_output(self) -> str:
        """What was shown without what we drew: our line goes from saving the cursor to restoring it."""
        return re.sub(rb"\x1b7.*?\x1b8", b"", self.raw, flags=re.DOTALL).decode()


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


CHATTY = """
import os, sys, time
print(sys.stdout.isatty(), sys.stderr.isatty(), sys.stdin.isatty(), os.get_terminal_size().lines)
for i in range(400):
    # Colours, characters of several bytes, and lines without an end, in pieces that are torn anywhere.
    for piece in (b"\\x1b[3", b"1mr\\xc3", b"\\xa4d \\xe2\\x82", b"\\xac\\x1b[0m %d\\r" % i):
        os.write(1, piece)
        time.sleep(0.002)
print()
"""


def test_what_a_program_writes_arrives_whole_around_our_line(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path / "run", sys.executable, "-u", "-c", CHATTY)
    terminals.append(terminal)
    assert terminal.end() == 0
    # One row fewer: the last one is ours.
    assert f"True True True {ROWS - 1}\r\n" in terminal.program_output
    expected = "".join(f"\x1b[31mr\u00e4d \u20ac\x1b[0m {i}\r" for i in range(400))
    assert expected in terminal.program_output
    drawn = re.findall(rb"\x1b7\x1b\[1;%dr\x1b\[%d;1H\x1b\[2K\x1b\[7m stallscope" % (ROWS - 1, ROWS), terminal.raw)
    assert len(drawn) >= 2
    # The rows are given back before the report.
    assert b"\x1b7\x1b[r" in terminal.raw
    assert terminal.raw.index(b"\x1b7\x1b[r") < terminal.raw.index(b"Verdict")
    assert termios.tcgetattr(terminal.slave) == terminal.before


INTERRUPTED = """
import signal, time
count = 0
def caught(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, caught)
print("ready")
until = time.monotonic() + 30
while not count and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.5)
print("interrupts:", count)
raise SystemExit(6)
"""


def test_ctrl_c_reaches_the_program_once_and_the_report_still_comes(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path / "run", sys.executable, "-u", "-c", INTERRUPTED)
    terminals.append(terminal)
    terminal.read_until("ready")
    terminal.type(b"\x03")
    assert terminal.end() == 6
    assert "interrupts: 1\r\n" in terminal.program_output
    assert "Verdict" in terminal.program_output
    assert termios.tcgetattr(terminal.slave) == terminal.before


def test_what_is_typed_reaches_the_program(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path / "run", sys.executable, "-c", "print('<' + input('name? ') + '>')")
    terminals.append(terminal)
    terminal.read_until("name? ")
    terminal.type(b"bob\r")
    assert terminal.end() == 0
    assert "<bob>" in terminal.program_output


def test_what_a_command_leaves_in_the_background_lives_on(tmp_path: Path, terminals: list[Terminal]) -> None:
    left = tmp_path / "left"
    terminal = Terminal(tmp_path / "run", "sh", "-c", f"(sleep 3; echo there > {left}) & sleep 0.5; echo main; exit 7")
    terminals.append(terminal)
    assert terminal.end() == 7
    assert "main" in terminal.program_output
    until = time.monotonic() + 30
    while not left.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert left.read_text() == "there\n"


def test_a_command_that_a_signal_kills_takes_us_along(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path / "run", "sh", "-c", "kill -9 $$")
    terminals.append(terminal)
    assert terminal.end() == -9
    assert termios.tcgetattr(terminal.slave) == terminal.before


def test_more_may_be_typed_than_the_program_reads(tmp_path: Path, terminals: list[Terminal]) -> None:
    deaf = "import time\nprint('ready')\nfor i in range(20): print('tick', i); time.sleep(0.1)\nprint('done')"
    terminal = Terminal(tmp_path / "run", sys.executable, "-u", "-c", deaf)
    terminals.append(terminal)
    terminal.read_until("ready")
    os.set_blocking(terminal._master, False)
    for _ in range(200):
        try:
            terminal.type(b"x\r" * 50)
        except BlockingIOError:
            break
        terminal._read(0)
    os.set_blocking(terminal._master, True)
    assert terminal.end() == 0
    assert "done" in terminal.program_output


@pytest.mark.parametrize(
    ("tail", "whole"),
    [
        (b"", True),
        (b"text\r\n", True),
        (b"50 %\r", True),
        ("\u20ac".encode(), True),
        ("\u20ac".encode()[:2], False),
        ("\u00e4".encode()[:1], False),
        (b"a\x1b", False),
        (b"a\x1b[", False),
        (b"a\x1b[38;5;1", False),
        (b"a\x1b[38;5;1m", True),
        (b"a\x1b]0;a title", False),
        (b"a\x1b]0;a title\x07", True),
        (b"a\x1b(", False),
        (b"a\x1b(B", True),
    ],
)
def test_our_line_is_drawn_between_whole_signs_only(tail: bytes, whole: bool) -> None:
    assert between(tail) is whole
