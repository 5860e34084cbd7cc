"""`report --format html`: one offline page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..analyse.run.analysis import analyse
from ..errors import WhyidleError
from ..record.comparison import is_comparison
from ..record.files import write_text
from ..record.run import is_run, open_run
from ..terminal.console import console
from . import cost_options, table_pages

FORMATS = ("html",)
OPTIONS = {"with_runs": "--with-runs"}
"""Those of these formats alone: attribute, and as it is written."""
PAGE = "report.html"
"""A page's name, in the folder of what it is about, where none is given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of these formats."""
    parser.add_argument(
        "--with-runs", action="store_true", help="with html, of a comparison: each run's page too, linked from its cell"
    )


def write(arguments: argparse.Namespace, folder: Path, others: list[Path]) -> None:
    """Write what was asked for; `folder` and `others` as `report` resolved them."""
    if arguments.with_runs:
        if others or not is_comparison(folder):
            raise WhyidleError(f"--with-runs is of comparisons, and {folder} is none. Leave it out.")
        for run in table_pages.runs_of(folder):
            save(_run_page(arguments, run, []), run / PAGE)
    page = _page(arguments, folder, others)
    if arguments.output == table_pages.STANDARD_OUTPUT:
        sys.stdout.write(page)
        return
    target = folder / PAGE if arguments.output is None else Path(arguments.output)
    save(page, target)
    console().print(str(target), soft_wrap=True, markup=False, highlight=False)


def save(page: str, target: Path, option: str = "-o") -> None:
    """Into a file; `option` is what names another.

    Raises:
        WhyidleError: it could not be written; a file that was there before still is.
    """
    try:
        write_text(target, page)
    except OSError as error:
        raise WhyidleError(f"cannot write {target}: {error.strerror}. Name another file with {option}.") from error


def _page(arguments: argparse.Namespace, folder: Path, others: list[Path]) -> str:
    if not others and table_pages.is_table(folder):
        return table_pages.page(arguments, folder, PAGE)
    if others or is_run(folder):
        return _run_page(arguments, folder, others)
    raise WhyidleError(f"{folder} is no recording. Name the folder of one to get its page.")


def _run_page(arguments: argparse.Namespace, folder: Path, others: list[Path]) -> str:
    from ..report.page import run_page

    price = cost_options.price_of(arguments)
    runs = [open_run(each) for each in (folder, *others)]
    analysis = analyse(*runs)
    return run_page.page(analysis, runs, cost_options.line_of(analysis, price))
