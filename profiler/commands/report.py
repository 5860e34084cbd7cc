"""`whyidle report RUN`: a recorded run, or a whole comparison, in words, as a page, or for other programs."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import ModuleType

from whyidle.diagnosis_benchmark import batch_sizes as sweep_planted
from whyidle.diagnosis_benchmark import faults

from ..analyse.attached.attached import attached, is_attached
from ..analyse.attached.causes import findings_of, verdict_of
from ..analyse.cells.comparison import load
from ..analyse.ranks.membership import ranks_of
from ..analyse.run.analysis import analyse
from ..errors import RecordError, WhyidleError
from ..record.comparison import is_comparison, read_comparison
from ..record.files import plain
from ..record.run import is_run, open_run, runs_within
from ..report.contract import attached as attach_json
from ..report.contract import run as contract
from ..report.documents import attached as attach_text
from ..report.documents import comparison as compare_text
from ..report.documents import run as text
from ..report.documents import tuning as tune_text
from ..report.render.text import show as show_text
from ..report.words.command import command_line
from ..terminal.console import show_in, write_json
from ..tune.search.state import is_tuning
from . import cost_options, exports, options, pages, plot, summaries, tune_folder

NAME = "report"
HELP = "Shows what a recorded run waited for (no RUN: the newest on this machine)."
EXAMPLE = "whyidle report runs/train-20260101-120000"

FORMATS = (pages, exports, summaries)
"""What lays a run out otherwise than as text or JSON: each has its `FORMATS`, its options, and a `write`."""
MOST_LISTED = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_folders",
        metavar="RUN",
        type=Path,
        nargs="*",
        help="folder of a run, a comparison or a tuning; of a job on several hosts each host's run folder, or the one "
        "around them",
    )
    formats = ("text", "json", *(name for others in FORMATS for name in others.FORMATS))
    parser.add_argument("--format", choices=formats, default="text", help="default: text")
    parser.add_argument("--json", action="store_true", help="short for --format json")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file instead of the terminal")
    for others in FORMATS:
        others.add_arguments(parser)
    plot.add_arguments(parser)
    cost_options.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    code = _report(arguments)
    _say_where(arguments)
    return code


def _say_where(arguments: argparse.Namespace) -> None:
    """On stderr, after a file was named: a command that says nothing may have done nothing."""
    # A page's path is what html prints; of a folder its tables were listed.
    told = arguments.format in pages.FORMATS and not arguments.json
    if arguments.output not in (None, "-") and not told and not Path(arguments.output).is_dir():
        print(plain(f"written: {arguments.output}"), file=sys.stderr)


def _report(arguments: argparse.Namespace) -> int:
    folder, *others = _parts(arguments.run_folders or [_newest()])
    if arguments.json and arguments.format not in ("json", arguments.parser.get_default("format")):
        raise WhyidleError(
            f"--json is short for --format json, and --format {arguments.format} asks for another. Give one of them."
        )
    as_json = arguments.json or arguments.format == "json"
    chosen = next((other for other in FORMATS if arguments.format in other.FORMATS and not as_json), None)
    _check_options(arguments, chosen)
    if chosen is not None:
        if chosen is not pages and not others and not is_run(folder) and is_tuning(folder):
            raise WhyidleError(_of_tuning(folder, arguments.format))
        chosen.write(arguments, folder, others)
        return 0
    price = cost_options.price_of(arguments)
    if not others and not is_run(folder) and is_tuning(folder):
        plot.refuse(arguments, plot.PICTURES, f"{folder} is a tuning")
        kept = tune_folder.load(folder)
        if as_json:
            write_json(kept.json, arguments.output or "-")
        else:
            show_in(arguments.output, lambda target: show_text(tune_text.document(kept.tuning, kept.notices), target))
        return 0
    _check_plots(arguments, folder, others)
    if options.is_comparison_alone(folder, others):
        scenario = read_comparison(folder)[0].get("scenario")
        if scenario in (faults.SCENARIO, sweep_planted.SCENARIO):
            table = faults.load(folder) if scenario == faults.SCENARIO else sweep_planted.load(folder)
            if as_json:
                write_json(table.json(), arguments.output or "-")
            else:
                show_in(arguments.output, table.render)
            if arguments.plot and isinstance(table, sweep_planted.SweepTable):
                table.plot(arguments.plot)
            return 0
        result, setting = load(folder)
        cost_options.put_price(price, result.cells, setting)
        if as_json:
            write_json(contract.comparison(result, setting), arguments.output or "-")
        else:
            show_in(arguments.output, lambda target: show_text(compare_text.document(result, setting), target))
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
            show_in(arguments.output, lambda target: show_text(attach_text.document(seen, verdict, findings), target))
        return 0
    analysis = analyse(opened, *(open_run(other) for other in others))
    if as_json:
        write_json(contract.report(analysis) | cost_options.json_of(analysis, price), arguments.output or "-")
    else:
        show_in(
            arguments.output,
            lambda target: show_text(text.document(analysis, cost_options.line_of(analysis, price)), target),
        )
    plot.draw_run(arguments, analysis, folder)
    return 0


def _newest() -> Path:
    """Said, since it may be anyone's: on stderr, beside whatever is written."""
    folder = options.newest()
    print(f"whyidle: the newest recording: {plain(str(folder))}", file=sys.stderr)
    return folder


