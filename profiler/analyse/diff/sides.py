"""The two sides of a difference: one run each, or several that repeat the same thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import WhyidleError
from ...record.comparison import is_comparison
from ...record.run import Run, open_run, runs_within
from ...record.schema import NOT_MEASURED
from ..attached.attached import is_attached
from ..cells.comparison import rate_of
from ..run.analysis import Analysis, analyse, condensed, lacking_of, parts_of
from ..run.facts import Facts
from ..statistics import median_place
from .blocks import Blocks, BlockScatter, blocks_of


@dataclass(frozen=True)
class Measured:
    """A run that has steps."""

    folder: Path
    analysis: Analysis
    """Without what its figures were made of (`run.analysis.condensed`)."""
    blocks: Blocks | None
    """`None` with too few steps."""
    needs_cpu: float
    """Share of the wall time, 0..1, in which the job needed a CPU or waited for one."""

    def scatter(self, samples: bool) -> BlockScatter | None:
        """How its time per sample scatters within it; per step where `samples` is false. `None` with too few steps."""
        return None if self.blocks is None else self.blocks.scatter(samples)

    @property
    def info(self) -> dict[str, Any]:
        return self.analysis.info

    @property
    def facts(self) -> Facts:
        """Of a job of several ranks, those of the rank that leads it."""
        if self.analysis.facts is None:
            raise ValueError(f"{self.folder} has no steps")
        return self.analysis.facts

    @property
    def ranks(self) -> int:
        return max(1, len(self.analysis.ranks))

    @property
    def device_kind(self) -> str:
        return self.facts.device_kind

    @property
    def looked_at(self) -> int:
        """Steps after the warm-up that the hooks looked at."""
        return len(self.facts.window.steps)

    @cached_property
    def lacking(self) -> tuple[str, ...]:
        """What of the recording did not end, or is not there."""
        return lacking_of(self.folder, self.analysis)


@dataclass(frozen=True)
class Side:
    """Runs that repeat the same thing."""

    name: str
    """`A` or `B`."""
    runs: tuple[Measured, ...]

    @cached_property
    def typical(self) -> Measured:
        """The run whose throughput is the median (the lower of the two middle ones)."""
        return self.runs[median_place([rate_of(run.analysis) or 0.0 for run in self.runs]) or 0]

    @property
    def facts(self) -> Facts:
        return self.typical.facts

    @property
    def info(self) -> dict[str, Any]:
        return self.typical.info

    @property
    def folders(self) -> list[str]:
        return [str(run.folder) for run in self.runs]

    @property
    def steps(self) -> int:
        return int(np.sum([run.facts.window.count for run in self.runs]))


def in_both(one: Side, other: Side) -> Path | None:
    """A run that is on both sides, as the other one names it; `None` where there is none."""
    named = {run.folder.resolve() for run in one.runs}
    return next((run.folder for run in other.runs if run.folder.resolve() in named), None)


def side_of(name: str, paths: Sequence[Path]) -> Side:
    """Open and analyse the runs of a side. `COMPARISON/CELL` stands for all rounds of that cell.

    Raises:
        WhyidleError: one is no run, or has no steps to compare.
    """
    return Side(name, tuple(measured(folder) for folder in folders_of(paths)))


def folders_of(paths: Sequence[Path]) -> list[Path]:
    """The run folders that are meant, each once.

    Raises:
        WhyidleError: one is named twice.
    """
    folders = [folder for path in paths for folder in rounds_of(path)]
    twice = {folder for folder in folders if sum(folder.resolve() == other.resolve() for other in folders) > 1}
    if twice:
        raise WhyidleError(f"{min(twice)} is named twice on one side; repeats are runs of their own.")
    return folders


def measured(folder: Path) -> Measured:
    """A run with steps; of a job on several hosts, the folder around its run folders.

    Raises:
        WhyidleError: there is none.
    """
    analysis = analysed(folder)
    if analysis.facts is None:
        raise WhyidleError(f"{folder} holds no step of a training, so nothing to compare. Name another run.")
    return compared(folder, analysis.facts, analysis)


def compared(folder: Path, facts: Facts, analysis: Analysis) -> Measured:
    """A run as it is compared, which holds on to little memory, however long it was. `facts`: those of its analysis."""
    return Measured(folder, condensed(analysis), blocks_of(facts), _needs_cpu(facts))


def analysed(folder: Path) -> Analysis:
    """The analysis of a run, which may hold no step; of a job on several hosts, of the folder around its run folders.

    Raises:
        WhyidleError: there is no run that was recorded from within.
    """
    parts = parts_of(folder)
    if len(parts) > 1 and is_comparison(folder):
        names = list(dict.fromkeys(part.name.rpartition("-r")[0] or part.name for part in parts))
        raise WhyidleError(
            f"{folder} is a comparison of {len(names)} cells. Name one of them, such as {folder / names[0]}"
            f"{f' or {folder / names[1]}' if len(names) > 1 else ''}."
        )
    return analyse(*(_not_attached(part) for part in parts))


def rounds_of(path: Path) -> list[Path]:
    """The rounds of a cell of a comparison that was named without a round; else the path itself."""
    if path.exists() or not is_comparison(path.parent):
        return [path]
    rounds = [folder for folder in runs_within(path.parent) if folder.name.rpartition("-r")[0] == path.name]
    return rounds or [path]


def _not_attached(folder: Path) -> Run:
    run = open_run(folder)
    if is_attached(run):
        raise WhyidleError(
            f"{folder} was recorded from outside, which tells neither steps nor samples. Record the training with "
            "`whyidle run -- python train.py …` instead."
        )
    return run


def _needs_cpu(facts: Facts) -> float:
    """Share of the wall time, 0..1, in which the job needed a CPU or waited for one, so that other programs could hold
    it up: its thread, and the makers of batches, also where nobody waited for them, since load can change that. All of
    it where that was not measured."""
    steps = facts.window.steps
    known = steps[steps["cpu_ns"] != NOT_MEASURED]
    lasted = float((known["step_end_ns"] - known["fetch_begin_ns"]).sum())
    queued, made = facts.main_queued_ns, facts.loader.cpu_pct
    if lasted <= 0 or queued is None:
        return 1.0
    share = float(known["cpu_ns"].sum()) / lasted + queued / facts.parts.wall_ns
    if not facts.made_in_training:
        waited, making = facts.loader.run_queue_pct, facts.loader.worker_busy_pct
        if made is None or waited is None:
            return 1.0
        share += min(1.0, (made + waited) / 100) * min(1.0, (100.0 if making is None else making) / 100)
    return min(1.0, share)
