"""The cost of a recorded run as JSON."""

from __future__ import annotations

from msgspec import Struct

from ...analyse.cells.cost import Price, Spent


class SpentJson(Struct):
    """Cost of a run; `null` where its length, or what its time was spent on, is unknown."""

    price: Price
    usd: float | None
    waited_usd: float | None
    """Part of it for time in which nothing was computed."""
    waited_pct: float | None
    boundary_usd: float | None
    """Part of it for time outside steps: validation, checkpoints."""
    boundary_pct: float | None


def spent(of: Spent) -> SpentJson:
    waited, outside = (None if share is None else 100 * share for share in (of.waited_share, of.boundary_share))
    return SpentJson(of.price, of.usd, of.waited_usd, waited, of.boundary_usd, outside)
