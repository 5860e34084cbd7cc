"""Pictures that need no script, as SVG within the page. They are made of numbers alone."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from ...analyse.run.stall_breakdown import PARTS, UNTOLD
from ...analyse.timeline.bins import parts_of
from ...analyse.timeline.lines import utilisation_of
from ...analyse.timeline.timeline import Timeline

WIDTH, HEIGHT = 1000, 150
COLUMNS = 250
POINTS = 500
LEAST_CLASSES = 6
_UNITS = ((3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))


def over_time(timeline: Timeline) -> tuple[Markup, bool]:
    """The parts of the time from begin to end, stacked; and whether utilisation, where it was measured, is a line."""
    edges_ns, parts = parts_of(timeline, COLUMNS)
    width = np.diff(edges_ns)
    count = len(width)
    base = np.zeros(count)
    shapes = []
    for part in (*PARTS, UNTOLD):
        if part not in parts or not parts[part].any():
            continue
        top = base + parts[part] / width
        shapes.append(f'<path class="part-{part}" fill="var(--part)" d="{_area(base, top)}"/>')
        base = top
    line = next(utilisation_of(timeline, POINTS), None)
    if line is not None:
        span = timeline.end_ns - timeline.begin_ns
        xs = WIDTH * (line.t_ns - timeline.begin_ns) / span
        shapes.append(f'<path d="{_trace(xs, line.values)}" fill="none" stroke="var(--text)" stroke-width="1.2"/>')
    axis = _time_axis((timeline.end_ns - timeline.begin_ns) / 1e9)
    return _picture("Where the time went, from begin to end", "".join(shapes) + axis), line is not None


def gap_histogram(gaps_ns: npt.NDArray[np.int64]) -> Markup:
    """Time lost in the device's gaps, by their length: each class twice as long as the last, up to the longest."""
    lengths = gaps_ns / 1e6
    lowest = math.floor(math.log2(lengths.min()))
    classes = math.floor(math.log2(lengths.max())) - lowest + 1
    which = np.floor(np.log2(lengths)).astype(int) - lowest
    lost = np.bincount(which, lengths, minlength=classes)
    number = np.bincount(which, minlength=classes)
    room = WIDTH / max(LEAST_CLASSES, classes)
    bars = []
    for n in range(classes):
        height = (HEIGHT - 18) * lost[n] / lost.max()
        x, label = n * room, _length(2.0 ** (lowest + n))
        title = f"{number[n]} of {label} to {_length(2.0 ** (lowest + n + 1))}: {_length(lost[n])} in all"
        bars.append(
            f'<g><title>{title}</title><rect x="{x + 2:.1f}" y="{HEIGHT - height:.1f}" width="{room - 4:.1f}" '
            f'height="{height:.1f}" fill="var(--input)"/>'
        )
        if number[n]:
            said = f"{number[n]}: {_length(lost[n])}"
            bars.append(f'<text x="{x + room / 2:.1f}" y="{HEIGHT - height - 4:.1f}" {_MIDDLE}>{said}</text>')
        bars.append(f'<text x="{x + 2:.1f}" y="{HEIGHT + 14}">{label}</text></g>')
    x, anchor = classes * room - 2, "end" if classes >= LEAST_CLASSES else "start"
    bars.append(f'<text x="{x:.1f}" y="{HEIGHT + 14}" text-anchor="{anchor}">{_length(lengths.max())}</text>')
    return _picture("Time lost in gaps, by their length; above each bar how many and how long in all", "".join(bars))


_MIDDLE = 'text-anchor="middle"'


def _area(low: np.ndarray, high: np.ndarray) -> str:
    """The steps of one part: along the top, and back along the bottom."""
    room = WIDTH / len(low)
    there = "".join(f"V{HEIGHT * (1 - y):.1f}h{room:.3g}" for y in high)
    back = "".join(f"V{HEIGHT * (1 - y):.1f}h{-room:.3g}" for y in low[::-1])
    return f"M0 {HEIGHT * (1 - high[0]):.1f}{there}{back}z"


def _trace(xs: np.ndarray, percents: np.ndarray) -> str:
    """Broken where nothing was measured."""
    drawn, pen = [], "M"
    for x, y in zip(xs, percents, strict=True):
        known = not math.isnan(y)
        if known:
            drawn.append(f"{pen}{x:.1f} {HEIGHT * (1 - y / 100):.1f}")
        pen = "L" if known else "M"
    return "".join(drawn)


def _time_axis(seconds: float) -> str:
    marks = []
    for n in range(6):
        anchor = "start" if n == 0 else "end" if n == 5 else "middle"
        words = duration(seconds * n / 5)
        marks.append(f'<text x="{WIDTH * n / 5:.0f}" y="{HEIGHT + 14}" text-anchor="{anchor}">{words}</text>')
    return "".join(marks)


def duration(seconds: float) -> str:
    """In the unit that gives it a figure before the point."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0 s" if seconds == 0 else f"{seconds * 1e3:.2g} ms"


def _length(ms: float) -> str:
    return duration(ms / 1e3) if ms >= 1 else f"{ms:.2g} ms"


def _picture(title: str, drawing: str) -> Markup:
    return Markup(f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 18}" role="img" aria-label="{title}">{drawing}</svg>')
