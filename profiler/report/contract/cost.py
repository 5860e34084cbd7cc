"""Costs as JSON: of logged trainings, of a comparison's cells, and of a recorded run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from ...analyse.cells.cell_costs import CellCost, cell_costs
from ...analyse.cells.comparison import Cell
from ...analyse.cells.cost import Bill, Spent
from ...analyse.cells.prices import Price


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


class CellCostJson(Struct):
    """Cost of a cell of a comparison; `null` where there is no price."""

    usd_per_hour: float | None
    instance: str | None
    usd_per_epoch: float | None
    """One pass over the data at the rate within steps."""
    waited_usd_per_epoch: float | None
    """Part of it for time in which nothing was computed."""
    ratio: float | None
    """`usd_per_epoch` over that of the reference cell."""
    target_epochs: int | None
    """Epochs until the requested accuracy."""
    target_cost_usd: float | None


class BillJson(Struct):
    """Cost of a logged training."""

    machine: str
    price: str | None
    """Its name among the `prices`."""
    epochs: int
    median_s_per_epoch: float
    total_s: float
    cost_usd: float | None
    cost_usd_per_epoch: float | None
    time_ratio: float | None
    """Median epoch over that of the reference machine."""
    cost_ratio: float | None
    accuracy: float | None
    loss: float | None
    target_epoch: int | None
    """First epoch that reached the requested accuracy."""
    target_cost_usd: float | None
    """Of all epochs until then."""


class LoggedCostsJson(Struct, kw_only=True):
    """All bills, training by training: `compare cost --logs DIR --json`."""

    format: str = "whyidle-cost"
    version: int = 1
    folder: str
    relative_to: str
    """Name of a machine."""
    target_accuracy: float | None
    prices: dict[str, Price]
    tests: dict[str, list[BillJson]]
    problems: Sequence[str]
    """Logs that could not be read, a sentence each."""


def logged(
    bills: Sequence[Bill], relative_to: str, target: float | None, problems: Sequence[str], folder: str
) -> LoggedCostsJson:
    tests: dict[str, list[BillJson]] = {}
    for each in bills:
        tests.setdefault(each.test, []).append(_bill(each))
    return LoggedCostsJson(
        folder=folder,
        relative_to=relative_to,
        target_accuracy=target,
        prices={str(each.price.name): each.price for each in bills if each.price is not None},
        tests=tests,
        problems=problems,
    )


def spent(of: Spent) -> SpentJson:
    return SpentJson(
        price=of.price,
        usd=of.usd,
        waited_usd=of.waited_usd,
        waited_pct=None if of.waited_share is None else 100 * of.waited_share,
        boundary_usd=of.boundary_usd,
        boundary_pct=None if of.boundary_share is None else 100 * of.boundary_share,
    )


def of_cells(cells: Sequence[Cell], setting: Mapping[str, Any]) -> list[CellCostJson]:
    """Of every cell; nothing where the setting has no prices."""
    return [_cell(each) for each in cell_costs(cells, setting)]


def _cell(of: CellCost) -> CellCostJson:
    return CellCostJson(
        usd_per_hour=None if of.price is None else of.price.usd_per_hour,
        instance=None if of.price is None else of.price.name,
        usd_per_epoch=of.usd_per_epoch,
        waited_usd_per_epoch=of.waited_usd,
        ratio=of.ratio,
        target_epochs=of.target_epochs,
        target_cost_usd=of.target_usd,
    )


def _bill(of: Bill) -> BillJson:
    return BillJson(
        machine=of.machine,
        price=None if of.price is None else of.price.name,
        epochs=of.epochs,
        median_s_per_epoch=of.median_s,
        total_s=of.total_s,
        cost_usd=of.usd,
        cost_usd_per_epoch=of.usd_per_epoch,
        time_ratio=of.time_ratio,
        cost_ratio=of.cost_ratio,
        accuracy=of.accuracy,
        loss=of.loss,
        target_epoch=of.target_epoch,
        target_cost_usd=of.target_usd,
    )
