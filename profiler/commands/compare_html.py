"""`compare --html FILE`: the table as a page, also of recorded runs, which have no folder of a comparison."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ..analyse.cells.comparison import Comparison, load
from ..errors import WhyidleError
from ..record.files import plain
from . import options, pages, table_pages

OPTION = "--html"
NAME = "html"
"""Of its value among the arguments."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(OPTION, metavar="FILE", help="write the result as a page: one file, also without a network")


def check(arguments: argparse.Namespace, made: Path | None = None) -> None:
    """Whether a page can be written there, before anything is measured for it; `made`: a folder that will be there.

    Raises:
        WhyidleError: it cannot.
    """
    if arguments.html == table_pages.STANDARD_OUTPUT:
        raise WhyidleError(f"{OPTION} -: a page goes into a file. Name one, such as {OPTION} compare.html.")
    options.require_folder(arguments.html, made, OPTION)


def refuse(arguments: argparse.Namespace, scenario: str) -> None:
    """
    Raises:
        WhyidleError: a page was asked for of a scenario whose page is another.
    """
    if arguments.html is not None:
        raise WhyidleError(
            f"{OPTION} is of tables of loaders, and {scenario} has a page of its own. Leave it out; afterwards "
            "`whyidle report FOLDER --format html` writes that page."
        )


def write_kept(arguments: argparse.Namespace, folder: Path) -> None:
    """The page of a comparison that is kept in a folder, where it was asked for: what `report` would write.

    Raises:
        WhyidleError: it cannot be written.
        RecordError: the comparison or a run of it cannot be read.
    """
    if arguments.html is not None:
        write(arguments, *load(folder))


def write(arguments: argparse.Namespace, result: Comparison, setting: dict[str, Any]) -> None:
    """The page, where it was asked for. Runs that have a page of their own are linked.

    Raises:
        WhyidleError: it cannot be written.
    """
    if arguments.html is None:
        return
    from ..report.page import compare_page

    links = table_pages.links(result.cells, Path(arguments.html).absolute().parent, pages.PAGE)
    pages.save(compare_page.page(result, setting, links), Path(arguments.html), OPTION)
    print(plain(f"written: {arguments.html}"), file=sys.stderr)
