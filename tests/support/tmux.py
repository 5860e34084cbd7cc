"""Programs on a real terminal: what its screen says, what is typed, another size."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

THERE_IS = shutil.which("tmux") is not None
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
