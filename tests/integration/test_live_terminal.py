"""`whyidle live` on a real terminal: keys, sizes, and the terminal as it was afterwards."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest

from support.recent_runs import training
from support.runs import WHYIDLE
from support.tmux import THERE_IS, Tmux

pytestmark = pytest.mark.skipif(not THERE_IS, reason="tmux is not installed")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half a minute of two ranks, with two workers each and a GPU each."""
    return training(tmp_path_factory.mktemp("live") / "run", seed=7)


def shell(*command: str | Path) -> list[str]:
    """Something before and after the command, and whether the terminal is as it was."""
    line = " ".join(shlex.quote(str(word)) for word in command)
    # Ctrl-C is for the command alone.
    before, after = "trap : INT; was=$(stty -g); echo before", 'echo "code $?"; [ "$was" = "$(stty -g)" ] && echo same'
    return ["sh", "-c", f"{before}; {line}; {after}; sleep 600"]


@pytest.mark.slow
def test_keys_sizes_and_the_way_out(recorded: Path) -> None:
    with Tmux(shell(*WHYIDLE, "live", recorded), 100, 40) as terminal:
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


@pytest.mark.parametrize(
    "signum",
    [
        signal.SIGTERM,
        *(pytest.param(s, marks=pytest.mark.slow) for s in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)),
    ],
    ids=lambda s: s.name,
)
def test_a_signal_ends_the_view_and_the_terminal_is_as_it_was(recorded: Path, signum: signal.Signals) -> None:
    with Tmux(shell(*WHYIDLE, "live", recorded), 80, 24) as terminal:
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


@pytest.mark.slow
def test_the_accelerators_alone_are_shown_and_nothing_is_left(tmp_path: Path) -> None:
    environment = {"TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    with Tmux(shell(*WHYIDLE, "live"), 80, 24, environment) as terminal:
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
