"""Planted sweeps over the batch size, and what was named as the reason."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whyidle.analyse.cells import comparison as compare
from whyidle.analyse.cells.comparison import Cell, Comparison, run_name
from whyidle.capture.limits import cpu_budget
from whyidle.errors import WhyidleError
from whyidle.matrix.matrix import Matrix, PlannedCell, free_folder, pending
from whyidle.record.run import open_run
from whyidle.report.contract import comparison as compare_json

from .judged_sweeps import JudgedSweep

if TYPE_CHECKING:
    from whyidle_bench.sweeps.sweep import Sweep
    from whyidle_bench.sweeps.trial import SweepSpec

SCENARIO = "batch-sizes"
TARGET = "whyidle_bench.sweeps.trial:run_size"
REPEATS = 3
"""Runs of each size, by default."""
RUN_SECONDS = 3
"""What most runs take, their start included."""
DEVICE = {"kind": "emulated", "name": "emulated:accelerator", "title": "emulated Accelerator", "count": 1}
"""As each run's own device describes itself, without asking for torch."""


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """Which planted sweeps are to be run, at which of their sizes, and how often."""

    cases: tuple[str, ...] = ()
    """Names of sweeps; none: all."""
    batch_sizes: Collection[int] | None = None
    """`None`: all of each."""
    repeats: int | None = None
    seed: int = 0
    out: Path | None = None


@dataclass(frozen=True)
class SweepTable:
    """The sweeps, their runs, and what was made of them."""

    setting: dict[str, Any]
    result: Comparison
    sweeps: tuple[JudgedSweep, ...]

    def json(self) -> dict[str, Any]:
        """A comparison's, and for each sweep the truth and whether it was found."""
        setting = {name: value for name, value in self.setting.items() if name != "sweeps"}
        told = {sweep.name: of_sweep(sweep) for sweep in self.sweeps}
        return compare_json.comparison(self.result, setting) | {"best": None, "sweeps": told}


def load(folder: Path) -> SweepTable:
    """A folder that such runs filled, finished or not, analysed anew.

    Raises:
        RecordError: there is none, or a run of it cannot be read.
    """
    result, setting = compare.load(folder)
    return judge(folder, setting, result.cells)


def judge(folder: Path, setting: dict[str, Any], cells: Sequence[Cell]) -> SweepTable:
    """What was said of each sweep, beside the truth."""
    result = compare.compare(cells)
    judged = [
        JudgedSweep(
            each["name"],
            each["cause"],
            each["grew"],
            result.batch_verdicts.get(each["name"]),
            {
                cell.batch_size: terms
                for cell in cells
                if cell.pipeline == each["name"] and (terms := _true_terms(folder, cell)) is not None
            },
        )
        for each in setting["sweeps"]
    ]
    return SweepTable(setting, result, tuple(judged))


def _true_terms(folder: Path, cell: Cell) -> dict[str, float] | None:
    """µs a sample, the mean over the cell's runs; `None` where none of them could say."""
    from whyidle_bench.cases.truth import read_spans, read_stamps
    from whyidle_bench.sweeps.truth import true_terms

    found = []
    # Of folders that were renamed by hand no rounds are known.
    for number, analysis in [(row.round, each) for row, each in cell.counted if row.round is not None]:
        run = folder / run_name(_cell_name(cell.pipeline, cell.batch_size), number)
        try:
            stamps = read_stamps(run)
        except (OSError, ValueError):
            continue  # It was killed before it could say.
        ended = (analysis.info.get("ended") or {}).get("status")
        # Of a run that was stopped the loop had stamped more than was recorded, or less.
        if ended == "ok" and (facts := analysis.facts) is not None:
            window = facts.window.begin_ns, facts.window.end_ns
            found.append(true_terms(stamps, read_spans(open_run(run)), window, cell.batch_size))
    known = [terms for terms in found if terms is not None]
    return {term: float(np.mean([terms[term] for terms in known])) for term in known[0]} if known else None


def plan(request: SweepRequest) -> Matrix:
    """A cell for each size of each sweep; nothing has run yet.

    Raises:
        WhyidleError: there are no such sweeps or sizes, or the folder is in use.
    """
    from whyidle.scenarios.registry import require_installed
    from whyidle_bench.sweeps.registry import sweeps

    chosen = sweeps(request.cases)
    require_installed("whyidle-bench batch-sizes")
    cells = [
        PlannedCell(
            name=_cell_name(sweep.name, size),
            title=f"{sweep.name}, batch {size}",
            cell=pending(sweep.name, size),
            trial=partial(_trial, sweep.name, size, request.seed),
        )
        for sweep in chosen
        for size in _sizes(sweep, request.batch_sizes)
    ]
    folder = free_folder(request.out, SCENARIO)
    repeats = request.repeats or REPEATS
    setting = {
        "scenario": SCENARIO,
        "device": DEVICE,
        "cpu_budget": cpu_budget().budget,
        "load": os.getloadavg()[0],
        "dataset": {},
        "repeats": repeats,
        "sweeps": [{"name": sweep.name, "cause": sweep.cause, "grew": sweep.grew} for sweep in chosen],
    }
    return Matrix(folder, cells, TARGET, setting, repeats=repeats, seed=request.seed)


def _trial(sweep: str, size: int, seed: int, number: int, folder: Path) -> tuple[SweepSpec, dict[str, Any]]:
    from whyidle_bench.sweeps.trial import SweepSpec

    told = {"scenario": SCENARIO, "case": f"{sweep} at batch {size}", "repetition": number}
    return SweepSpec(sweep, size, str(folder.resolve()), seed, number), {"trial": told}


def _cell_name(sweep: str, size: int) -> str:
    """As its run folders begin."""
    return f"{sweep}-b{size}"


def _sizes(sweep: Sweep, asked: Collection[int] | None) -> list[int]:
    """Those of a sweep that were asked for.

    Raises:
        WhyidleError: fewer than two of them are its own.
    """
    sizes = [size for size in sweep.sizes if not asked or size in asked]
    if len(sizes) < 2:
        listed = ", ".join(map(str, sweep.sizes))
        raise WhyidleError(
            f"--batch-sizes {','.join(map(str, asked or ()))}: {sweep.name} is planted at {listed}, and takes two of "
            "these. Leave the option out, or choose other sweeps with --cases."
        )
    return sizes


def of_sweep(sweep: JudgedSweep) -> dict[str, Any]:
    """What was planted and named; `true_terms` by batch size in µs a sample; the growth of the planted term, or of the
    whole where none was planted, in percent of the time per sample at the smaller size. `null` where too few sizes ran,
    and as a term that grew: none."""
    verdict, growth = sweep.verdict, sweep.growth
    return {
        "planted": {"cause": sweep.cause, "grew": sweep.grew},
        "named": None if verdict is None else {"cause": verdict.cause, "grew": verdict.grew},
        "right": sweep.right,
        "true_terms": {str(size): dict(terms) for size, terms in sweep.truth.items()},
        "growth_pct": None if growth is None else {"true": 100 * growth.true, "reported": 100 * growth.reported},
    }
