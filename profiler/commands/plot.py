"""`--plot FILE` and `--trace-plot FILE`: the pictures of a comparison, and of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..analyse.analysis import Analysis
from ..analyse.compare import Comparison
from ..errors import StallscopeError
from ..report import batch_plot, compare_text, trace_plot

TRACE = "--trace-plot"


def plot(result: Comparison, setting: dict[str, Any], file: Path) -> None:
    """Draw what the batch size did.

    Raises:
        StallscopeError: there is nothing to draw, or it cannot be written.
    """
    if not result.batch_verdicts:
        raise StallscopeError("--plot: no loader ran with two batch sizes, so no picture was drawn.")
    batch_plot.write(result.batch_verdicts, compare_text.title(result, setting), file)


def check_trace(file: Path | None, made: Path | None = None) -> None:
    """Whether such a picture can be drawn there, before anything is measured for it.

    Raises:
        StallscopeError: it cannot.
    """
    if file is not None:
        batch_plot.check(file, made, TRACE)


def plot_traces(result: Comparison, setting: dict[str, Any], file: Path | None) -> None:
    """Draw when the device of each cell computed, if that was asked for.

    Raises:
        StallscopeError: there is nothing to draw, or it cannot be written.
    """
    if file is not None:
        trace_plot.write(trace_plot.traces_of(result), compare_text.title(result, setting), file)


def plot_trace(analysis: Analysis, folder: Path, file: Path | None) -> None:
    """The same of one run."""
    if file is not None:
        title = (analysis.info.get("device") or {}).get("title") or "device"
        trace_plot.write([trace_plot.trace_of(folder.name, analysis, folder)], str(title), file)
