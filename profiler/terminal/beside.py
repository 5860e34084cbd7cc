"""`whyidle live` beside a command that runs, and never where the command's output goes: on the terminal where all of
that goes into files, or in a pane of tmux."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from .child import TERMINAL, in_foreground

PANE_ROWS = 12
LONGEST_SECONDS = 5.0
"""For tmux to answer, and for the live view to end."""
LOOK_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1
_PASSED_ON = ("PYTHONPATH", "LD_LIBRARY_PATH")
"""What our Python may need and a pane, which has the environment of tmux, may lack."""


class Beside:
    """Within the block the live view of a run folder is shown, if there is a place for it."""

    def __init__(self, folder: Path) -> None:
        self.how = f"to watch: whyidle live {folder} in another terminal"
        """In words: where it is shown, or how the user gets it."""
        # -P: what lies in the user's working folder must not stand in for a module of ours. The slash: tmux takes a `;`
        # at the end of a word for its own.
        self._view = [sys.executable, "-P", "-m", "whyidle", "live", f"{folder.resolve()}/"]
        self._drawn: subprocess.Popen[bytes] | None = None
        self._pane = ""
        try:
            if _has_free_terminal():
                self._draw()
                self.how = "the terminal shows the live view"
            elif os.environ.get("TMUX") and shutil.which("tmux"):
                self._pane = self._split()
                self.how = "a tmux pane shows the live view"
        except Exception as error:
            self.how += f" ({error})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._undraw()
        if self._pane:
            with suppress(Exception):
                _tmux("kill-pane", "-t", self._pane)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Around a time in which a shell has the terminal."""
        drawn = self._undraw()
        yield
        if drawn and in_foreground():
            with suppress(Exception):
                self._draw()

    def _draw(self) -> None:
        """On our terminal, without keys: what is typed is the command's, also Ctrl-C, of which a group of its own knows
        nothing."""
        library = ctypes.CDLL(None)

        def prepare() -> None:
            library.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM), *[ctypes.c_ulong(0)] * 3)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())

        nowhere = subprocess.DEVNULL
        command = [*self._view, "--interval", f"{LOOK_SECONDS:g}"]
        with Path(TERMINAL).open("wb", buffering=0) as terminal:
            self._drawn = subprocess.Popen(
                command, stdin=nowhere, stdout=terminal, stderr=nowhere, preexec_fn=prepare, process_group=0
            )

    def _undraw(self) -> bool:
        """Give the terminal back; whether it was drawn on."""
        drawn, self._drawn = self._drawn, None
        if drawn is None:
            return False
        with suppress(Exception):
            drawn.terminate()
            try:
                drawn.wait(LONGEST_SECONDS)
            finally:
                drawn.kill()
        return True

    def _split(self) -> str:
        """A pane below ours: its name."""
        given = [f"{name}={os.environ[name]}" for name in _PASSED_ON if name in os.environ]
        ours = ["-t", os.environ["TMUX_PANE"]] if "TMUX_PANE" in os.environ else []
        made = ["split-window", "-d", "-l", str(PANE_ROWS), "-P", "-F", "#{pane_id}", *ours]
        return _tmux(*made, "env", *given, *self._view)


def _has_free_terminal() -> bool:
    """Whether there is a terminal in whose foreground we are, and what a command of ours writes goes into files.

    Through a pipe it may come back to the terminal, as from `tee`.
    """
    try:
        kinds = [os.fstat(stream) for stream in (1, 2)]
        nowhere = Path(os.devnull).stat().st_rdev
    except OSError:
        return False  # closed
    return all(stat.S_ISREG(kind.st_mode) or kind.st_rdev == nowhere for kind in kinds) and in_foreground()


def _tmux(*words: str) -> str:
    done = subprocess.run(
        ["tmux", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
    )
    if done.returncode:
        raise OSError(f"tmux: {' '.join(done.stderr.split())}")
    return done.stdout.strip()
