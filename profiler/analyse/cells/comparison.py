"""A table of loaders by batch sizes: medians over repeats, the best cell, and why it wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ...record.comparison import CellRecord, read_comparison
from ...record.run import is_run, open_run
from ..run.analysis import Analysis, analyse
from ..run.facts import Facts
from ..statistics import Range, median_place, range_of
from .axes import BATCH_SIZE, CHOICES, alike_on, label, ladders, varying
from .batch_size.result import BatchVerdict
from .batch_size.verdict import batch_verdict


@dataclass(frozen=True)
class Cell:
    """One training: a loader at a batch size, and its place on further axes. `status` is `ok`, `oom`, `failed` or
    `skipped`; `error` says why."""

    pipeline: str
    batch_size: int
    status: str
    error: str | None
    runs: tuple[str, ...]
    """Run folders, in the order they ran."""
    analyses: tuple[Analysis, ...]
    rounds: tuple[int, ...] = ()
    """The round of an interleaved comparison that each of `analyses` was in; empty where that is not known."""
    axes: dict[str, Any] = field(default_factory=dict)
    """Net, device, ranks, …, by name: see `record.comparison.CellRecord`."""

    @property
    def facts(self) -> list[Facts]:
        return [a.facts for a in self.analyses if a.facts is not None]

    @property
    def rounds_of_facts(self) -> list[int] | None:
        """The round of each of `facts`; `None` where rounds are not known."""
        if not self.rounds:
            return None
        return [number for a, number in zip(self.analyses, self.rounds, strict=True) if a.facts is not None]

    @property
    def samples_per_s(self) -> Range | None:
        """Samples/s of all ranks together, the median over the repeats; `None` where no repeat has a step."""
        return range_of((rate for a in self.analyses if (rate := rate_of(a)) is not None), median)

    @property
    def typical(self) -> Analysis | None:
        """The repeat whose throughput is the median (the lower of the two middle ones)."""
        place = median_place([rate_of(analysis) for analysis in self.analyses])
        return None if place is None else self.analyses[place]


def rate_of(analysis: Analysis) -> float | None:
    """Samples/s of a run, of all its ranks together; `None` where no step was recorded."""
    if analysis.job is not None:
        return analysis.job.samples_per_s
    return None if analysis.facts is None else analysis.facts.samples_per_s


@dataclass(frozen=True)
class Group:
    """Cells that train the same thing under the same conditions."""

    axes: dict[str, Any]
    """Where they stand on the axes in which groups differ; empty for the only group."""
    cells: tuple[Cell, ...]
    best: Cell | None
    """The fastest cell; `None` where none ran."""
    ties: tuple[Cell, ...]
    """Other cells whose range reaches into the best one's: there is no winner between them."""


@dataclass(frozen=True)
class Comparison:
    """A table of cells, judged."""

    cells: tuple[Cell, ...]
    batch_verdicts: dict[str, BatchVerdict]
    """Loader, with its place on other axes in front where that tells loaders apart → what a larger batch did."""
    groups: tuple[Group, ...]

    @property
    def best(self) -> Cell | None:
        """The fastest cell, where all train the same thing."""
        return self.groups[0].best if len(self.groups) == 1 else None

    @property
    def ties(self) -> tuple[Cell, ...]:
        """Cells that the fastest one does not clearly beat, where all train the same thing."""
        return self.groups[0].ties if len(self.groups) == 1 else ()


def load(folder: Path) -> tuple[Comparison, dict[str, Any]]:
    """A comparison's folder, analysed, and its setting.

    Raises:
        RecordError: no comparison there, or a run of it cannot be read.
    """
    setting, records = read_comparison(folder)
    return compare([cell_of(folder, r) for r in records]), setting


def cell_of(folder: Path, record: CellRecord) -> Cell:
    """A cell with its runs analysed, also of a comparison that was cut short."""
    kept = [name for name in record.runs if is_run(folder / name)]
    analyses = tuple(analyse(open_run(folder / name)) for name in kept)
    runs = tuple(str(folder / name) for name in record.runs)
    status, error = record.status, record.error
    if status == "pending":
        ran = any(a.facts is not None for a in analyses)
        status, error = ("ok" if ran else "skipped"), "the comparison was cut short"
    if error is None and (gone := len(record.runs) - len(kept)):
        error = f"{gone} of its runs {'is' if gone == 1 else 'are'} no longer there"
    rounds = [round_of(name) for name in kept]
    known = tuple(number for number in rounds if number is not None)
    return Cell(
        record.pipeline,
        record.batch_size,
        status,
        error,
        runs,
        analyses,
        known if len(known) == len(rounds) else (),
        record.axes,
    )


def run_name(candidate: str, number: int) -> str:
    """Name of the run folder of a cell in a round."""
    return f"{candidate}-r{number}"


def round_of(name: str) -> int | None:
    """The round that a run folder's name tells; `None` of a folder that was named by hand."""
    number = name.rpartition("-r")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def compare(cells: Sequence[Cell]) -> Comparison:
    """Judge a table of cells."""
    conditions = [name for name in varying(cells) if name not in CHOICES]
    groups = tuple(_group(members, conditions) for members in alike_on(cells, conditions))
    return Comparison(tuple(cells), _batch_verdicts(cells), groups)


def _group(cells: Sequence[Cell], conditions: Sequence[str]) -> Group:
    ran = [(rate, c) for c in cells if c.status == "ok" and (rate := c.samples_per_s) is not None]
    best = max(ran, key=lambda pair: pair[0].value) if ran else None
    ties = tuple(c for rate, c in ran if best is not None and c is not best[1] and rate.most >= best[0].low)
    axes = {name: cells[0].axes.get(name) for name in conditions}
    return Group(axes, tuple(cells), best[1] if best else None, ties)


def _batch_verdicts(cells: Sequence[Cell]) -> dict[str, BatchVerdict]:
    """What a larger batch did, wherever cells differ in nothing else."""
    names = varying(cells)
    verdicts = {}
    for sizes in ladders(cells, BATCH_SIZE):
        of_sizes = {cell.batch_size: cell for cell in sizes if cell.status == "ok"}
        rounds = {size: known for size, c in of_sizes.items() if (known := c.rounds_of_facts) is not None}
        verdict = batch_verdict(
            {size: c.facts for size, c in of_sizes.items()}, rounds if len(rounds) == len(of_sizes) else None
        )
        if verdict is not None:
            verdicts[f"{label(sizes[0], names)} {sizes[0].pipeline}".strip()] = verdict
    return verdicts
