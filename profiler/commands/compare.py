"""`whyidle compare SCENARIO`: trains with each loader at each batch size, and explains the table.

`whyidle compare RUN RUN …` explains a table of runs that were recorded before (`compare_runs.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from functools import partial

from whyidle.diagnosis_benchmark import batch_sizes, faults
from whyidle.diagnosis_benchmark.report import faults_text

from ..analyse.cells.comparison import Cell, compare
from ..capture.cpu_budget import cpu_budget
from ..errors import WhyidleError
from ..interrupts import end_like_ctrl_c
from ..matrix import experiment
from ..matrix.matrix import Matrix
from ..matrix.used import beyond_cpus
from ..results.comparisons import ComparisonResult
from ..results.result import CONFUSION, RANKS, TRACES
from ..terminal.comparison_progress import MatrixProgress
from ..terminal.console import console, show_comparison
from . import compare_options, compare_runs, cost_options, options, plot
from .compare_options import BATCH_SIZES, FAULTS, LOGS, RUNS, TRAININGS

add_arguments = compare_options.add_arguments


def run(arguments: argparse.Namespace) -> int:
    """0 when something was measured and judged, 1 when nothing was, 130 after Ctrl-C."""
    end_like_ctrl_c()
    plot.check(arguments, arguments.out)
    plot.check_page(arguments, arguments.out)
    kind = compare_options.kind_of(arguments)
    if kind in (FAULTS, BATCH_SIZES):
        plot.refuse(arguments, (TRACES, RANKS, CONFUSION), f"{kind} plants what it finds")
        plot.refuse_page(arguments, kind)
    compare_options.require_taken(arguments, kind)
    return _RUN[kind](arguments)


def _trainings(arguments: argparse.Namespace) -> int:
    cost_options.price_of(arguments)
    request = compare_options.of_trainings(arguments)
    matrix, variants = experiment.plan(request, lambda text: console(stderr=True).print(text, markup=False))
    cost_options.put(arguments, matrix.setting, variants)
    if arguments.plot and len({each.batch_size for each in variants}) < 2:
        raise WhyidleError("--plot draws what the batch size does: name two and more with --batch-sizes.")
    notices = [f"data: {notice}" for notice in matrix.setting["notices"]]
    notices += [f"CPUs: {notice}" for notice in beyond_cpus(request, cpu_budget().budget)]
    interrupted = matrix.run(_shown(arguments, matrix, notices))
    result = ComparisonResult(matrix.folder, made=(compare(matrix.cells), matrix.setting))
    show_comparison(result.document, result.contract, matrix.folder, arguments.json)
    # Of what is kept, as `report` would write it.
    plot.write_page(arguments, ComparisonResult(matrix.folder))
    try:
        plot.draw(arguments, result)
    except WhyidleError:
        # What was measured before Ctrl-C need not be enough for every picture.
        if not interrupted:
            raise
    return _exit_code(interrupted, any(cell.status == "ok" for cell in matrix.cells))


def _faults(arguments: argparse.Namespace) -> int:
    matrix = faults.plan(compare_options.of_faults(arguments))
    ahead = faults_text.ahead(matrix.runs_ahead, faults.RUN_SECONDS)
    interrupted = faults.measure(matrix, _shown(arguments, matrix, [ahead], partial(faults.said, matrix.setting)))
    table = faults.load(matrix.folder)
    show_comparison(table.document, table.json, matrix.folder, arguments.json)
    return _exit_code(interrupted, bool(table.confusion.cases))


def _batch_sizes(arguments: argparse.Namespace) -> int:
    matrix = batch_sizes.plan(compare_options.of_batch_sizes(arguments))
    ahead = faults_text.ahead(matrix.runs_ahead, batch_sizes.RUN_SECONDS)
    interrupted = matrix.run(_shown(arguments, matrix, [ahead]))
    table = batch_sizes.judge(matrix.folder, matrix.setting, matrix.cells)
    show_comparison(table.document, table.json, matrix.folder, arguments.json)
    if arguments.plot and table.result.batch_verdicts:
        table.plot(arguments.plot)
    return _exit_code(interrupted, bool(table.result.batch_verdicts))


_RUN: dict[str, Callable[[argparse.Namespace], int]] = {
    TRAININGS: _trainings,
    FAULTS: _faults,
    BATCH_SIZES: _batch_sizes,
    LOGS: cost_options.run_logs,
    RUNS: compare_runs.run,
}


def _shown(
    arguments: argparse.Namespace, matrix: Matrix, before: Iterable[str], said: Callable[[str, Cell], str] | None = None
) -> MatrixProgress:
    """The progress of its runs, after these lines.

    Raises:
        WhyidleError: the result could not be written where it should go.
    """
    options.require_folder(arguments.json, matrix.folder)
    target = console(stderr=True)
    for line in before:
        target.print(line, soft_wrap=True, markup=False)
    return MatrixProgress(target, matrix, arguments.no_live, said)


def _exit_code(interrupted: bool, judged: bool) -> int:
    return 130 if interrupted else int(not judged)
