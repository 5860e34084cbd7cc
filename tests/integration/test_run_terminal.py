"""`whyidle run` on a terminal: the program above, a few rows of ours below, never mixed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import support.warm as warm
from support.runs import WHYIDLE
from support.tmux import THERE_IS, Tmux
from whyidle.terminal.program_output import TAIL, between, ending

ROWS, COLUMNS = 24, 80
OURS = 6
"""Rows of the panel in a terminal of so many."""


class Terminal:
    """A terminal with `whyidle run` in its foreground."""

    def __init__(self, folder: Path, *command: str, rows: int = ROWS, options: tuple[str, ...] = ()) -> None:
        self._master, slave = pty.openpty()
        self._rows = rows
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.raw = b""

        arguments = ["run", *options, "--out", str(folder), "--", *command]
        environment = dict(os.environ, TERM="xterm")
        self.process = warm.Process(
            "commands", "whyidle", arguments, (slave, slave, slave), env=environment, terminal=True
        )

    def read_until(self, text: str, seconds: float = 100, *, after: int = 0) -> None:
        """`after`: so many bytes, which are not looked at."""
        until = time.monotonic() + seconds
        while text.encode() not in self.raw[after:]:
            assert time.monotonic() < until, self.raw[-2000:]
            self._read(0.2)

    def resize(self, rows: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self, seconds: float = 100) -> int:
        until = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < until, self.raw[-2000:]
            self._read(0.1)
        while self._read(0.1):
            pass
        assert self.process.returncode is not None
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


ENDS = """
while not os.path.exists(sys.argv[-1]):
    time.sleep(0.02)
"""
"""Of a program whose last argument is a file: the test makes it once it has seen what it looks for."""
CHATTY = """
import os, sys, time
print(sys.stdout.isatty(), sys.stderr.isatty(), sys.stdin.isatty(), os.get_terminal_size().lines)
for i in range(400):
    # Colours, characters of several bytes, and lines without an end, in pieces that are torn anywhere.
    for piece in (b"\\x1b[3", b"1mr\\xc3", b"\\xa4d \\xe2\\x82", b"\\xac\\x1b[0m %d\\r" % i):
        os.write(1, piece)
        time.sleep(0.001)
print()
"""


def test_what_a_program_writes_arrives_whole_around_our_line(tmp_path: Path, terminals: list[Terminal]) -> None:
    seen = tmp_path / "seen"
    terminal = Terminal(tmp_path / "run", sys.executable, "-u", "-c", CHATTY + ENDS, str(seen))
    terminals.append(terminal)
    for _ in range(2):
        terminal.read_until("\x1b[7m whyidle", after=len(terminal.raw))
    seen.touch()
    assert terminal.end() == 0
    # Some rows fewer: the last ones are ours.
    assert f"True True True {ROWS - OURS}\r\n" in terminal.program_output
    expected = "".join(f"\x1b[31mr\u00e4d \u20ac\x1b[0m {i}\r" for i in range(400))
    assert expected in terminal.program_output
    top = ROWS - OURS
    first = rb"\x1b7\x1b\[\?6l\x0f\x1b\(B\x1b\[1;%dr\x1b\[%d;1H\x1b\[0m\x1b\[2K\x1b\[7m whyidle" % (top, top + 1)
    drawn = re.findall(first + rb"[^\x1b]*\x1b\[0m\x1b\[%d;1H" % (top + 2), terminal.raw)
    assert len(drawn) >= 2
    # The rows are given back before the report.
    given_back = b"\x1b7\x1b[?6l\x0f\x1b(B\x1b[0m\x1b[r" + b"".join(
        b"\x1b[%d;1H\x1b[2K" % row for row in range(top + 1, ROWS + 1)
    )
    assert terminal.raw.index(given_back + b"\x1b8") < terminal.raw.index(b"Verdict")
    assert termios.tcgetattr(terminal.slave) == terminal.before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "options", "ours"), [(24, ("--live", "line"), 1), (20, (), 3), (10, (), 1), (24, (), 6)]
)
def test_a_smaller_terminal_gives_fewer_rows(
    tmp_path: Path, terminals: list[Terminal], rows: int, options: tuple[str, ...], ours: int
) -> None:
    size = "import os; print('rows', os.get_terminal_size().lines)"
    terminal = Terminal(tmp_path / "run", sys.executable, "-c", size, rows=rows, options=options)
    terminals.append(terminal)
    assert terminal.end() == 0
    assert f"rows {rows - ours}\r\n" in terminal.program_output
    assert (b"\x1b[1;%dr" % (rows - ours)) in terminal.raw


RESIZED = """
import os, signal, sys, time
sizes = []
signal.signal(signal.SIGWINCH, lambda *_: sizes.append(os.get_terminal_size().lines))
print("ready")
while not sizes:
    time.sleep(0.02)
