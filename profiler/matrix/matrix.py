"""Trainings of a comparison, run round by round, each in a process of its own: what all comparisons have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from ..analyse.cells.comparison import run_name
from ..errors import RecordError, WhyidleError
from ..record.comparison import CellRecord, is_comparison, write_comparison
from .rounds import rounds, within
from .trial import Outcome, TrialServer

STOPPED = "stopped by Ctrl-C"
NOT_RUN = f"not run: {STOPPED}"
MOST_NAMED = 6
"""Cells that a budget left without a run, beyond which they are counted only."""

clock = time.monotonic
"""What a budget is read from."""

Key = TypeVar("Key", bound=Hashable)
"""What tells the cells of a comparison apart."""


@dataclass(frozen=True)
class Trial:
    """One training to be run."""

    spec: Any
    description: dict[str, Any]
    """For its run.json."""


@dataclass(frozen=True)
class Budget:
    """How long all runs of a comparison may take together."""

    seconds: float
    begun: float
    """What `clock` said when the command began."""

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - (clock() - self.begun))


class Shown(AbstractContextManager[Any], Protocol):
    """Progress, shown around the runs; `end` is told of which cell."""

    def begin(self, folder: Path) -> None: ...
    def tick(self) -> None: ...
    def end(self, key: Any) -> None: ...


class Rounds(ABC, Generic[Key]):
    """The cells of one comparison in a folder of their own, and what has become of them so far."""

    setting: dict[str, Any]
    """What is compared and how."""
    budget: Budget | None = None
    """`None`: every run runs, however long that takes."""

    def __init__(self, folder: Path, keys: Sequence[Key]) -> None:
        """
        Raises:
            WhyidleError: the folder is in use.
        """
        if is_comparison(folder):
            raise WhyidleError(f"{folder} already holds a comparison. Choose another folder with --out.")
        if folder.is_dir() and any(folder.iterdir()):
            raise WhyidleError(f"{folder} is not empty. Choose another folder with --out.")
        self.folder = folder
        self.keys = list(keys)
        self.status: dict[Key, tuple[str, str | None]] = dict.fromkeys(self.keys, ("pending", None))
        """Of each cell, with the reason where it is not `ok`."""
        self._runs: dict[Key, list[str]] = {key: [] for key in self.keys}
        """Names of their folders, in the order they ran."""

    @property
    def pending(self) -> list[Key]:
        return [key for key in self.keys if self.status[key][0] == "pending"]

    def measure(
        self,
        serve: Callable[[], TrialServer],
        repeats: int,
        seed: int,
        shown: Shown,
        first: Callable[[Key], bool] | None = None,
    ) -> bool:
        """Run every pending cell, round by round, as far as the budget goes; what was measured is kept.

        Args:
            serve: starts the process that forks the runs.
            first: whether all rounds of a cell come before those of the others; `None`: of no cell.

        Returns:
            Whether Ctrl-C cut it short.
        """
        self._save()
        todo = self.pending
        ahead = [key for key in todo if first is not None and first(key)]
        others = [key for key in todo if key not in ahead]
        planned = [*rounds(ahead, repeats, seed), *rounds(others, repeats, seed)]
        # Looked at when a run's turn comes: a cell that failed is not tried again.
        order = (pair for pair in planned if self.status[pair[1]][0] in ("pending", "ok"))
        budget = self.budget
        try:
            with shown:
                server = serve()
                fitting = order if budget is None else within(order, budget.seconds, budget.begun, lambda: clock())
                for number, key in fitting:
                    self._one(server, number, key, shown)
            if budget is not None:
                self._leave_out(budget, todo, repeats)
        except KeyboardInterrupt:
            for key in self.pending:
                self.status[key] = ("skipped", NOT_RUN)
            return True
        finally:
            self._over()
            with suppress(RecordError):
                self._save()
        return False

    @abstractmethod
    def _name(self, key: Key) -> str:
        """Of a cell, as its run folders begin."""

    @abstractmethod
    def _trial(self, key: Key, number: int, folder: Path) -> Trial:
        """The training of a cell in a round, which is recorded into this folder."""

    @abstractmethod
    def _keep(self, key: Key, folder: Path, outcome: Outcome) -> None:
        """Take a run that has ended into its cell, and set the cell's status."""

    @abstractmethod
    def _record(self, key: Key) -> CellRecord: ...

    @abstractmethod
    def title(self, key: Key) -> str:
        """Of a cell, for people."""

    def _leave_out(self, budget: Budget, todo: Sequence[Key], repeats: int) -> None:
        """Say which runs the budget had no room for."""
        used_up = f"the budget of {budget.seconds:g} s was used up"
        never = [key for key in todo if self.status[key][0] == "pending"]
        for key in never:
            self.status[key] = ("skipped", f"not run: {used_up}")
        ran = {key: len(self._runs[key]) for key in todo if self.status[key][0] == "ok"}
        missing = repeats * len(never) + sum(repeats - number for number in ran.values())
        self.setting["budget"] = {"seconds": budget.seconds, "runs_left_out": missing}
        if not missing:
            return
        said = [f"{used_up.capitalize()}, and {missing} of {len(todo) * repeats} runs were left out."]
        if 0 < len(never) <= MOST_NAMED:
            said.append(f"Not run at all: {'; '.join(map(self.title, never))}.")
        elif never:
            said.append(f"{len(never)} cells were not run at all.")
        if fewer := sum(number < repeats for number in ran.values()):
            said.append(f"{fewer} {'cells have' if fewer > 1 else 'cell has'} fewer than {repeats} runs.")
        said.append("With a larger --budget more of them run, without one all.")
        self.setting["notices"] = [*self.setting.get("notices", ()), " ".join(said)]

    def _over(self) -> None:
        """The last run has ended; the setting may say what that left."""

    def _one(self, server: TrialServer, number: int, key: Key, shown: Shown) -> None:
        folder = self.folder / run_name(self._name(key), number)
        trial = self._trial(key, number, folder)
        self._runs[key].append(folder.name)
        with suppress(RecordError):
            self._save()  # so that a report finds this run even if this command is killed
        shown.begin(folder)
        try:
            outcome = server.run(folder, trial.spec, trial.description, shown.tick)
        except KeyboardInterrupt:
            self._keep(key, folder, Outcome("stopped", STOPPED))
            raise
        except RecordError as error:
            # A full disk: what was recorded before is still worth its table.
            outcome = Outcome("failed", str(error))
        self._keep(key, folder, outcome)
        shown.end(key)
        with suppress(RecordError):
            self._save()

    def _save(self) -> None:
        write_comparison(self.folder, self.setting, [self._record(key) for key in self.keys])


def new_folder(asked: Path | None, scenario: str) -> Path:
    """Where a comparison goes: as asked, else a name of its own."""
    return asked or Path("runs") / f"{scenario}-{time.strftime('%Y%m%d-%H%M%S')}"
