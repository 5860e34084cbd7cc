"""A run folder as a whole: its `run.json`, its record files, and what else lies in it.

`devices.json`: what the sampler's devices are called, and what drives them. `process-RANK-PID.json`: the training
processes, each in its own words, for the command that starts a training knows neither how many processes will train nor
on what. `image-files.json`: image files that a training reads. `attach-processes.json`: what `whyidle attach` saw the
processes do.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any, Self
from weakref import WeakValueDictionary

from .. import __version__
from ..errors import RecordError
from .comparison import COMPARISON_JSON
from .files import as_a, put_text, read_json, read_object, write_json
from .notices import ARMED, LOADED, SAMPLER_NOTICES, TRAINING_NOTICES
from .reader import Columns, RecordFile, Records, Rows, read_all
from .scalars import SCALARS, WANTED
from .schema import DEVICE, FORMAT_VERSION, HOST, KINDS, MEMORY, STEP, Kind
from .secret import without_secrets
from .stacks import NAMES, STACKS, StackTable, read_stacks

FORMAT = "whyidle-run"
RUN_JSON = "run.json"
DEVICES = "devices.json"
IMAGE_FILES = "image-files.json"
"""Written by the training: `files`, some of them."""
DECODING = "image_decoding"
"""The key of run.json, added when the command has ended."""
STATES = "attach-processes.json"
PAGE = "report.html"
"""Name of a result's page, in the folder of what it is about, where none is given."""
PAGES = ("page that whyidle wrote", rb'<!doctype html>.*<meta name="generator" content="whyidle">')
MOST_OF_BEGIN = 4096
_MARKERS = (RUN_JSON, COMPARISON_JSON, "tune.json")
"""Files one of which is in every folder in which something was recorded."""
_RECORDED = (
    *(*_MARKERS, "*.rec", "process-*.json", NAMES, DEVICES, STACKS, STATES, SCALARS, WANTED, IMAGE_FILES),
    *(SAMPLER_NOTICES, TRAINING_NOTICES, LOADED, ARMED, "tuning.*", "output.txt", "truth.json"),
)
"""Files of a recording, and what trainings that whyidle starts leave beside their records."""
MOST_RANKS = 1 << 20
AGAIN = 10_000_000
"""Added to a process id for each recording the folder holds of it already: a program may replace itself by another, and
machines that share a folder may give the same id twice. No process id is as large."""
Writer = tuple[int, int]
"""(rank, process id)"""


@dataclass(frozen=True)
class SampledDevice:
    number: int
    """As DEVICE records have it."""
    name: str | None = None
    """What its driver calls it; `None`: it does not say."""
    power_limit_mw: int | None = None
    """The cap that the driver holds it to."""


def note_devices(folder: Path, devices: Sequence[SampledDevice], driver: str | None = None) -> None:
    """Say which devices are sampled from now on; none is said too. `driver`: its version; `None`: it does not say.

    Raises:
        OSError: the folder cannot be written.
    """
    write_json(folder / DEVICES, {"driver": driver, "devices": [asdict(device) for device in devices]})


def sampled_devices(folder: Path) -> tuple[SampledDevice, ...] | None:
    """Read which devices were noted; `None` where nothing was, or what was cannot be read."""
    listed = read_object(folder / DEVICES).get("devices")
    if not isinstance(listed, list):
        return None
    known = [device for each in listed if (device := as_a(SampledDevice, each)) is not None]
    return tuple(device for device in known if device.power_limit_mw is None or device.power_limit_mw > 0)


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


def writer_number(folder: Path, rank: int) -> int:
    """Choose the number under which this process may write: its id, unless that is taken."""
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
    """Read who trained in a run folder, by rank and process id; what cannot be read is left out."""
    found = []
    for path in folder.glob("process-*.json"):
        info = read_object(path)
        if isinstance(info.get("rank"), int) and isinstance(info.get("pid"), int):
            found.append(TrainingProcess(info["rank"], info["pid"], str(info.get("host", "")), info))
    return sorted(found, key=lambda p: (p.rank, p.pid))


