"""The device's utilisation over time as a picture, as `nvidia-smi` shows it: a panel a training.

The line is the share of each window in which the training's kernels ran, by its own events. NVML's readings, which
count every process's kernels, are dots beside it where the run has them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...analyse.cells.axes import label, varying
from ...analyse.cells.comparison import Comparison, round_of
from ...analyse.run.analysis import Analysis
from ...analyse.run.stall_breakdown import busy_strip
from ...errors import WhyidleError
from ...record.run import open_run
from ...record.schema import DEVICE
from .batch_size import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WINDOW_NS = 1_000_000_000 // 6
"""The shortest over which NVIDIA's driver averages utilisation; on some products it is a second."""
MOST_WINDOWS = 240
"""Of a longer training the picture shows the middle: 40 s."""
MOST_PANELS = 16

_BUSY = "#009E73"
_SAMPLED = "#D55E00"
_INK = "#222222"
_PALE = "#666666"
_LETTERS_AN_INCH = 10
_PANEL_INCHES = 1.25


@dataclass(frozen=True)
class UtilisationPanel:
    """What a panel shows."""

    name: str
    busy: tuple[float, ...]
    """Percent of each window; empty where it was not measured, or the training was too short."""
    sampled: tuple[tuple[float, float], ...]
    """NVML's readings of the same stretch: (seconds from its begin to the middle of the reading's window, percent)."""
    gaps: str
    """Lengths of the device's idle gaps, in words."""
    cut: bool = False
    """Whether it is the middle of a longer training."""


def traces_of(result: Comparison) -> list[UtilisationPanel]:
    """Draw the typical run of each cell that ran on a device, as many as a picture takes."""
    names = varying(result.cells)
    found = []
    for cell in result.cells:
        typical = cell.typical
        if typical is None or cell.axes.get("feed") == "loader-only":
            continue
        folder: str | None
        number = next(n for n, each in enumerate(cell.analyses) if each is typical)
        if len(cell.runs) == len(cell.analyses):
            folder = cell.runs[number]
        else:
            # Runs that failed have no analysis; those that have one know their round.
            rounds = cell.rounds[number : number + 1]
            folder = next((run for run in cell.runs if rounds and round_of(Path(run).name) == rounds[0]), None)
        name = f"{label(cell, names)} {cell.pipeline}, batch {cell.batch_size}".strip()
        found.append(trace_of(name, typical, None if folder is None else Path(folder)))
    return found[:MOST_PANELS]


def trace_of(name: str, analysis: Analysis, folder: Path | None) -> UtilisationPanel:
    """Of one run; `folder`: where its samples are."""
    name += _ending(analysis)
    facts = analysis.facts
    if facts is None or not facts.told_apart:
        return UtilisationPanel(name, (), (), "not measured")
    window = facts.window
    busy = tuple(busy_strip(window, facts.parts.computing, WINDOW_NS, MOST_WINDOWS))
    shown = len(busy) * WINDOW_NS
    begin = window.begin_ns + (window.wall_ns - shown) // 2
    gaps = analysis.gaps_ms
    said = f"gaps: half below {gaps['p50']:.0f} ms, 95 % below {gaps['p95']:.0f} ms" if gaps else "no gaps"
    cut = window.wall_ns - shown >= WINDOW_NS
    return UtilisationPanel(name, busy, () if folder is None else _sampled(folder, begin, begin + shown), said, cut)


def _ending(analysis: Analysis) -> str:
    """Say that the training was interrupted, or that its recording never ended."""
    ended = analysis.info.get("ended")
    if not isinstance(ended, dict):
        return ", not ended"
    return ", stopped" if ended.get("status") == "stopped" else ""


def _sampled(folder: Path, begin: int, end: int) -> tuple[tuple[float, float], ...]:
    looks = open_run(folder).records(DEVICE)
    told = looks[~np.isnan(looks["utilisation_pct"]) & (looks["t_ns"] >= begin) & (looks["t_ns"] < end)]
    # Of several devices the records do not say which is this rank's.
    if len(np.unique(told["device"])) > 1:
        return ()
    middle = told["t_ns"] - np.maximum(told["window_ns"], 0) // 2 - begin
    return tuple(zip((middle / 1e9).tolist(), told["utilisation_pct"].tolist(), strict=True))


def write_utilisation(traces: Sequence[UtilisationPanel], title: str, path: Path) -> None:
    """Draw into a file, of the kind its name ends in; the same traces give the same bytes.

    Raises:
        WhyidleError: there is nothing to draw, or it cannot be written.
    """
    if not any(trace.busy for trace in traces):
        raise WhyidleError(
            f"--trace-plot: no picture was drawn. No run of {WINDOW_NS / 1e6:.0f} ms or more recorded when its device "
            "computed."
        )
    save_picture(lambda: figure(traces, title), path)


def figure(traces: Sequence[UtilisationPanel], title: str) -> Figure:
    """The picture, not yet in any file."""
    from matplotlib.figure import Figure

    height = _PANEL_INCHES * len(traces) + 1.2
    drawn = Figure(figsize=(8.5, height), layout="constrained")
    axes = drawn.subplots(len(traces), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    drawn.suptitle(
        textwrap.fill(title, int(8.5 * _LETTERS_AN_INCH)), fontsize=11, fontweight="bold", color=_INK, x=0.01, ha="left"
    )
    for panel, trace in zip(axes, traces, strict=True):
        _panel(panel, trace)
    axes[0].set_ylim(-4, 104)
    axes[0].set_yticks((0, 50, 100))
    axes[0].set_xlim(0, max(len(trace.busy) for trace in traces) * WINDOW_NS / 1e9)
    cut = [trace.cut for trace in traces if trace.busy]
    longer = "" if not any(cut) else f" (middle of {'the training' if all(cut) else 'longer trainings'})"
    axes[-1].set_xlabel(f"seconds{longer}", color=_INK)
    drawn.supylabel(f"device busy, % of {WINDOW_NS / 1e6:.0f} ms", color=_INK, fontsize=9)
    if any(trace.sampled for trace in traces):
        handles = {
            label: each for panel in axes for each, label in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        drawn.legend(handles.values(), handles.keys(), loc="outside lower right", ncols=2, frameon=False)
    return drawn


def _panel(axes: Axes, trace: UtilisationPanel) -> None:
    axes.tick_params(colors=_INK, length=0)
    axes.yaxis.grid(True, color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_title(trace.name, loc="left", fontsize=9, fontweight="bold", color=_INK)
    if not trace.busy:
        axes.text(0.01, 0.5, "not measured, or too short", transform=axes.transAxes, va="center", color=_PALE)
        return
    busy: npt.NDArray[np.float64] = np.array(trace.busy)
    edges = np.arange(len(busy) + 1) * WINDOW_NS / 1e9
    axes.stairs(busy, edges, color=_BUSY, linewidth=1.0, fill=True, alpha=0.25)
    axes.stairs(busy, edges, color=_BUSY, linewidth=1.0, label="by the training's events")
    if trace.sampled:
        seconds, percent = zip(*trace.sampled, strict=True)
        axes.plot(seconds, percent, ".", color=_SAMPLED, markersize=3, label="sampled, as nvidia-smi does")
    stood = 100 * float((busy < 0.5).mean())
    said = f"mean {busy.mean():.0f} %, {stood:.0f} % of windows at 0 · {trace.gaps}"
    axes.set_title(said, loc="right", fontsize=8.5, color=_PALE)
