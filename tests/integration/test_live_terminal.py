"""The live view on a real terminal: keys, sizes, and the terminal as it was afterwards.

Beside a program (`whyidle run --live`) the terminal shows the view, and nothing of it is where the output goes.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from support.fakes.driver import wait_for
from support.recent_runs import training
from support.runs import WHYIDLE
from support.terminals import PROMPT, Terminal, printed, shell
from whyidle.commands.main import main
from whyidle.terminal import child

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
_numbers = count()


class Tmux:
    """A terminal of its own server, with a command in it; the screen stays when that ends."""

    def __init__(
        self, command: Sequence[str | Path], columns: int, rows: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self._server = f"whyidle-{os.getpid()}-{next(_numbers)}"
        given = dict(os.environ, LC_ALL="C.UTF-8", LANG="C.UTF-8") | dict(environment or {})
        given.pop("TMUX", None)
        self._environment = given
        start = ["start-server", ";", "set", "-g", "remain-on-exit", "on", ";", "set", "-g", "status", "off", ";"]
        session = ["new-session", "-d", "-x", str(columns), "-y", str(rows), *map(str, command)]
        self._tmux("-u", "-f", os.devnull, *start, *session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tmux("kill-server")

    def screen(self) -> list[str]:
        """The rows as they stand, without the blanks at their ends."""
        return self._tmux("capture-pane", "-p").splitlines()

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def until(self, told: Callable[[list[str]], bool] | str, seconds: float = 100) -> list[str]:
        """The screen, as soon as it holds a text or what is told of it is true."""
        end = time.monotonic() + seconds
        while True:
            rows = self.screen()
            if (told in "\n".join(rows)) if isinstance(told, str) else told(rows):
                return rows
            assert time.monotonic() < end, "\n".join(rows)
            time.sleep(0.1)

    @property
    def pid(self) -> int:
        """Of the command."""
        return int(self._tmux("display-message", "-p", "#{pane_pid}"))

    def _tmux(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-L", self._server, *arguments],
            check=True,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=60,
        ).stdout


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half a minute of two ranks, with two workers each and a GPU each."""
    return training(tmp_path_factory.mktemp("live") / "run", seed=7)


def restored(*command: str | Path) -> list[str]:
    """Something before and after the command, and whether the terminal is as it was."""
    line = " ".join(shlex.quote(str(word)) for word in command)
    # Ctrl-C is for the command alone.
    before, after = "trap : INT; was=$(stty -g); echo before", 'echo "code $?"; [ "$was" = "$(stty -g)" ] && echo same'
    return ["sh", "-c", f"{before}; {line}; {after}; sleep 600"]


@needs_tmux
@pytest.mark.slow
def test_keys_sizes_and_the_way_out(recorded: Path) -> None:
    with Tmux(restored(*WHYIDLE, "live", recorded), 100, 40) as terminal:
        rows = terminal.until("ended well")
        assert "1111 steps" in "\n".join(rows)
        assert "before" not in "\n".join(rows)
        assert rows[-1].startswith(" q quit")
        terminal.press("p")
        terminal.until("paused")
        terminal.press("Tab")
        rows = terminal.until("Tab devices")
        assert "queue" not in "\n".join(rows)
        terminal.press("Tab", "Tab", "Tab", "p")
        terminal.until("Tab ranks")
        for columns, height in ((60, 20), (120, 30), (30, 6)):
            terminal.resize(columns, height)
            rows = terminal.until(lambda rows, last=height - 1: len(rows) > last and rows[last].startswith(" q quit"))
            assert len(rows) == height
            assert all(len(row) <= columns for row in rows)
        terminal.resize(80, 24)
        terminal.until("verdict")
        terminal.press("q")
        rows = terminal.until("same")
        assert rows[0] == "before"
        assert "code 0" in rows
        assert "verdict" not in "\n".join(rows)


@needs_tmux
@pytest.mark.parametrize(
    "signum",
    [
        signal.SIGTERM,
        *(pytest.param(s, marks=pytest.mark.slow) for s in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)),
    ],
    ids=lambda s: s.name,
)
def test_a_signal_ends_the_view_and_the_terminal_is_as_it_was(recorded: Path, signum: signal.Signals) -> None:
    with Tmux(restored(*WHYIDLE, "live", recorded), 80, 24) as terminal:
        terminal.until("1111 steps")
        if signum == signal.SIGINT:
            terminal.press("C-c")
        else:
            _signal(terminal, signum)
        rows = terminal.until("same")
        # Ctrl-C is a way to end it.
        assert f"code {0 if signum == signal.SIGINT else 128 + signum}" in rows
        assert "before" in rows
        assert "verdict" not in "\n".join(rows)


@needs_tmux
@pytest.mark.slow
def test_what_is_suspended_leaves_the_terminal_and_comes_back(recorded: Path) -> None:
    environment = {"PS1": "prompt$ ", "ENV": "", "HOME": "/nonexistent"}
    with Tmux(["bash", "--norc", "--noprofile", "-i"], 80, 24, environment) as terminal:
        terminal.until("prompt$")
        terminal.press(shlex.join([*WHYIDLE, "live", str(recorded)]), "Enter")
        terminal.until("verdict")
        terminal.press("C-z")
        rows = terminal.until("Stopped")
        assert "verdict" not in "\n".join(rows)
        terminal.press("echo $((40+2))", "Enter")
        terminal.until(lambda rows: "42" in rows)
        terminal.press("fg", "Enter")
        terminal.until("verdict")
        terminal.press("q")
        terminal.until(lambda rows: [row for row in rows if row][-1] == "prompt$")


