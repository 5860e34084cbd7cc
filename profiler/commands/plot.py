"""The pictures of a result, each an option that names a file: `--plot`, `--trace-plot`, …."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from ..report.plot import batch_size as batch_plot
from ..results.result import PICTURES, Picture, Result

NAMES = tuple(picture.name for picture in PICTURES)
"""Of their values among the arguments."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for picture in PICTURES:
        parser.add_argument(picture.option, type=Path, metavar="FILE", help=f"draw {picture.shows} (svg, png, pdf)")


def asked(arguments: argparse.Namespace, among: Iterable[Picture] = PICTURES) -> dict[Picture, Path]:
    """The pictures to draw, and where to."""
    return {picture: file for picture in among if (file := getattr(arguments, picture.name)) is not None}


def check(arguments: argparse.Namespace, made: Path | None = None) -> None:
    """Whether they can be drawn there, before anything is measured for them; `made`: a folder that will be there.

    Raises:
        WhyidleError: one of them cannot.
    """
    for picture, file in asked(arguments).items():
        batch_plot.check(file, made, picture.option)


def refuse(arguments: argparse.Namespace, among: Iterable[Picture], why: str) -> None:
    """
    Raises:
        WhyidleError: one of them was asked for where there is nothing to draw it from.
    """
    for picture in asked(arguments, among):
        raise picture.refused(why)


def check_of(arguments: argparse.Namespace, result: Result) -> None:
    """Whether they can be drawn of this result.

    Raises:
        WhyidleError: one of them cannot.
    """
    for picture in asked(arguments):
        if picture not in result.pictures:
            raise picture.refused(result.undrawn(picture))


def draw(arguments: argparse.Namespace, result: Result) -> None:
    """Those that were asked for.

    Raises:
        WhyidleError: there is nothing to draw, or it cannot be written.
    """
    for picture, file in asked(arguments).items():
        result.draw(picture, file)
