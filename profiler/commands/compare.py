"""`whyidle compare`: trains with each loader at each batch size, and explains the table; or explains a table of runs
that were recorded before, or of published logs.

Each of the three kinds of comparison takes options of its own; the others are refused by name.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ..analyse.cells.comparison import cells_of_runs, compare, differences
from ..analyse.run.window import or_none
from ..capture.limits import cpu_budget
from ..errors import WhyidleError
from ..interrupts import end_like_ctrl_c
from ..matrix import experiment
from ..record.comparison import is_comparison
from ..record.files import plain
from ..record.run import PAGES, is_run, refuse_recorded
from ..report.plot import PICTURES
from ..results.comparisons import ComparisonResult
from ..terminal.console import console, show_result, shown_again, write_file
from ..terminal.progress import MatrixProgress
from . import cost_options, options, plot

_PRINTED = {"json", "no_live", "full"}
LOGS = {"logs", "relative_to", "target", "prices"} | _PRINTED
RUNS = {"html", *(picture.name for picture in PICTURES)} | _PRINTED
"""Names among the arguments of the options that comparisons of published logs and of recorded runs take; one of
trainings takes all but `--logs`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "whyidle compare [options] SCENARIO\n       whyidle compare [--json FILE] [--plot FILE] [--html FILE] RUN RUN …"
    )
    parser.add_argument(
        "what",
        nargs="+",
        metavar="SCENARIO|RUN",
        help="name of a scenario (`whyidle scenarios` lists them), or folders of two or more recorded runs",
    )
    add, names, count, several = parser.add_argument, options.names, options.count, _counts
    add("--experiment", metavar="NAME", help="experiment of the scenario (default: its first)")
    add("--as-published", action="store_true", help="use the study's own sizes, however long they take")
    add("--data", type=Path, metavar="DIR", help="folder of data (default: the scenario's own)")
    devices = "devices: auto, cpu, cuda, emulated:NAME (default: auto)"
    add("--device", type=names, default=("auto",), metavar="A,B", help=devices)
    add("--net", type=names, metavar="A,B", help="nets (default: the experiment's; on the CPU a small one)")
    add("--pipelines", type=names, metavar="A,B", help="loaders (default: the experiment's)")
    add("--batch-sizes", type=several, metavar="N,N", help="per rank (default: the experiment's)")
    add("--feed", type=_feeds, metavar="A,B", help="real, synthetic (always one batch), loader-only")
    add("--store", type=names, metavar="A,B", help="how samples are stored, where there is a choice")
    add("--ranks", type=several, metavar="N,N", help="processes that train together, one device each")
    add("--interconnect", type=names, metavar="A,B", help="link over which emulated ranks exchange gradients")
    add("--threads", type=several, metavar="N,N", help="CPU threads of the computation")
    stop = parser.add_mutually_exclusive_group()
    stop.add_argument("--epochs", type=count, metavar="N", help="passes over the data per run")
    stop.add_argument("--iterations", type=count, metavar="N", help="batches per run, whatever their size")
    add("--repeats", type=count, metavar="N", help="runs per cell (default: the experiment's)")
    add("--budget", type=options.seconds, metavar="SECONDS", help="start only runs that still fit into this time")
    add("--first", type=names, metavar="A,B", help="loaders that run all their rounds before the others")
    add("--workers", type=count, metavar="N", help="a loader (default: the CPUs of this job)")
    add("--prefetch", type=count, default=2, metavar="N", help="batches ahead per worker (default: 2)")
    add("--limit", type=count, metavar="N", help="use only N samples")
    add("--no-augment", action="store_true", help="only decode and resize")
    seed = "is not a whole number from 0 to 4294967295"
    add(
        "--seed",
        type=options.number(seed, 0, 2**32 - 1, int),
        default=0,
        metavar="N",
        help="of order and augmentation (default: 0)",
    )
    roofline = "measure between rounds how fast this machine could prepare samples (default: with several loaders)"
    add("--roofline", action=argparse.BooleanOptionalAction, help=roofline)
    options.add_full(parser)
    add("--json", metavar="FILE", help="write the result as JSON (- is stdout)")
    plot.add_arguments(parser)
    add("--html", metavar="FILE", help="write the result as a page (one file, needs no network)")
    add("--out", type=Path, metavar="DIR", help="folder for the runs (default: runs/…)")
    add("--no-live", action="store_true", help="plain lines instead of the live view")
    cost_options.add_arguments(parser, logs=True)


