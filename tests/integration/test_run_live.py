"""`whyidle run --live`: the live view beside a program, and nothing of it where the program's output goes."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from support.fakes.driver import wait_for
from support.runs import WHYIDLE
from support.terminals import PROMPT, Terminal, printed, shell
from support.tmux import THERE_IS, Tmux
from whyidle.commands.main import main
from whyidle.terminal import child

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
"""What a terminal is told for another screen, and to go back to its own."""
ENDS = """
import os, signal, sys, time
print("begins", os.getpid(), os.getppid(), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
print("ends", file=sys.stderr)
raise SystemExit(6)
"""
"""Of a program whose argument is a file: it ends once that is there."""


def recorded(folder: Path, name: str = "run") -> list[str]:
    run = [*WHYIDLE, "run", "--live", "--out", str(folder / name)]
    return [*run, "--", sys.executable, "-c", ENDS, str(folder / "seen")]


def begun(output: Path) -> list[int]:
    """The processes of the program and of `whyidle run`, once the program has begun."""
    wait_for(lambda: output.exists() and "begins" in output.read_text())
    return [int(word) for word in output.read_text().split("begins ")[1].split()[:2]]


def typed(terminal: Terminal, words: str) -> int:
    return terminal.type(f"unset TMUX; {words}\r".encode())


def test_where_all_output_goes_into_files_the_terminal_shows_the_view_and_is_given_back(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with shell() as terminal:
        modes = printed(terminal, "stty -g")
        before = typed(terminal, f"{shlex.join(recorded(tmp_path))} > {output} 2>&1")
        begun(output)
        terminal.until(ENTER, before)
        terminal.until("waiting for the first steps", before)
        before = terminal.type(b"\x1a")
        terminal.until("Stopped", before)
        stopped = terminal.raw.index(b"Stopped", before)
        assert terminal.raw.index(LEAVE.encode(), before) < stopped
        terminal.until(PROMPT, stopped)
        assert printed(terminal, "stty -g") == modes
        before = terminal.type(b"fg\r")
        terminal.until(ENTER, before)
        (tmp_path / "seen").touch()
        terminal.until(LEAVE, before)
        terminal.until(PROMPT, terminal.raw.index(LEAVE.encode(), before))
        assert printed(terminal, "echo code $?") == ["code 6"]
        assert printed(terminal, "stty -g") == modes
    said = output.read_text()
    assert said.startswith(f"whyidle: recording into {tmp_path / 'run'}; the terminal shows the live view\nbegins ")
    assert said.index("ends\n") < said.index("Verdict")
    assert "\x1b" not in said


def test_what_goes_on_in_the_background_leaves_the_terminal_to_the_shell(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with shell() as terminal:
        before = typed(terminal, f"{shlex.join(recorded(tmp_path))} > {output} 2>&1")
        begun(output)
        terminal.until(ENTER, before)
        before = terminal.type(b"\x1a")
        terminal.until("Stopped", before)
        terminal.until(PROMPT, terminal.raw.index(b"Stopped", before))
        before = terminal.type(b"bg\r")
        terminal.until(PROMPT, before)
        (tmp_path / "seen").touch()
        assert ENTER not in "".join(printed(terminal, "wait %1; echo code $?"))
        assert b"code 6" in terminal.raw
    assert "Verdict" in output.read_text()


def test_when_we_are_killed_the_terminal_is_given_back_and_the_program_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with shell() as terminal:
        before = typed(terminal, f"{shlex.join(recorded(tmp_path))} > {output} 2>&1")
        _, ours = begun(output)
        terminal.until(ENTER, before)
        os.kill(ours, signal.SIGKILL)
        terminal.until(LEAVE, before)
        (tmp_path / "seen").touch()
        wait_for(lambda: "ends" in output.read_text())


@pytest.mark.parametrize("output", ["", "> output", "2> output", "2>&1 | cat"])
def test_where_output_may_come_to_the_terminal_nothing_is_drawn(tmp_path: Path, output: str) -> None:
    (tmp_path / "seen").touch()
    with shell() as terminal:
        words = f"unset TMUX; cd {tmp_path}; {shlex.join(recorded(tmp_path))} {output}"
        shown = "\n".join(printed(terminal, words))
    assert ENTER not in shown
    said = shown + ((tmp_path / "output").read_text() if (tmp_path / "output").exists() else "")
    line = f"whyidle: recording into {tmp_path / 'run'}; to watch: whyidle live {tmp_path / 'run'} in another terminal"
    assert line in said


@pytest.mark.skipif(not THERE_IS, reason="tmux is not installed")
def test_inside_tmux_a_pane_shows_the_view_and_goes_when_the_program_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "it's $(one) #{pane_id};"
    folder.mkdir()
    script = tmp_path / "script.sh"
    script.write_text(f"{shlex.join(recorded(folder, name='run;'))}\necho code $?\nsleep 1000\n")
    with Tmux(["sh", script], 100, 40) as screen:

        def panes() -> list[str]:
            return screen._tmux("list-panes", "-F", "#{pane_id} #{pane_dead}").splitlines()

        screen.until("a tmux pane shows the live view")
        screen.until("begins ")
        ours, view = (each.split()[0] for each in panes())
        wait_for(lambda: "waiting for the first steps" in screen._tmux("capture-pane", "-p", "-t", view))
        (folder / "seen").touch()
        screen.until("code 6")
        assert panes() == [f"{ours} 0"]


def test_a_pane_that_cannot_be_opened_is_told_in_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(child, "in_foreground", lambda: False)
    monkeypatch.setenv("TMUX", f"{tmp_path}/none,1,0")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "tmux").write_text("#!/bin/sh\necho 'no server' >&2\nexit 1\n")
    (tools / "tmux").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    assert main(["run", "--live", "--out", str(tmp_path / "run"), "--", "sh", "-c", "exit 5"]) == 5
    line = f"to watch: whyidle live {tmp_path / 'run'} in another terminal (tmux: no server)"
    assert capfd.readouterr().err.splitlines()[0].endswith(f"; {line}")
