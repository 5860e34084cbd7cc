"""What augmentation costs: nothing where the net takes longer than the loader, and time where it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..statistics import Range
from .axes import alike_but_for, feed_of, twin
from .cell_costs import samples_of
from .comparison import Cell
from .differential import Differential, Limit, too_little
from .training_results import TrainingOutcome, results

FREE = 0.05
"""Share by which augmenting may lengthen an epoch and still be called free."""


@dataclass(frozen=True)
class Augmentation:
    """What augmenting costs, by two cells that differ in nothing else or by the two kinds of epochs of one training."""

    cell: Cell
    """The augmented one."""
    plain_s: float | None
    """Time of an epoch without augmenting; `None` where the number of samples is not known."""
    augmented_s: float | None
    """Time of an epoch with it; `None` where the number of samples is not known."""
    cost: float
    """What augmenting adds to the time, as a share of that without."""
    sure: bool
    """Whether repeats differ by less than the cost; of one run, whether its epochs do."""
    limit: Limit | None
    """What limits the augmented training, where the differential test says so."""
    doubt: str | None = None
    """Why either cell is too little to claim anything: too few steps, or one short run. Such a cost is never sure."""

    @property
    def free(self) -> bool:
        return self.cost < FREE


def augmentations(
    cells: Sequence[Cell], tested: Sequence[Differential], setting: Mapping[str, Any]
) -> list[Augmentation]:
    """What augmentation costs each cell, by its own epochs and by another cell. `setting`: the comparison's."""
    return [each for cell in cells for each in _of_cell(cell, cells, tested, samples_of(cell, setting))]


def _of_cell(
    cell: Cell, cells: Sequence[Cell], tested: Sequence[Differential], samples: int | None
) -> Iterator[Augmentation]:
    if (of_plan := _of_epochs(cell)) is not None:
        yield of_plan
    plain = _without(cell, cells)
    if plain is None or plain.samples_per_s is None or cell.samples_per_s is None:
        return
    fast, slow = plain.samples_per_s, cell.samples_per_s
    limit = next((each.limit for each in tested if each.cell is cell), None)
    doubt = too_little(cell) or too_little(plain)
    sure = doubt is None and not fast.meets(slow)
    cost = fast.value / slow.value - 1
    yield Augmentation(cell, _epoch(samples, fast), _epoch(samples, slow), cost, sure, limit, doubt)


def _without(cell: Cell, cells: Sequence[Cell]) -> Cell | None:
    """The cell that does not augment, and is the same in all else."""
    if not cell.axes.get("augment") or cell.status != "ok" or feed_of(cell) != "real":
        return None
    return twin(cell, [each for each in cells if each.status == "ok"], augment=False)


def _epoch(samples: int | None, rate: Range) -> float | None:
    return None if samples is None else samples / rate.value


def _of_epochs(cell: Cell) -> Augmentation | None:
    """Of a training whose plan has both kinds of epochs. The first of each kind starts something, and is left out
    where there are more."""
    pairs = [pair for each in results([cell]) for run in each.runs if (pair := _of_run(run)) is not None]
    if not pairs:
        return None
    plain, augmented = (median(median(pair[which]) for pair in pairs) for which in (0, 1))
    cost = augmented / plain - 1
    if len(pairs) > 1:
        costs = [median(of_augmented) / median(of_plain) - 1 for of_plain, of_augmented in pairs]
        sure = max(costs) - min(costs) < abs(cost)
    else:
        sure = _apart(*pairs[0])
    doubt = too_little(cell, sum(map(sum, pairs[0])))
    return Augmentation(cell, plain, augmented, cost, sure and doubt is None, None, doubt)


def _apart(plain: Sequence[float], augmented: Sequence[float]) -> bool:
    """Of a single run: whether its epochs of each kind, two or more, are all on one side of those of the other."""
    several = len(plain) > 1 and len(augmented) > 1
    return several and (max(plain) < min(augmented) or max(augmented) < min(plain))


def _of_run(run: TrainingOutcome) -> tuple[list[float], list[float]] | None:
    """The seconds of its epochs without augmentation and with it."""
    kinds: dict[bool, list[float]] = {}
    for each in run.epochs:
        if each.get("seconds"):
            kinds.setdefault(bool(each.get("augment")), []).append(float(each["seconds"]))
    if len(kinds) < 2:
        return None
    return kinds[False][1:] or kinds[False], kinds[True][1:] or kinds[True]


def free_on_one_device(found: Sequence[Augmentation]) -> list[tuple[Augmentation, Augmentation]]:
    """Pairs of one training on two devices whose augmentation is free on one and surely not on the other; of each
    training the pair that differs most."""
    sure = sorted((each for each in found if each.doubt is None), key=lambda each: each.cost)
    return [
        (several[0], several[-1])
        for several in alike_but_for(sure, "device")
        if several[0].free and not several[-1].free and several[-1].sure
    ]