@needs_tmux
@pytest.mark.slow
def test_the_accelerators_alone_are_shown_and_nothing_is_left(tmp_path: Path) -> None:
    environment = {"TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    with Tmux(restored(*WHYIDLE, "live"), 80, 24, environment) as terminal:
        rows = terminal.until(lambda rows: "machine" in "\n".join(rows))
        assert "no training: accelerators and machine only" in rows[0]
        assert list(tmp_path.glob("whyidle-watch-*"))
        _signal(terminal, signal.SIGTERM)
        terminal.until("same")
        assert not list(tmp_path.glob("whyidle-watch-*"))


def _signal(terminal: Tmux, signum: signal.Signals) -> None:
    """To the program below the shell."""
    (child,) = Path(f"/proc/{terminal.pid}/task/{terminal.pid}/children").read_text().split()
    os.kill(int(child), signum)


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


def begin_live(folder: Path, name: str = "run") -> list[str]:
    run = [*WHYIDLE, "run", "--live", "--out", str(folder / name)]
    return [*run, "--", sys.executable, "-c", ENDS, str(folder / "seen")]


def shown(terminal: Terminal, folder: Path) -> tuple[int, int]:
    """Begin a program whose output goes into the folder's file `output`; the view is there. Where the terminal was
    before, and the process of `whyidle run`."""
    output = folder / "output"
    before = terminal.type(f"unset TMUX; {shlex.join(begin_live(folder))} > {output} 2>&1\r".encode())
    wait_for(lambda: output.exists() and "begins" in output.read_text())
    terminal.until(ENTER, before)
    return before, int(output.read_text().split("begins ")[1].split()[1])


def stopped(terminal: Terminal) -> tuple[int, int]:
    """Stop the program by Ctrl-Z; where the terminal was before, and where it says so."""
    before = terminal.type(b"\x1a")
    terminal.until("Stopped", before)
    says = terminal.raw.index(b"Stopped", before)
    terminal.until(PROMPT, says)
    return before, says


def test_where_all_output_goes_into_files_the_terminal_shows_the_view_and_is_given_back(tmp_path: Path) -> None:
    with shell() as terminal:
        modes = printed(terminal, "stty -g")
        before, _ = shown(terminal, tmp_path)
        terminal.until("waiting for the first steps", before)
        before, says = stopped(terminal)
        assert terminal.raw.index(LEAVE.encode(), before) < says
        assert printed(terminal, "stty -g") == modes
        before = terminal.type(b"fg\r")
        terminal.until(ENTER, before)
        (tmp_path / "seen").touch()
        terminal.until(LEAVE, before)
        terminal.until(PROMPT, terminal.raw.index(LEAVE.encode(), before))
        assert printed(terminal, "echo code $?") == ["code 6"]
        assert printed(terminal, "stty -g") == modes
    said = (tmp_path / "output").read_text()
    assert said.startswith(f"whyidle: recording into {tmp_path / 'run'}; the terminal shows the live view\nbegins ")
    assert said.index("ends\n") < said.index("Verdict")
    assert "\x1b" not in said


def test_what_goes_on_in_the_background_leaves_the_terminal_to_the_shell(tmp_path: Path) -> None:
    with shell() as terminal:
        shown(terminal, tmp_path)
        stopped(terminal)
        before = terminal.type(b"bg\r")
        terminal.until(PROMPT, before)
        (tmp_path / "seen").touch()
        assert ENTER not in "".join(printed(terminal, "wait %1; echo code $?"))
        assert b"code 6" in terminal.raw
    assert "Verdict" in (tmp_path / "output").read_text()


def test_when_we_are_killed_the_terminal_is_given_back_and_the_program_goes_on(tmp_path: Path) -> None:
    with shell() as terminal:
        before, ours = shown(terminal, tmp_path)
        os.kill(ours, signal.SIGKILL)
        terminal.until(LEAVE, before)
        (tmp_path / "seen").touch()
        wait_for(lambda: "ends" in (tmp_path / "output").read_text())


@pytest.mark.parametrize("output", ["", "> output", "2> output", "2>&1 | cat"])
def test_where_output_may_come_to_the_terminal_nothing_is_drawn(tmp_path: Path, output: str) -> None:
    (tmp_path / "seen").touch()
    with shell() as terminal:
        words = f"unset TMUX; cd {tmp_path}; {shlex.join(begin_live(tmp_path))} {output}"
        said = "\n".join(printed(terminal, words))
    assert ENTER not in said
    said += (tmp_path / "output").read_text() if (tmp_path / "output").exists() else ""
    line = f"whyidle: recording into {tmp_path / 'run'}; to watch: whyidle live {tmp_path / 'run'} in another terminal"
    assert line in said


@needs_tmux
def test_inside_tmux_a_pane_shows_the_view_and_goes_when_the_program_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "it's $(one) #{pane_id};"
    folder.mkdir()
    script = tmp_path / "script.sh"
    script.write_text(f"{shlex.join(begin_live(folder, name='run;'))}\necho code $?\nsleep 1000\n")
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
