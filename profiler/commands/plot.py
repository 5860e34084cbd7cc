"""The pictures of a result, each an option that names a file: `--plot` and others.

What cannot be drawn or written is refused by a `WhyidleError` before anything is measured for it.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from ..errors import WhyidleError
from ..report.plot import PICTURES, Picture, check_picture, save_picture
from ..results.result import Result
from .options import require_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for picture in PICTURES:
        parser.add_argument(picture.option, type=Path, metavar="FILE", help=f"draw {picture.shows} (svg, png, pdf)")


def asked(arguments: argparse.Namespace) -> dict[Picture, Path]:
    """Give the pictures to draw, and where to."""
    return {picture: file for picture in PICTURES if (file := getattr(arguments, picture.name)) is not None}


def check(arguments: argparse.Namespace, made: Path | None = None) -> None:
    """Refuse what cannot be drawn where it is to be; `made`: a folder that will be there."""
    written = [getattr(arguments, name, None) for name in ("output", "html", "json")]
    for picture, file in asked(arguments).items():
        if str(file) in written:
            raise WhyidleError(f"{picture.option}: {file} is also where the result goes. Give each a file of its own.")
        check_picture(file, picture.option)
        require_folder(str(file), made, picture.option)


def draw(arguments: argparse.Namespace, result: Result) -> None:
    """Draw those that were asked for."""
    for picture, file in asked(arguments).items():
        save_picture(partial(result.figure, picture), file)
