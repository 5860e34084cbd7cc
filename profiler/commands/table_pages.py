"""Pages of what is more than a run, or no recording from within: comparisons, tunings, runs seen from outside."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from whyidle.diagnosis_benchmark import batch_sizes as sweep_planted
from whyidle.diagnosis_benchmark import faults

from ..analyse.attached.attached import attached, is_attached
from ..analyse.attached.causes import findings_of, verdict_of
from ..analyse.cells.comparison import Cell, load
from ..record.comparison import is_comparison, read_comparison
from ..record.run import is_run, open_run
from ..tune.search.state import is_tuning
from . import cost_options, tune_folder

STANDARD_OUTPUT = "-"
"""In the place of a file's name."""


def is_table(folder: Path) -> bool:
    """Whether the folder has a page that is made here."""
    if is_run(folder):
        return is_attached(open_run(folder))
    return is_comparison(folder) or is_tuning(folder)


def page(arguments: argparse.Namespace, folder: Path, run_page: str) -> str:
    """The page of a folder that `is_table`. `run_page`: name of a run's own page in its folder.

    Raises:
        RecordError: something of it cannot be read.
        WhyidleError: the tuning has come to nothing yet.
    """
    if is_run(folder):
        return _attached(folder)
    if is_tuning(folder):
        from ..report.page import tune_page

        kept = tune_folder.load(folder)
        return tune_page.page(kept.tuning, kept.notices, kept.environment)
    return _comparison(arguments, folder, run_page)


def _attached(folder: Path) -> str:
    from ..report.page import attach_page

    run = open_run(folder)
    seen = attached(run)
    findings = findings_of(seen)
    return attach_page.page(run, seen, verdict_of(seen, findings), findings)


def _comparison(arguments: argparse.Namespace, folder: Path, run_page: str) -> str:
    from whyidle.diagnosis_benchmark.report import faults_page, sweeps_page

    from ..report.page import compare_page

    scenario = read_comparison(folder)[0].get("scenario")
    if scenario == faults.SCENARIO:
        planted = faults.load(folder)
        return faults_page.page(planted.confusion, planted.setting, planted.failed)
    if scenario == sweep_planted.SCENARIO:
        swept = sweep_planted.load(folder)
        return sweeps_page.page(swept.sweeps, swept.setting, swept.failed)
    result, setting = load(folder)
    cost_options.put_price(cost_options.price_of(arguments), result.cells, setting)
    if arguments.output == STANDARD_OUTPUT:
        # It is nowhere, so nothing can be reached from it.
        return compare_page.page(result, setting)
    start = folder if arguments.output is None else Path(arguments.output).absolute().parent
    return compare_page.page(result, setting, links(result.cells, start, run_page))


def runs_of(folder: Path) -> list[Path]:
    """The run folders of a comparison that are still there."""
    return [folder / name for cell in read_comparison(folder)[1] for name in cell.runs if is_run(folder / name)]


def links(cells: Sequence[Cell], start: Path, run_page: str) -> dict[str, str]:
    """Run folder → address of its page, where it has one, from the folder in which the page of all is written."""
    pages = {run: Path(run) / run_page for cell in cells for run in cell.runs}
    return {run: quote(os.path.relpath(page, start)) for run, page in pages.items() if page.is_file()}