@dataclass(frozen=True)
class ImageDecoding:
    """How many of a training's images the machine decodes a second, and nothing else."""

    files: int
    """How many were tried."""
    decoder: str
    """The library."""
    cores: int
    one_core: float
    """Images/s of one core, the others idle."""
    all_cores: float
    """Images/s of all of them at once."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self | None:
        """Read what run.json says; `None` where that is nothing, or nothing of the kind."""
        found = as_a(cls, info.get(DECODING))
        known = (
            found is not None and found.cores > 0 and all(0 < r < math.inf for r in (found.one_core, found.all_cores))
        )
        return found if known else None

    def told(self) -> dict[str, Any]:
        """Give the keys to add to run.json."""
        return {DECODING: asdict(self)}


def write_image_files(folder: Path, files: Sequence[str]) -> None:
    """Say which image files a training reads.

    Raises:
        OSError: it could not be written.
    """
    put_text(folder, IMAGE_FILES, json.dumps({"files": list(files)}))


def read_image_files(folder: Path) -> list[str]:
    """Read which image files are there; none where the training wrote none, or something else."""
    files = read_object(folder / IMAGE_FILES).get("files")
    # A pipe of that name would be waited for.
    return [name for name in files if isinstance(name, str) and Path(name).is_file()] if isinstance(files, list) else []


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
    """CPU time of all its threads."""
    main_cpu_ns: int | None = None
    """CPU time of the main thread."""
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
    """Read the processes of the tree; none where nothing was kept.

    Raises:
        RecordError: what was kept is damaged.
    """
    path = folder / STATES
    found = [as_a(ProcessStates, entry) for entry in read_json(path)["processes"]] if path.exists() else []
    if None in found:
        raise RecordError(f"{path} is damaged: it describes no processes.")
    return [process for process in found if process is not None]


def new_folder_for(command: Sequence[str], before: str = "") -> Path:
    """Name a folder as `new_folder` does, after the command's script, or its program."""
    scripts = [part for part in command if part.endswith(".py")]
    modules = [after for flag, after in pairwise(command) if flag == "-m"]
    what = Path((scripts or modules or list(command))[0]).stem
    return new_folder(before + (re.sub(r"[^\w.-]+", "-", what).strip("-.") or "run"))


def new_folder(name: str) -> Path:
    """Name a folder `runs/NAME-DATE-TIME`, with a number where that is taken; it is not made yet."""
    folder = base = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 2
    while folder.exists():
        folder = base.with_name(f"{base.name}-{number}")
        number += 1
    return folder


def create_run(folder: Path, description: dict[str, Any]) -> Path:
    """Make a run folder and its `run.json`. `description` adds to or replaces the standing facts.

    Raises:
        RecordError: the folder cannot be made or written, or already holds a run, or a file by a name of ours.
    """
    facts = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        # Sortable by start, unique without coordination.
        "id": time.strftime("%Y%m%d-%H%M%S-") + uuid.uuid4().hex[:6],
        "whyidle": __version__,
        "python": platform.python_version(),
        "command": sys.argv,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "clock": {"time_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()},
        "host": {"name": socket.gethostname(), "machine": platform.machine(), "cpus": os.cpu_count()},
        "fields": {kind.name: [[f.name, f.type, f.unit, f.meaning] for f in kind.fields] for kind in KINDS.values()},
        "ended": None,
        **description,
    }
    if facts["command"]:
        facts["command"] = without_secrets(facts["command"])
    try:
        if taken := recorded_in(folder):
            what = "a run" if taken == RUN_JSON else f"{taken}, which a recording would overwrite"
            raise RecordError(f"{folder} already holds {what}. Choose another folder with --out.")
        folder.mkdir(0o700, parents=True, exist_ok=True)
        write_json(folder / RUN_JSON, facts)
    except OSError as error:
        raise RecordError(
            f"cannot write the run folder {folder}: {error.strerror}. Choose another folder with --out."
        ) from error
    return folder


