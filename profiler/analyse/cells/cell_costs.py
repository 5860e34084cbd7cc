"""What the trainings of a comparison cost: an epoch of each, what of it paid for waiting, and until an accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..ranks import figures as ranks_figures
from .comparison import Cell
from .cost import boundary, first_reaching, of_epoch, ratio, waiting
from .prices import Price

SETTING = "cost"
"""Where a comparison's setting says what its cells cost an hour."""

Place = tuple[str, int | None, int]
"""Where a training ran: device, threads, ranks."""
Tariff = Callable[[str, int | None, int], Price | None]
"""The price of an hour of all that a training there ran on."""


@dataclass(frozen=True)
class CellCost:
    """What the training of a cell costs. `None`: not known."""

    cell: Cell
    price: Price | None
    usd_per_epoch: float | None
    """One pass over the data at the cell's rate within its steps; start, evaluation and checkpoints are not in it."""
    waited_usd: float | None
    """Part of `usd_per_epoch` for the time in which nothing was computed."""
    ratio: float | None
    """`usd_per_epoch` over that of the chosen cell of the same net, else of its first cell of real data with a cost."""
    target_epochs: int | None
    """Epochs until the accuracy that was asked for; `None` if it was never reached."""
    target_usd: float | None
    """Cost of the epochs until that accuracy, evaluation included."""


def setting_of(
    tariff: Tariff,
    places: Iterable[Place],
    target: float | None,
    relative_to: str | None = None,
    whole: bool = False,
) -> dict[str, Any] | None:
    """For a comparison's setting: the prices of its places, the accuracy to be reached, what cells are set beside
    (`is_at`), and whether prices are of the whole machine, with everything that runs on it."""
    prices = [(place, price) for place in dict.fromkeys(places) if (price := tariff(*place)) is not None]
    if not prices:
        return None
    told = [
        {"device": device, "threads": threads, "ranks": ranks, "price": asdict(price)}
        for (device, threads, ranks), price in prices
    ]
    return {"prices": told, "target_accuracy": target, "relative_to": relative_to, "whole_machine": whole}


def place_of(cell: Cell) -> Place:
    return str(cell.axes.get("device")), cell.axes.get("threads"), cell.axes.get("ranks") or 1


def is_at(name: str, device: str, threads: int | None) -> bool:
    """Whether this is the place of that name: a device (`k80`, `emulated:k80`, `cpu`), or a number of threads."""
    return name in (device, device.removeprefix("emulated:"), str(threads))


def cell_costs(cells: Sequence[Cell], setting: Mapping[str, Any]) -> list[CellCost]:
    """The cost of every cell; empty where the setting has no prices."""
    said = setting.get(SETTING)
    if not said:
        return []
    prices = {
        (each["device"], each["threads"], each.get("ranks", 1)): Price(**each["price"]) for each in said["prices"]
    }
    chosen = said.get("relative_to")
    bases: dict[str | None, float | None] = {}
    made = []
    for cell in cells:
        device, threads, _ = place = place_of(cell)
        price, shares = prices.get(place), _shares(cell)
        rate = None if cell.samples_per_s is None or _trains_nothing(cell) else cell.samples_per_s.value
        usd = of_epoch(samples_of(cell, setting), rate, price, boundary(shares))
        real = cell.axes.get("feed", "real") == "real"
        if usd is not None and real and (chosen is None or is_at(chosen, device, threads)):
            bases.setdefault(cell.axes.get("net"), usd)
        share = waiting(shares)
        reached, spent = _until(cell, price, said.get("target_accuracy"))
        waited = None if share is None else of_epoch(samples_of(cell, setting), rate, price, 1 - share)
        made.append(CellCost(cell, price, usd, waited, None, reached, spent))
    return [replace(each, ratio=ratio(each.usd_per_epoch, bases.get(each.cell.axes.get("net")))) for each in made]


def samples_of(cell: Cell, setting: Mapping[str, Any]) -> int | None:
    """Samples in one pass over a cell's data; `None` where that is not known."""
    told = (setting.get("datasets") or {}).get(cell.axes.get("net")) or setting.get("dataset") or {}
    samples = told.get("samples")
    return samples if isinstance(samples, int) else None


def is_tried(cell: Cell) -> bool:
    """Whether its net was tried on held-out data after every epoch."""
    return any(each.get("evaluation") for each in _epochs(cell))


def _shares(cell: Cell) -> Mapping[str, float]:
    """Parts of the time of its typical run, over all its ranks; empty where none are known."""
    return {} if cell.typical is None else ranks_figures.shares(cell.typical)


def _until(cell: Cell, price: Price | None, target: float | None) -> tuple[int | None, float | None]:
    """(epochs until an accuracy, their cost)."""
    epochs = _epochs(cell)
    reached = first_reaching([(each.get("evaluation") or {}).get("accuracy") for each in epochs], target)
    if reached is None or price is None:
        return reached, None
    return reached, price.of(sum(each["seconds"] for each in epochs[:reached]))


def _epochs(cell: Cell) -> Sequence[Mapping[str, Any]]:
    typical = cell.typical
    results = (typical.info.get("results") or {}) if typical is not None else {}
    found: Sequence[Mapping[str, Any]] = results.get("epochs") or ()
    return found


def _trains_nothing(cell: Cell) -> bool:
    """Steps that do nothing make no epoch of a training."""
    return cell.axes.get("feed") == "loader-only"
