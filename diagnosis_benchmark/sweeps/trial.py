"""One recorded training of a planted sweep, at one batch size, in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..cases.case import CONTROL, Case
from ..cases.trial import end_with, train
from .registry import SWEEPS


@dataclass(frozen=True)
class SweepSpec:
    """Everything a trial is."""

    sweep: str
    batch: int
    folder: str
    """The run folder; it exists."""
    seed: int = 0
    repetition: int = 0


def run_size(spec: SweepSpec) -> None:
    """Train and say in run.json how it ended. Ends the process; its output goes to the run folder."""
    folder = Path(spec.folder)
    case = Case(f"{spec.sweep} at batch {spec.batch}", (), CONTROL, SWEEPS[spec.sweep].plan(spec.batch))
    end_with(folder, partial(train, case, folder, 1000 * spec.seed + spec.repetition))
