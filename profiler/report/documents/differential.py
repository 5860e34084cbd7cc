"""The differential test in words: net alone, loader alone, both together; and what augmentation costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...analyse.cells.augmentation import FREE, Augmentation, augmentations, free_on_one_device
from ...analyse.cells.axes import label
from ...analyse.cells.cell_costs import samples_of
from ...analyse.cells.comparison import Cell
from ...analyse.cells.differential import AGREES_WITHIN, Differential, differentials
from ...analyse.statistics import Range
from ..document import Block, FittingColumn, FittingTable, Heading, Paragraph, Space, under
from ..phrase import toned
from ..words.figures import NOT_MEASURED
from .cells_table import figures, namer, place_columns

LIMITS = {"net": "net", "loader": "loader", "both": "both alike", None: ""}
FOREIGN = "foreign_load"
MOST_OFF = 8
"""Trainings that are told one by one, of those that took another time than expected."""
LITTLE = 0.005
"""Less than this is written as no difference."""


def differential_blocks(cells: Sequence[Cell], setting: dict[str, Any]) -> Iterator[Block]:
    """What there is of both; nothing where the cells allow neither."""
    tested = differentials(cells)
    both = [each for each in tested if each.expected is not None]
    emulated = "emulated " if setting["device"]["kind"] == "emulated" else ""
    if both:
        yield Space()
        yield Heading(f"Net alone, loader alone, and both: {emulated}samples/s")
        yield from under([_table(both, setting)])
        yield Paragraph(summary(both), 1)
        yield from _unexpected(both)
    dearer = augmentations(cells, tested, setting)
    if dearer:
        yield Space()
        yield Heading(f"What augmentation costs{f' ({emulated}device)' if emulated else ''}")
        yield from under([_augmented(dearer)])
        if (why := unsure(dearer)) is not None:
            yield Paragraph(toned(why, "yellow"), 1)
        if (said := contrast(dearer)) is not None:
            yield Paragraph(said, 1)


def _table(tested: Sequence[Differential], setting: dict[str, Any]) -> FittingTable:
    cells = [each.cell for each in tested]
    epochs = [samples_of(cell, setting) for cell in cells]
    return FittingTable(
        (
            *place_columns(cells),
            figures("net\nalone", tested, lambda each: _rate(each.net)),
            figures("loader\nalone", tested, lambda each: _rate(each.loader)),
            figures("expected", tested, lambda each: _rate(each.expected), goes=1),
            figures("measured", tested, lambda each: _rate(each.measured)),
            figures("time", tested, lambda each: _deviation(each.deviation)),
            FittingColumn("limit", [_limit(each) for each in tested]),
            FittingColumn(
                "s/epoch expected",
                [_seconds(number, each.expected) for number, each in zip(epochs, tested, strict=True)],
                right=True,
                goes=3,
            ),
            FittingColumn(
                "measured s",
                [_seconds(number, each.measured) for number, each in zip(epochs, tested, strict=True)],
                right=True,
                goes=2,
            ),
        )
    )


def summary(tested: Sequence[Differential]) -> str:
    """How well the two limits explain the trainings, and which of them limits how many."""
    agree = sum(bool(each.agrees) for each in tested)
    overlapping = {each.overlaps for each in tested}
    time = {True: "the slower of the two takes", False: "both take together"}
    rule = time[overlapping.pop()] if len(overlapping) == 1 else "the slower takes, or without overlap both together"
    said = f"Within {100 * AGREES_WITHIN:.0f} % of the time that {rule}: {agree} of {len(tested)}."
    for limit, words in (("loader", "The loader is the floor"), ("net", "The net is the limit")):
        if number := sum(each.limit == limit for each in tested):
            said += f" {words} in {number} of {len(tested)}."
    return said


def _unexpected(tested: Sequence[Differential]) -> Iterator[Block]:
    """One block of those that took another time than expected, with the likely reason."""
    off = [each for each in tested if each.agrees is False]
    if not off:
        return
    name = namer([each.cell for each in tested])
    # In the way of many alike, and the same advice each time.
    crowded = {reason.text for each in off for reason in each.reasons if reason.code == FOREIGN}
    others = f" ({max(crowded)})" if crowded else ""
    yield Paragraph(toned(f"Not as expected{others}:", "yellow"), 1)
    worst = sorted(off, key=lambda each: -abs(each.deviation or 0.0))
    for each in worst[:MOST_OFF]:
        deviation = each.deviation or 0.0
        took = "longer" if deviation > 0 else "shorter"
        reasons = "; ".join(reason.text for reason in each.reasons if reason.code != FOREIGN)
        said = f"{name(each.cell)}: {abs(100 * deviation):.0f} % {took}{f': {reasons}' if reasons else ''}."
        yield Paragraph(said, 2)
    if len(worst) > MOST_OFF:
        yield Paragraph(f"and {len(worst) - MOST_OFF} more that are off by less.", 2)


def _augmented(found: Sequence[Augmentation]) -> FittingTable:
    cells = [each.cell for each in found]
    return FittingTable(
        (
            *place_columns(cells),
            figures("plain s/epoch", found, lambda each: _number(each.plain_s), goes=1),
            figures("augmented", found, lambda each: _number(each.augmented_s), goes=1),
            figures("augmentation", found, cost_in_words),
            FittingColumn("limit", [LIMITS[each.limit] for each in found] if any(each.limit for each in found) else ()),
        )
    )


def cost_in_words(found: Augmentation) -> str:
    """`free`, `+49 %`; with a question mark where repeats differ by as much, or too little was run."""
    if abs(found.cost) < FREE:
        return "free" if found.doubt is None else "free ?"
    return f"{100 * found.cost:+.0f} %{'' if found.sure else ' ?'}"


def unsure(found: Sequence[Augmentation]) -> str | None:
    """Why figures have a question mark; `None` where none has."""
    doubts = [each.doubt or "runs differ by as much" for each in found if cost_in_words(each).endswith("?")]
    return f"?: {', or '.join(dict.fromkeys(doubts))}. Longer runs, and several of each, tell." if doubts else None


def contrast(found: Sequence[Augmentation]) -> str | None:
    """That augmentation is free on one device and not on another; `None` where no training shows it."""
    said = []
    for free, dear in free_on_one_device(found):
        because = ", where the loader is the floor" if dear.limit == "loader" else ""
        said.append(
            f"{dear.cell.axes.get('net') or 'The net'}, the same code and data: augmentation is free on "
            f"{label(free.cell, ('device',))} and costs {100 * dear.cost:.0f} % on {label(dear.cell, ('device',))}"
            f"{because}."
        )
    return " ".join([*said, "What a slow device hides is the limit of a fast one."]) if said else None


def _limit(found: Differential) -> str:
    return LIMITS[found.limit] + (" (no overlap)" if found.limit is not None and not found.overlaps else "")


def _deviation(share: float | None) -> str:
    if share is None:
        return NOT_MEASURED
    return f"{100 * share:+.0f} %" if abs(share) >= LITTLE else "0 %"


def _rate(rate: Range | None) -> str:
    return NOT_MEASURED if rate is None else _number(rate.value)


def _seconds(samples: int | None, rate: Range | None) -> str:
    return NOT_MEASURED if samples is None or rate is None else _number(samples / rate.value)


def _number(value: float | None) -> str:
    """Three digits or more."""
    if value is None:
        return NOT_MEASURED
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
