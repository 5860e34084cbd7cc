"""`whyidle run --live`: the program above on a terminal of its own, a few rows of ours below, never mixed."""

from __future__ import annotations

import os
import re
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import support.warm as warm
from support.runs import WHYIDLE
from support.terminals import Terminal
from support.tmux import THERE_IS, Tmux
from whyidle.terminal.shared.program_output import TAIL, between, ending

ROWS, COLUMNS = 24, 80
OURS = 6
"""Rows of the panel in a terminal of so many."""


class Live(Terminal):
    """A terminal with `whyidle run --live` in its foreground."""

    def __init__(self, folder: Path, *command: str, rows: int = ROWS, live: tuple[str, ...] = ("--live",)) -> None:
        arguments = ["run", *live, "--out", str(folder), "--", *command]
        environment = dict(os.environ, TERM="xterm")

        def start(slave: int) -> warm.Process:
            streams = (slave, slave, slave)
            return warm.Process("commands", "whyidle", arguments, streams, env=environment, terminal=True)

        super().__init__(start, rows, COLUMNS)

    @property
    def program_output(self) -> str:
        """What was shown without what we drew: our line goes from saving the cursor to restoring it."""
        return re.sub(rb"\x1b7.*?\x1b8", b"", self.raw, flags=re.DOTALL).decode()


@pytest.fixture
def terminals() -> Iterator[list[Live]]:
    opened: list[Live] = []
    yield opened
    for terminal in opened:
        terminal.__exit__()


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


def test_what_a_program_writes_arrives_whole_around_our_line(tmp_path: Path, terminals: list[Live]) -> None:
    seen = tmp_path / "seen"
    terminal = Live(tmp_path / "run", sys.executable, "-u", "-c", CHATTY + ENDS, str(seen))
    terminals.append(terminal)
    for _ in range(2):
        terminal.until("\x1b[7m whyidle", after=len(terminal.raw))
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
    ("rows", "live", "ours"),
    [(24, ("--live", "line"), 1), (20, ("--live",), 3), (10, ("--live", "panel"), 1), (24, ("--live=panel",), 6)],
)
def test_a_smaller_terminal_gives_fewer_rows(
    tmp_path: Path, terminals: list[Live], rows: int, live: tuple[str, ...], ours: int
) -> None:
    size = "import os; print('rows', os.get_terminal_size().lines)"
    terminal = Live(tmp_path / "run", sys.executable, "-c", size, rows=rows, live=live)
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
def test_another_size_reaches_the_program_and_the_rows_of_ours_move(tmp_path: Path, terminals: list[Live]) -> None:
    seen = tmp_path / "seen"
    terminal = Live(tmp_path / "run", sys.executable, "-u", "-c", RESIZED + ENDS, str(seen))
    terminals.append(terminal)
    terminal.until("ready")
    terminal.resize(40)
    terminal.until(f"told {40 - OURS}")
    terminal.until(f"\x1b[1;{40 - OURS}r\x1b[{40 - OURS + 1};1H")
    seen.touch()
    # All that was below the program's cursor was ours, wherever the terminal moved it: it goes, and room is made anew.
    settled = b"\x1b7\x1b[r\x1b8\x1bD\x1b[A\x1b7\x1b[B\r\x1b[0m\x1b[J\x1b8" + b"\x1bD" * OURS + b"\x1b[%dA" % OURS
    assert terminal.raw.count(settled) == 1
    assert terminal.end() == 0


@pytest.mark.slow
@pytest.mark.skipif(not THERE_IS, reason="tmux is not installed")
def test_on_a_real_screen_the_panel_stays_below_the_programs_lines_whatever_its_size(tmp_path: Path) -> None:
    counting = "import itertools, time\nfor i in itertools.count(): print('line', i, flush=True); time.sleep(0.05)"
    with Tmux(
        [*WHYIDLE, "run", "--live", "--out", tmp_path / "run", "--", sys.executable, "-c", counting], 80, 24
    ) as screen:
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


@pytest.mark.slow
def test_a_program_that_is_killed_does_not_keep_the_whole_screen(tmp_path: Path, terminals: list[Live]) -> None:
    killed = r"printf '\033[?25;1049h'; kill -9 $$"
    terminal = Live(tmp_path / "run", "/bin/sh", "-c", killed)
    terminals.append(terminal)
    terminal.end()
    assert terminal.raw.rindex(b"\x1b[?1049l") < terminal.raw.index(b"The recording is in")
    assert b" whyidle" not in terminal.raw[terminal.raw.index(b"1049h") : terminal.raw.rindex(b"\x1b[?1049l")]


@pytest.mark.slow
def test_what_is_typed_reaches_the_program(tmp_path: Path, terminals: list[Live]) -> None:
    terminal = Live(tmp_path / "run", sys.executable, "-c", "print('<' + input('name? ') + '>')")
    terminals.append(terminal)
    terminal.until("name? ")
    terminal.type(b"bob\r")
    assert terminal.end() == 0
    assert "<bob>" in terminal.program_output


@pytest.mark.slow
def test_what_a_command_leaves_in_the_background_lives_on(tmp_path: Path, terminals: list[Live]) -> None:
    left = tmp_path / "left"
    terminal = Live(tmp_path / "run", "sh", "-c", f"(sleep 3; echo there > {left}) & sleep 0.5; echo main; exit 7")
    terminals.append(terminal)
    assert terminal.end() == 7
    assert "main" in terminal.program_output
    until = time.monotonic() + 100
    while not (left.exists() and left.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    assert left.read_text() == "there\n"


@pytest.mark.slow
def test_a_command_that_a_signal_kills_takes_us_along(tmp_path: Path, terminals: list[Live]) -> None:
    terminal = Live(tmp_path / "run", "sh", "-c", "kill -9 $$")
    terminals.append(terminal)
    assert terminal.end() == -9
    assert termios.tcgetattr(terminal.slave) == terminal.before


@pytest.mark.slow
def test_more_may_be_typed_than_the_program_reads(tmp_path: Path, terminals: list[Live]) -> None:
    deaf = "import time\nprint('ready')\nfor i in range(20): print('tick', i); time.sleep(0.1)\nprint('done')"
    terminal = Live(tmp_path / "run", sys.executable, "-u", "-c", deaf)
    terminals.append(terminal)
    terminal.until("ready")
    os.set_blocking(terminal.master, False)
    for _ in range(200):
        try:
            terminal.type(b"x\r" * 50)
        except BlockingIOError:
            break
        terminal.read(0)
    os.set_blocking(terminal.master, True)
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
