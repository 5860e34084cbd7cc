"""A terminal shared with a program: what the two of them get, whatever the terminal, the program and others do.

A small process passes a program's terminal on, without a recording; the terminal is the test's.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.fakes.driver import wait_for
from support.tmux import THERE_IS, Tmux

ROWS, COLUMNS = 12, 40
PANEL = b"panel of 2"

RELAY = """
import os, signal, subprocess, sys
from whyidle.terminal import child
from whyidle.terminal.own_terminal import usable
from whyidle.terminal.status_line import StatusLine

def rows(columns, count):
    return [f"panel of {count}"] + ["below"] * (count - 1)

def failing(*_):
    open(sys.argv[2], "w").close()
    raise OSError("broken")

def relay(command, paint=rows, on_tick=None, late=lambda process: process):
    with child.Signals() as signals:
        screen = StatusLine(lambda rows: 2)
        process = child.start(command, os.environ, signals, screen.streams, screen.prepare)
        with screen:
            screen.draw(paint)
            screen.number = screen.command(process)
            return screen.wait(late(process), signals, on_tick or (lambda: screen.draw(paint)), 0.1)
"""
PASSED_ON = RELAY + "raise SystemExit(relay([sys.executable, '-u', '-c', sys.argv[1]]))"


class Shown:
    """A terminal with a process in its foreground that leads the terminal's session."""

    def __init__(
        self, program: str, *arguments: str | Path, typed_ahead: bytes = b"", stdout: int | None = None
    ) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.raw = b""
        self.type(typed_ahead)

        def take_over() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=self.slave,
            stdout=self.slave if stdout is None else stdout,
            stderr=self.slave,
            preexec_fn=take_over,
            env=dict(os.environ, TERM="xterm"),
        )

    def type(self, keys: bytes) -> None:
        if keys:
            os.write(self.master, keys)

    def until(self, told: bytes | Callable[[], object], seconds: float = 60) -> None:
        """Read until something was shown, or is true."""
        end = time.monotonic() + seconds
        while not (told in self.raw if isinstance(told, bytes) else told()):
            assert time.monotonic() < end, self.raw[-2000:]
            self._read(0.05)

    def end(self) -> int:
        self.until(lambda: self.process.poll() is not None)
        while self._read(0.1):
            pass
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        self.raw += os.read(self.master, 65536)
        return True


