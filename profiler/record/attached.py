"""What `whyidle attach` keeps in its run folder beside the sampler's records: stacks, and states of processes.

The stacks are a file of speedscope's format with one weight for each different stack, so that hours take no more room
than minutes; speedscope.app opens it. Both files come from another program's memory: they are read as data, leniently.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RecordError
from .files import read_json, write_json

STACKS = "attach-stacks.json"
STATES = "attach-processes.json"
SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"


@dataclass(frozen=True, slots=True)
class Frame:
    """One function of a stack, where it stood."""

    name: str
    file: str = ""
    line: int = 0
    text: str = ""
    """The source line; empty where it was not looked up."""


Stack = tuple[Frame, ...]
"""The outermost function first."""


@dataclass(frozen=True)
class Thread:
    """How often each stack of one thread was seen."""

    pid: int
    tid: int
    """The kernel's; of Pythons before 3.11 the thread library's."""
    name: str
    stacks: Counter[Stack] = field(default_factory=Counter)

    @property
    def looks(self) -> int:
        return self.stacks.total()


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
    missed: int = 0
    """Looks at its stacks that failed, because they changed while they were read."""


def write_stacks(folder: Path, threads: list[Thread]) -> None:
    """Replace the file of stacks.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    places: dict[Frame, int] = {}
    profiles = []
    for thread in threads:
        samples, weights = [], []
        for stack, count in thread.stacks.items():
            samples.append([places.setdefault(frame, len(places)) for frame in stack])
            weights.append(count)
        profiles.append(
            {
                "type": "sampled",
                "name": f'Process {thread.pid} Thread {thread.tid} "{thread.name}"',
                "unit": "none",
                "startValue": 0,
                "endValue": thread.looks,
                "samples": samples,
                "weights": weights,
                "pid": thread.pid,
                "tid": thread.tid,
                "thread": thread.name,
            }
        )
    frames = [{"name": f.name, "file": f.file, "line": f.line, "text": f.text} for f in places]
    content = {"$schema": SPEEDSCOPE, "exporter": "whyidle", "profiles": profiles, "shared": {"frames": frames}}
    write_json(folder / STACKS, content)


def read_stacks(folder: Path) -> list[Thread]:
    """The threads that were seen; none where no stacks were kept.

    Raises:
        RecordError: the file is damaged.
    """
    path = folder / STACKS
    if not path.exists():
        return []
    content = read_json(path)
    try:
        frames = [_frame(each) for each in content["shared"]["frames"]]
        threads = []
        for profile in content["profiles"]:
            stacks: Counter[Stack] = Counter()
            for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
                stacks[tuple(frames[place] for place in sample)] += max(0, int(weight))
            threads.append(Thread(int(profile["pid"]), int(profile["tid"]), str(profile["thread"]), stacks))
        return threads
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RecordError(f"{path} is damaged ({type(error).__name__}: {error}).") from error


def _frame(content: Any) -> Frame:
    return Frame(str(content["name"]), str(content["file"]), int(content["line"]), str(content["text"]))


def write_states(folder: Path, processes: list[ProcessStates]) -> None:
    """Replace the file of states.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    write_json(folder / STATES, {"processes": [_fields(process) for process in processes]})


def _fields(process: ProcessStates) -> dict[str, Any]:
    return {name: getattr(process, name) for name in ProcessStates.__dataclass_fields__}


def read_states(folder: Path) -> list[ProcessStates]:
    """The processes of the tree; none where nothing was kept.

    Raises:
        RecordError: the file is damaged.
    """
    path = folder / STATES
    if not path.exists():
        return []
    content = read_json(path)
    try:
        return [_process(entry) for entry in content["processes"]]
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RecordError(f"{path} is damaged ({type(error).__name__}: {error}).") from error


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
        missed=int(entry["missed"]),
        **{name: None if entry[name] is None else int(entry[name]) for name in numbers},
    )
