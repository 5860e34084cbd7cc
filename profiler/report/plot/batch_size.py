"""Time per sample by batch size as a picture: a panel for each loader, stacked by part as in the terminal."""

from __future__ import annotations

import importlib.util
import math
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analyse.cells.batch_size.result import BatchVerdict
from ...analyse.run.stall_breakdown import PARTS, TOTAL, UNTOLD
from ...analyse.statistics import Estimate
from ...errors import MissingExtra, WhyidleError
from ..words import sample_time
from ..words.figures import NOT_MEASURED, part_name
from ..words.sample_time import Scale, half_width, known, shares, shown_parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png", ".pdf")
_LOOKS = {
    # The terminal's colours, in the shades of Okabe and Ito, which colour-blind people tell apart.
    "compute": ("#009E73", ""),
    "input": ("#D55E00", "//"),
    "copy": ("#E69F00", "||"),
    "sync": ("#CC79A7", "xx"),
    "host": ("#0072B2", "\\\\"),
    "boundary": ("#56B4E9", "--"),
    UNTOLD: ("#BBBBBB", "++"),
}
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
}
_NO_DATE: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_INK = "#222222"
_PALE = "#666666"
_MOST_COLUMNS = 4
_LEGEND_INCHES = 0.85
"""Of one part."""
_BAR = 0.72
"""Width of a bar; they stand 1 apart."""
_WRAPPED = 24
"""Letters of a loader's name in a line."""
_LETTERS_AN_INCH = 10
"""Of the picture's title."""
_SUBTITLE_POINTS = 19
"""Between a panel and its title: room for the cause."""
_LINE_POINTS = 11.5
_ROOM = 0.95
"""Inches to the right of the last bar, for what grew."""


def check_picture(path: Path, made: Path | None = None, option: str = "--plot") -> None:
    """Check that a picture can be drawn there, before anything is measured; `made`: a folder that will exist.

    Raises:
        WhyidleError: no such folder, or no kind of picture.
        MissingExtra: matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise WhyidleError(f"{option} {path}: unknown kind of picture. Name a file that ends in {_listed(SUFFIXES)}.")
    if path.is_dir():
        raise WhyidleError(f"{option} {path} is a folder. Name a file in it.")
    folder = path.absolute().parent
    if not folder.is_dir() and (made is None or folder != made.absolute()):
        raise WhyidleError(f"{option} {path}: there is no folder {folder}. Make it, or name another.")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra(f"{option} draws with matplotlib, which is not installed", "plot")


def write_batch_sizes(verdicts: Mapping[str, BatchVerdict], title: str, path: Path) -> None:
    """Draw into a file, of the kind its name ends in; the same verdicts give the same bytes.

    Raises:
        WhyidleError: it cannot be written.
    """
    save_picture(lambda: figure(verdicts, title), path)


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


def figure(verdicts: Mapping[str, BatchVerdict], title: str) -> Figure:
    """The picture, not yet in any file."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    scale = sample_time.scale_of(verdicts.values())
    parts = shown_parts(verdicts.values())
    columns = min(len(verdicts), _MOST_COLUMNS)
    rows = math.ceil(len(verdicts) / columns)
    most = max(len(verdict.terms) for verdict in verdicts.values())
    room = _ROOM if any(verdict.grew for verdict in verdicts.values()) else 0.1
    panel = max(2.2, 0.62 * most + room)
    across = most * panel / (panel - room)
    width = max(3.7, panel * columns + 0.7)
    drawn = Figure(figsize=(width, 3.5 * rows + 0.95), layout="constrained")
    axes = drawn.subplots(rows, columns, sharey=True, squeeze=False)
    title = textwrap.fill(title, int(width * _LETTERS_AN_INCH))
    drawn.suptitle(title, fontsize=11, fontweight="bold", color=_INK, x=0.01, ha="left")
    for place, panel_axes in enumerate(axes.flat):
        if place >= len(verdicts):
            panel_axes.set_visible(False)
            continue
        name = list(verdicts)[place]
        _panel(panel_axes, name, verdicts[name], parts, scale)
        panel_axes.set_xlim(-0.55, across - 0.55)
        if place % columns == 0:
            panel_axes.set_ylabel(f"time per sample ({scale.unit})", color=_INK)
        if place + columns >= len(verdicts):
            panel_axes.set_xlabel("batch size", color=_INK)
    axes.flat[0].set_ylim(0, 1.16 * _highest(verdicts) / scale.microseconds)
    handles = [Patch(label=part_name(part), **_look(part)) for part in parts]
    drawn.legend(
        handles=handles,
        loc="outside lower left",
        ncols=min(len(handles), int(width / _LEGEND_INCHES)),
        frameon=False,
        handlelength=1.6,
    )
    return drawn


