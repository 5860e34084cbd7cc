"""`stallscope report RUN`: a recorded run, or a whole comparison, in words or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from ..analyse.analysis import analyse
from ..analyse.attached import attached, is_attached
from ..analyse.attached_causes import findings_of, verdict_of
from ..analyse.compare import load
from ..analyse.ranks import ranks_of
from ..errors import RecordError, StallscopeError
from ..record.comparison import is_comparison, read_comparison
from ..record.files import plain
from ..record.latest import latest
from ..record.run import RUN_JSON, is_run, open_run
from ..report import attach_json, attach_text, compare_text, contract, text
from ..report.command import command_line
from . import cost_options, faults, plot, sweep_planted
from .console import PLAIN_WIDTH, console, show, write_json

NAME = "report"
HELP = "Shows what a recorded run waited for (no RUN: the newest on this machine)."
EXAMPLE = "stallscope report runs/train-20260101-120000"

MOST_LISTED = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_folders",
        metavar="RUN",
        type=Path,
        nargs="*",
        help="folder of a run or of a comparison; of a job on several hosts each host's run folder, or the one around "
        "them",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("--json", action="store_true", help="short for --format json")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file instead of the terminal")
    plot.add_arguments(parser)
    cost_options.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    folder, *others = _parts(arguments.run_folders or [_newest()])
    as_json = arguments.json or arguments.format == "json"
    price = cost_options.price_of(arguments)
    _check_plots(arguments, folder, others)
    if not others and not is_run(folder) and is_comparison(folder):
        scenario = read_comparison(folder)[0].get("scenario")
        if scenario in (faults.SCENARIO, sweep_planted.SCENARIO):
            table = faults.load(folder) if scenario == faults.SCENARIO else sweep_planted.load(folder)
            if as_json:
                write_json(table.json(), arguments.output or "-")
            else:
                _print(arguments.output, table.render)
            if arguments.plot and isinstance(table, sweep_planted.SweepTable):
                table.plot(arguments.plot)
            return 0
        result, setting = load(folder)
        cost_options.put_price(price, result.cells, setting)
        if as_json:
            write_json(contract.comparison(result, setting), arguments.output or "-")
        else:
            _print(arguments.output, lambda target: compare_text.render(result, setting, target))
        plot.draw(arguments, result, setting)
        return 0
    opened = open_run(folder)
    if not others and is_attached(opened):
        plot.refuse(arguments, (plot.TRACES,), f"{folder} was watched from outside, which does not see that")
        seen = attached(opened)
        findings = findings_of(seen)
        verdict = verdict_of(seen, findings)
        if as_json:
            write_json(attach_json.report(seen, verdict, findings), arguments.output or "-")
        else:
            _print(arguments.output, lambda target: attach_text.render(seen, verdict, findings, target))
        return 0
    analysis = analyse(opened, *(open_run(other) for other in others))
    if as_json:
        write_json(contract.report(analysis) | cost_options.json_of(analysis, price), arguments.output or "-")
    else:
        _print(arguments.output, lambda target: text.render(analysis, target, cost_options.line_of(analysis, price)))
    plot.draw_run(arguments, analysis, folder)
    return 0


def _check_plots(arguments: argparse.Namespace, folder: Path, others: list[Path]) -> None:
    plot.check(arguments)
    of_cells = (plot.SIZES, plot.RANKS, plot.CONFUSION)
    if others or is_run(folder) or not is_comparison(folder):
        plot.refuse(arguments, of_cells, f"{folder} is no comparison. `stallscope compare RUN RUN` makes one of runs")
        return
    scenario = read_comparison(folder)[0].get("scenario")
    if scenario == faults.SCENARIO:
        plot.refuse(arguments, plot.PICTURES, f"{folder} compares planted faults")
    elif scenario == sweep_planted.SCENARIO:
        plot.refuse(arguments, (plot.TRACES, plot.RANKS, plot.CONFUSION), f"{folder} compares planted sweeps")


def _parts(folders: list[Path]) -> list[Path]:
    """The run folders to look at: those given, or the ones within a folder that is no run itself."""
    if len(folders) > 1 or is_run(folders[0]) or is_comparison(folders[0]):
        return folders
    within = sorted(file.parent for file in folders[0].glob(f"*/{RUN_JSON}"))
    if len(within) > 1 and not _are_one_job(within):
        raise StallscopeError(_choice(folders[0], within))
    return within or folders


def _are_one_job(folders: list[Path]) -> bool:
    """Whether they are the parts of one job that its hosts recorded."""
    try:
        runs = [open_run(folder) for folder in folders]
        ranks = ranks_of(runs)
    except RecordError:
        return False
    return not any(is_attached(run) for run in runs) and any((rank.world_size or 1) > 1 for rank in ranks)


def _choice(around: Path, folders: list[Path]) -> str:
    """What to choose from, the newest first."""
    runs = []
    for folder in folders:
        with suppress(RecordError):
            info = open_run(folder).info
            when = str(info.get("started_at") or "")[:16].replace("T", " ")
            runs.append((when, folder.name, command_line(info.get("command"))))
    runs.sort(reverse=True)
    newest = around / (runs[0][1] if runs else folders[-1].name)
    lines = [f"{around} holds {len(folders)} runs. Name one, such as `stallscope report {newest}`:"]
    lines += [f"  {when}  {name}  {plain(command)}" for when, name, command in runs[:MOST_LISTED]]
    if len(folders) > MOST_LISTED:
        lines.append(f"  and {len(folders) - MOST_LISTED} more")
    return "\n".join(lines)


def _newest() -> Path:
    folder = latest()
    if folder is None:
        raise StallscopeError(
            "no recording was made on this machine yet. Start one with `stallscope run -- python train.py`, or name "
            "its folder."
        )
    return folder


def _print(output: str | None, write: Callable[[Console], None]) -> None:
    if output is None:
        show(write, console())
        return
    try:
        with Path(output).open("w") as file:
            show(write, Console(file=file, width=PLAIN_WIDTH, highlight=False))
    except OSError as error:
        raise StallscopeError(f"cannot write {output}: {error.strerror}. Name another file.") from error
