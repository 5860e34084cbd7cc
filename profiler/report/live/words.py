"""Figures and states in words, as all live views say them."""

from __future__ import annotations

from ...analyse.recent.snapshot import Snapshot
from ..words.figures import NOT_MEASURED as NOT_MEASURED
from .lines import safe

NO_STEPS = "no training step was recorded"
NO_GPU = "no NVIDIA GPU found (`whyidle doctor` says why)"
"""Said once the sampler has told of the machine: by then it has looked for them."""
_ENDS = {
    "ok": "ended well",
    "oom": "out of memory",
    "failed": "failed",
    "stopped": "stopped",
    "lost": "lost: its process is gone",
}


def line(view: Snapshot) -> str:
    """The run in one plain line, for an output that is not a terminal."""
    return f"{safe(view.title)}: {state(view)}{', stand-in data' if view.stand_in else ''}"


def state(view: Snapshot) -> str:
    """How far a recording is, in a line."""
    if view.state == "watching":
        return "; ".join(
            f"{safe(each.name)} busy {percent(last(each.busy_pct))}, memory {percent(last(each.memory_pct))}"
            for each in view.devices
        ) or (NO_GPU if view.host.machine_busy_pct is not None else "no accelerator seen yet")
    if view.state == "starting":
        return "no training step yet"
    if not view.steps and view.state != "running":
        return f"{ending(view)}, {NO_STEPS}"
    parts = [safe(view.state), f"step {view.steps}" + (f"/{view.planned_steps}" if view.planned_steps else "")]
    if view.device:
        parts.append(f"on {safe(view.device)}")
    if view.samples_per_s is not None:
        of = f" on rank {view.rank} of {view.ranks}" if view.ranks > 1 else ""
        parts.append(f"{view.samples_per_s:.1f} samples/s{of}")
    if view.shares:
        busy = view.shares.get("compute")
        parts.append(f"device busy {NOT_MEASURED if busy is None else f'{100 * busy:.0f} %'}")
    if view.left_s is not None:
        parts.append(f"{duration(view.left_s)} left")
    return ", ".join(parts)


def ending(view: Snapshot) -> str:
    """A state, in words."""
    return _ENDS.get(view.state, safe(view.state))


def duration(seconds: float) -> str:
    """`42 s`, `3:07 min`, `2:05 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def percent(value: float | None) -> str:
    return NOT_MEASURED if value is None or value != value else f"{value:.0f} %"


def last(series: tuple[float, ...]) -> float | None:
    """The newest value; `None` where it was not measured."""
    return series[-1] if series and series[-1] == series[-1] else None


def size(count: float | None) -> str:
    """Bytes: `812 kB`, `3.2 GB`."""
    if count is None or count != count:
        return NOT_MEASURED
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= 0.9995 * factor:
            value = count / factor
            return f"{value:.1f} {unit}" if value < 99.95 else f"{value:.0f} {unit}"
    return f"{count / 1e3:.0f} kB"


def of(used: float, total: float) -> str:
    """`12.1 of 80.0 GB`: both in the unit of the whole."""
    unit, factor = next(((u, f) for u, f in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)) if total >= f), ("kB", 1e3))
    return f"{used / factor:.1f} of {total / factor:.1f} {unit}"


def rate(count: float | None) -> str:
    """Bytes a second."""
    return NOT_MEASURED if count is None or count != count else f"{size(count)}/s"


def number(value: float) -> str:
    """Samples/s with three figures or more: `3.42`, `34.2`, `342`, `12 342`."""
    if value >= 10_000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def milliseconds(value: float) -> str:
    """`0.42 ms`, `38.1 ms`, `1.20 s`."""
    if value >= 999.5:
        return f"{value / 1e3:.2f} s"
    return f"{value:.2f} ms" if value < 1 else f"{value:.1f} ms" if value < 99.95 else f"{value:.0f} ms"
