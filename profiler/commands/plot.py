"""The pictures of a result, each an option that names a file: `--plot`, …, and the page of `compare --html`.

What cannot be drawn or written is refused by a `WhyidleError` before anything is measured for it.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from ..errors import WhyidleError
from ..record.files import plain
from ..record.run import PAGES, refuse_recorded
from ..report.plot import PICTURES, Picture, check_picture, save_picture
from ..results.result import Result
from ..terminal.console import write_file
from .options import require_folder

NAMES = tuple(picture.name for picture in PICTURES)
"""Names of their values among the arguments."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for picture in PICTURES:
        parser.add_argument(picture.option, type=Path, metavar="FILE", help=f"draw {picture.shows} (svg, png, pdf)")


def add_page_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--html", metavar="FILE", help="write the result as a page (one file, needs no network)")


def asked(arguments: argparse.Namespace) -> dict[Picture, Path]:
    """Give the pictures to draw, and where to."""
    return {picture: file for picture in PICTURES if (file := getattr(arguments, picture.name)) is not None}


def check(arguments: argparse.Namespace, made: Path | None = None) -> None:
    """Refuse what cannot be drawn where it is to be; `made`: a folder that will be there."""
    for picture, file in asked(arguments).items():
        check_picture(file, picture.option)
        require_folder(str(file), made, picture.option)


def draw(arguments: argparse.Namespace, result: Result) -> None:
    """Draw those that were asked for."""
    for picture, file in asked(arguments).items():
        save_picture(partial(result.figure, picture), file)


def check_page(arguments: argparse.Namespace, made: Path | None = None) -> None:
    """Refuse a page that cannot be written where it is to be; `made`: a folder that will be there."""
    if arguments.html == "-":
        raise WhyidleError("--html -: a page cannot go to stdout. Name a file, such as --html compare.html.")
    require_folder(arguments.html, made, "--html")
    if arguments.html is not None:
        refuse_recorded(Path(arguments.html), PAGES, " with --html")


def write_page(arguments: argparse.Namespace, result: Result) -> None:
    """Write the page, where it was asked for."""
    if arguments.html is not None:
        target = Path(arguments.html)
        write_file(result.page(target.absolute().parent), target, " with --html", PAGES)
        print(plain(f"written: {target}"), file=sys.stderr)
