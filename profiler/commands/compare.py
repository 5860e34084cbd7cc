"""`whyidle compare SCENARIO`: trains with each loader at each batch size, and explains the table.

`whyidle compare RUN RUN …` explains a table of runs that were recorded before (`compare_runs.py`).
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from pathlib import Path

from whyidle.diagnosis_benchmark import batch_sizes as sweep_planted
from whyidle.diagnosis_benchmark import faults

from ..analyse.cells.comparison import compare
from ..errors import WhyidleError
from ..results.comparisons import ComparisonResult
from ..results.result import CONFUSION, RANKS, TRACES
from ..terminal.console import show_comparison
from . import compare_runs, cost_options, options, plot
from .sweep import Sweep

NAME = "compare"
HELP = (
    "Trains a scenario with each loader at each batch size, and explains the table.\n"
    "The scenario faults instead runs trainings with planted faults, and counts what the diagnosis names;\n"
    "batch-sizes runs trainings of which it is known what a larger batch does to them, and says what was found.\n"
    "Named two or more recorded runs, it compares those: the same training at different batch sizes, say."
)
EXAMPLE = "whyidle compare ssd --device emulated:v100 --batch-sizes 8,16 --data data/voc"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "whyidle compare [options] SCENARIO\n       whyidle compare [--json FILE] [--plot FILE] [--html FILE] RUN RUN …"
    )
    parser.add_argument(
        "what",
        nargs="+",
        metavar="SCENARIO|RUN",
        help="name of a scenario (`whyidle scenarios` lists them), or folders of two and more recorded runs",
    )
    parser.add_argument("--experiment", metavar="NAME", help="which of the scenario's (default: its first)")
    parser.add_argument("--full", action="store_true", help="the study's own sizes, however long they take")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the data (default: what the scenario finds or makes)")
    parser.add_argument(
        "--device", type=_names, default=["auto"], metavar="A,B", help="auto, cpu, cuda, emulated:NAME (default: auto)"
    )
    parser.add_argument("--net", type=_names, metavar="A,B", help="default: the experiment's; a small one on the CPU")
    parser.add_argument("--pipelines", type=_names, metavar="A,B", help="loaders (default: the experiment's)")
    parser.add_argument("--batch-sizes", type=_counts, metavar="N,N", help="of a rank (default: the experiment's)")
    parser.add_argument("--feed", type=_feeds, metavar="A,B", help="real, synthetic (one batch again), loader-only")
    parser.add_argument("--store", type=_names, metavar="A,B", help="how samples are stored, where there is a choice")
    parser.add_argument("--ranks", type=_counts, metavar="N,N", help="processes that train together, a device each")
    parser.add_argument(
        "--interconnect", type=_names, metavar="A,B", help="what emulated ranks exchange gradients over"
    )
    parser.add_argument("--threads", type=_counts, metavar="N,N", help="CPU threads of the computation")
    stop = parser.add_mutually_exclusive_group()
    stop.add_argument("--epochs", type=options.count, metavar="N", help="passes over the data a run")
    stop.add_argument("--iterations", type=options.count, metavar="N", help="batches a run, whatever their size")
    parser.add_argument("--repeats", type=options.count, metavar="N", help="runs a cell (default: the experiment's)")
    parser.add_argument(
        "--budget", type=options.seconds, metavar="SECONDS", help="begin only runs that still fit into this time"
    )
    parser.add_argument("--first", type=_names, metavar="A,B", help="loaders whose rounds all come before others run")
    parser.add_argument("--workers", type=options.count, metavar="N", help="default: the CPUs this job may use")
    parser.add_argument(
        "--prefetch", type=options.count, default=2, metavar="N", help="batches ahead a worker (default: 2)"
    )
    parser.add_argument("--limit", type=options.count, metavar="N", help="use N samples only")
    parser.add_argument("--no-augment", action="store_true", help="decode and resize only")
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="order and augmentation (default: 0)")
    parser.add_argument("--activity-windows", action="store_true", help="record every kernel of a few steps (CUDA)")
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON (- is stdout)")
    plot.add_arguments(parser)
    plot.add_page_argument(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the runs (default: runs/…)")
    parser.add_argument("--no-live", action="store_true", help="plain lines instead of the live view")
    cost_options.add_arguments(parser, logs=True)
    faults.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    for stop in (signal.SIGTERM, signal.SIGHUP):
        # A supervisor's stop and a closed terminal keep what was measured, as Ctrl-C does.
        signal.signal(stop, signal.default_int_handler)
    plot.check(arguments, arguments.out)
    plot.check_page(arguments, arguments.out)
    if compare_runs.are_runs(arguments.what):
        return compare_runs.run(arguments)
    [arguments.scenario] = arguments.what
    if arguments.scenario in (faults.SCENARIO, sweep_planted.SCENARIO):
        plot.refuse(arguments, (TRACES, RANKS, CONFUSION), f"{arguments.scenario} plants what it finds")
        plot.refuse_page(arguments, arguments.scenario)
    if arguments.scenario == faults.SCENARIO:
        return faults.run(arguments)
    if arguments.scenario == sweep_planted.SCENARIO:
        return sweep_planted.run(arguments)
    faults.refuse(arguments)
    if arguments.logs:
        return cost_options.run_logs(arguments)
    cost_options.price_of(arguments)
    sweep = Sweep(arguments)
    cost_options.put(arguments, sweep.setting, sweep.keys)
    if arguments.plot and len({key.batch_size for key in sweep.keys}) < 2:
        raise WhyidleError("--plot draws what the batch size does: name two and more with --batch-sizes.")
    interrupted = sweep.run()
    measured = compare([sweep.cell(key) for key in sweep.keys])
    result = ComparisonResult(sweep.folder, made=(measured, sweep.setting))
    show_comparison(result.render, result.contract, sweep.folder, arguments.json)
    # Of what is kept, as `report` would write it.
    plot.write_page(arguments, ComparisonResult(sweep.folder))
    try:
        plot.draw(arguments, result)
    except WhyidleError:
        # What was measured before Ctrl-C need not be enough for every picture.
        if not interrupted:
            raise
    return 130 if interrupted else int(all(sweep.status[k][0] != "ok" for k in sweep.keys))


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name for name in text.split(",") if name))


def _feeds(text: str) -> Sequence[str]:
    from whyidle.scenarios.variant import FEEDS

    named = _names(text)
    if unknown := [name for name in named if name not in FEEDS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(FEEDS)}")
    return named


def _seed(text: str) -> int:
    if not text.isdigit() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 4294967295")
    return int(text)


def _counts(text: str) -> Sequence[int]:
    return list(dict.fromkeys(options.count(part) for part in text.split(",")))