def _check_options(arguments: argparse.Namespace, chosen: ModuleType | None) -> None:
    """Nothing that was asked for may be left out silently."""
    for other in FORMATS:
        for name, option in other.OPTIONS.items():
            if other is not chosen and getattr(arguments, name) != arguments.parser.get_default(name):
                raise WhyidleError(f"{option} belongs to --format {' or '.join(other.FORMATS)}. Leave it out.")
    if chosen is not None:
        plot.refuse(arguments, plot.PICTURES, f"--format {arguments.format} has no pictures beside it")


def _of_tuning(folder: Path, format_: str) -> str:
    """Why a tuning has no such format, and what to name instead."""
    runs = runs_within(folder)
    recording = f", or name a recording in it, such as {runs[0]}" if runs else ""
    return f"{folder} is a tuning, of which --format {format_} is not made: take text, json or html{recording}."


def _check_plots(arguments: argparse.Namespace, folder: Path, others: list[Path]) -> None:
    plot.check(arguments)
    of_cells = (plot.SIZES, plot.RANKS, plot.CONFUSION)
    if not options.is_comparison_alone(folder, others):
        plot.refuse(arguments, of_cells, f"{folder} is no comparison. `whyidle compare RUN RUN` makes one of runs")
        return
    scenario = read_comparison(folder)[0].get("scenario")
    if scenario == faults.SCENARIO:
        plot.refuse(arguments, plot.PICTURES, f"{folder} compares planted faults")
    elif scenario == sweep_planted.SCENARIO:
        plot.refuse(arguments, (plot.TRACES, plot.RANKS, plot.CONFUSION), f"{folder} compares planted sweeps")


def _parts(folders: list[Path]) -> list[Path]:
    """The run folders to look at: those given, or the ones within a folder that is no run itself."""
    if len(folders) > 1 or is_run(folders[0]) or is_comparison(folders[0]) or is_tuning(folders[0]):
        return folders
    within = runs_within(folders[0])
    if len(within) > 1 and not _are_one_job(within):
        raise WhyidleError(_choice(folders[0], within))
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
            runs.append((_moment(info.get("started_at")), folder.name, command_line(info.get("command"))))
    runs.sort(reverse=True)
    newest = around / (runs[0][1] if runs else folders[-1].name)
    lines = [f"{around} holds {len(folders)} runs. Name one, such as `whyidle report {newest}`:"]
    lines += [f"  {_when(began)}  {name}  {plain(command)}" for began, name, command in runs[:MOST_LISTED]]
    if len(folders) > MOST_LISTED:
        lines.append(f"  and {len(folders) - MOST_LISTED} more")
    return "\n".join(lines)


def _moment(told: object) -> float:
    """Unix time of a run's start, which it tells in the local time of its host; 0 where it does not."""
    for offset in ("%z", ""):
        with suppress(ValueError, OverflowError, OSError):
            moment = datetime.strptime(str(told), f"%Y-%m-%dT%H:%M:%S{offset}").timestamp()
            _when(moment)  # In the time of who reads it, the year may be none any more.
            return moment
    return 0.0


def _when(moment: float) -> str:
    """In the local time of who reads it, so that times of different hosts stand beside each other."""
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M") if moment else " " * 16
