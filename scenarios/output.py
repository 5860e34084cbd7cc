"""Where a trial prints to: a file of its run folder, since the terminal shows the table of all trials."""

from __future__ import annotations

import os
from pathlib import Path

OUTPUT = "output.txt"


def redirect_output(folder: Path) -> None:
    """From here on this process and its children print into the run folder."""
    fd = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