@pytest.fixture
def show() -> Iterator[Callable[..., Shown]]:
    opened: list[Shown] = []

    def shown(*arguments: str | Path, **options: object) -> Shown:
        opened.append(Shown(*arguments, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield shown
    for each in opened:
        each.close()


Show = Callable[..., Shown]

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


@pytest.mark.parametrize("broken", ["paint=failing", "on_tick=failing"])
def test_what_fails_in_showing_something_is_nothing_to_the_program(broken: str, show: Show, tmp_path: Path) -> None:
    program = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    program += "print('well'); raise SystemExit(5)"
    relayed = f"{RELAY}raise SystemExit(relay([sys.executable, '-c', *sys.argv[1:]], {broken}))"
    terminal = show(relayed, program, tmp_path / "failed")
    assert terminal.end() == 5
    assert b"well\r\n" in terminal.raw


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
    relayed = RELAY + "raise SystemExit(relay(sys.argv[1:]))"
    terminal = show(relayed, sys.executable, "-c", SAVES_WHEN_TOLD, written, saved)
    terminal.until(b"ready")
    # Nothing is read from here on: soon the terminal is full, and the program waits in its write.
    before = b""
    while (now := written.read_bytes()) != before or not now:
        before = now
        time.sleep(0.3)
    terminal.process.terminate()
    until = time.monotonic() + 60
    while not saved.read_bytes() and time.monotonic() < until:
        time.sleep(0.05)
    assert saved.read_bytes() == b"state"
    assert terminal.end() == 7


STUCK = """
def ended(code):
    os.write(ends, b"%d" % code)
ends = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
waits = StatusLine.wait
StatusLine.wait = lambda *arguments: waits(*arguments, ended)
code = relay(sys.argv[2:])
raise SystemExit(code)
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


OUTLIVES = """
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.write(1, b"ready\\n")
signal.sigwait({signal.SIGTERM})
# Longer than any look at the clock takes, and longer than the hurry that is set here.
time.sleep(0.1)
os.set_blocking(1, False)
wrote = 0
try:
    while True:
        wrote += os.write(1, b"x" * 500)
except BlockingIOError:
    pass
open(sys.argv[1], "w").write(str(wrote))
raise SystemExit(3)
"""


def test_a_program_that_outlives_a_signal_keeps_its_last_output_on_a_slow_terminal(show: Show, tmp_path: Path) -> None:
    told, wrote = tmp_path / "told", tmp_path / "wrote"
    hurry = "from whyidle.terminal import status_line\nstatus_line.HURRY_SECONDS = 0.05\nimport time"
    terminal = show(f"{RELAY}{hurry}{STUCK}", told, sys.executable, "-c", OUTLIVES, wrote)
    terminal.until(b"ready")
    terminal.process.terminate()
    # Nothing is read until the program has ended and the terminal is waited for.
    wait_for(lambda: told.exists() and told.read_bytes() == b"3")
    assert terminal.end() == 3
    assert terminal.raw.count(b"x") == int(wrote.read_text())


def test_how_it_ended_is_told_before_a_terminal_is_waited_for(show: Show, tmp_path: Path) -> None:
    told = tmp_path / "told"
    terminal = show(RELAY + STUCK, told, sys.executable, "-c", FILLS)
    # Nothing is read: the terminal takes no more, and the program ends.
    wait_for(lambda: told.exists() and told.read_bytes() == b"3")
    assert terminal.process.poll() is None
    assert terminal.end() == 3


@pytest.mark.parametrize(("hurry_s", "deaf"), [(1e9, b"True"), (-1.0, b"False")])
def test_to_a_terminal_that_takes_nothing_no_report_is_made_once_an_end_is_wanted(
    hurry_s: float, deaf: bytes, show: Show, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    asked = f"from whyidle.terminal import status_line\nstatus_line.HURRY_SECONDS = {hurry_s}\n"
    asked += "StatusLine.__enter__ = lambda self: setattr(self, '_asked_at', time.monotonic()) or self"
    left = "leave = StatusLine.__exit__\ndef leaves(self, *why):\n    leave(self, *why)\n    ended(str(self.deaf))\n"
    program = STUCK.replace("code = ", f"import time\n{asked}\n{left}StatusLine.__exit__ = leaves\ncode = ")
    program = program.replace("waits(*arguments, ended)", "waits(*arguments)").replace('b"%d" % code', "code.encode()")
    terminal = show(RELAY + program, told, sys.executable, "-c", FILLS)
    if deaf == b"True":
        wait_for(lambda: told.exists() and told.read_bytes() == deaf)
    assert terminal.end() == 3
    assert told.read_bytes() == deaf


def test_typed_ahead_is_the_programs(show: Show) -> None:
    terminal = show(PASSED_ON, "print('<' + input() + '>')", typed_ahead=b"earlier\r")
    assert terminal.end() == 0
    assert b"<earlier>" in terminal.raw
    assert termios.tcgetattr(terminal.slave) == terminal.before


STOPS_ITSELF = """
import os, signal
os.kill(0, signal.SIGTSTP)
print("\\nwent on:", os.getpid(), "\\n", flush=True)
os.kill(0, signal.SIGSTOP)
print("continued")
"""


def test_a_program_that_stops_itself_goes_on_and_one_that_is_stopped_from_outside_waits(show: Show) -> None:
    terminal = show(PASSED_ON, STOPS_ITSELF)
    terminal.until(b" \r\n")
    pid = int(terminal.raw.split(b"went on:")[1].split()[0])
    terminal.until(lambda: _state(pid) == "T")
    seen = terminal.raw.count(PANEL)
    terminal.until(lambda: terminal.raw.count(PANEL) > seen + 2)  # it has looked at the program a few times
    assert _state(pid) == "T"
    os.kill(pid, signal.SIGCONT)
    assert terminal.end() == 0
    assert b"continued" in terminal.raw


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_after_a_shell_had_the_terminal_it_is_raw_again_and_drawn_anew(show: Show) -> None:
    terminal = show(PASSED_ON, "print('ready'); print('<' + input() + '>')")
    terminal.until(b"ready")
    terminal.until(PANEL)
    raw = termios.tcgetattr(terminal.slave)
    os.kill(terminal.process.pid, signal.SIGSTOP)
    terminal.until(lambda: _state(terminal.process.pid) == "T")
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


WHO_LEADS = """
class Kept(StatusLine):
    def command(self, started):
        number = super().command(started)
        files = sorted(os.listdir(f"/proc/{started.pid}/fd"))
        os.kill(started.pid, signal.SIGTERM)
        print("told of", number, "leads with", *files, end="\\r\\n")
        return number
StatusLine = Kept
raise SystemExit(relay([sys.executable, "-c", sys.argv[1]]))
"""


def test_the_sessions_leader_names_the_command_keeps_no_files_and_is_not_to_be_ended(show: Show) -> None:
    program = "import os; print('command', os.getpid()); input(); raise SystemExit(4)"
    terminal = show(RELAY + WHO_LEADS, program)
    terminal.until(b"leads with")
    terminal.type(b"\r")
    assert terminal.end() == 4
    command = terminal.raw.split(b"command ")[1].split()[0]
    assert b"told of %s leads with 0 1 2\r\n" % command in terminal.raw


@pytest.mark.parametrize("elsewhere", [True, False])
def test_outputs_on_two_terminals_are_not_brought_together(elsewhere: bool, show: Show, tmp_path: Path) -> None:
    said, other = tmp_path / "said", pty.openpty()
    terminal = show(RELAY + "open(sys.argv[1], 'w').write(str(usable()))", said, stdout=other[1] if elsewhere else None)
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
