"""A terminal shared with a program: what the two of them get, whatever the terminal, the program and others do.

A small process passes a program's terminal on, without a recording; the terminal is the test's.
"""

from __future__ import annotations

import os
import pty
import signal
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from support.fakes.driver import wait_for
from support.terminals import Terminal, leading, state
from support.tmux import THERE_IS, Tmux

ROWS, COLUMNS = 12, 40
PANEL = b"panel of 2"

RELAY = """
import os, signal, subprocess, sys, threading, time
from contextlib import suppress
from whyidle.terminal import child
from whyidle.terminal.shared import SharedTerminal, divisible, relay as relaying

def rows(columns, count):
    return [f"panel of {count}"] + ["below"] * (count - 1)

def relay(command, paint=rows, late=lambda process: process, on_end=lambda code: None, begun=lambda screen: None):
    with child.Signals() as signals:
        screen = SharedTerminal(lambda rows: 2)
        process, screen.number = screen.start(command, os.environ, signals)
        def draw():
            while True:
                screen.outdated.clear()
                screen.paint(paint)
                screen.outdated.wait(0.1)
        with screen:
            threading.Thread(target=draw, daemon=True).start()
            begun(screen)
            return screen.wait(late(process), signals, on_end)
"""
PASSED_ON = RELAY + "raise SystemExit(relay([sys.executable, '-u', '-c', *sys.argv[1:]]))"


class Show(Protocol):
    def __call__(self, program: str, *arguments: str | Path, typed_ahead: bytes = b"") -> Terminal: ...


@pytest.fixture
def show() -> Iterator[Show]:
    """Shows a Python program on a terminal that it leads."""
    with ExitStack() as opened:

        def shown(program: str, *arguments: str | Path, typed_ahead: bytes = b"") -> Terminal:
            start = leading([sys.executable, "-c", program, *arguments])
            return opened.enter_context(Terminal(start, ROWS, COLUMNS, typed_ahead))

        yield shown


ENDED_MEANWHILE = """
class Late:
    # Ends between the look at it and the look at the signals.
    def __init__(self, process):
        self.process, self.looks = process, 0
    def poll(self):
        self.looks += 1
        if self.looks > 1:
            return self.process.poll()
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        os.kill(os.getpid(), signal.SIGTERM)
# Of our group.
bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
code = relay(["true"], late=Late)
bystander.communicate(b"\\n")
print("lives on" if bystander.returncode == 0 else f"ended by it: {bystander.returncode}")
raise SystemExit(code)
"""


def test_a_signal_that_comes_as_the_program_ends_is_not_sent_to_our_own_group(show: Show) -> None:
    terminal = show(RELAY + ENDED_MEANWHILE)
    assert terminal.end() == 0
    assert b"lives on" in terminal.raw


NEVER_PAINTED = """
def never(columns, count):
    open(sys.argv[1], "w").close()
    threading.Event().wait()
raise SystemExit(relay([sys.executable, "-u", "-c", *sys.argv[2:]], never))
"""


def test_whoever_makes_our_rows_is_waited_for_by_nobody(show: Show, tmp_path: Path) -> None:
    program = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    program += "print('name? '); print('<' + input() + '>'); raise SystemExit(5)"
    terminal = show(RELAY + NEVER_PAINTED, tmp_path / "asked", program, tmp_path / "asked")
    terminal.until("name? ")
    terminal.type(b"bob\r")
    assert terminal.end() == 5
    assert b"<bob>\r\n" in terminal.raw


TAKES = """
import os, sys
os.set_blocking(1, False)
taken = 0
try:
    while True:
        taken += os.write(1, b"x" * 100)
except BlockingIOError:
    open(sys.argv[1], "w").write(str(taken))
"""
GETS_AS_MUCH_RID = """
import os, sys, time
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
left = int(sys.argv[1])
while left > 0:
    left -= os.write(1, b"x" * min(100, left))
open(sys.argv[3], "w").close()
"""
DRAWN_FULL = """
def begun(screen):
    def look():
        while not screen._terminal.unwritten: time.sleep(0.01)
        open(sys.argv[3], "w").close()
    threading.Thread(target=look, daemon=True).start()
relaying.TICK_SECONDS = 0.001
def paints(columns, count):
    screen_full = ["y" * columns * 100] * count
    return screen_full
raise SystemExit(relay([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], paints, begun=begun))
"""


