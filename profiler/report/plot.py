"""Pictures of results, made with matplotlib, an extra: one panel for each loader, curve, matrix or
training, all in one style."""

from __future__ import annotations

import importlib.util
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..analyse.cells.comparison import Comparison, namer
from ..analyse.cells.studies import results, scaling
from ..analyse.run.analysis import Analysis
from ..analyse.run.stall_breakdown import TOTAL, UNTOLD, busy_strip
from ..analyse.statistics import Estimate
from ..errors import MissingExtra, WhyidleError
from ..record.run import open_run
from ..record.schema import DEVICE
from .documents.comparison import HELD, accuracy_of, class_names, curve_names
from .words import sample_time
from .words.figures import NOT_MEASURED, part_name
from .words.sample_time import Scale, half_width, known, shares, shown_parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png", ".pdf")
WINDOW_NS = 1_000_000_000 // 6
"""The shortest time over which NVIDIA's driver averages utilisation; on some products it is a second."""
MOST_WINDOWS = 240
"""Windows of a panel of utilisation: of a longer training it shows the middle, 40 s."""
MOST_TRACES, MOST_MATRICES = 16, 6
"""Panels of a picture of utilisation, and of confusion matrices: more would be too small to read."""
MOST_WRITTEN, LEAST_WRITTEN = 20, 0.5
"""Most classes for which each field of a confusion matrix has its figure; least percent that is written."""
DARK = 0.55
"""Share from which a field's letters are white."""

