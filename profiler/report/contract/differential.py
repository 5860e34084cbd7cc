"""The differential test and the cost of augmentation as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...analyse.cells.augmentation import Augmentation, augmentations
from ...analyse.cells.cell_costs import samples_of
from ...analyse.cells.comparison import Cell
from ...analyse.cells.differential import Differential, differentials
from ...analyse.statistics import Range


def comparison(cells: Sequence[Cell], setting: dict[str, Any]) -> dict[str, Any]:
    """`differential` and `augmentation`: lists, empty where the cells allow none."""
    tested = differentials(cells)
    return {
        "differential": [of_cell(each, samples_of(each.cell, setting)) for each in tested],
        "augmentation": [augmentation(each) for each in augmentations(cells, tested, setting)],
    }


def name(cell: Cell) -> dict[str, Any]:
    """What tells a cell from the others."""
    return {"pipeline": cell.pipeline, "batch_size": cell.batch_size, **cell.axes}


def of_cell(tested: Differential, samples: int | None) -> dict[str, Any]:
    rates = {
        "net_alone": tested.net,
        "loader_alone": tested.loader,
        "expected": tested.expected,
        "measured": tested.measured,
    }
    return {
        **name(tested.cell),
        **{key: spread(rate) for key, rate in rates.items()},
        "epoch_s": {
            key: None if samples is None or rate is None else samples / rate.value for key, rate in rates.items()
        },
        "deviation_pct": None if tested.deviation is None else 100 * tested.deviation,
        "agrees": tested.agrees,
        "overlaps": tested.overlaps,
        "limit": tested.limit,
        "reasons": [{"code": reason.code, "text": reason.text} for reason in tested.reasons],
    }


def augmentation(found: Augmentation) -> dict[str, Any]:
    return {
        **name(found.cell),
        "plain_epoch_s": found.plain_s,
        "augmented_epoch_s": found.augmented_s,
        "cost_pct": 100 * found.cost,
        "free": found.free,
        "sure": found.sure,
        "doubt": found.doubt,
        "limit": found.limit,
    }


def spread(rate: Range | None) -> Mapping[str, float] | None:
    """Samples/s over the repeats."""
    return None if rate is None else {"median": rate.value, "low": rate.low, "high": rate.high}
