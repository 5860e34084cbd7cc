"""What further ranks bring, as JSON: the part `scaling` of `compare --json`. `null` means not measured."""

from __future__ import annotations

from typing import Any

from ...analyse.cells.scaling import Curve, Point, Scaling
from ...analyse.statistics import Range
from .differential import spread


def scaling(found: Scaling | None) -> list[dict[str, Any]]:
    """A curve each; none where all cells have the same number of ranks."""
    return [] if found is None else [_curve(curve) for curve in found.curves]


def _curve(curve: Curve) -> dict[str, Any]:
    """`held`: whose batch size is the same on all points, `per rank` or `total`."""
    return {
        "held": curve.held,
        "batch_size": curve.batch_size,
        "pipeline": curve.pipeline,
        "interconnect": curve.interconnect,
        "place": curve.place,
        "emulated": curve.emulated,
        "points": [_point(point) for point in curve.points],
    }


def _point(point: Point) -> dict[str, Any]:
    """`samples_per_s` is of all ranks, `batch_size` of each; `exchange_ms` is computed; `waiting_pct` is the share of
    the time in which ranks wait for the last of them."""
    return {
        "ranks": point.ranks,
        "batch_size": point.batch_size,
        "status": point.cell.status,
        "samples_per_s": spread(point.rate),
        "speedup": _ratio(point.speedup),
        "efficiency": _ratio(point.efficiency),
        "why": point.why,
        "waiting_pct": None if point.waiting_share is None else 100 * point.waiting_share,
        "exchange_ms": point.exchange_ms,
    }


def _ratio(ratio: Range | None) -> dict[str, float | None] | None:
    """Without bounds where neither side was repeated."""
    if ratio is None:
        return None
    low, high = (ratio.low, ratio.high) if ratio.repeated else (None, None)
    return {"value": ratio.value, "low": low, "high": high}