GREEN, RED, BLUE, PINK, ORANGE, SKY = "#009E73", "#D55E00", "#0072B2", "#CC79A7", "#E69F00", "#56B4E9"
"""Okabe and Ito, told apart by colour-blind people."""
INK, PALE, GRID = "#222222", "#666666", "#E4E4E4"
_PART_LOOKS: dict[str, dict[str, Any]] = {
    # The terminal's colours.
    "compute": {"facecolor": GREEN, "hatch": ""},
    "input": {"facecolor": RED, "hatch": "//"},
    "copy": {"facecolor": ORANGE, "hatch": "||"},
    "sync": {"facecolor": PINK, "hatch": "xx"},
    "host": {"facecolor": BLUE, "hatch": "\\\\"},
    "boundary": {"facecolor": SKY, "hatch": "--"},
    UNTOLD: {"facecolor": "#BBBBBB", "hatch": "++"},
}
_EDGE: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.3}
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a $ in a name is a $
    # Names in the SVG derive from this instead of chance, so that the same figures give the same file.
    "svg.hashsalt": "whyidle",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "hatch.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.labelcolor": INK,
}
_NO_DATE: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def check_picture(path: Path, option: str = "--plot") -> None:
    """Check that pictures of this kind can be drawn, before anything is measured.

    Raises:
        WhyidleError: no kind of picture.
        MissingExtra: matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        kinds = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise WhyidleError(f"{option} {path}: unknown kind of picture. Name a file that ends in {kinds}.")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra(f"{option} draws with matplotlib, which is not installed", "plot")


def save_picture(draw: Callable[[], Figure], path: Path) -> None:
    """Draw in our style, into a file of the kind its name ends in; the same picture gives the same bytes.

    Raises:
        WhyidleError: it cannot be written.
    """
    import matplotlib

    suffix = path.suffix.lower()
    with matplotlib.rc_context():
        # Whatever the user's own style is.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        try:
            draw().savefig(path, format=suffix[1:], dpi=160, metadata=_NO_DATE[suffix])
        except OSError as error:
            raise WhyidleError(f"cannot write {path}: {error.strerror}. Name another file.") from error


def _panels(
    title: str, number: int, columns: int, panel: tuple[float, float], around: tuple[float, float], **how: Any
) -> tuple[Figure, list[Axes]]:
    """Make a picture with a title and so many panels in rows. `panel`, `around`: width and height
    in inches of a panel, and of what is beside all of them."""
    from matplotlib.figure import Figure

    rows = math.ceil(number / columns)
    width, height = panel[0] * columns + around[0], panel[1] * rows + around[1]
    drawn = Figure(figsize=(width, height), layout="constrained")
    said = textwrap.fill(title, int(10 * width))
    drawn.suptitle(said, fontsize=11, fontweight="bold", color=INK, x=0.01, ha="left")
    axes = list(drawn.subplots(rows, columns, squeeze=False, **how).flat)
    for each in axes[number:]:
        each.set_visible(False)
    for each in axes:
        each.tick_params(colors=INK, length=0)
        each.yaxis.grid(True, color=GRID, linewidth=0.7)
        each.set_axisbelow(True)
    return drawn, axes[:number]


# Time per sample by batch size: a panel for each loader, stacked by part as in the terminal.

_BAR = 0.72
"""Width of a bar; they stand 1 apart."""


def _batch_sizes(result: Comparison, _: dict[str, Any], title: str) -> Figure:
    from matplotlib.patches import Patch

    verdicts = result.batch_verdicts
    if not verdicts:
        raise WhyidleError("--plot: no loader ran with two batch sizes, so no picture was drawn.")
    scale, parts = sample_time.scale_of(verdicts.values()), shown_parts(verdicts.values())
    columns = min(len(verdicts), 4)
    most = max(len(verdict.terms) for verdict in verdicts.values())
    width = max(3.0 / columns, 2.2, 0.62 * most + 0.1)
    drawn, panels = _panels(title, len(verdicts), columns, (width, 3.5), (0.7, 0.95), sharey=True)
    for place, (axes, (name, verdict)) in enumerate(zip(panels, verdicts.items(), strict=True)):
        for bar, terms in enumerate(verdict.terms.values()):
            _stack(axes, bar, terms, parts, scale)
        axes.set_xticks(range(len(verdict.terms)), [str(size) for size in verdict.terms])
        # Room for the cause between a panel and its title.
        _title(axes, textwrap.fill(name, 24), fontsize=10, fontweight="bold", color=INK, pad=19)
        _note(axes, verdict.cause, (0, 1), (0, 5), xycoords="axes fraction", fontsize=9, color=PALE)
        axes.set_xlim(-0.55, most - 0.45)
        if place % columns == 0:
            axes.set_ylabel(f"time per sample ({scale.unit})")
        if place + columns >= len(verdicts):
            axes.set_xlabel("batch size")
    totals = [total for v in verdicts.values() for terms in v.terms.values() if known(total := terms.get(TOTAL))]
    ends = [total.value + (half if math.isfinite(half := half_width(total)) else 0.0) for total in totals]
    panels[0].set_ylim(0, 1.16 * (max(ends, default=0.0) or 1.0) / scale.microseconds)
    handles = [Patch(label=part_name(part), **_PART_LOOKS[part], **_EDGE) for part in parts]
    many = min(len(handles), int(drawn.get_figwidth() / 0.85))
    drawn.legend(handles=handles, loc="outside lower left", ncols=many, handlelength=1.6)
    return drawn


def _title(axes: Axes, words: str, **how: Any) -> None:
    axes.set_title(words, **{"loc": "left", "fontsize": 9, "color": PALE, **how})


def _note(axes: Axes, words: str, at: tuple[float, float], off: tuple[float, float], **how: Any) -> None:
    """Write beside a point, `off` points away."""
    axes.annotate(words, at, off, textcoords="offset points", **{"color": INK, **how})


def _stack(axes: Axes, place: int, terms: Mapping[str, Estimate], parts: Sequence[str], scale: Scale) -> None:
    """Draw one bar: the parts one on another, the interval of the whole, and its figure."""
    total = terms.get(TOTAL)
    if not known(total):
        axes.text(place, 0, NOT_MEASURED, ha="center", va="bottom", color=PALE)
        return
    bottom = 0.0
    for part in parts:
        height = shares(terms).get(part, 0.0) * total.value / scale.microseconds
        if height > 0:
            axes.bar(place, height, _BAR, bottom, **_PART_LOOKS[part], **_EDGE)
        bottom += height
    top, half = total.value / scale.microseconds, half_width(total) / scale.microseconds
    if math.isfinite(half):
        axes.errorbar(place, top, half, color=INK, capsize=3, elinewidth=0.9, capthick=0.9)
        top += half
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    _note(axes, scale.number(total), (place, top), (0, 3), ha="center", va="bottom", bbox=box)


# Speed-up by ranks: a line for each curve, beside the ideal one.


def _scaling(result: Comparison, _: dict[str, Any], title: str) -> Figure:
    every = scaling(result.cells)
    if not every:
        raise WhyidleError("--scaling-plot: nothing ran on several ranks, so no picture was drawn.")
    held = [(words, curves) for of, words in HELD.items() if (curves := [each for each in every if each.held == of])]
    drawn, panels = _panels(title, len(held), len(held), (4.4, 4.2), (0, 0))
    colours = (BLUE, RED, GREEN, PINK, ORANGE, SKY, "#000000")
    for axes, (words, curves) in zip(panels, held, strict=True):
        counts = sorted({point.ranks for curve in curves for point in curve.points})
        axes.plot([1, counts[-1]], [1, counts[-1]], color=PALE, linestyle="--", linewidth=1, label="ideal")
        for number, (curve, said) in enumerate(zip(curves, curve_names(curves), strict=True)):
            colour, marker = colours[number % len(colours)], "osD^vPX"[number % 7]
            points = [(point.ranks, point.speedup) for point in curve.points if point.speedup is not None]
            reach = [[r.value - r.low for _, r in points], [r.high - r.value for _, r in points]]
            style: dict[str, Any] = {"marker": marker, "markersize": 4.5, "linewidth": 1.4, "capsize": 2.5}
            style |= {"color": colour, "label": f"{said} batch {curve.batch_size}".strip()}
            axes.errorbar([ranks for ranks, _ in points], [r.value for _, r in points], reach, **style)
            for point in curve.points:
                if point.status == "oom":
                    axes.plot(point.ranks, 0, color=colour, marker="x", clip_on=False)
                    _note(axes, "OOM", (point.ranks, 0), (0, 4), ha="center", color=colour)
        axes.set_xticks(counts, [str(count) for count in counts])
        emulated = "emulated " if any(curve.emulated for curve in curves) else ""
        axes.set(ylim=(0, None), xlabel="ranks", ylabel=f"{emulated}speed-up against one rank")
        _title(axes, textwrap.fill(words, 46))
        axes.grid(True, color=GRID, linewidth=0.7)
        axes.legend(fontsize=8)
    return drawn


# Confusion matrices: a panel for each cell, rows for true classes, columns for predicted ones.


def _confusion(result: Comparison, setting: dict[str, Any], title: str) -> Figure:
    from matplotlib.ticker import PercentFormatter

    found = [(each, matrix) for each in results(result.cells) if (matrix := each.confusion) is not None]
    if not found:
        raise WhyidleError(
            "--confusion-plot: no training was evaluated on held-out classes, so there is nothing to draw."
        )
    name = namer([each.cell for each, _ in found])
    if len(found) > MOST_MATRICES:
        found = sorted(found, key=lambda pair: -accuracy_of(pair[0]))[:MOST_MATRICES]
    columns, side = min(3, len(found)), min(9.0, 2.6 + 0.3 * max(len(matrix) for _, matrix in found))
    drawn, panels = _panels(title, len(found), columns, (side, side), (1.2, 1.0))
    pictures = []
    for axes, (each, matrix) in zip(panels, found, strict=True):
        parts = [[count / sum(row) if sum(row) else 0.0 for count in row] for row in matrix]
        pictures.append(axes.imshow(parts, cmap="Blues", vmin=0, vmax=1))
        axes.grid(False)
        axes.spines[:].set_visible(False)
        if len(parts) <= MOST_WRITTEN:
            classes = class_names(each, setting)
            axes.set_xticks(range(len(parts)), classes, rotation=45, ha="right", rotation_mode="anchor")
            axes.set_yticks(range(len(parts)), classes)
            for (row, column), part in np.ndenumerate(np.array(parts)):
                if 100 * part > LEAST_WRITTEN:
                    colour = "white" if part > DARK else INK
                    axes.text(column, row, f"{100 * part:.0f}", ha="center", va="center", color=colour, fontsize=7)
        axes.set(xlabel="predicted", ylabel="true")
        mean = each.metric("accuracy")
        right = "" if mean is None else f", accuracy {mean.value:.3f}"
        _title(axes, textwrap.fill(name(each.cell) + right, 40), fontsize=9.5, fontweight="bold", color=INK)
    bar = drawn.colorbar(pictures[-1], ax=drawn.axes, shrink=0.7, pad=0.02)
    bar.set_label("share of the class")
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1))
    bar.outline.set_visible(False)
    return drawn


# The device's utilisation over time, as `nvidia-smi` shows it: a panel a training.
#
# The line is the share of each window in which the training's kernels ran, by its own events. NVML's readings, which
# count every process's kernels, are dots beside it where the run has them.


@dataclass(frozen=True)
class UtilisationPanel:
    """The utilisation of one training."""

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
    """Trace the typical run of each cell that ran on a device, as many as a picture takes."""
    name, found = namer(result.cells), []
    for cell in result.cells:
        row = cell.typical_row
        if row is not None and row.analysis is not None and cell.feed != "loader-only":
            found.append(trace_of(name(cell), row.analysis, Path(row.run)))
    return found[:MOST_TRACES]


def trace_of(name: str, analysis: Analysis, folder: Path) -> UtilisationPanel:
    """Trace one run; `folder`: where its samples are."""
    ended = analysis.info.get("ended")
    # That the training was interrupted, or that its recording never ended.
    status = ended.get("status") if isinstance(ended, dict) else "not ended"
    name += f", {status}" * (status in ("stopped", "not ended"))
    facts = analysis.facts
    if facts is None or not facts.told_apart:
        return UtilisationPanel(name, (), (), "not measured")
    window = facts.window
    busy = tuple(busy_strip(window, facts.parts.when["compute"], WINDOW_NS, MOST_WINDOWS))
    shown = len(busy) * WINDOW_NS
    begin = window.begin_ns + (window.wall_ns - shown) // 2
    gaps = analysis.gaps_ms
    said = f"gaps: half below {gaps['p50']:.0f} ms, 95 % below {gaps['p95']:.0f} ms" if gaps else "no gaps"
    looks = open_run(folder).records(DEVICE)
    within = (looks["t_ns"] >= begin) & (looks["t_ns"] < begin + shown)
    told = looks[~np.isnan(looks["utilisation_pct"]) & within]
    # Of several devices the records do not say which is this rank's.
    told = told[: 0 if len(np.unique(told["device"])) > 1 else None]
    middle = told["t_ns"] - np.maximum(told["window_ns"], 0) // 2 - begin
    sampled = tuple(zip((middle / 1e9).tolist(), told["utilisation_pct"].tolist(), strict=True))
    return UtilisationPanel(name, busy, sampled, said, window.wall_ns - shown >= WINDOW_NS)


def utilisation(traces: Sequence[UtilisationPanel], title: str) -> Figure:
    """Draw the picture, not yet in any file."""
    if not any(trace.busy for trace in traces):
        raise WhyidleError(
            f"--trace-plot: no picture was drawn. No run of {WINDOW_NS / 1e6:.0f} ms or more recorded when its device "
            "computed."
        )
    drawn, panels = _panels(title, len(traces), 1, (8.5, 1.25), (0, 1.2), sharex=True, sharey=True)
    for axes, trace in zip(panels, traces, strict=True):
        _title(axes, trace.name, fontweight="bold", color=INK)
        if not trace.busy:
            axes.text(0.01, 0.5, "not measured, or too short", transform=axes.transAxes, va="center", color=PALE)
            continue
        busy, edges = np.array(trace.busy), np.arange(len(trace.busy) + 1) * WINDOW_NS / 1e9
        axes.stairs(busy, edges, color=GREEN, linewidth=1.0, fill=True, alpha=0.25)
        axes.stairs(busy, edges, color=GREEN, linewidth=1.0, label="by the training's events")
        if trace.sampled:
            seconds, percent = zip(*trace.sampled, strict=True)
            axes.plot(seconds, percent, ".", color=RED, markersize=3, label="sampled, as nvidia-smi does")
        stood = 100 * float((busy < 0.5).mean())
        said = f"mean {busy.mean():.0f} %, {stood:.0f} % of windows at 0 · {trace.gaps}"
        _title(axes, said, loc="right", fontsize=8.5)
    longest_s = max(len(trace.busy) for trace in traces) * WINDOW_NS / 1e9
    panels[0].set(ylim=(-4, 104), yticks=(0, 50, 100), xlim=(0, longest_s))
    longer = any(trace.cut for trace in traces)
    panels[-1].set_xlabel(f"seconds{' (middle of longer trainings)' * longer}")
    drawn.supylabel(f"device busy, % of {WINDOW_NS / 1e6:.0f} ms", color=INK, fontsize=9)
    if any(trace.sampled for trace in traces):
        labels = [pair for axes in panels for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
        named = {words: handle for handle, words in labels}
        drawn.legend(named.values(), named.keys(), loc="outside lower right", ncols=2)
    return drawn


@dataclass(frozen=True)
class Picture:
    """A picture that some results can be drawn as."""

    name: str
    """Of its value among the arguments of commands."""
    shows: str
    draw: Callable[[Comparison, dict[str, Any], str], Figure]
    """Draws that of a comparison, of its setting and a title."""

    @property
    def option(self) -> str:
        """The option of commands that asks for it."""
        return f"--{self.name.replace('_', '-')}"


SIZES = Picture("plot", "time per sample by batch size", _batch_sizes)
TRACES = Picture(
    "trace_plot",
    "the device's utilisation over time",
    lambda result, _, title: utilisation(traces_of(result), title),
)
RANKS = Picture("scaling_plot", "speed-up by number of ranks", _scaling)
CONFUSION = Picture("confusion_plot", "which class was taken for which on held-out data", _confusion)
PICTURES = (SIZES, TRACES, RANKS, CONFUSION)
