"""`stallscope report RUN`: a recorded run, or a whole comparison, in words or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from ..analyse.analysis import analyse
from ..analyse.compare import load
from ..errors import StallscopeError
from ..record.comparison import is_comparison
from ..record.run import is_run, open_run
from ..report import compare_text, contract, text
from .console import PLAIN_WIDTH, console, show, write_json

NAME = "report"
HELP = "Shows what a recorded run waited for."
EXAMPLE = "stallscope report runs/ssd/workers-b16-r0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="folder of a run, or of a comparison")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("--json", action="store_true", help="short for --format json")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file instead of the terminal")


def run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.run_folder
    as_json = arguments.json or arguments.format == "json"
    if not is_run(folder) and is_comparison(folder):
        result, setting = load(folder)
        if as_json:
            write_json(contract.comparison(result, setting), arguments.output or "-")
        else:
            _print(arguments.output, lambda target: compare_text.render(result, setting, target))
        return 0
    analysis = analyse(open_run(folder))
    if as_json:
        write_json(contract.report(analysis), arguments.output or "-")
    else:
        _print(arguments.output, lambda target: text.render(analysis, target))
    return 0


def _print(output: str | None, write: Callable[[Console], None]) -> None:
    if output is None:
        show(write, console())
        return
    try:
        with Path(output).open("w") as file:
            show(write, Console(file=file, width=PLAIN_WIDTH, highlight=False))
    except OSError as error:
        raise StallscopeError(f"cannot write {output}: {error.strerror}. Name another file.") from error