def _panel(axes: Axes, name: str, verdict: BatchVerdict, parts: list[str], scale: Scale) -> None:
    sizes = list(verdict.terms)
    for place, size in enumerate(sizes):
        _stack(axes, place, verdict.terms[size], parts, scale)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.tick_params(colors=_INK, length=0)
    axes.yaxis.grid(True, color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_title(
        textwrap.fill(name, _WRAPPED), loc="left", fontsize=10, fontweight="bold", color=_INK, pad=_SUBTITLE_POINTS
    )
    axes.annotate(
        verdict.cause, (0, 1), (0, 5), xycoords="axes fraction", textcoords="offset points", fontsize=9, color=_PALE
    )
    if verdict.grew is not None and known(verdict.changes.get(verdict.grew)):
        _growth(axes, sizes.index(verdict.larger), verdict, verdict.grew, scale)


def _stack(axes: Axes, place: int, terms: Mapping[str, Estimate], parts: list[str], scale: Scale) -> None:
    """One bar: the parts one on another, the interval of the whole, and its figure."""
    total = terms.get(TOTAL)
    if not known(total):
        axes.text(place, 0, NOT_MEASURED, ha="center", va="bottom", color=_PALE)
        return
    bottom = 0.0
    for part in parts:
        height = shares(terms).get(part, 0.0) * total.value / scale.microseconds
        if height > 0:
            axes.bar(place, height, _BAR, bottom, **_look(part))
        bottom += height
    top, half = total.value / scale.microseconds, half_width(total) / scale.microseconds
    if math.isfinite(half):
        axes.errorbar(place, top, half, color=_INK, capsize=3, elinewidth=0.9, capthick=0.9)
        top += half
    axes.annotate(
        scale.number(total),
        (place, top),
        (0, 3),
        textcoords="offset points",
        ha="center",
        va="bottom",
        color=_INK,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
    )


def _growth(axes: Axes, place: int, verdict: BatchVerdict, grew: str, scale: Scale) -> None:
    """A bracket beside the term that grew, with what it grew by."""
    terms = verdict.terms[verdict.larger]
    total = terms.get(TOTAL)
    if not known(total):
        return
    found = shares(terms)
    order = list(PARTS)
    low = sum(found.get(part, 0.0) for part in order[: order.index(grew)]) * total.value / scale.microseconds
    high = low + found.get(grew, 0.0) * total.value / scale.microseconds
    colour = _LOOKS[grew][0]
    x, tick = place + _BAR / 2 + 0.1, 0.06
    axes.plot([x - tick, x, x, x - tick], [low, low, high, high], color=colour, linewidth=1.4, clip_on=False)
    change = verdict.changes[grew]
    lines = [(grew, "bold"), (f"{scale.number(change, '+')} {scale.unit}", "bold"), (scale.spread(change), "normal")]
    for line, (said, weight) in enumerate(lines):
        axes.annotate(
            said,
            (x, (low + high) / 2),
            (5, _LINE_POINTS * (1 - line)),
            textcoords="offset points",
            va="center",
            color=_INK,
            fontweight=weight,
        )


def _look(part: str) -> dict[str, Any]:
    colour, hatch = _LOOKS[part]
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.3}


def _highest(verdicts: Mapping[str, BatchVerdict]) -> float:
    """The end of the highest whisker in µs."""
    ends = [0.0]
    for verdict in verdicts.values():
        totals = (terms.get(TOTAL) for terms in verdict.terms.values())
        ends += [t.value + (half_width(t) if math.isfinite(half_width(t)) else 0.0) for t in totals if known(t)]
    return max(ends) or 1.0


def _listed(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
