"""The pictures of a comparison, each an option that names a file: `--plot`, `--trace-plot`, …."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..analyse.cells.comparison import Comparison
from ..analyse.cells.scaling import scaling
from ..analyse.run.analysis import Analysis
from ..errors import WhyidleError
from ..report.documents import comparison as compare_text
from ..report.documents import run as text
from ..report.plot import batch_size as batch_plot
from ..report.plot import confusion as confusion_plot
from ..report.plot import scaling as scaling_plot
from ..report.plot import utilisation as trace_plot


@dataclass(frozen=True)
class Picture:
    option: str
    shows: str

    @property
    def name(self) -> str:
        """Of its value among the arguments."""
        return self.option.removeprefix("--").replace("-", "_")


SIZES = Picture("--plot", "time per sample by batch size")
TRACES = Picture("--trace-plot", "the device's utilisation over time")
RANKS = Picture("--scaling-plot", "speed-up by number of ranks")
CONFUSION = Picture("--confusion-plot", "what was taken for what on held-out data")
PICTURES = (SIZES, TRACES, RANKS, CONFUSION)
NAMES = tuple(picture.name for picture in PICTURES)


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
        raise WhyidleError(f"{picture.option} draws {picture.shows}; {why}. Leave it out.")


def draw(arguments: argparse.Namespace, result: Comparison, setting: dict[str, Any]) -> None:
    """Those of a comparison that were asked for.

    Raises:
        WhyidleError: there is nothing to draw, or it cannot be written.
    """
    title = compare_text.title(result, setting)
    wanted = asked(arguments)
    if SIZES in wanted:
        if not result.batch_verdicts:
            raise WhyidleError("--plot: no loader ran with two batch sizes, so no picture was drawn.")
        batch_plot.write(result.batch_verdicts, title, wanted[SIZES])
    if TRACES in wanted:
        trace_plot.write(trace_plot.traces_of(result), title, wanted[TRACES])
    if RANKS in wanted:
        if (found := scaling(result.cells)) is None:
            raise WhyidleError("--scaling-plot: nothing ran on several ranks, so no picture was drawn.")
        scaling_plot.write(found, title, wanted[RANKS])
    if CONFUSION in wanted:
        confusion_plot.write(result, setting, title, wanted[CONFUSION])


def draw_run(arguments: argparse.Namespace, analysis: Analysis, folder: Path) -> None:
    """The traces of one run. Of several ranks, the one whose figures are shown."""
    for file in asked(arguments, (TRACES,)).values():
        title = (analysis.info.get("device") or {}).get("title") or "device"
        generated = ", stand-in data" if text.stand_in_of(analysis) else ""
        trace_plot.write([trace_plot.trace_of(folder.name, analysis, folder)], f"{title}{generated}", file)
