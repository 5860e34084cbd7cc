"""A tuning as a whole: what was tuned, what it came to, what that took, and the file that keeps it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RecordError
from ...record.files import read_json, write_json
from ...record.tuning import LoaderSettings
from ..patch import Patch
from .result import Trial, Tuned

FORMAT = "whyidle-tuning"
VERSION = 1
TUNE_JSON = "tune.json"
RECORDING = "first-stretch"
"""Run folder, within the tuning's."""


@dataclass(frozen=True)
class Tuning:
    what: str
    """The command in a line, or the scenario and its net."""
    device: dict[str, Any]
    """As the recording describes it."""
    tuned: Tuned
    scenario: str | None = None
    """`None` for a program of the user's."""
    batch_size: int | None = None
    """As the program makes them; `None`: not known."""
    steps: int = 0
    """That the training did for this, all of them thrown away."""
    starts: int = 1
    """How often it was started."""
    notes: tuple[str, ...] = ()
    """What was noticed on the way."""
    patch: Patch | None = None
    """The change of the program's source; `None` where nothing is to be changed, and for a scenario."""

    def settings(self, settings: LoaderSettings) -> LoaderSettings:
        """With the batch size that the program's own setting stands for."""
        return replace(settings, batch_size=settings.batch_size or self.batch_size)

    @property
    def ceiling(self) -> float | None:
        """Samples/s of a loader that takes no time, as measured; `None` where it was not, or was nothing more."""
        now, headroom = self.tuned.baseline.samples_per_s, self.tuned.headroom
        return None if now is None or headroom is None or headroom <= 0 else now * (1 + headroom)

    @property
    def beyond_ceiling(self) -> float | None:
        """The rate of the fastest setting where that is above the ceiling, which only noise explains; else `None`."""
        most = max((trial.samples_per_s or 0.0 for trial in self.tuned.trials), default=0.0)
        return most if self.ceiling is not None and most > self.ceiling else None

    @property
    def changed(self) -> bool:
        """Whether there is something to change."""
        return self.settings(self.tuned.best.settings) != self.settings(self.tuned.baseline.settings)


def prediction_error(trials: tuple[Trial, ...]) -> tuple[float, float, int] | None:
    """Median and largest distance of what was predicted from what was measured, as shares of that, and of how many
    settings; `None` where nothing was predicted."""
    off = [
        abs(trial.predicted / trial.samples_per_s - 1)
        for trial in trials
        if trial.status == "ok" and trial.predicted is not None and trial.samples_per_s
    ]
    return (float(np.median(off)), max(off), len(off)) if off else None


@dataclass(frozen=True)
class TuningFile:
    """Content of `tune.json` in a tuning's folder."""

    asked: dict[str, Any]
    """What is tuned, as the command was given it."""
    began: str
    result: dict[str, Any] | None = None
    """As `tune --json` writes it; `None` until there is one."""

    def save(self, folder: Path) -> None:
        """
        Raises:
            RecordError: the folder cannot be written.
        """
        try:
            write_json(folder / TUNE_JSON, {"format": FORMAT, "version": VERSION} | asdict(self))
        except OSError as error:
            raise RecordError(f"cannot write {folder}: {error.strerror}. Choose another folder with --out.") from error

    @classmethod
    def load(cls, folder: Path) -> TuningFile:
        """
        Raises:
            RecordError: not readable, or of an unknown version.
        """
        path = folder / TUNE_JSON
        try:
            content = read_json(path)
            if content["format"] != FORMAT:
                raise ValueError("another format")
            if content["version"] != VERSION:
                raise RecordError(f"{path} has version {content['version']}; this whyidle reads version {VERSION}.")
            return cls(dict(content["asked"]), str(content["began"]), content.get("result"))
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(f"{path} is not a readable tuning: {error}.") from error
