"""The door to a folder: which kind of result lies there, found without its being read as another."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from ..analyse.attached.attached import is_attached
from ..analyse.cells.prices import Price
from ..analyse.ranks.membership import ranks_of
from ..errors import RecordError, WhyidleError
from ..record.comparison import is_comparison
from ..record.files import plain
from ..record.run import is_run, open_run, runs_within
from ..report.words.command import command_line
from .comparisons import ComparisonResult, FaultsResult, SweepsResult
from .recordings import AttachedResult, RunResult
from .result import Result
from .tunings import TuningResult

KINDS: tuple[type[Result], ...] = (
    AttachedResult,
    RunResult,
    TuningResult,
    FaultsResult,
    SweepsResult,
    ComparisonResult,
)
"""All kinds of results. The first that finds itself in a folder has it."""
MOST_LISTED = 10


def open_result(folders: Sequence[Path], price: Price | None = None) -> Result:
    """What lies in a folder, or around the runs in it that are one job's; of several folders the one job that they are
    parts of. `price`: of an hour, to price what was trained.

    Raises:
        RecordError: nothing of whyidle's lies there, or it cannot be read.
        WhyidleError: several runs lie there, each a result of its own.
    """
    found = _in_one(folders[0]) if len(folders) == 1 else RunResult([open_run(folder) for folder in folders])
    found.price = price
    return found


def _in_one(folder: Path) -> Result:
    for kind in KINDS:
        if (found := kind.open(folder)) is not None:
            return found
    within = runs_within(folder)
    if len(within) == 1:
        return _in_one(within[0])
    if within and not _are_one_job(within):
        raise WhyidleError(_choice(folder, within))
    return RunResult([open_run(each) for each in within or [folder]])


def what_is(folder: Path) -> type[Result] | None:
    """What a folder that was named is meant as, a run or a comparison, by a look at its files alone; `None`: neither.
    Nothing is read, so nothing is said of what cannot be."""
    if is_run(folder):
        return RunResult
    return ComparisonResult if is_comparison(folder) else None


def newest_run(folder: Path) -> Path:
    """The run folder itself, or of a comparison and of a folder with many runs the one that began last; where there is
    none, the folder.

    Raises:
        WhyidleError: of a comparison, no run has begun yet.
    """
    if is_run(folder):
        return folder
    runs = runs_within(folder)
    if not runs and is_comparison(folder):
        raise WhyidleError(f"{folder} is a comparison of which no run has begun yet.")
    return max(runs, key=_began_ns, default=folder)


def _began_ns(run: Path) -> int:
    """Unix time; 0 of one that cannot be read (any more)."""
    try:
        clock = open_run(run).info.get("clock")
    except RecordError:
        return 0
    began_ns = clock.get("time_ns") if isinstance(clock, dict) else None
    return began_ns if isinstance(began_ns, int) else 0


def _are_one_job(folders: Sequence[Path]) -> bool:
    """Whether they are the parts of one job that its hosts recorded."""
    try:
        runs = [open_run(folder) for folder in folders]
        ranks = ranks_of(runs)
    except RecordError:
        return False
    return not any(is_attached(run) for run in runs) and any((rank.world_size or 1) > 1 for rank in ranks)


def _choice(around: Path, folders: Sequence[Path]) -> str:
    """What to choose from, the newest first, and what cannot be read last."""
    runs = []
    for folder in folders:
        try:
            info = open_run(folder).info
            runs.append((True, _moment(info.get("started_at")), folder.name, command_line(info.get("command"))))
        except RecordError as error:
            runs.append((False, 0.0, folder.name, f"cannot be read: {error}"))
    runs.sort(reverse=True)
    lines = [f"{around} holds {len(runs)} runs. Name one, such as `whyidle report {around / runs[0][2]}`:"]
    lines += [f"  {_when(began)}  {name}  {plain(told)}" for _, began, name, told in runs[:MOST_LISTED]]
    if len(folders) > MOST_LISTED:
        lines.append(f"  and {len(folders) - MOST_LISTED} more")
    return "\n".join(lines)


def _moment(told: object) -> float:
    """Unix time of a run's start, which it tells in the local time of its host; 0 where it does not."""
    for offset in ("%z", ""):
        with suppress(ValueError, OverflowError, OSError):
            moment = datetime.strptime(str(told), f"%Y-%m-%dT%H:%M:%S{offset}").timestamp()
            _when(moment)  # In the time of who reads it, the year may be none any more.
            return moment
    return 0.0


def _when(moment: float) -> str:
    """In the local time of who reads it, so that times of different hosts stand beside each other."""
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M") if moment else " " * 16
