"""Trainings of a comparison, run round by round, each in a process of its own: what all comparisons have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from ..analyse.compare import run_name
from ..errors import RecordError, WhyidleError
from ..record.comparison import CellRecord, is_comparison, write_comparison
from ..tune.rounds import rounds
from ..tune.trial import Outcome, TrialServer

STOPPED = "stopped by Ctrl-C"
NOT_RUN = f"not run: {STOPPED}"

Key = TypeVar("Key", bound=Hashable)
"""What tells the cells of a comparison apart."""


@dataclass(frozen=True)
class Trial:
    """One training to be run."""

    spec: Any
    description: dict[str, Any]
    """For its run.json."""


class Shown(AbstractContextManager[Any], Protocol):
    """Progress, shown around the runs; `end` is told of which cell."""

    def begin(self, folder: Path) -> None: ...
    def tick(self) -> None: ...
    def end(self, key: Any) -> None: ...


class Rounds(ABC, Generic[Key]):
    """The cells of one comparison in a folder of their own, and what has become of them so far."""

    setting: dict[str, Any]
    """What is compared and how."""

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

    def measure(self, serve: Callable[[], TrialServer], repeats: int, seed: int, shown: Shown) -> bool:
        """Run every pending cell, round by round. True when Ctrl-C cut it short; what was measured is kept."""
        self._save()
        todo = self.pending
        try:
            with shown:
                server = serve()
                for number, key in rounds(todo, repeats, seed):
                    if self.status[key][0] in ("pending", "ok"):
                        self._one(server, number, key, shown)
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