def update_run(folder: Path, changes: dict[str, Any]) -> bool:
    """Replace top-level keys of `run.json`, atomically. False where that was not possible (disk full …)."""
    try:
        write_json(folder / RUN_JSON, _read_json(folder) | changes)
    except (OSError, RecordError):
        return False
    return True


def _read_json(folder: Path) -> dict[str, Any]:
    path = folder / RUN_JSON
    if not path.is_file():
        what = f"is not a run folder: it has no {RUN_JSON}" if folder.is_dir() else "is a file, not a run folder"
        what = what if folder.exists() else "does not exist"
        raise RecordError(f"{folder} {what}. Name a folder that `whyidle run`, `attach` or `compare` wrote.")
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise RecordError(f"{path} is not a whyidle run.")
    if content.get("version") != FORMAT_VERSION:
        says = f"{path} has run format {content.get('version')}; this whyidle reads format {FORMAT_VERSION}."
        raise RecordError(
            f"{says} Read it with the version that recorded it: {str(content.get('whyidle', 'unknown'))[:40]}."
        )
    return content


class RecordFiles:
    """The record files of a run folder: listed at the first question, each header read once."""

    def __init__(self, given: dict[str, list[RecordFile]] | None = None, stacks: StackTable | None = None) -> None:
        """`given`: files by the name of their kind, in place of those in the folder."""
        self.given = given
        self.paths: dict[str, list[Path]] | None = None
        """By the name of a kind, sorted."""
        self.opened: dict[tuple[str, Writer | int | None], list[RecordFile]] = {}
        """By the name of a kind and who wrote them, or that one's rank; `None`: all of the kind."""
        self.held: WeakValueDictionary[tuple[str, Writer | None], Records] = WeakValueDictionary()
        """What was read and is still held by somebody, by the name of the kind and who wrote it."""
        self.sampled: list[Records] = []
        """All records of the sampler's kinds that were read, which are held for every rank to ask."""
        self.stacks = stacks
        """`None` until they are asked for."""


@dataclass(frozen=True)
class Run:
    """A recorded run: `info` is `run.json`; records are read when asked for.

    Which record files there are, their headers and what the sampler saw stay as they were at the first question about
    them: a job has thousands of files, and each of its ranks asks. Open a run that goes on again to see more.
    """

    folder: Path
    info: dict[str, Any]
    damaged: list[str] = field(default_factory=list)
    """One sentence for each record file that could not be read."""
    record_files: RecordFiles = field(default_factory=RecordFiles, repr=False, compare=False)
    """Shared with what `replace` makes of the run."""

    def files(self, kind: Kind, writer: Writer | int | None = None) -> list[RecordFile]:
        """List the files of one kind, by rank and process: one writer's, a rank's or all. Not to be changed."""
        opened = self.record_files.opened
        if (kind.name, None) not in opened:
            every = opened[kind.name, None] = self._open(kind)
            for file in every:
                for who in ((file.rank, file.pid), file.rank):
                    opened.setdefault((kind.name, who), []).append(file)
        return opened.get((kind.name, writer), [])

    def _open(self, kind: Kind) -> list[RecordFile]:
        if self.record_files.given is not None:
            return self.record_files.given.get(kind.name, [])
        if self.record_files.paths is None:
            paths = self.record_files.paths = {}
            for path in sorted(self.folder.glob("*-*.rec"), key=lambda path: path.name):
                paths.setdefault(path.name.partition("-")[0], []).append(path)
        files = []
        for path in self.record_files.paths.get(kind.name, []):
            try:
                files.append(RecordFile(path))
                if files[-1].is_cut:
                    self.damaged.append(f"{path} is cut short: these figures lack the rest of it.")
            except RecordError as error:
                self.damaged.append(str(error))
        return files

    def leading_writer(self) -> Writer | None:
        """Find the training process that ran most steps; `None` where no step was recorded."""
        files = self.files(STEP)
        if not files:
            return None
        file = max(files, key=RecordFile.count)
        return file.rank, file.pid

    def records(self, kind: Kind, writer: Writer | None = None) -> Records:
        """Read all records of one kind, files one after another; of one writer or of all. Not to be written: as long as
        they are held, whoever asks again is given the same."""
        held = self.record_files.held.get((kind.name, writer))
        if held is not None:
            return held
        records: Records = read_all(self.files(kind, writer), kind)
        if not isinstance(records, Columns):
            records.flags.writeable = False
        self.record_files.held[kind.name, writer] = records
        if writer is None and kind in (HOST, MEMORY, DEVICE):
            self.record_files.sampled.append(records)
        return records

    def chunks(self, kind: Kind) -> Iterator[tuple[RecordFile, Rows]]:
        """Read all records of one kind about a megabyte at a time, each array with its file."""
        return ((file, chunk) for file in self.files(kind) for chunk in file.chunks())

    @property
    def stacks(self) -> StackTable:
        """Stacks that STACK records name by number. Raises as `open_recorded` does."""
        if self.record_files.stacks is None:
            self.record_files.stacks = read_stacks(self.folder)
        return self.record_files.stacks

    def dropped(self) -> int:
        """Count the records that could not be stored, over all files."""
        return sum(f.dropped for kind in KINDS.values() for f in self.files(kind))


