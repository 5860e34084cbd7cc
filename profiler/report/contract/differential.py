"""The differential test and the cost of augmentation as JSON, each beside what tells the cell from the others."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ...analyse.cells.augmentation import Augmentation
from ...analyse.cells.comparison import Cell
from ...analyse.cells.differential import Differential, Limit, Reason
from ...analyse.statistics import Range
from .encode import beside


class SpreadJson(Struct):
    """Samples/s over the repeats."""

    median: float
    low: float
    high: float


class EpochTimesJson(Struct):
    """Seconds for one pass over the data at each rate."""

    net_alone: float | None
    loader_alone: float | None
    expected: float | None
    measured: float | None


class DifferentialJson(Struct):
    """A training beside its net alone and its loader alone; `null` where not run."""

    net_alone: SpreadJson | None
    loader_alone: SpreadJson | None
    expected: SpreadJson | None
    """Rate that both limits together allow."""
    measured: SpreadJson | None
    epoch_s: EpochTimesJson
    deviation_pct: float | None
    """Percent by which the training took longer than expected; negative: shorter."""
    agrees: bool | None
    overlaps: bool
    """Whether the loader works while the net computes."""
    limit: Limit | None
    reasons: tuple[Reason, ...]
    """Where expectation and measurement do not agree."""


class AugmentationJson(Struct):
    """Time that augmentation adds to a training."""

    plain_epoch_s: float | None
    augmented_epoch_s: float | None
    cost_pct: float
    free: bool
    sure: bool
    """Whether repeats, or epochs, differ by less than the cost."""
    doubt: str | None
    """Why too little was run to claim anything."""
    limit: Limit | None
    """Of the augmented training."""


def name(cell: Cell) -> dict[str, Any]:
    """What tells a cell from the others. Which axes there are is the scenario's."""
    return {"pipeline": cell.pipeline, "batch_size": cell.batch_size, **cell.axes}


def differential(tested: Differential, samples: int | None) -> dict[str, Any]:
    """`samples`: of an epoch."""
    rates = (tested.net, tested.loader, tested.expected, tested.measured)
    told = DifferentialJson(
        net_alone=spread(tested.net),
        loader_alone=spread(tested.loader),
        expected=spread(tested.expected),
        measured=spread(tested.measured),
        epoch_s=EpochTimesJson(*(None if samples is None or rate is None else samples / rate.value for rate in rates)),
        deviation_pct=None if tested.deviation is None else 100 * tested.deviation,
        agrees=tested.agrees,
        overlaps=tested.overlaps,
        limit=tested.limit,
        reasons=tested.reasons,
    )
    return beside(name(tested.cell), told)


def augmentation(found: Augmentation) -> dict[str, Any]:
    told = AugmentationJson(
        plain_epoch_s=found.plain_s,
        augmented_epoch_s=found.augmented_s,
        cost_pct=100 * found.cost,
        free=found.free,
        sure=found.sure,
        doubt=found.doubt,
        limit=found.limit,
    )
    return beside(name(found.cell), told)


def spread(rate: Range | None) -> SpreadJson | None:
    return None if rate is None else SpreadJson(rate.value, rate.low, rate.high)
