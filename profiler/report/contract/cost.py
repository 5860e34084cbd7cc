"""Costs as JSON: of logged trainings, and of a recorded run. `null` means not measured, or no price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...analyse.cells.cell_costs import CellCost, cell_costs
from ...analyse.cells.comparison import Cell
from ...analyse.cells.cost import Bill, Spent
from ...analyse.cells.prices import Price

FORMAT, VERSION = "whyidle-cost", 1


def logged(
    bills: Sequence[Bill], relative_to: str, target: float | None, problems: Sequence[str], folder: str
) -> dict[str, Any]:
    """All bills, training by training."""
    tests: dict[str, list[dict[str, Any]]] = {}
    for each in bills:
        tests.setdefault(each.test, []).append(_bill(each))
    prices = {each.price.name: price(each.price) for each in bills if each.price is not None}
    return {
        "format": FORMAT,
        "version": VERSION,
        "folder": folder,
        "relative_to": relative_to,
        "target_accuracy": target,
        "prices": prices,
        "tests": tests,
        "problems": list(problems),
    }


def price(of: Price) -> dict[str, Any]:
    return asdict(of)


def spent(of: Spent) -> dict[str, Any]:
    return {
        "price": price(of.price),
        "usd": of.usd,
        "waited_usd": of.waited_usd,
        "waited_pct": None if of.waited_share is None else 100 * of.waited_share,
        "boundary_usd": of.boundary_usd,
        "boundary_pct": None if of.boundary_share is None else 100 * of.boundary_share,
    }


def of_cells(cells: Sequence[Cell], setting: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each cell of a comparison adds to its JSON; nothing where the setting has no prices."""
    costs = cell_costs(cells, setting)
    if not costs:
        return [{} for _ in cells]
    return [{"cost_usd": each.usd_per_epoch, "cost": _cell(each)} for each in costs]


def _cell(of: CellCost) -> dict[str, Any]:
    return {
        "usd_per_hour": None if of.price is None else of.price.usd_per_hour,
        "instance": None if of.price is None else of.price.name,
        "usd_per_epoch": of.usd_per_epoch,
        "waited_usd_per_epoch": of.waited_usd,
        "ratio": of.ratio,
        "target_epochs": of.target_epochs,
        "target_cost_usd": of.target_usd,
    }


def _bill(of: Bill) -> dict[str, Any]:
    return {
        "machine": of.machine,
        "price": None if of.price is None else of.price.name,
        "epochs": of.epochs,
        "median_s_per_epoch": of.median_s,
        "total_s": of.total_s,
        "cost_usd": of.usd,
        "cost_usd_per_epoch": of.usd_per_epoch,
        "time_ratio": of.time_ratio,
        "cost_ratio": of.cost_ratio,
        "accuracy": of.accuracy,
        "loss": of.loss,
        "target_epoch": of.target_epoch,
        "target_cost_usd": of.target_usd,
    }
