"""A table of loaders by batch sizes: medians over repeats, the best cell, and why it wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..record.comparison import CellRecord, read_comparison
from ..record.run import is_run, open_run
from .analysis import Analysis, analyse
from .batch_size.result import BatchVerdict
from .batch_size.verdict import batch_verdict
from .facts import Facts


@dataclass(frozen=True)
class Cell:
    """One loader at one batch size. `status` is `ok`, `oom`, `failed` or `skipped`; `error` says why."""

    pipeline: str
    batch_size: int
    status: str
    error: str | None
    runs: tuple[str, ...]
    """Run folders, in the order they ran."""
    analyses: tuple[Analysis, ...]
    rounds: tuple[int, ...] = ()
    """In which round of an interleaved comparison each of these was; empty where that is not known."""

    @property
    def facts(self) -> list[Facts]:
        return [a.facts for a in self.analyses if a.facts is not None]

    @property
    def rounds_of_facts(self) -> list[int] | None:
        """The round of each of `facts`."""
        if not self.rounds:
            return None
        return [number for a, number in zip(self.analyses, self.rounds, strict=True) if a.facts is not None]

    @property
    def samples_per_s(self) -> tuple[float, float, float] | None:
        """Median, lowest and highest over the repeats."""
        rates = [f.samples_per_s for f in self.facts]
        return (float(np.median(rates)), min(rates), max(rates)) if rates else None

    @property
    def typical(self) -> Analysis | None:
        """The repeat whose throughput is the median (the lower of the two middle ones)."""
        counted = [(a.facts.samples_per_s, n) for n, a in enumerate(self.analyses) if a.facts is not None]
        return self.analyses[sorted(counted)[(len(counted) - 1) // 2][1]] if counted else None


@dataclass(frozen=True)
class Comparison:
    cells: tuple[Cell, ...]
    best: Cell | None
    batch_verdicts: dict[str, BatchVerdict]
    ties: tuple[Cell, ...]
    """Cells whose range reaches into the best one's: no winner between them."""


ONE_RUN_NOISE = 0.05
"""What single runs may differ by for no reason."""


def _tied(rate: tuple[float, float, float], best: tuple[float, float, float]) -> bool:
    """Whether two cells' ranges overlap; a range of one run is taken to be some percent wide."""
    high = rate[2] if rate[1] < rate[2] else rate[2] * (1 + ONE_RUN_NOISE)
    return high >= best[1]


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
        record.pipeline, record.batch_size, status, error, runs, analyses, known if len(known) == len(rounds) else ()
    )


def run_name(candidate: str, number: int) -> str:
    """Of the run folder of a cell in a round."""
    return f"{candidate}-r{number}"


def round_of(name: str) -> int | None:
    """The round that a run folder's name tells; `None` of a folder that was named by hand."""
    number = name.rpartition("-r")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def compare(cells: Sequence[Cell]) -> Comparison:
    """Judge a table of cells."""
    ran = [(c.samples_per_s, c) for c in cells if c.status == "ok" and c.samples_per_s is not None]
    rates = [(rate, cell) for rate, cell in ran if rate is not None]
    best = max(rates, key=lambda pair: pair[0][0]) if rates else None
    verdicts = {}
    for pipeline in dict.fromkeys(c.pipeline for c in cells):
        of_sizes = {c.batch_size: c for c in cells if c.pipeline == pipeline and c.status == "ok"}
        rounds = {size: known for size, c in of_sizes.items() if (known := c.rounds_of_facts) is not None}
        verdict = batch_verdict(
            {size: c.facts for size, c in of_sizes.items()}, rounds if len(rounds) == len(of_sizes) else None
        )
        if verdict is not None:
            verdicts[pipeline] = verdict
    ties = tuple(c for rate, c in rates if best is not None and c is not best[1] and _tied(rate, best[0]))
    return Comparison(tuple(cells), best[1] if best else None, verdicts, ties)
