"""A run folder as a whole: its `run.json` and its record files.

What the sampler's devices are called, and what drives them: `devices.json` in the run folder.

The training processes of a run, each in its own words: `process-RANK-PID.json` in the run folder. The command that
starts a training knows neither how many processes will train nor on what; each of them says so itself when its
recording begins.
"""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from .. import __version__
from ..errors import RecordError
from .columns import Columns, Records, Rows, with_column
from .delivery import put_text
from .files import read_json, write_json
from .reader import RecordFile, RecordHeader, read_all
from .schema import DEVICE, FORMAT_VERSION, HOST, KINDS, MEMORY, NAN, NOT_MEASURED, STEP, Field, Kind
from .secret import without_secrets
from .stacks import StackTable, read_stacks

DEVICES = "devices.json"


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
    """Those that were noted; `None` where nothing was, or what was cannot be read."""
    listed = _content(folder).get("devices")
    if not isinstance(listed, list):
        return None
    known = [each for each in listed if isinstance(each, dict) and isinstance(each.get("number"), int)]
    return tuple(SampledDevice(each["number"], _name(each), _power_limit(each)) for each in known)


def sampled_driver(folder: Path) -> str | None:
    """The version of the driver of the sampled devices; `None` where it was not noted."""
    version = _content(folder).get("driver")
    return version if isinstance(version, str) and version else None


def _content(folder: Path) -> dict[str, object]:
    """Nothing where there is none, or it cannot be read."""
    try:
        content = read_json(folder / DEVICES)
    except RecordError:
        return {}
    return content if isinstance(content, dict) else {}


def _name(told: dict[str, object]) -> str | None:
    name = told.get("name")
    return name if isinstance(name, str) and name else None


def _power_limit(told: dict[str, object]) -> int | None:
    limit = told.get("power_limit_mw")
    return limit if isinstance(limit, int) and limit > 0 else None


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


FORMAT = "whyidle-run"
RUN_JSON = "run.json"

Writer = tuple[int, int]
"""(rank, process id)"""


def new_run_id() -> str:
    """Sortable by start, unique without coordination."""
    return time.strftime("%Y%m%d-%H%M%S-") + uuid.uuid4().hex[:6]


def new_folder_for(command: Sequence[str], before: str = "") -> Path:
    """As `new_folder`, named after the command's script, or its program."""
    scripts = [part for part in command if part.endswith(".py")]
    modules = [after for flag, after in pairwise(command) if flag == "-m"]
    what = Path((scripts or modules or list(command))[0]).stem
    return new_folder(before + (re.sub(r"[^\w.-]+", "-", what).strip("-.") or "run"))


def new_folder(name: str) -> Path:
    """`runs/NAME-DATE-TIME`, with a number where that is taken; not made yet."""
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
    from .recorded import recorded_in

    facts = _standing_facts() | description
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


def _standing_facts() -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "id": new_run_id(),
        "whyidle": __version__,
        "python": platform.python_version(),
        "command": sys.argv,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "clock": {"time_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()},
        "host": {"name": socket.gethostname(), "machine": platform.machine(), "cpus": os.cpu_count()},
        "fields": {kind.name: [[f.name, f.type, f.unit, f.meaning] for f in kind.fields] for kind in KINDS.values()},
        "ended": None,
    }


def _what_it_is(folder: Path) -> str:
    """Instead of a run folder."""
    if not folder.exists():
        return "does not exist"
    return f"is not a run folder: it has no {RUN_JSON}" if folder.is_dir() else "is a file, not a run folder"


def _read_json(folder: Path) -> dict[str, Any]:
    path = folder / RUN_JSON
    if not path.is_file():
        raise RecordError(
            f"{folder} {_what_it_is(folder)}. Name a folder that `whyidle run`, `attach` or `compare` wrote."
        )
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise RecordError(f"{path} is not a whyidle run.")
    if content.get("version") != FORMAT_VERSION:
        raise RecordError(
            f"{path} has run format {content.get('version')}; this whyidle reads format {FORMAT_VERSION}. "
            "Read it with the version of whyidle that recorded it, or a newer one."
        )
    return content


class _RecordFiles:
    """The record files of a run folder: listed at the first question, each header read once."""

    def __init__(self) -> None:
        self.paths: dict[str, list[Path]] | None = None
        """By the name of a kind, sorted."""
        self.opened: dict[tuple[str, Writer | None], list[RecordFile]] = {}
        """By the name of a kind and who wrote them; `None`: all of the kind."""
        self.sampled: dict[str, Records] = {}
        """All records of the sampler's kinds that were read, by the name of the kind."""
        self.of_rank: dict[tuple[str, int], list[RecordFile]] = {}
        """By the name of a kind and the rank of who wrote them."""
        self.held: WeakValueDictionary[tuple[str, Writer | None], Records] = WeakValueDictionary()
        """What was read and is still held by somebody, by the name of the kind and who wrote it."""
        self.unrecorded: dict[str, list[Field]] = {}
        """By the name of a kind, `Run.unrecorded`."""
        self.stacks: StackTable | None = None
        """Once they were asked for."""


