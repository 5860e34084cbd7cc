"""Where a trial prints to: a file of its run folder, since the terminal shows the table of all trials; and bars."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

OUTPUT = "output.txt"


def counted(items: Iterable[Any], what: str, total: int) -> Iterable[Any]:
    """Give the same items, with a bar of how many there were where stderr is a terminal."""
    if not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, what, total, console=Console(stderr=True), transient=True)


def redirect_output(folder: Path) -> None:
    """From here on this process and its children print into the run folder."""
    fd = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