print("told", sizes[0], flush=True)
"""


@pytest.mark.slow
def test_another_size_reaches_the_program_and_the_rows_of_ours_move(tmp_path: Path, terminals: list[Terminal]) -> None:
    seen = tmp_path / "seen"
    terminal = Terminal(tmp_path / "run", sys.executable, "-u", "-c", RESIZED + ENDS, str(seen))
    terminals.append(terminal)
    terminal.read_until("ready")
    terminal.resize(40)
    terminal.read_until(f"told {40 - OURS}")
    terminal.read_until(f"\x1b[1;{40 - OURS}r\x1b[{40 - OURS + 1};1H")
    seen.touch()
    # All that was below the program's cursor was ours, wherever the terminal moved it: it goes, and room is made anew.
    settled = b"\x1b7\x1b[r\x1b8\x1bD\x1b[A\x1b7\x1b[B\r\x1b[0m\x1b[J\x1b8" + b"\x1bD" * OURS + b"\x1b[%dA" % OURS
    assert terminal.raw.count(settled) == 1
    assert terminal.end() == 0


TAKES_AND_GIVES_BACK = """
import os, sys, time
sys.stdout.write(sys.argv[1] + "editing")
sys.stdout.flush()
# We draw each second.
time.sleep(2.5)
sys.stdout.write(sys.argv[2])
sys.stdout.flush()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("takes", "gives"), [("\x1b[?1049h\x1b[2J", "\x1b[?1049l"), ("\x1b7", "\x1b8")], ids=["screen", "saved place"]
)
def test_nothing_is_drawn_while_a_program_has_the_whole_screen_or_the_saved_place_of_the_cursor(
    takes: str, gives: str, tmp_path: Path, terminals: list[Terminal]
) -> None:
    seen = tmp_path / "seen"
    terminal = Terminal(tmp_path / "run", sys.executable, "-c", TAKES_AND_GIVES_BACK + ENDS, takes, gives, str(seen))
    terminals.append(terminal)
    terminal.read_until("editing")
    terminal.resize(30)
    terminal.read_until(f"\x1b[1;{30 - OURS}r")
    seen.touch()
    assert terminal.end() == 0
    within = terminal.raw.split(b"editing", 1)[1].split(gives.encode(), 1)
    assert within[0] == b""
    assert b"\x1b[1;%dr" % (30 - OURS) in within[1]


@pytest.mark.slow
@pytest.mark.skipif(not THERE_IS, reason="tmux is not installed")
def test_on_a_real_screen_the_panel_stays_below_the_programs_lines_whatever_its_size(tmp_path: Path) -> None:
    counting = "import itertools, time\nfor i in itertools.count(): print('line', i, flush=True); time.sleep(0.05)"
    with Tmux([*WHYIDLE, "run", "--out", tmp_path / "run", "--", sys.executable, "-c", counting], 80, 24) as screen:
        for columns, rows, ours in ((80, 24, 6), (80, 40, 6), (60, 18, 3), (100, 30, 6)):
            screen.resize(columns, rows)

            def settled(shown: list[str], rows: int = rows, ours: int = ours) -> bool:
                """The panel once, in the last rows, and above it successive lines and nothing else."""
                heads = [number for number, row in enumerate(shown) if row.startswith(" whyidle")]
                lines = [row for row in shown[: rows - ours] if row]
                counted = [int(row.split()[1]) for row in lines if re.fullmatch(r"line \d+", row)]
                one_by_one = counted == list(range(counted[0], counted[0] + len(counted))) if counted else False
                return heads == [rows - ours] and one_by_one and len(counted) == len(lines) > 3

            screen.until(settled)


