"""The door to a folder: which kind of result lies there, found without its being read as another.

Which of many runs in a folder are meant: the newest, or what there is to choose from. There may be
ten thousand. Of each only the few facts are read that tell when it began; what is shown is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from ..analyse.attached.attached import is_attached
from ..analyse.cells.cost import Price
from ..analyse.ranks.membership import ranks_of
from ..errors import RecordError, WhyidleError
from ..record.comparison import is_comparison
from ..record.files import plain, read_object
from ..record.run import RUN_JSON, is_run, open_run, runs_within
from ..report.words.code import command_line
from .recordings import AttachedResult, RunResult
from .result import Result

MOST_LISTED = 10


def newest_run(folder: Path) -> Path:
    """Give the run folder itself; in a comparison or a folder of many runs the one that began last;
    else the folder that was named.

    Raises:
        WhyidleError: it is a comparison in which no run has begun yet.
    """
    if is_run(folder):
        return folder
    runs = runs_within(folder)
    if not runs and is_comparison(folder):
        raise WhyidleError(f"{folder} is a comparison in which no run has begun yet.")
    return max(runs, key=_began_ns, default=folder)


def choice(around: Path, folders: Sequence[Path]) -> str:
    """List what to choose from, the newest first, and what cannot be read last."""
    began = {folder: _began_ns(folder) for folder in folders}
    newest = sorted(folders, key=lambda folder: (began[folder], folder.name), reverse=True)[:MOST_LISTED]
    lines = [f"{around} holds {len(folders)} runs. Name one, such as `whyidle report {newest[0]}`:"]
    for folder in newest:
        try:
            told = command_line(open_run(folder).info.get("command"))
        except RecordError as error:
            told = f"cannot be read: {error}"
        when = " " * 16
        with suppress(ValueError, OverflowError, OSError):
            # In the local time of who reads it, so that times of different hosts stand beside each other.
            if began[folder]:
                when = datetime.fromtimestamp(began[folder] / 1e9).astimezone().strftime("%Y-%m-%d %H:%M")
        lines.append(f"  {when}  {folder.name}  {plain(told)}")
    if len(folders) > MOST_LISTED:
        lines.append(f"  and {len(folders) - MOST_LISTED} more")
    return "\n".join(lines)


def _began_ns(run: Path) -> int:
    """Unix time; 0 of one that cannot be read (any more). Nothing else is checked: there may be ten thousand."""
    clock = read_object(run / RUN_JSON).get("clock")
    began_ns = clock.get("time_ns") if isinstance(clock, dict) else None
    return began_ns if isinstance(began_ns, int) else 0


def kinds() -> Iterator[type[Result]]:
    """Give all kinds of results. The first that finds itself in a folder has it."""
    yield from (AttachedResult, RunResult)
    # A run needs nothing of what the others import.
    from .comparisons import ComparisonResult
    from .tunings import TuningResult

    yield from (TuningResult, ComparisonResult)


def open_result(folders: Sequence[Path], price: Price | None = None) -> Result:
    """What lies in a folder, or around the runs in it that are one job's; of several folders the
    one job that they are parts of. `price`: of an hour, to price what was trained.

    Raises:
        RecordError: nothing of whyidle's lies there, or it cannot be read.
        WhyidleError: several runs lie there, each a result of its own.
    """
    found = _in_one(folders[0]) if len(folders) == 1 else RunResult([open_run(folder) for folder in folders])
    found.price = price
    return found


def _in_one(folder: Path) -> Result:
    for kind in kinds():
        if (found := kind.open(folder)) is not None:
            return found
    within = runs_within(folder)
    if len(within) == 1:
        return _in_one(within[0])
    if within and not _are_one_job(within):
        raise WhyidleError(choice(folder, within))
    return RunResult([open_run(each) for each in within or [folder]])


def _are_one_job(folders: Sequence[Path]) -> bool:
    """Whether they are the parts of one job that its hosts recorded."""
    try:
        # Of many trainings the first two tell that they are no parts of one: each has a rank 0.
        runs = [open_run(folder) for folder in folders[:2]]
        one, other = ({rank.rank for rank in ranks_of([run])} for run in runs)
        if one & other:
            return False
        runs += [open_run(folder) for folder in folders[2:]]
        ranks = ranks_of(runs)
    except RecordError:
        return False
    return not any(is_attached(run) for run in runs) and any((rank.world_size or 1) > 1 for rank in ranks)