def run(arguments: argparse.Namespace) -> int:
    """Return 0 when something was measured and judged, 1 when nothing was, 130 after Ctrl-C."""
    end_like_ctrl_c()
    plot.check(arguments, arguments.out)
    if arguments.html == "-":
        raise WhyidleError("--html -: a page cannot go to stdout. Name a file, such as --html compare.html.")
    options.require_folder(arguments.html, arguments.out, "--html")
    if arguments.html is not None:
        refuse_recorded(Path(arguments.html), PAGES, " with --html")
    what: list[str] = arguments.what
    if len(what) > 1 or is_run(Path(what[0])) or is_comparison(Path(what[0])):
        kind, taken = _recorded_runs, RUNS
        others_are = "trainings that `compare` starts; these runs are already recorded"
    elif arguments.logs:
        kind, taken, others_are = cost_options.run_logs, LOGS, "trainings: --logs starts none"
    else:
        return _trainings(arguments)
    named = {"verb", "run", "parser", "what"} | taken
    options.refuse_given(arguments, (name for name in vars(arguments) if name not in named), others_are)
    return kind(arguments)


def _trainings(arguments: argparse.Namespace) -> int:
    cost_options.price_of(arguments)
    target = console(stderr=True)
    matrix, variants = experiment.plan(arguments, lambda text: target.print(text, markup=False))
    cost_options.put(arguments, matrix.setting, variants)
    if arguments.plot and len({each.batch_size for each in variants}) < 2:
        raise WhyidleError("--plot draws what the batch size does: name two and more with --batch-sizes.")
    notices = [f"data: {notice}" for notice in matrix.setting["notices"]]
    beyond = experiment.beyond_cpus(arguments.threads, arguments.workers, cpu_budget().budget)
    options.require_folder(arguments.json, matrix.folder)
    for line in (*notices, *(f"CPUs: {notice}" for notice in beyond)):
        target.print(line, soft_wrap=True, markup=False)
    interrupted = matrix.run(MatrixProgress(target, matrix, arguments.no_live))
    result = ComparisonResult(matrix.folder, made=(compare(matrix.cells), matrix.setting))
    show_result(result.document, result.contract, arguments.json, arguments.full)
    if arguments.json != "-":
        console().print(f"\n{shown_again(matrix.folder, arguments.full)}", soft_wrap=True, markup=False)
    # Of what is kept, as `report` would write it.
    _write_page(arguments, ComparisonResult(matrix.folder))
    try:
        plot.draw(arguments, result)
    except WhyidleError:
        # What was measured before Ctrl-C need not be enough for every picture.
        if not interrupted:
            raise
    return 130 if interrupted else int(all(cell.status != "ok" for cell in matrix.cells))


def _recorded_runs(arguments: argparse.Namespace) -> int:
    """Group, judge and print them."""
    folders = _folders(arguments.what)
    options.require_folder(arguments.json)
    cells = cells_of_runs(folders)
    compared = compare(cells)
    if arguments.plot and not compared.batch_verdicts:
        raise WhyidleError("--plot: no loader ran with two batch sizes, so there is nothing to draw. Leave it out.")
    info, facts = cells[0].analyses[0].info, cells[0].facts[0]
    setting: dict[str, Any] = {
        "scenario": None,
        "device": {"kind": facts.device_kind, "title": facts.device_kind} | (info.get("device") or {}),
        "cpu_budget": or_none(facts.sampled.cpu_budget),
        "dataset": {},
        "notices": differences(cells),
    }
    result = ComparisonResult(folders[0], made=(compared, setting))
    show_result(result.document, result.contract, arguments.json, arguments.full)
    _write_page(arguments, result)
    plot.draw(arguments, result)
    return 0


def _write_page(arguments: argparse.Namespace, result: ComparisonResult) -> None:
    """Write the page, where it was asked for."""
    if arguments.html is not None:
        target = Path(arguments.html)
        write_file(result.page(target.absolute().parent), target, " with --html", PAGES)
        print(plain(f"written: {target}"), file=sys.stderr)


def _folders(what: list[str]) -> list[Path]:
    """Give the run folders; whatever else was named is a mistake."""
    folders = [Path(word) for word in what]
    for folder in folders:
        if is_comparison(folder) and not is_run(folder):
            raise WhyidleError(f"{folder} is a comparison already: `whyidle report {folder}` shows it.")
        if len(folders) == 1:
            raise WhyidleError(
                f"{folder} is one run; a comparison takes two and more. `whyidle report {folder}` shows one."
            )
        if not is_run(folder):
            raise WhyidleError(
                f"{folder} is not a run folder. Name either one scenario, or two and more folders that "
                "`whyidle run` wrote."
            )
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise WhyidleError("the same run is named twice; repeats are runs of their own.")
    return folders


def _feeds(text: str) -> tuple[str, ...]:
    from whyidle.scenarios.variant import FEEDS

    named = options.names(text)
    if unknown := [name for name in named if name not in FEEDS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(FEEDS)}")
    return named


def _counts(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(options.count(part) for part in text.split(",")))
