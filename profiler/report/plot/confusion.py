"""Confusion matrices as a picture: a panel for each cell, rows for true classes, columns for predicted ones."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analyse.cells.comparison import Comparison
from ...analyse.cells.training_results import results
from ...errors import WhyidleError
from ..documents.cells_table import namer
from ..documents.training_results import class_names
from .batch_size import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 6
"""The most accurate cells; more would be too small to read."""
MOST_WRITTEN = 20
"""Most classes for which each field has its figure."""
LEAST_WRITTEN = 0.5
"""Percent; less is left empty."""
_INK = "#222222"
_DARK = 0.55
"""Share from which letters are white."""


@dataclass(frozen=True)
class Panel:
    title: str
    matrix: Sequence[Sequence[int]]
    """Rows: true class; columns: predicted class."""
    classes: Sequence[str]


def panels(result: Comparison, setting: dict[str, Any]) -> list[Panel]:
    """Make those of cells evaluated on held-out data, best first where there are too many."""
    known = [(each, matrix) for each in results(result.cells) if (matrix := each.confusion) is not None]
    if len(known) > MOST_PANELS:
        known.sort(key=lambda pair: -(mean.value if (mean := pair[0].metric("accuracy")) else 0.0))
    drawn = []
    name = namer([each.cell for each, _ in known])
    for each, matrix in known[:MOST_PANELS]:
        accuracy = each.metric("accuracy")
        right = f", accuracy {accuracy.value:.3f}" if accuracy is not None else ""
        drawn.append(Panel(name(each.cell) + right, matrix, class_names(each, setting)))
    return drawn


def write_confusion(result: Comparison, setting: dict[str, Any], title: str, path: Path) -> None:
    """Draw all of them into a file (`check_picture` says beforehand whether that can be done).

    Raises:
        WhyidleError: there is none, or it cannot be written.
    """
    found = panels(result, setting)
    if not found:
        raise WhyidleError(
            "--confusion-plot: no training was evaluated on held-out classes, so there is nothing to draw."
        )
    save_picture(lambda: figure(found, title), path)


def figure(found: Sequence[Panel], title: str) -> Figure:
    """The picture, not yet in any file."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    columns = min(3, len(found))
    rows = math.ceil(len(found) / columns)
    most = max(len(panel.matrix) for panel in found)
    side = min(9.0, 2.6 + 0.3 * most)
    drawn = Figure(figsize=(side * columns + 1.2, side * rows + 1.0), layout="constrained")
    drawn.suptitle(
        textwrap.fill(title, int(10 * side * columns)), fontsize=11, fontweight="bold", color=_INK, x=0.01, ha="left"
    )
    axes = drawn.subplots(rows, columns, squeeze=False)
    picture = None
    for place, panel_axes in enumerate(axes.flat):
        if place >= len(found):
            panel_axes.set_visible(False)
            continue
        picture = _panel(panel_axes, found[place])
    assert picture is not None
    bar = drawn.colorbar(picture, ax=axes, shrink=0.7, pad=0.02)
    bar.set_label("share of the class", color=_INK)
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1))
    bar.outline.set_visible(False)
    return drawn


def _panel(axes: Axes, panel: Panel) -> Any:
    shares = [[count / sum(row) if sum(row) else 0.0 for count in row] for row in panel.matrix]
    picture = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    places = range(len(shares))
    if len(shares) <= MOST_WRITTEN:
        axes.set_xticks(places, panel.classes, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(places, panel.classes)
        for row, line in enumerate(shares):
            for column, share in enumerate(line):
                if 100 * share > LEAST_WRITTEN:
                    colour = "white" if share > _DARK else _INK
                    axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", color=colour, fontsize=7)
    axes.tick_params(colors=_INK, length=0)
    axes.set_xlabel("predicted", color=_INK)
    axes.set_ylabel("true", color=_INK)
    axes.set_title(textwrap.fill(panel.title, 40), loc="left", fontsize=9.5, fontweight="bold", color=_INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return picture
