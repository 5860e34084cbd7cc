"""The door to a folder: which kind of result lies there, found without its being read as another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..analyse.attached.attached import is_attached
from ..analyse.cells.prices import Price
from ..analyse.ranks.membership import ranks_of
from ..errors import RecordError, WhyidleError
from ..record.comparison import is_comparison
from ..record.run import is_run, open_run, runs_within
from .listing import choice
from .recordings import AttachedResult, RunResult
from .result import Result


def kinds() -> Iterator[type[Result]]:
    """All kinds of results. The first that finds itself in a folder has it."""
    yield from (AttachedResult, RunResult)
    # A run needs nothing of what the others import.
    from .comparisons import ComparisonResult
    from .tunings import TuningResult

    yield from (TuningResult, ComparisonResult)


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
    for kind in kinds():
        if (found := kind.open(folder)) is not None:
            return found
    within = runs_within(folder)
    if len(within) == 1:
        return _in_one(within[0])
    if within and not _are_one_job(within):
        raise WhyidleError(choice(folder, within))
    return RunResult([open_run(each) for each in within or [folder]])


def what_is(folder: Path) -> type[Result] | None:
    """What a folder that was named is meant as, a run or a comparison, by a look at its files alone; `None`: neither.
    Nothing is read, so nothing is said of what cannot be."""
    if is_run(folder):
        return RunResult
    if not is_comparison(folder):
        return None
    from .comparisons import ComparisonResult

    return ComparisonResult


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
