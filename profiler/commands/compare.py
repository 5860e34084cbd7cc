"""`whyidle compare SCENARIO`: trains with each loader at each batch size, and explains the table.

`whyidle compare RUN RUN …` explains a table of runs that were recorded before (`compare_runs.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ..analyse.cells.comparison import compare
from ..capture.cpu_budget import cpu_budget
from ..errors import WhyidleError
from ..interrupts import end_like_ctrl_c
from ..matrix import experiment
from ..matrix.experiment import beyond_cpus
from ..results.comparisons import ComparisonResult
from ..terminal.console import console, show_comparison
from ..terminal.progress import MatrixProgress
from . import compare_options, compare_runs, cost_options, options, plot
from .compare_options import LOGS, RUNS, TRAININGS

add_arguments = compare_options.add_arguments


def run(arguments: argparse.Namespace) -> int:
    """0 when something was measured and judged, 1 when nothing was, 130 after Ctrl-C."""
    end_like_ctrl_c()
    plot.check(arguments, arguments.out)
    plot.check_page(arguments, arguments.out)
    kind = compare_options.kind_of(arguments)
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
    options.require_folder(arguments.json, matrix.folder)
    target = console(stderr=True)
    for line in notices:
        target.print(line, soft_wrap=True, markup=False)
    interrupted = matrix.run(MatrixProgress(target, matrix, arguments.no_live))
    result = ComparisonResult(matrix.folder, made=(compare(matrix.cells), matrix.setting))
    show_comparison(result.document, result.contract, matrix.folder, arguments.json, arguments.full)
    # Of what is kept, as `report` would write it.
    plot.write_page(arguments, ComparisonResult(matrix.folder))
    try:
        plot.draw(arguments, result)
    except WhyidleError:
        # What was measured before Ctrl-C need not be enough for every picture.
        if not interrupted:
            raise
    return 130 if interrupted else int(all(cell.status != "ok" for cell in matrix.cells))


_RUN: dict[str, Callable[[argparse.Namespace], int]] = {
    TRAININGS: _trainings,
    LOGS: cost_options.run_logs,
    RUNS: compare_runs.run,
}
