"""Which loader is fastest and what it waits for, among cells that train the same thing under the same conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...analyse.causes.diagnosis import LEAST_STEPS
from ...analyse.causes.finding import Finding
from ...analyse.cells.axes import feed_of, label, varying
from ...analyse.cells.comparison import Cell, Comparison, Group
from ...analyse.cells.differential import verdict_of
from ...analyse.ranks import figures as ranks_figures
from ..document import Block, FittingColumn, FittingTable, Paragraph, under
from ..phrase import line
from ..words.figures import percent
from .cells_table import axes_shown, head, in_words, namer, place_columns

LEAST_RATIO = 1.05
"""The least ratio from which the slowest cell is named beside the fastest."""
MOST_TOLD = 3
"""Groups with a paragraph each; of more, each has a line."""
MOST_NAMED = 4
"""Cells of one verdict that are named; of more only the number is given."""
_DEVICE = {"emulated": "the emulated device", "cpu": "the processor"}


def group_winners(result: Comparison, kind: str) -> Iterator[Block]:
    """Name the fastest cell of each group; of several groups, of those that have a choice. `kind`: of the device."""
    device = _DEVICE.get(kind, "the device")
    groups = result.groups
    if len(groups) > 1:
        groups = tuple(group for group in groups if _has_choice(group))
    if len(groups) > MOST_TOLD:
        yield from under([_table(groups, kind == "emulated")])
        return
    names = [name for name in axes_shown(result.cells) if all(name in group.axes for group in groups)]
    for group in groups:
        place = in_words(group.cells[0], names) if len(result.groups) > 1 else ""
        said = _winner(group, device)
        yield Paragraph(line((f"{place}: ", "bold"), said) if place else said, 1)


def _has_choice(group: Group) -> bool:
    """Whether it takes several loaders, or sizes of batches, to choose among."""
    ran = [cell for cell in group.cells if cell.status == "ok"]
    return len(ran) > 1 and feed_of(ran[0]) != "synthetic"


def _winner(group: Group, device: str) -> str:
    best = group.best
    if best is None or best.samples_per_s is None or best.typical is None or best.typical.facts is None:
        return "No run finished, so none is fastest."
    rate, facts = best.samples_per_s.value, best.typical.facts
    if feed_of(best) == "synthetic":
        return f"{rate:.1f} samples/s at batch {best.batch_size}, with one cached batch."
    idle = feed_of(best) != "loader-only"
    busy = percent(ranks_figures.figure(best.typical, "busy_pct"), 0)
    said = f"{_name(best, group)} reaches {rate:.1f} samples/s{f', and {device} is busy {busy} of the time' * idle}."
    if group.ties:
        names = ", ".join(_name(cell, group) for cell in group.ties)
        said += f" Equally fast within noise: {names}."
    slowest, ratio = _slowest(group)
    if slowest is not None and slowest.typical and slowest.typical.facts:
        busy = percent(ranks_figures.figure(slowest.typical, "busy_pct"), 0)
        said += f" The fastest is {ratio:.1f}× as fast as {_name(slowest, group)}{f' (busy {busy})' * idle}."
    if len(facts.window.steps) < LEAST_STEPS:
        said += " Start-up distorts so short a run: do not rank by it yet."
    verdict = verdict_of(best)
    return said if verdict is None or verdict.cause in (None, "none") else f"{said} {verdict.title}"


def _slowest(group: Group) -> tuple[Cell | None, float]:
    """The slowest cell, and by which factor the best is faster; none where it is no slower to speak of."""
    rates = [(rate.value, cell) for cell in group.cells if cell.status == "ok" and (rate := cell.samples_per_s)]
    if group.best is None or group.best.samples_per_s is None or not rates:
        return None, 1.0
    lowest, slowest = min(rates, key=lambda pair: pair[0])
    ratio = group.best.samples_per_s.value / lowest
    tied = any(slowest is each for each in group.ties)
    return (None, 1.0) if ratio < LEAST_RATIO or tied else (slowest, ratio)


def _name(cell: Cell, group: Group) -> str:
    """Name a cell among those of its group."""
    choice = label(cell, [name for name in varying(group.cells) if name not in group.axes])
    return f"{cell.pipeline}{f' ({choice})' if choice else ''} at batch {cell.batch_size}"


def _table(groups: Sequence[Group], emulated: bool) -> FittingTable:
    """Give each group a line with its fastest cell."""
    ran = [(group, group.best) for group in groups if group.best is not None]
    best = [cell for _, cell in ran]
    slower = [(_namer(group), *_slowest(group)) for group, _ in ran]
    return FittingTable(
        (
            *place_columns(best, axes_shown([cell for group in groups for cell in group.cells]), whole=True),
            FittingColumn(
                head("samples/s", emulated),
                [f"{cell.samples_per_s.value:.1f}" if cell.samples_per_s else "" for cell in best],
                right=True,
            ),
            FittingColumn(
                "against the slowest",
                ["" if cell is None else f"{ratio:.1f}× {name(cell)}" for name, cell, ratio in slower],
                goes=2,
            ),
            FittingColumn("equally fast", [_ties(group) for group, _ in ran], folds_to=14, goes=1),
        )
    )


def _namer(group: Group) -> Callable[[Cell], str]:
    """Name cells of a group, with the loader wherever the store is named."""
    name = namer(group.cells)
    if "store" not in varying(group.cells) or len({cell.pipeline for cell in group.cells}) > 1:
        return name
    return lambda cell: f"{cell.pipeline} {name(cell)}"


def _ties(group: Group) -> str:
    name = _namer(group)
    return ", ".join(name(cell) for cell in group.ties)


def group_verdicts(result: Comparison) -> Iterator[Paragraph]:
    """Give each cause a paragraph: the trainings that have it, and what it means where it costs most."""
    cells = [cell for group in result.groups for cell in group.cells if _is_told(cell)]
    name = namer(cells)
    causes: dict[str, list[tuple[Cell, Finding]]] = {}
    for cell in cells:
        if (verdict := verdict_of(cell)) is not None:
            causes.setdefault(verdict.cause or "too few steps", []).append((cell, verdict))
    for cause, having in sorted(causes.items(), key=lambda item: (item[0] == "none", -len(item[1]))):
        where = _counted([name(cell) for cell, _ in having], len(cells))
        said = f": {where}."
        worst = max((verdict for _, verdict in having), key=lambda verdict: verdict.share)
        if cause != "none":
            alike = len({verdict.title for _, verdict in having}) == 1
            said += f" {worst.title}" if alike else f" At worst: {worst.title}"
            if worst.next:
                said += f" {worst.next[0].change}."
        yield Paragraph(line((cause, "bold"), said), 1)


def _counted(names: Sequence[str], of: int) -> str:
    """Name a few; count more."""
    if len(names) <= MOST_NAMED:
        return "; ".join(names)
    return f"all {of} cells" if len(names) == of else f"{len(names)} of {of} cells"


def _is_told(cell: Cell) -> bool:
    return cell.status == "ok" and feed_of(cell) == "real" and verdict_of(cell) is not None
