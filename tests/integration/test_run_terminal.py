"""The terminal belongs to the training: what `whyidle run` leaves as it is, and who stops and goes on with whom."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import support.warm as warm
from support.fakes.driver import wait_for
from support.runs import WHYIDLE
from support.terminals import PROMPT, Terminal, printed, shell, state


def typed(terminal: Terminal, folder: Path, program: str, *words: str | Path) -> None:
    """Type the command that runs a Python program, recorded into `folder / "run"`."""
    script = folder / "program.py"
    script.write_text(program)
    python = [sys.executable, "-u", str(script), *map(str, words)]
    terminal.type((shlex.join([*WHYIDLE, "run", "--out", str(folder / "run"), "--", *python]) + "\r").encode())


def begun(terminal: Terminal, *program: str | Path) -> int:
    """Type the same, and wait until the program has said `pid N begins`: its process."""
    typed(terminal, *program)
    terminal.until(" begins")
    return int(terminal.raw.split(b"pid ")[1].split()[0])


@contextmanager
def running(*program: str | Path) -> Iterator[tuple[Terminal, int]]:
    """A terminal in which such a program has begun."""
    with shell() as terminal:
        yield terminal, begun(terminal, *program)


def ended(terminal: Terminal, before: int) -> str:
    """What came after so much had been shown, once the command has ended."""
    terminal.until("Recorded in", before)
    terminal.until(PROMPT, terminal.raw.index(b"Recorded in", before))
    return terminal.raw[before:].decode()


def ours(program: int) -> int:
    """The process of `whyidle run` above a program's."""
    above = program
    while b"whyidle" not in Path(f"/proc/{above}/cmdline").read_bytes():
        above = int(Path(f"/proc/{above}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return above


SEES = """
import fcntl, json, os, sys, termios
seen = []
for stream in (0, 1, 2):
    there = os.fstat(stream)
    seen.append([os.isatty(stream), os.ttyname(stream), there.st_dev, there.st_ino, fcntl.fcntl(stream, fcntl.F_GETFL)])
seen.append([str(mode) for mode in termios.tcgetattr(0)])
seen.append([os.tcgetpgrp(0) == os.getpgrp(), termios.tcgetwinsize(0), os.getsid(0) == int(sys.argv[2])])
open(sys.argv[1], "w").write(json.dumps(seen))
"""


def test_a_program_has_the_terminal_that_it_would_have_without_us(tmp_path: Path) -> None:
    with shell() as terminal:
        session = terminal.process.pid
        typed(terminal, tmp_path, SEES, tmp_path / "seen", str(session))
        shown = ended(terminal, 0)
        printed(
            terminal, shlex.join([sys.executable, str(tmp_path / "program.py"), str(tmp_path / "bare"), str(session)])
        )
    assert (tmp_path / "seen").read_text() == (tmp_path / "bare").read_text()
    # Nothing that acts on a terminal but the report's colours.
    assert "\x1b7" not in shown


@pytest.mark.parametrize("options", [(), ("--no-live",), ("--json",)], ids=lambda given: " ".join(given) or "none")
def test_all_that_is_ours_is_a_line_before_and_the_report_after(tmp_path: Path, options: tuple[str, ...]) -> None:
    program = "import sys; print('out'); print('err', file=sys.stderr)"
    done = warm.run(tmp_path / "run", sys.executable, "-c", program, options=options, training=False)
    assert done.stdout == "out\n"
    before, _, after = done.stderr.partition("err\n")
    line = f"whyidle: recording into {tmp_path / 'run'}; to watch: whyidle live in another terminal, or run --live\n"
    assert before == ("" if options else line)
    assert ('"verdict"' if "--json" in options else "Verdict") in after


INTERRUPTED = """
import os, signal, sys, time
caught, told = [], []
signal.signal(signal.SIGINT, lambda *_: caught.append(1))
signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
print(f"pid {os.getpid()} begins")
while not caught:
    time.sleep(0.01)
print("caught")
while not told:
    time.sleep(0.01)
print("interrupts:", len(caught))
raise SystemExit(6)
"""


def test_ctrl_c_reaches_the_program_once_and_the_report_still_comes(tmp_path: Path) -> None:
    with running(tmp_path, INTERRUPTED) as (terminal, pid):
        before = terminal.type(b"\x03")
        terminal.until("caught", before)
        # Signals are passed on in their order: what we made of Ctrl-C, the program has had.
        os.kill(ours(pid), signal.SIGUSR1)
        shown = ended(terminal, before)
        assert "interrupts: 1\r\n" in shown
        assert "Verdict" in shown
        assert printed(terminal, "echo code $?") == ["code 6"]


COUNTS = """
import itertools, os, time
print(f"pid {os.getpid()} begins")
for number in itertools.count():
    print(f"count {number}")
    time.sleep(0.05)
"""


def test_ctrl_z_stops_program_and_us_and_fg_continues_both(tmp_path: Path) -> None:
    with shell() as terminal:
        modes = printed(terminal, "stty -g")
        pid = begun(terminal, tmp_path, COUNTS)
        for _ in range(2):
            before = terminal.type(b"\x1a")
            terminal.until("Stopped", before)
            terminal.until(PROMPT, before)
            assert (state(pid), state(ours(pid))) == ("T", "T")
            assert printed(terminal, "stty -g") == modes
            before = terminal.type(b"fg\r")
            terminal.until("count ", before)
        before = terminal.type(b"\x03")
        assert "stopped by Ctrl-C" in ended(terminal, before)
        assert printed(terminal, "echo code $?") == ["code 130"]
        assert printed(terminal, "stty -g") == modes


def test_what_is_continued_in_the_background_goes_on_there(tmp_path: Path) -> None:
    with running(tmp_path, COUNTS) as (terminal, pid):
        terminal.until("Stopped", terminal.type(b"\x1a"))
        before = terminal.type(b"bg\r")
        terminal.until("count ", before)
        before = terminal.type(b"echo 'that'$((6 * 7))\r")
        terminal.until("that42", before)
        os.kill(pid, signal.SIGTERM)
        terminal.until("Recorded in", before)
        assert b"killed by signal 15" in terminal.raw[before:]


ASKS = """
while not select.select([0], [], [], 0.01)[0]:
    pass  # Here Python looks whether a signal came, which it does not just before it reads.
print("<" + input() + ">")
"""
NOT_NOW = f"""
import os, select, signal
signal.signal(signal.SIGTSTP, lambda *_: print("not now"))
print(f"pid {{os.getpid()}} begins")
{ASKS}
raise SystemExit(3)
"""


def test_a_program_that_does_not_stop_at_ctrl_z_keeps_us_going(tmp_path: Path) -> None:
    with running(tmp_path, NOT_NOW) as (terminal, _):
        before = terminal.type(b"\x1a")
        terminal.until("not now", before)
        terminal.type(b"bob\r")
        assert "<bob>" in ended(terminal, before)
        assert printed(terminal, "echo code $?") == ["code 3"]


TIDIES = """
import os, select, signal, sys
def stop(*_):
    print("tidied")
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill({whom}, signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, stop)
    print("again")
signal.signal(signal.SIGTSTP, stop)
print(f"pid {{os.getpid()}} begins")
{begins}
{asks}
"""


@pytest.mark.parametrize(
    ("whom", "begins"),
    [("os.getpid()", ""), ("os.getpid()", "stop()"), ("0", "stop()")],
    ids=["at Ctrl-Z", "by itself", "its group"],
)
def test_a_program_that_stops_itself_is_followed_once_it_has(tmp_path: Path, whom: str, begins: str) -> None:
    with running(tmp_path, TIDIES.format(whom=whom, begins=begins, asks=ASKS)) as (terminal, pid):
        if not begins:
            terminal.type(b"\x1a")
        terminal.until("Stopped")
        assert terminal.raw.index(b"tidied") < terminal.raw.index(b"Stopped")
        assert state(ours(pid)) == "T"
        before = terminal.type(b"fg\r")
        terminal.until("again", before)
        terminal.type(b"bob\r")
        assert "<bob>" in ended(terminal, before)


def test_ctrl_z_gives_the_shell_back_where_the_program_stands_still_already(tmp_path: Path) -> None:
    program = (
        "import os, signal\nprint(f'pid {os.getpid()} begins')\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('again')"
    )
    with running(tmp_path, program) as (terminal, pid):
        wait_for(lambda: state(pid) == "T")
        terminal.until("Stopped", terminal.type(b"\x1a"))
        before = terminal.type(b"fg\r")
        assert "again" in ended(terminal, before)


def test_sigterm_to_us_ends_the_program_and_we_end_as_it_did(tmp_path: Path) -> None:
    with running(tmp_path, COUNTS) as (terminal, pid):
        os.kill(ours(pid), signal.SIGTERM)
        assert "stopped by SIGTERM" in ended(terminal, 0)
        assert printed(terminal, "echo code $?")[-1] == "code 143"


def test_who_hangs_up_on_us_hangs_up_on_the_program(tmp_path: Path) -> None:
    hung_up = "import os, signal, sys, time\n"
    hung_up += "signal.signal(signal.SIGHUP, lambda *_: (open(sys.argv[1], 'w').close(), os._exit(0)))\n"
    hung_up += "print(f'pid {os.getpid()} begins')\nwhile True: time.sleep(0.01)\n"
    with running(tmp_path, hung_up, tmp_path / "told") as (terminal, pid):
        os.kill(ours(pid), signal.SIGHUP)
        wait_for((tmp_path / "told").exists)
        ended(terminal, 0)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("--live", "--", "PROGRAM"), "panel"),
        (("--live", "PROGRAM"), "panel"),
        (("--live", "line", "PROGRAM"), "line"),
        (("--live=line", "--", "PROGRAM"), "line"),
        (("--rate", "2", "--live", "panel", "--rate", "3", "--", "PROGRAM"), "panel"),
        (("PROGRAM", "--live"), None),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else str(words),
)
def test_live_takes_no_word_of_the_command(tmp_path: Path, words: tuple[str, ...], value: str | None) -> None:
    from whyidle.commands.main import parser
    from whyidle.commands.run import spelled_out

    given = [part for word in words for part in (["python", "-u", "x.py"] if word == "PROGRAM" else [word])]
    arguments = parser().parse_args(["run", *spelled_out(given)])
    assert arguments.live == value
    command = [word for word in arguments.command if word != "--"]
    assert command == ["python", "-u", "x.py", *(["--live"] if value is None else [])]
