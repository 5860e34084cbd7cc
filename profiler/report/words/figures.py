"""Figures for people: one way for each unit, and one word for what was not measured."""

from __future__ import annotations

from collections.abc import Mapping

from ...analyse.causes.finding import Next
from ...analyse.run.stall_breakdown import PARTS, UNTOLD
from ...analyse.statistics import Speedup

NOT_MEASURED = "n/a"
KEPT: dict[bool | None, str] = {
    True: "kept",
    False: "not kept",
    None: "undecided, the two intervals overlap",
}
"""Whether a promise was."""
NO_CAUSE = "none possible"
"""In the place of a cause where a verdict names none."""
LEAST_SHARE = 0.0005
"""Parts below this share would read 0.0 %."""
LEAST_MS = 0.1
"""Less is told in µs."""
SEVERITY_TONES = {"none": "green", "minor": "yellow", "major": "dark_orange", "critical": "bold red"}
"""Severity of a finding → tone of its name."""
PART_COLOURS = dict(zip((*PARTS, UNTOLD), ("green", "red", "yellow", "magenta", "blue", "cyan", "dim"), strict=True))
"""Part of the time → colour of its name and of its signs."""


def percent(value: float | None, digits: int = 1) -> str:
    """Of a figure that is in percent already."""
    return NOT_MEASURED if value is None or value != value else f"{value:.{digits}f} %"


def share(value: float | None, digits: int = 1) -> str:
    """Of a share 0 to 1."""
    return NOT_MEASURED if value is None else percent(100 * value, digits)


def part_name(part: str) -> str:
    """Of a part of the time, as it is called beside its figures."""
    return "not told apart" if part == UNTOLD else part


def shown_parts(shares: Mapping[str, float]) -> list[str]:
    """Choose the parts that would not read 0.0 %, in their order."""
    return [part for part in (*PARTS, UNTOLD) if shares.get(part, 0.0) >= LEAST_SHARE]


def counted(number: float, thing: str) -> str:
    """`1 step`, `2 steps`, `1.5 CPUs`."""
    return f"{number if isinstance(number, int) else format(number, 'g')} {thing}{'' if number == 1 else 's'}"


def evidence_value(value: float | str | None, unit: str) -> str:
    """A figure of the evidence in its unit."""
    if value is None:
        return NOT_MEASURED
    if isinstance(value, str):
        return value
    if unit == "bytes":
        return size(value)
    if unit.startswith("ms") and 0 < abs(value) < LEAST_MS:
        return f"{1e3 * value:.2g} µs{unit[2:]}"
    number = f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.1f}"
    return f"{number} {unit}".rstrip()


def three(value: float) -> str:
    """Write a number with three figures, more where it has more before the point, two places below 1: `3.42`, `342`."""
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def size(count: float) -> str:
    """Write bytes with three figures, in the unit that has some before the point: `812 kB`, `3.20 GB`."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.9995 * factor:
            return f"{three(count / factor)} {unit}"
    return f"{count:.0f} bytes"


def expected(value: str) -> str:
    """What a figure would be without the cause (another figure, a bound or a setting), to stand beside it."""
    return f"(normal: {value})" if value else ""


def speedup(times: Speedup) -> str:
    """`2.1× faster (1.9–2.4)`."""
    return _faster(times.value, times.low, times.high)


def _faster(value: float, low: float, high: float) -> str:
    return f"{factor(value)}× {'faster' if value >= 1 else 'as fast'} ({factor(low)}–{factor(high)})"


def factor(factor: float) -> str:
    return f"{factor:.2f}" if factor < 2 else f"{factor:.1f}"


def prediction(change: Next, now: float | None) -> str:
    """What is expected of a change, to follow its sentence; `now`: samples/s."""
    unsure = "; it may gain nothing, so try it" if change.speedup is not None and change.speedup.to_try else ""
    if now is None or change.high is None:
        return "" if change.speedup is None else f": {speedup(change.speedup)}{unsure}"
    rate = change.predicted_samples_per_s
    if rate is None:
        return f": at most {three(change.high)} samples/s, {change.high / now:.2f}× as many as now"
    times = _faster(rate / now, (change.low or now) / now, change.high / now)
    return f": {times}, about {three(rate)} samples/s{unsure}"
