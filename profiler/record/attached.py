"""What `whyidle attach` keeps in its run folder beside the sampler's records and looks at stacks: what processes did.

It comes from another program's memory and from the kernel: it is read as data, leniently. Recordings of before looks
had times hold their stacks in a file of speedscope's format, each different one with how often it was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RecordError
from .files import plain, read_json, write_json
from .reader import Records
from .schema import NOT_MEASURED, STACK
from .stacks import Call, StackTable

COUNTED_STACKS = "attach-stacks.json"
STATES = "attach-processes.json"
MOST_LOOKS = 10_000_000
"""Of a day, a hundred a second."""


@dataclass(frozen=True)
class ProcessStates:
    """What `/proc` told of one process of the tree. `None` where the kernel did not."""

    pid: int
    parent: int
    name: str
    """The kernel's: a loader's worker calls itself `pt_data_worker` from torch 2.6 on."""
    command: str = ""
    rank: int | None = None
    seconds: float = 0.0
    """From the first to the last look at its counters."""
    looks: int = 0
    states: dict[str, int] = field(default_factory=dict)
    """The kernel's letter of the main thread → looks."""
    cpu_ns: int | None = None
    """Of all its threads."""
    main_cpu_ns: int | None = None
    """Of the main thread."""
    main_queue_ns: int | None = None
    """The main thread was runnable and waited for a CPU."""
    read_bytes: int | None = None
    """From storage."""
    read_chars: int | None = None
    """From storage or cache."""
    python: bool | None = None
    ours: bool = False
    """A process of whyidle."""
    present: float = 1.0
    """Share of the looks at the tree in which it was there."""
    missed: int | None = None
    """Of a recording of before looks had times: those at its stacks that failed, because they changed meanwhile."""


def read_counted(folder: Path, parents: Mapping[int, int]) -> tuple[Records, StackTable] | None:
    """Looks without times, as STACK records of which only whose and which stack is measured; `None` without the file.

    Args:
        folder: a recording of before looks had times.
        parents: process → the one that started it.
    """
    path = folder / COUNTED_STACKS
    if not path.exists():
        return None
    content = read_json(path)
    numbers: dict[tuple[int, Call], int] = {}
    looks, counts = [], []
    calls = [
        Call(plain(str(each["name"])), plain(str(each["file"])), int(each["line"]), plain(str(each["text"])))
        for each in content["shared"]["frames"]
    ]
    for profile in content["profiles"]:
        pid = int(profile["pid"])
        # Of Pythons before 3.11 the number was the thread library's.
        thread = pid if profile["thread"] == "MainThread" else int(profile["tid"])
        for sample, count in zip(profile["samples"], profile["weights"], strict=True):
            at = 0
            for place in sample:
                at = numbers.setdefault((at, calls[place]), len(numbers) + 1)
            looks.append((pid, thread, at, parents.get(pid, NOT_MEASURED)))
            counts.append(max(0, int(count)))
    if sum(counts) > MOST_LOOKS:
        raise RecordError(f"{path} is damaged: it tells of {sum(counts)} looks.")
    records = np.full(len(looks), NOT_MEASURED, dtype=STACK.dtype)
    for name, values in zip(("process", "thread", "stack", "parent"), zip(*looks, strict=True), strict=False):
        records[name] = values
    return np.repeat(records, counts), StackTable({number: key for key, number in numbers.items()})


def write_states(folder: Path, processes: list[ProcessStates]) -> None:
    """Replace the file of states.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    write_json(folder / STATES, {"processes": [_fields(process) for process in processes]})


def _fields(process: ProcessStates) -> dict[str, Any]:
    return {name: getattr(process, name) for name in ProcessStates.__dataclass_fields__}


def read_states(folder: Path) -> list[ProcessStates]:
    """The processes of the tree; none where nothing was kept."""
    path = folder / STATES
    return [_process(entry) for entry in read_json(path)["processes"]] if path.exists() else []


def _process(entry: dict[str, Any]) -> ProcessStates:
    numbers = ("cpu_ns", "main_cpu_ns", "main_queue_ns", "read_bytes", "read_chars", "rank", "missed")
    return ProcessStates(
        pid=int(entry["pid"]),
        parent=int(entry["parent"]),
        name=str(entry["name"]),
        command=str(entry["command"]),
        seconds=float(entry["seconds"]),
        looks=int(entry["looks"]),
        states={str(state): int(count) for state, count in entry["states"].items()},
        python=entry["python"] if isinstance(entry["python"], bool) else None,
        ours=entry["ours"] is True,
        present=float(entry["present"]),
        **{name: None if entry[name] is None else int(entry[name]) for name in numbers},
    )