INTERRUPTED = """
import signal, time
count = 0
def caught(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, caught)
print("ready")
while not count:
    time.sleep(0.01)
# One that comes twice does so within this time, or is not noticed here.
time.sleep(0.5)
print("interrupts:", count)
raise SystemExit(6)
"""


FLOOD = """
import os, time
until, written = time.monotonic() + 2, 0
while time.monotonic() < until or written < 2_500_000:
    written += os.write(1, b"%s" % (b"x" * 4000 + b"\\r\\n"))
"""


@pytest.mark.slow
def test_a_program_that_writes_much_is_not_looked_at_more_often(tmp_path: Path, terminals: list[Terminal]) -> None:
    begin = time.monotonic()
    terminal = Terminal(tmp_path / "run", sys.executable, "-c", FLOOD)
    terminals.append(terminal)
    assert terminal.end() == 0
    seconds = time.monotonic() - begin
    assert len(terminal.program_output) > 2_000_000
    # Once a second, and at the begin.
    assert terminal.raw.count(b"\x1b[7m whyidle") <= 2 * (seconds + 1)


@pytest.mark.slow
def test_a_program_that_is_killed_does_not_keep_the_whole_screen(tmp_path: Path, terminals: list[Terminal]) -> None:
    killed = r"printf '\033[?25;1049h'; kill -9 $$"
    terminal = Terminal(tmp_path / "run", "/bin/sh", "-c", killed)
    terminals.append(terminal)
    terminal.end()
    assert terminal.raw.rindex(b"\x1b[?1049l") < terminal.raw.index(b"The recording is in")
    assert b" whyidle" not in terminal.raw[terminal.raw.index(b"1049h") : terminal.raw.rindex(b"\x1b[?1049l")]


def test_ctrl_c_reaches_the_program_once_and_the_report_still_comes(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path / "run", sys.executable, "-u", "-c", INTERRUPTED)
    terminals.append(terminal)
    terminal.read_until("ready")
    terminal.type(b"\x03")
    assert terminal.end() == 6
    assert "interrupts: 1\r\n" in terminal.program_output
    assert "Verdict" in terminal.program_output
    assert termios.tcgetattr(terminal.slave) == terminal.before


@pytest.mark.slow
def test_what_is_typed_reaches_the_program(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path / "run", sys.executable, "-c", "print('<' + input('name? ') + '>')")
    terminals.append(terminal)
    terminal.read_until("name? ")
    terminal.type(b"bob\r")
    assert terminal.end() == 0
    assert "<bob>" in terminal.program_output


@pytest.mark.slow
def test_what_a_command_leaves_in_the_background_lives_on(tmp_path: Path, terminals: list[Terminal]) -> None:
    left = tmp_path / "left"
    terminal = Terminal(tmp_path / "run", "sh", "-c", f"(sleep 3; echo there > {left}) & sleep 0.5; echo main; exit 7")
    terminals.append(terminal)
    assert terminal.end() == 7
    assert "main" in terminal.program_output
    until = time.monotonic() + 100
    while not (left.exists() and left.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    assert left.read_text() == "there\n"


@pytest.mark.slow
def test_a_command_that_a_signal_kills_takes_us_along(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path / "run", "sh", "-c", "kill -9 $$")
    terminals.append(terminal)
    assert terminal.end() == -9
    assert termios.tcgetattr(terminal.slave) == terminal.before


@pytest.mark.slow
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


@pytest.mark.parametrize("chunk", [1, 100, 4000])
def test_within_a_picture_of_any_length_nothing_is_drawn(chunk: int) -> None:
    tail = b"before\r\n"
    for written in (b"\x1bPq", *[b"#" * chunk] * (3 * TAIL // chunk + 1)):
        tail = ending(tail + written)
        assert not between(tail)
    assert len(tail) <= TAIL + 2
    assert between(ending(tail + b"\x1b\\"))
    assert between(ending(b"x" * 1000))