@dataclass(frozen=True)
class Run:
    """A recorded run: `info` is `run.json`; records are read when asked for.

    Which record files there are, their headers and what the sampler saw stay as they were at the first question about
    them: a job has thousands of files, and each of its ranks asks. Of a run that goes on, open it again to see more.
    """

    folder: Path
    info: dict[str, Any]
    damaged: list[str] = field(default_factory=list)
    """One sentence for each record file that could not be read."""
    record_files: _RecordFiles = field(default_factory=_RecordFiles, repr=False, compare=False)
    """Shared with what `replace` makes of the run."""

    def files(self, kind: Kind, writer: Writer | None = None) -> list[RecordFile]:
        """The files of one kind, by rank and process; of one writer or of all. Not to be changed."""
        opened = self.record_files.opened
        if (kind.name, None) not in opened:
            every = opened[kind.name, None] = self._open(kind)
            for file in every:
                opened.setdefault((kind.name, (file.header.rank, file.header.pid)), []).append(file)
                self.record_files.of_rank.setdefault((kind.name, file.header.rank), []).append(file)
        return opened.get((kind.name, writer), [])

    def files_of_rank(self, kind: Kind, rank: int) -> list[RecordFile]:
        """The files of one kind that any process of a rank wrote. Not to be changed."""
        self.files(kind)
        return self.record_files.of_rank.get((kind.name, rank), [])

    def _open(self, kind: Kind) -> list[RecordFile]:
        if self.record_files.paths is None:
            paths = self.record_files.paths = {}
            for path in sorted(self.folder.glob("*-*.rec"), key=lambda path: path.name):
                paths.setdefault(path.name.partition("-")[0], []).append(path)
        files = []
        for path in self.record_files.paths.get(kind.name, []):
            try:
                files.append(RecordFile(path))
                if files[-1].is_cut():
                    self.damaged.append(f"{path} is cut short: these figures lack the rest of it.")
            except RecordError as error:
                self.damaged.append(str(error))
        return files

    def leading_writer(self) -> Writer | None:
        """The training process that ran most steps; `None` where no step was recorded."""
        files = self.files(STEP)
        if not files:
            return None
        header = max(files, key=RecordFile.count).header
        return header.rank, header.pid

    def records(self, kind: Kind, writer: Writer | None = None) -> Records:
        """All records of one kind, files one after another; of one writer or of all. Not to be written: as long as they
        are held, whoever asks again is given the same."""
        sampled = self.record_files.sampled
        if writer is None and kind.name in sampled:
            return sampled[kind.name]
        held = self.record_files.held.get((kind.name, writer))
        if held is not None:
            return held
        records: Records = read_all(self.files(kind, writer), kind)
        for later in self.unrecorded(kind):
            missing = np.array([NAN if later.type == "f8" else NOT_MEASURED])
            records = with_column(records, later.name, np.broadcast_to(missing, len(records)))
        if not isinstance(records, Columns):
            records.flags.writeable = False
        self.record_files.held[kind.name, writer] = records
        if writer is None and kind in (HOST, MEMORY, DEVICE):
            sampled[kind.name] = records
        return records

    def chunks(self, kind: Kind, writer: Writer | None = None) -> Iterator[tuple[RecordHeader, Rows]]:
        """All records of one kind about a megabyte at a time, each array with the header of its file.

        An array is valid until the next one is asked for.
        """
        later = self.unrecorded(kind)
        for file in self.files(kind, writer):
            for chunk in file.chunks():
                for field_ in later:
                    chunk[field_.name] = NAN if field_.type == "f8" else NOT_MEASURED
                yield file.header, chunk

    def unrecorded(self, kind: Kind) -> list[Field]:
        """Fields that came after the run was recorded: where they are now, its records hold zeros."""
        known = self.record_files.unrecorded.get(kind.name)
        if known is None:
            told = self.info.get("fields")
            of_kind = told.get(kind.name) if isinstance(told, dict) else None
            names = (
                {each[0] for each in of_kind if isinstance(each, list) and each} if isinstance(of_kind, list) else None
            )
            known = [] if names is None else [each for each in kind.fields if each.name not in names]
            self.record_files.unrecorded[kind.name] = known
        return known

    @property
    def stacks(self) -> StackTable:
        """Stacks that STACK records name by number. Raises as `open_recorded` does."""
        if self.record_files.stacks is None:
            self.record_files.stacks = read_stacks(self.folder)
        return self.record_files.stacks

    def dropped(self) -> int:
        """Records that could not be stored, over all files."""
        return sum(f.header.dropped for kind in KINDS.values() for f in self.files(kind))


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
    if isinstance(device, dict) and device.get("kind") == "cuda" and (driver := sampled_driver(folder)):
        # Only the sampler asks it.
        info = info | {"device": device | {"driver": driver}}
    return Run(folder, info)


def is_run(folder: Path) -> bool:
    """Whether the folder holds a run (of any version)."""
    return (folder / RUN_JSON).is_file()


def runs_within(folder: Path) -> list[Path]:
    """The run folders directly in a folder, by name; a link is none, for it may lead anywhere."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    # There may be ten thousand, and a path object takes longer than the look.
    return [folder / name for name in names if os.path.exists(f"{folder}/{name}/{RUN_JSON}")]  # noqa: PTH110
