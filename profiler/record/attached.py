"""What `whyidle attach` keeps in its run folder beside the sampler's records and looks at stacks: what processes did.

It comes from another program and from the kernel: it is read as data, leniently.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .files import read_json, write_json

STATES = "attach-processes.json"


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


def write_states(folder: Path, processes: list[ProcessStates]) -> None:
    """Replace the file of states.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    write_json(folder / STATES, {"processes": [asdict(process) for process in processes]})


def read_states(folder: Path) -> list[ProcessStates]:
    """The processes of the tree; none where nothing was kept."""
    path = folder / STATES
    return [_process(entry) for entry in read_json(path)["processes"]] if path.exists() else []


def _process(entry: dict[str, Any]) -> ProcessStates:
    numbers = ("cpu_ns", "main_cpu_ns", "main_queue_ns", "read_bytes", "read_chars", "rank")
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
