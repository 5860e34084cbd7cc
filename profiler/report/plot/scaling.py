"""Speed-up by ranks as a picture: a line for each curve, beside the ideal one."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...analyse.cells.scaling import Curve, Scaling
from ..documents.scaling import HELD, names
from .batch_size import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito, told apart by colour-blind people."""
_MARKERS = "osD^vPX"
_PALE = "#666666"
_LETTERS = 46
"""Letters in a line of a panel's title."""


def write_scaling(scaling: Scaling, title: str, path: Path) -> None:
    """Draw into a file, of the kind its name ends in; the same curves give the same bytes.

    Raises:
        WhyidleError: it cannot be written.
    """
    save_picture(lambda: figure(scaling, title), path)


def figure(scaling: Scaling, title: str) -> Figure:
    """The picture, not yet in any file: a panel for each way of holding the batch size."""
    from matplotlib.figure import Figure

    panels = [(HELD[held], curves) for held in HELD if (curves := scaling.of(held))]
    drawn = Figure(figsize=(4.4 * max(1, len(panels)), 4.2), layout="constrained")
    drawn.suptitle(textwrap.fill(title, 44 * max(1, len(panels))), fontsize=11, fontweight="bold", x=0.01, ha="left")
    for axes, (words, curves) in zip(drawn.subplots(1, max(1, len(panels)), squeeze=False)[0], panels, strict=False):
        _panel(axes, words, curves)
    return drawn


def _panel(axes: Axes, words: str, curves: Sequence[Curve]) -> None:
    counts = sorted({point.ranks for curve in curves for point in curve.points})
    axes.plot([1, counts[-1]], [1, counts[-1]], color=_PALE, linestyle="--", linewidth=1, label="ideal")
    for number, (curve, said) in enumerate(zip(curves, names(curves), strict=True)):
        _line(axes, curve, number, f"{said} batch {curve.batch_size}".strip())
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_ylim(bottom=0)
    emulated = "emulated " if any(curve.emulated for curve in curves) else ""
    axes.set_xlabel("ranks")
    axes.set_ylabel(f"{emulated}speed-up against one rank")
    axes.set_title(textwrap.fill(words, _LETTERS), loc="left", fontsize=9, color=_PALE)
    axes.grid(True, color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8)


def _line(axes: Axes, curve: Curve, number: int, named: str) -> None:
    colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
    known = [(point.ranks, point.speedup) for point in curve.points if point.speedup is not None]
    values = [ratio.value for _, ratio in known]
    below = [ratio.value - ratio.low for _, ratio in known]
    above = [ratio.high - ratio.value for _, ratio in known]
    axes.errorbar(
        [ranks for ranks, _ in known],
        values,
        [below, above],
        color=colour,
        marker=marker,
        markersize=4.5,
        linewidth=1.4,
        capsize=2.5,
        label=named,
    )
    for point in curve.points:
        if point.cell.status == "oom":
            axes.plot(point.ranks, 0, color=colour, marker="x", clip_on=False)
            axes.annotate("OOM", (point.ranks, 0), (0, 4), textcoords="offset points", ha="center", color=colour)