def open_run(folder: Path) -> Run:
    """Open a run folder, finished or still being written.

    Raises:
        RecordError: no run there, or one of an unknown version.
    """
    info = _read_json(folder)
    if not info.get("device"):
        # Only the trainings know what they train on.
        for process in processes(folder):
            info = info | {key: process.info[key] for key in ("device", "torch", "python") if process.info.get(key)}
            break
    device = info.get("device")
    if isinstance(device, dict) and device.get("kind") == "cuda":
        # Only the sampler asks the driver's version.
        driver = read_object(folder / DEVICES).get("driver")
        if isinstance(driver, str) and driver:
            info = info | {"device": device | {"driver": driver}}
    return Run(folder, info)


def is_run(folder: Path) -> bool:
    """Tell whether the folder holds a run (of any version)."""
    return (folder / RUN_JSON).is_file()


def runs_within(folder: Path) -> list[Path]:
    """Find the run folders directly in a folder, by name; a link is none, for it may lead anywhere."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    # There may be ten thousand, and a path object takes longer than the look.
    return [folder / name for name in names if os.path.exists(f"{folder}/{name}/{RUN_JSON}")]  # noqa: PTH110


def is_recording(folder: str) -> bool:
    """Tell whether something was recorded there, by a look at its names alone."""
    return any(os.path.isfile(f"{folder}/{marker}") for marker in _MARKERS)  # noqa: PTH113


def recorded_in(folder: Path) -> str | None:
    """Find a name in the folder that a recording, or its page, has too; `None` where there is none, or no folder."""
    names = os.listdir(folder) if folder.is_dir() else ()
    found = (name for name in names if name == PAGE or _is_recorded(name))
    return min(found, key=lambda name: name != RUN_JSON, default=None)


def _is_recorded(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _RECORDED)


def refuse_recorded(path: Path, only: tuple[str, bytes] | None = None, with_option: str = "") -> None:
    """Make sure that a file may be written there.

    Args:
        only: the kind of file whose place alone it may take, in words, and a pattern of how those begin.
        with_option: how another is named, such as ` with -o`.

    Raises:
        RecordError: it is one of a recording, or would be taken for one; or it is none of that kind.
    """
    real = Path(os.path.realpath(path))
    if _is_recorded(real.name) and is_recording(str(real.parent)):
        raise RecordError(f"{path} is a file of a recording, which would be lost. Name another file.")
    if only is not None and real.is_file():
        with real.open("rb") as file:
            begin = file.read(MOST_OF_BEGIN)
        if begin and re.match(only[1], begin, re.DOTALL) is None:
            raise RecordError(f"{path} exists and is not a {only[0]}. Name another file{with_option}.")
