"""A comparison whose cells are trainings with loaders: what the runs of each have told so far."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..analyse.causes.diagnosis import LEAST_STEPS
from ..analyse.cells.comparison import Cell, round_of
from ..analyse.run.analysis import Analysis, analyse
from ..record.comparison import CellRecord
from ..record.run import open_run
from .matrix import Key, Rounds
from .trial import Outcome

FEWEST_STEPS = 2
"""A run of fewer steps has no rate."""


@dataclass(frozen=True)
class Place:
    """Where a cell stands: its loader (or planted sweep), batch size, and its place on further axes."""

    pipeline: str
    batch_size: int
    axes: dict[str, Any] = field(default_factory=dict)


class Cells(Rounds[Key]):
    """The cells, with the analyses of those of their runs that count."""

    def __init__(self, folder: Path, keys: Sequence[Key]) -> None:
        super().__init__(folder, keys)
        self._analyses: dict[Key, list[Analysis]] = {key: [] for key in self.keys}
        self._rounds: dict[Key, list[int]] = {key: [] for key in self.keys}
        """In which round each of these was."""

    def cell(self, key: Key) -> Cell:
        runs = tuple(str(self.folder / name) for name in self._runs[key])
        place = self.place(key)
        return Cell(
            place.pipeline,
            place.batch_size,
            *self.status[key],
            runs,
            tuple(self._analyses[key]),
            tuple(self._rounds[key]),
            place.axes,
        )

    @abstractmethod
    def place(self, key: Key) -> Place:
        """Of a cell."""

    def _record(self, key: Key) -> CellRecord:
        place = self.place(key)
        return CellRecord(place.pipeline, place.batch_size, *self.status[key], tuple(self._runs[key]), place.axes)

    def _keep(self, key: Key, folder: Path, outcome: Outcome) -> None:
        """A stopped run counts as far as it went, if it went anywhere."""
        status, error = outcome.status, outcome.error
        if status in ("ok", "stopped"):
            analysis = analyse(open_run(folder))
            steps = 0 if analysis.facts is None else analysis.facts.window.count
            # Beside whole runs a stopped one counts only where it went far enough to be judged.
            enough = LEAST_STEPS if status == "stopped" and self._analyses[key] else FEWEST_STEPS
            if steps >= enough:
                self._analyses[key].append(analysis)
                self._rounds[key].append(round_of(folder.name) or 0)
                status = "ok"
            elif status == "ok":
                status, error = "failed", f"fewer than {FEWEST_STEPS} steps: choose more epochs or iterations"
        if status == "stopped":
            status = "ok" if self._analyses[key] else "skipped"
        self.status[key] = (status, error)