def test_on_a_terminal_that_takes_nothing_our_rows_leave_a_program_all_the_room_it_would_have(
    show: Show, tmp_path: Path
) -> None:
    taken, full, rid = (tmp_path / name for name in ("taken", "full", "rid"))
    alone = show(f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', {TAKES!r}, *sys.argv[1:]])", taken)
    wait_for(lambda: taken.exists() and taken.read_text())
    assert alone.process.poll() == 0 or alone.end() == 0
    terminal = show(RELAY + DRAWN_FULL, GETS_AS_MUCH_RID, taken.read_text(), full, rid)
    # Nothing is read.
    wait_for(rid.exists)
    assert terminal.end() == 0
    assert terminal.raw.count(b"x") == int(taken.read_text())


SAVES_WHEN_TOLD = """
import os, signal, sys
written, saved = (os.open(name, os.O_CREAT | os.O_WRONLY) for name in sys.argv[1:])
def told(*_):
    os.write(saved, b"state")
    os._exit(7)
signal.signal(signal.SIGTERM, told)
os.write(1, b"ready\\n")
for line in range(10**9):
    os.pwrite(written, b"%d" % line, 0)
    os.write(1, b"line " * 200 + b"\\n")
"""


def test_a_terminal_that_takes_no_output_holds_up_no_signal(show: Show, tmp_path: Path) -> None:
    written, saved = tmp_path / "written", tmp_path / "saved"
    terminal = show(PASSED_ON, SAVES_WHEN_TOLD, written, saved)
    terminal.until("ready")
    # Nothing is read from here on: soon the terminal is full, and the program waits in its write.
    before = b""
    while (now := written.read_bytes()) != before or not now:
        before = now
        time.sleep(0.3)
    terminal.process.terminate()
    wait_for(lambda: saved.read_bytes() == b"state")
    assert terminal.end() == 7


ENDS = """
def ended(code):
    os.write(ends, b"%d" % code)
ends = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
raise SystemExit(relay([sys.executable, "-c", *sys.argv[2:]], on_end=ended))
"""
FILLS = """
import os
os.set_blocking(1, False)
try:
    while True:
        os.write(1, b"x" * 500)
except BlockingIOError:
    raise SystemExit(3)
"""


def test_how_it_ended_is_told_before_a_terminal_is_waited_for(show: Show, tmp_path: Path) -> None:
    told = tmp_path / "told"
    terminal = show(RELAY + ENDS, told, FILLS)
    # Nothing is read: the terminal takes no more, and the program ends.
    wait_for(lambda: told.exists() and told.read_bytes() == b"3")
    assert terminal.process.poll() is None
    assert terminal.end() == 3


def test_a_terminal_that_takes_nothing_is_waited_for_until_somebody_wants_an_end(show: Show, tmp_path: Path) -> None:
    terminal = show(RELAY + ENDS, tmp_path / "told", FILLS)
    wait_for(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_bytes() == b"3")
    terminal.process.terminate()
    # Nothing is read.
    wait_for(lambda: terminal.process.poll() is not None)
    assert terminal.process.returncode == 3


def test_typed_ahead_is_the_programs(show: Show) -> None:
    terminal = show(PASSED_ON, "print('<' + input() + '>')", typed_ahead=b"earlier\r")
    assert terminal.end() == 0
    assert b"<earlier>" in terminal.raw
    assert termios.tcgetattr(terminal.slave) == terminal.before


STOPS_ITSELF = """
import os, signal
os.kill(0, signal.SIGTSTP)
print(f"\\nwent on: {os.getpid()} \\n", flush=True)
os.kill(0, signal.SIGSTOP)
print("continued")
"""


def test_where_no_shell_waits_a_program_that_stops_itself_goes_on_and_one_stopped_from_outside_waits(
    show: Show,
) -> None:
    terminal = show(PASSED_ON, STOPS_ITSELF)
    terminal.until(" \r\n")
    pid = int(terminal.raw.split(b"went on:")[1].split()[0])
    terminal.until(lambda: state(pid) == "T")
    seen = terminal.raw.count(PANEL)
    terminal.until(lambda: terminal.raw.count(PANEL) > seen + 2)  # it has looked at the program a few times
    assert state(pid) == "T"
    os.kill(pid, signal.SIGCONT)
    assert terminal.end() == 0
    assert b"continued" in terminal.raw


def test_after_a_shell_had_the_terminal_it_is_raw_again_and_drawn_anew(show: Show) -> None:
    terminal = show(PASSED_ON, "print('ready'); print('<' + input() + '>')")
    terminal.until("ready")
    terminal.until(PANEL)
    raw = termios.tcgetattr(terminal.slave)
    os.kill(terminal.process.pid, signal.SIGSTOP)
    terminal.until(lambda: state(terminal.process.pid) == "T")
    # What a shell does when its job stops, before it continues it.
    termios.tcsetattr(terminal.slave, termios.TCSANOW, terminal.before)
    drawn = terminal.raw.count(PANEL)
    os.kill(terminal.process.pid, signal.SIGCONT)
    terminal.until(lambda: termios.tcgetattr(terminal.slave) == raw)
    terminal.until(lambda: terminal.raw.count(PANEL) > drawn)
    terminal.type(b"typed\r")
    assert terminal.end() == 0
    assert b"<typed>" in terminal.raw
    assert termios.tcgetattr(terminal.slave) == terminal.before


TAKES_AND_GIVES_BACK = """
import os, sys, time
def once(file):
    while not os.path.exists(file): time.sleep(0.01)
os.write(1, sys.argv[1].encode() + b"editing")
once(sys.argv[3])
os.write(1, sys.argv[2].encode())
once(sys.argv[4])
"""
TOLD_OF = """
def counted(columns, count):
    open(sys.argv[1], "a").write("painted ")
    return ["panel of 2", "below"]
raise SystemExit(relay([sys.executable, "-c", *sys.argv[2:]], counted))
"""


@pytest.mark.parametrize(
    ("takes", "gives"), [("\x1b[?1049h\x1b[2J", "\x1b[?1049l"), ("\x1b7", "\x1b8")], ids=["screen", "saved place"]
)
def test_nothing_is_drawn_while_a_program_has_the_whole_screen_or_the_saved_place_of_the_cursor(
    takes: str, gives: str, show: Show, tmp_path: Path
) -> None:
    painted, edited, seen = (tmp_path / name for name in ("painted", "edited", "seen"))
    terminal = show(RELAY + TOLD_OF, painted, TAKES_AND_GIVES_BACK, takes, gives, edited, seen)
    terminal.until("editing")
    terminal.resize(ROWS + 4)
    before = len(painted.read_text().split()) if painted.exists() else 0
    terminal.until(lambda: painted.exists() and len(painted.read_text().split()) > before + 3)
    edited.touch()
    terminal.until(b"\x1b[1;%dr" % (ROWS + 2))
    seen.touch()
    assert terminal.end() == 0
    within = terminal.raw.split(b"editing", 1)[1].split(gives.encode(), 1)
    assert within[0] == b""


WHO_LEADS = """
ours = os.pipe()
def begun(screen):
    leader = int(open(f"/proc/{screen.number}/stat").read().rsplit(")", 1)[1].split()[1])
    while len(files := os.listdir(f"/proc/{leader}/fd")) > 4:
        time.sleep(0.01)
    os.kill(leader, signal.SIGTERM)
    print("told of", screen.number, "leads with", len(files), end="\\r\\n")
raise SystemExit(relay([sys.executable, "-c", *sys.argv[1:]], begun=begun))
"""


def test_the_sessions_leader_names_the_command_keeps_no_files_and_is_not_to_be_ended(show: Show) -> None:
    program = "import os; print(f'command {os.getpid()}'); input(); raise SystemExit(4)"
    terminal = show(RELAY + WHO_LEADS, program)
    terminal.until("leads with")
    terminal.type(b"\r")
    assert terminal.end() == 4
    command = terminal.raw.split(b"command ")[1].split()[0]
    # The terminal, three times, and its way to tell us.
    assert b"told of %s leads with 4\r\n" % command in terminal.raw


@pytest.mark.parametrize("elsewhere", [True, False])
def test_outputs_on_two_terminals_are_not_brought_together(elsewhere: bool, tmp_path: Path) -> None:
    said, other = tmp_path / "said", pty.openpty()
    program = RELAY + "open(sys.argv[1], 'w').write(str(divisible()))"
    start = leading([sys.executable, "-c", program, said], stdout=other[1] if elsewhere else None)
    with Terminal(start, ROWS, COLUMNS) as terminal:
        assert terminal.end() == 0
    assert said.read_text() == str(not elsewhere)
    for end in other:
        os.close(end)


FULL_ROW = """
import os, sys, time
def once(file):
    while not os.path.exists(file): time.sleep(0.01)
sys.stdout.write("\\x1b[31m" + "x" * (int(sys.argv[1]) - 1) + "E"); sys.stdout.flush(); once(sys.argv[2])
sys.stdout.write("\\x1b[0myz\\n\\x1b[?6h\\x1b(0"); sys.stdout.flush(); once(sys.argv[3])
sys.stdout.write("\\x1b[?6l\\x1b(Bafter\\n"); sys.stdout.flush(); once(sys.argv[4])
"""
COUNTED = """
from itertools import count
numbers = count()
raise SystemExit(relay(sys.argv[1:], lambda columns, count: ["panel of 2", f"drawn {next(numbers)}"]))
"""


@pytest.mark.skipif(not THERE_IS, reason="tmux is not installed")
def test_on_a_real_screen_full_rows_stay_whole_and_ours_stay_below_whatever_the_modes(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("full", "modes", "end")]
    command = [sys.executable, "-c", RELAY + COUNTED, sys.executable, "-c", FULL_ROW, str(COLUMNS), *files]

    def drawn(rows: list[str]) -> int:
        """How often ours were, so far."""
        last = rows[-1].split() if rows else []
        return int(last[1]) if len(last) == 2 and last[0] == "drawn" and last[1].isdigit() else -1

    with Tmux(command, COLUMNS, ROWS) as screen:

        def drawn_since(text: str) -> list[str]:
            """The screen, once ours were drawn anew below that."""
            before = drawn(screen.until(lambda rows: text in "\n".join(rows) and drawn(rows) >= 0))
            return screen.until(lambda rows: drawn(rows) > before + 1)

        drawn_since("xE")
        files[0].touch()
        rows = drawn_since("yz")
        # What counts rows from the scrolling ones, and letters as lines, is in force now.
        assert rows[rows.index("x" * (COLUMNS - 1) + "E") + 1] == "yz"
        assert rows[-2] == "panel of 2"
        assert sum(row.startswith("drawn") for row in rows) == 1
        files[1].touch()
        assert sum(row.startswith("drawn") for row in drawn_since("after")) == 1
