"""Cells by rounds: trainings that run in turn, each in a process of its own, kept as they end in one folder.

Which runs, in which order: interleaved repeats, and those of them that a budget of time has room for.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeVar

from ..analyse.causes.diagnosis import LEAST_STEPS
from ..analyse.cells.comparison import Cell, RunRow, run_name
from ..analyse.run.analysis import analyse
from ..capture.sampler.start import NO_STACKS, StackOptions
from ..errors import RecordError, WhyidleError
from ..record.comparison import CellRecord, is_comparison, write_comparison
from ..record.run import open_run
from .trial import TrialOutcome, TrialServer

Candidate = TypeVar("Candidate")


def rounds(candidates: Sequence[Candidate], repeats: int, seed: int = 0) -> Iterator[tuple[int, Candidate]]:
    """Give (round, candidate) pairs: round by round, each in a shuffled order that the seed fixes.

    Each round has every candidate once, so that drift of the machine hits all alike.
    """
    shuffle = random.Random(seed)
    for number in range(repeats):
        order = list(candidates)
        if number:
            # The first round keeps the given order: its table fills from top to bottom before a user's eyes.
            shuffle.shuffle(order)
        yield from ((number, candidate) for candidate in order)


PENDING = "pending"
STOPPED = "stopped by Ctrl-C"
FEWEST_STEPS = 2
"""A run of fewer steps has no rate."""

clock = time.monotonic
"""What a budget is read from."""


def pending(pipeline: str, batch_size: int, unmet: str | None = None, axes: dict[str, Any] | None = None) -> Cell:
    """Make a cell before its first run. `unmet`: why it cannot run here, which leaves it out; `None` where it can."""
    return Cell(pipeline, batch_size, PENDING if unmet is None else "skipped", unmet, axes=axes or {})


@dataclass(frozen=True)
class PlannedCell:
    """A cell before its runs: where it stands in the table, and what a run of it is."""

    name: str
    """Beginning of the names of its run folders; no two cells have the same."""
    title: str
    """Name for people."""
    cell: Cell
    """As the table has it before: see `pending`."""
    trial: Callable[[int, Path], tuple[Any, dict[str, Any]]]
    """From a round and the run folder: what the training is given, and the description for run.json."""
    first: bool = False
    """Whether all its rounds come before those of cells that are not."""
    stacks: StackOptions = NO_STACKS
    """Which stacks are looked at while it runs."""


@dataclass(frozen=True)
class Budget:
    """How long all runs of a matrix may take together, counted from when this is made."""

    seconds: float
    begun: float = field(default_factory=lambda: clock())

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - (clock() - self.begun))


class Shown(AbstractContextManager[Any], Protocol):
    """Progress, shown around the runs; `end` is told the title and the state of the cell whose run has ended."""

    def begin(self, folder: Path) -> None: ...
    def tick(self) -> None: ...
    def end(self, title: str, cell: Cell) -> None: ...


def counted(cell: Cell, folder: Path, outcome: TrialOutcome) -> Cell:
    """Count one more run of a cell, its last. A stopped run counts as far as it went, if it went anywhere."""
    status, error = outcome.status, outcome.error
    if status in ("ok", "stopped"):
        analysis = analyse(open_run(folder))
        steps = 0 if analysis.facts is None else analysis.facts.window.count
        # Beside whole runs a stopped one counts only where it went far enough to be judged.
        if steps >= (LEAST_STEPS if status == "stopped" and cell.analyses else FEWEST_STEPS):
            cell = replace(cell, rows=(*cell.rows[:-1], replace(cell.rows[-1], analysis=analysis)))
            status = "ok"
        elif status == "ok":
            status, error = "failed", f"it ran fewer than {FEWEST_STEPS} steps: choose more epochs or iterations"
    if status == "stopped":
        status = "ok" if cell.analyses else "skipped"
    return replace(cell, status=status, error=error)


@dataclass(eq=False)
class Matrix:
    """The cells of one comparison and what has become of them so far. The folder's comparison.json says it too, before
    and after each run, so that a report finds what was measured even if this process is killed."""

    folder: Path
    """A folder of its own; see `free_folder`."""
    planned: Sequence[PlannedCell]
    target: str
    """What a child process calls with what a cell's `trial` gives it, as `module:function`."""
    setting: dict[str, Any]
    """What is compared and how, for comparison.json; what a budget left out is added to it."""
    repeats: int
    """Rounds."""
    seed: int = 0
    """Seed of the order within the rounds."""
    budget: Budget | None = None
    """`None`: every run runs, however long that takes."""
    keep: Callable[[Cell, Path, TrialOutcome], Cell] = counted
    """Makes of a cell, the folder of its last run and the outcome of that what becomes of it."""
    before_round: Callable[[dict[str, Any]], None] | None = None
    """Called with the setting before the first run of each round, while nothing runs."""

    def __post_init__(self) -> None:
        self.cells = [each.cell for each in self.planned]
        """In the order in which they are planned. `status` is `pending` before the first run."""

    @property
    def runs_ahead(self) -> int:
        """Number of runs still to come, if none fails and the budget lasts."""
        return self.repeats * len(self._pending)

    @property
    def _pending(self) -> list[int]:
        return [place for place, cell in enumerate(self.cells) if cell.status == PENDING]

    def run(self, shown: Shown) -> bool:
        """Run every pending cell, round by round, as far as the budget goes. A cell that fails is not tried again.

        Returns:
            Whether Ctrl-C cut it short; what was measured is kept.

        Raises:
            RecordError: the folder cannot be written; of a disk that is full later on the cells tell.
        """
        self.save()
        todo, budget, last = self._pending, self.budget, None
        order = [
            pair
            for first in (True, False)
            for pair in rounds([place for place in todo if self.planned[place].first is first], self.repeats, self.seed)
        ]
        took: dict[int, float] = {}
        try:
            with shown:
                server = TrialServer(self.target)
                for number, place in order:
                    if self.cells[place].status not in (PENDING, "ok"):
                        continue
                    begin = clock()
                    # The first run always runs. Others are expected to take as long as the latest of their cell, or
                    # where there was none the median of the cells that ran; a shorter one may fit where one did not.
                    if budget is not None and took and took.get(place, median(took.values())) > budget.left:
                        continue
                    if number != last and self.before_round is not None:
                        self.before_round(self.setting)
                    last = number
                    self._one(server, number, place, shown)
                    took[place] = clock() - begin
            if budget is not None:
                self._leave_out(budget, todo)
        except KeyboardInterrupt:
            self._skip(STOPPED)
            return True
        finally:
            with suppress(RecordError):
                self.save()
        return False

    def save(self) -> None:
        """Write comparison.json.

        Raises:
            RecordError: the folder cannot be written.
        """
        records = [
            CellRecord(c.pipeline, c.batch_size, c.status, c.error, tuple(Path(row.run).name for row in c.rows), c.axes)
            for c in self.cells
        ]
        write_comparison(self.folder, self.setting, records)

    def _one(self, server: TrialServer, number: int, place: int, shown: Shown) -> None:
        planned, cell = self.planned[place], self.cells[place]
        folder = self.folder / run_name(planned.name, number)
        spec, description = planned.trial(number, folder)
        self.cells[place] = cell = replace(cell, rows=(*cell.rows, RunRow(str(folder), number)))
        with suppress(RecordError):
            self.save()
        shown.begin(folder)
        try:
            outcome = server.run(folder, spec, description, shown.tick, stacks=planned.stacks)
        except KeyboardInterrupt:
            self.cells[place] = self.keep(cell, folder, TrialOutcome("stopped", STOPPED))
            raise
        except RecordError as error:
            # A full disk: what was recorded before is still worth its table.
            outcome = TrialOutcome("failed", str(error))
        self.cells[place] = cell = self.keep(cell, folder, outcome)
        shown.end(planned.title, cell)
        with suppress(RecordError):
            self.save()

    def _skip(self, why: str) -> list[int]:
        """Give up the cells that are still pending."""
        for place in (never := self._pending):
            self.cells[place] = replace(self.cells[place], status="skipped", error=f"not run: {why}")
        return never

    def _leave_out(self, budget: Budget, todo: Sequence[int]) -> None:
        """Say which runs the budget had no room for."""
        used_up = f"the budget of {budget.seconds:g} s was used up"
        never = self._skip(used_up)
        ran = [len(self.cells[place].rows) for place in todo if self.cells[place].status == "ok"]
        missing = self.repeats * len(never) + sum(self.repeats - number for number in ran)
        self.setting["budget"] = {"seconds": budget.seconds, "runs_left_out": missing}
        if missing:
            said = f"{used_up.capitalize()}, and {missing} of {len(todo) * self.repeats} runs were left out."
            more = "A larger --budget runs more of them; without --budget all run."
            self.setting["notices"] = [*self.setting.get("notices", ()), f"{said} {more}"]


def free_folder(asked: Path | None, scenario: str) -> Path:
    """Choose where a comparison goes: as asked, else a name of its own.

    Raises:
        WhyidleError: something is there already.
    """
    folder = asked or Path("runs") / f"{scenario}-{time.strftime('%Y%m%d-%H%M%S')}"
    if is_comparison(folder):
        raise WhyidleError(f"{folder} already holds a comparison. Choose another folder with --out.")
    if folder.is_dir() and any(folder.iterdir()):
        raise WhyidleError(f"{folder} is not empty. Choose another folder with --out.")
    return folder
