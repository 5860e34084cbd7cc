"""The training processes of a run, each in its own words: `process-RANK-PID.json` in the run folder.

The command that starts a training knows neither how many processes will train nor on what; each of them says so
itself when its recording begins.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RecordError
from .delivery import put_text
from .files import read_json
from .secret import without_secrets


@dataclass(frozen=True)
class TrainingProcess:
    """One process that recorded steps, or meant to."""

    rank: int
    pid: int
    host: str
    info: dict[str, Any]
    """Everything it said: `world_size`, `local_rank`, `python`, `torch`, `device`, `clock`, `command`, `thread`,
    `began_ns`."""

    @property
    def world_size(self) -> int | None:
        size = self.info.get("world_size")
        return size if isinstance(size, int) and 0 < size <= MOST_RANKS else None

    @property
    def thread(self) -> int | None:
        """The kernel's number of the thread that trains; `None` where it was not told."""
        thread = self.info.get("thread")
        return thread if isinstance(thread, int) else None

    @property
    def device(self) -> dict[str, Any]:
        device = self.info.get("device")
        return device if isinstance(device, dict) else {}


MOST_RANKS = 1 << 20
AGAIN = 10_000_000
"""Added to a process id for each recording the folder holds of it already: a program may replace itself by another, and
machines that share a folder may give the same id twice. No process id is as large."""


def writer_number(folder: Path, rank: int) -> int:
    """The number under which this process may write: its id, unless that is taken."""
    number = os.getpid()
    while any(folder.glob(f"*-{rank}-{number}.*")):
        number += AGAIN
    return number


def describe_process(folder: Path, rank: int, writer: int, facts: dict[str, Any]) -> None:
    """Say who this process is. `facts`: its `device`, `torch`, `world_size` and so on.

    Raises:
        OSError: the folder cannot be written.
    """
    standing = {
        "rank": rank,
        "pid": writer,
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "command": without_secrets(sys.argv),
        "clock": {"time_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()},
    }
    put_text(folder, f"process-{rank}-{writer}.json", json.dumps(standing | facts, indent=1))


def processes(folder: Path) -> list[TrainingProcess]:
    """Those of a run folder, by rank and process id; what cannot be read is left out."""
    found = []
    for path in folder.glob("process-*.json"):
        try:
            info = read_json(path)
        except RecordError:
            continue
        if not isinstance(info, dict) or not isinstance(info.get("rank"), int) or not isinstance(info.get("pid"), int):
            continue
        found.append(TrainingProcess(info["rank"], info["pid"], str(info.get("host", "")), info))
    return sorted(found, key=lambda p: (p.rank, p.pid))
