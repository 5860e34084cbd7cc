"""`stallscope report RUN`: a recorded run, or a whole comparison, in words or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from ..analyse.analysis import analyse
from ..analyse.attached import attached, is_attached
from ..analyse.attached_causes import findings_of, verdict_of
from ..analyse.compare import load
from ..errors import StallscopeError
from ..record.comparison import is_comparison
from ..record.run import RUN_JSON, is_run, open_run
from ..report import attach_json, attach_text, compare_text, contract, text
from .console import PLAIN_WIDTH, console, show, write_json

NAME = "report"
HELP = "Shows what a recorded run waited for."
EXAMPLE = "stallscope report runs/ssd/workers-b16-r0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_folders",
        metavar="RUN",
        type=Path,
        nargs="+",
        help="folder of a run or of a comparison; of a job on several hosts each host's run folder, or the one around "
        "them",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("--json", action="store_true", help="short for --format json")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file instead of the terminal")


def run(arguments: argparse.Namespace) -> int:
    folder, *others = _parts(arguments.run_folders)
    as_json = arguments.json or arguments.format == "json"
    if not others and not is_run(folder) and is_comparison(folder):
        result, setting = load(folder)
        if as_json:
            write_json(contract.comparison(result, setting), arguments.output or "-")
        else:
            _print(arguments.output, lambda target: compare_text.render(result, setting, target))
        return 0
    opened = open_run(folder)
    if not others and is_attached(opened):
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
        write_json(contract.report(analysis), arguments.output or "-")
    else:
        _print(arguments.output, lambda target: text.render(analysis, target))
    return 0


def _parts(folders: list[Path]) -> list[Path]:
    """The run folders to look at: those given, or the ones within a folder that is no run itself."""
    if len(folders) > 1 or is_run(folders[0]) or is_comparison(folders[0]):
        return folders
    return sorted(file.parent for file in folders[0].glob(f"*/{RUN_JSON}")) or folders


def _print(output: str | None, write: Callable[[Console], None]) -> None:
    if output is None:
        show(write, console())
        return
    try:
        with Path(output).open("w") as file:
            show(write, Console(file=file, width=PLAIN_WIDTH, highlight=False))
    except OSError as error:
        raise StallscopeError(f"cannot write {output}: {error.strerror}. Name another file.") from error
