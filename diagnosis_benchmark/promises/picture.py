"""Promised against measured, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.report.plot import save_picture

from .judge import CODE, PLANTED, SETTINGS, Followed, Removed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE = "line"
COLOURS = {PLANTED: "#c9c9c9", LINE: "#6b9e57", CODE: "#1f6f8b", SETTINGS: "#d9822b"}
NAMES = {
    PLANTED: "planted fault left out",
    LINE: "a line took no time",
    CODE: "code changed",
    SETTINGS: "settings changed",
}
"""What is drawn later lies above."""


def write_calibration(followed: Sequence[Followed], removed: Sequence[Removed], path: Path) -> None:
    """Each promise as an interval over what was measured, both logarithmic; what holds crosses the diagonal.

    Raises:
        WhyidleError: the file cannot be written.
    """
    save_picture(lambda: _drawn(followed, removed), path)


def _drawn(followed: Sequence[Followed], removed: Sequence[Removed]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    axes = figure.add_subplot()
    points = [(each.how, each.promise, each.measured) for each in followed if each.judged]
    points += [(LINE, each.promise, each.measured) for each in removed]
    for how, name in NAMES.items():
        mine = [(promise, measured) for which, promise, measured in points if which == how]
        known = [(promise, measured) for promise, measured in mine if promise is not None and measured is not None]
        if known:
            below = [promise.value - promise.low for promise, _ in known]
            above = [promise.high - promise.value for promise, _ in known]
            axes.errorbar(
                [measured for _, measured in known],
                [promise.value for promise, _ in known],
                yerr=(below, above),
                fmt="o",
                markersize=4,
                linewidth=1,
                alpha=0.8,
                color=COLOURS[how],
                label=f"{name} ({len(known)})",
            )
    most = max(2.0, *(max(promise.high, measured) for _, promise, measured in points if promise and measured), 2.0)
    axes.plot([0.8, 1.1 * most], [0.8, 1.1 * most], color="#222222", linewidth=0.8)
    axes.set(
        xscale="log", yscale="log", xlim=(0.8, 1.1 * most), ylim=(0.8, 1.1 * most), aspect="equal",
        xlabel="times as fast, measured", ylabel="times as fast, promised (90 % interval)",
    )  # fmt: skip
    ticks = [tick for tick in (1, 1.5, 2, 3, 5, 8, 12, 20) if tick <= most]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.legend(loc="upper left", frameon=False)
    return figure
