"""How close loaders come to the machine's limit, as a picture: the time per sample, a bar for each."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...analyse.cells.comparison import Cell
from ...analyse.cells.roofline import PlacedRoofline, sample_times
from ..documents.roofline import heading
from ..words.figures import share
from .batch_size import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
"""Okabe and Ito, told apart by colour-blind people: of the parts in their order."""
_PALE, _LOADER = "#666666", "#B8B8B8"
_ROW = 0.42
"""Inches."""


def write_roofline(found: Sequence[PlacedRoofline], cells: Sequence[Cell], title: str, path: Path) -> None:
    """Draw into a file, of the kind its name ends in; the same figures give the same bytes.

    Raises:
        WhyidleError: it cannot be written.
    """
    save_picture(lambda: figure(found, cells, title), path)


def figure(found: Sequence[PlacedRoofline], cells: Sequence[Cell], title: str) -> Figure:
    """The picture, not yet in any file: a panel for each kind of samples."""
    from matplotlib.figure import Figure

    rows = [len(sample_times(each, cells)) for each in found]
    drawn = Figure(figsize=(8.0, 1.2 + sum(_ROW * number + 0.9 for number in rows)), layout="constrained")
    drawn.suptitle(textwrap.fill(title, 88), fontsize=11, fontweight="bold", x=0.01, ha="left")
    panels = drawn.subplots(len(found), 1, squeeze=False, height_ratios=[number + 1 for number in rows])
    for axes, each in zip(panels[:, 0], found, strict=True):
        _panel(axes, each, cells, heading(each, found))
    return drawn


def _panel(axes: Axes, found: PlacedRoofline, cells: Sequence[Cell], words: str) -> None:
    times = sample_times(found, cells)
    named = []
    for row, each in enumerate(times):
        left = 0.0
        for number, (part, ms) in enumerate(each.parts):
            bar = axes.barh(row, ms, left=left, height=0.66, color=COLOURS[number % len(COLOURS)] if part else _LOADER)
            named += [(bar, part)] if part else []
            left += ms
        said = f"{each.samples_per_s:.0f} samples/s" + ("" if row == 0 else f", {share(each.share, 0)} of the limit")
        axes.annotate(said, (left, row), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.axvline(times[0].ms, color=_PALE, linestyle="--", linewidth=1)
    axes.set_yticks(range(len(times)), [each.name for each in times])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.45 * max(each.ms for each in times))
    cores = found.roofline.cores
    axes.set_xlabel(f"ms per sample, {cores} cores together" if cores > 1 else "ms per sample, one core")
    axes.set_title(textwrap.fill(words, 80), loc="left", fontsize=9, color=_PALE)
    axes.legend(
        [bar for bar, _ in named],
        [part for _, part in named],
        frameon=False,
        fontsize=8,
        ncols=8,
        loc="upper left",
        bbox_to_anchor=(0, -0.9 / len(times)),
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
