"""Results of trainings in words: figures on held-out data and times, each run beside the mean of its cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ...analyse.cells.axes import label, varying
from ...analyse.cells.comparison import Comparison
from ...analyse.cells.training_results import CellResult, MetricByBatchSize, is_told, metrics_by_batch_size, results
from ...analyse.statistics import Range
from ..document import (
    Block,
    FittingColumn,
    FittingTable,
    Heading,
    Paragraph,
    Space,
    TableBlock,
    TableColumn,
    table,
    under,
)
from ..phrase import Words, toned
from ..words.figures import NOT_MEASURED
from .cells_table import figures, head, namer, place_columns

FIRST_METRICS = ("accuracy", "average_precision", "precision", "recall", "loss")
"""The order of the columns; any other figure of an evaluation comes after them."""
HEADS = {"average_precision": "AP"}
MOST_METRICS = 4
MOST_CLASSES = 12
"""In a printed confusion matrix."""
MOST_CONFUSED = 3
MORE_WORK = 1.1
"""Ratio of samples processed from which times are not comparable."""


def training_results_blocks(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    """Nothing where no training was tried on held-out data or followed a plan."""
    found = [each for each in results(result.cells) if is_told(each)]
    if not found:
        return
    emulated = setting["device"]["kind"] == "emulated"
    yield Space()
    yield Heading("Results of the trainings")
    yield from under([_table(found, emulated)])
    if (said := work(found)) is not None:
        yield Paragraph(toned(said, "yellow"), 1)
    if emulated and not metric_names(found):
        yield Paragraph("An emulated device learns nothing, so there is no accuracy.", 1)
    names = varying([each.cell for each in found])
    for each in metrics_by_batch_size(found):
        yield Paragraph(held_in_words(each, names), 1)
    yield from _confusion(found, setting)


def metric_names(found: Sequence[CellResult]) -> list[str]:
    """Name the figures to show, the usual ones first."""
    told = dict.fromkeys(name for each in found for name in each.metrics)
    usual = [name for name in FIRST_METRICS if name in told]
    return (usual + [name for name in told if name not in usual])[:MOST_METRICS]


def _table(found: Sequence[CellResult], emulated: bool) -> FittingTable:
    metrics = metric_names(found)
    return FittingTable(
        (
            *place_columns([each.cell for each in found]),
            *(
                figures(HEADS.get(name, name), found, partial(_metric, name), goes=4 + place if place else 0)
                for place, name in enumerate(metrics)
            ),
            figures(head("time", emulated), found, lambda each: _seconds(each.train_s)),
            figures(head("samples/s", emulated), found, _rate, goes=2),
            figures("samples", found, lambda each: _count(each.samples)),
            FittingColumn(
                "each run",
                [_runs(each, metrics) for each in found] if any(len(each.runs) > 1 for each in found) else (),
                folds_to=16,
                goes=3,
            ),
        )
    )


def work(found: Sequence[CellResult]) -> str | None:
    """Warn that times are of different work; `None` where every cell processed as many samples."""
    known = [each.samples.value for each in found if each.samples is not None]
    if not known or max(known) < MORE_WORK * min(known):
        return None
    return (
        f"These trainings processed {min(known):.0f} to {max(known):.0f} samples, so their times are not comparable. "
        "Compare samples/s."
    )


def held_in_words(found: MetricByBatchSize, names: Sequence[str]) -> str:
    """Say whether a figure held while the batch grew."""
    cell = found.cells[0]
    where = f"{label(cell, names)} {cell.pipeline}".strip()
    figures_said = ", ".join(
        f"{mean.value:.3f} at {each.batch_size}" for each, mean in zip(found.cells, found.means, strict=True)
    )
    word = {True: "holds", False: "falls", None: "is undecided, as runs were not repeated"}[found.held]
    if not found.learnt:
        word = "says nothing after so little training"
    spread = "" if found.spread is None else f"; repeats differ by up to {found.spread:.3f}"
    return f"{where}: as the batch grows, {HEADS.get(found.metric, found.metric)} {word} ({figures_said}{spread})."


def _confusion(found: Sequence[CellResult], setting: dict[str, Any]) -> Iterator[Block]:
    """Show the confusion of the most accurate cell."""
    best = most_accurate(found)
    matrix = None if best is None else best.confusion
    if best is None or matrix is None:
        return
    where = namer([each.cell for each in found])(best.cell)
    classes = class_names(best, setting)
    runs = f"{len(best.runs)} runs together" if len(best.runs) > 1 else "one run"
    yield Space()
    yield Paragraph(f"Confusion, {where}, {runs}; rows: true class, columns: predicted class", 1)
    if len(matrix) <= MOST_CLASSES:
        yield _matrix(matrix, classes)
    if (worst := confused(matrix, classes)) is not None:
        yield Paragraph(f"Confused most often: {worst}.", 1)


def most_accurate(found: Sequence[CellResult]) -> CellResult | None:
    """Choose among those with a confusion matrix."""
    known = [each for each in found if each.confusion is not None]
    return max(known, key=lambda each: mean.value if (mean := each.metric("accuracy")) else 0.0, default=None)


def class_names(found: CellResult, setting: dict[str, Any]) -> list[str]:
    """Name classes as the evaluation or the data do, otherwise by number."""
    matrix = found.confusion or []
    several = setting.get("datasets") or {}
    data = several.get(found.cell.axes.get("net")) or setting.get("dataset") or {}
    for told in (found.classes, data.get("classes")):
        if isinstance(told, list) and len(told) == len(matrix):
            return [str(name) for name in told]
    return [str(number) for number in range(len(matrix))]


def _matrix(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> TableBlock:
    """Classes by name in front of the rows, and by number above the columns."""
    numbers = [str(number) for number in range(len(classes))]
    rows: list[Sequence[Words]] = [("", "", *(toned(number, "dim") for number in numbers))]
    for number, (name, row) in enumerate(zip(classes, matrix, strict=True)):
        counts = (toned(str(count), "bold" if number == place else "") for place, count in enumerate(row))
        rows.append((name if numbers != list(classes) else "", str(number), *counts))
    figure = TableColumn(right=True, wraps=False)
    return table(
        rows, TableColumn(wraps=False), TableColumn(right=True, tone="dim"), *(figure for _ in classes), gap=1, indent=2
    )


def confused(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> str | None:
    """The pairs of classes that are confused most; `None` where nothing is."""
    wrong = [
        (count / max(1, sum(row)), count, what, taken)
        for what, row in enumerate(matrix)
        for taken, count in enumerate(row)
        if what != taken and count
    ]
    worst = sorted(wrong, reverse=True)[:MOST_CONFUSED]
    said = [f"{classes[what]} taken for {classes[taken]} ({100 * share:.0f} %)" for share, _, what, taken in worst]
    return ", ".join(said) or None


def _runs(found: CellResult, metrics: Sequence[str]) -> str:
    """The first figure and the time of each run."""
    said = []
    for run in found.runs:
        value = (run.evaluation or {}).get(metrics[0]) if metrics else None
        words = [] if value is None else [f"{value:.3f}"]
        if run.train_s is not None:
            words.append(f"in {run.train_s:.1f} s")
        said.append(" ".join(words) or NOT_MEASURED)
    return "\n".join(said)


def _metric(name: str, found: CellResult) -> str:
    mean = found.metric(name)
    return NOT_MEASURED if mean is None else f"{mean.value:.3f}"


def _seconds(mean: Range | None) -> str:
    if mean is None:
        return NOT_MEASURED
    return f"{mean.value:.0f} s" if mean.value >= 1000 else f"{mean.value:.1f} s"


def _count(mean: Range | None) -> str:
    return NOT_MEASURED if mean is None else f"{mean.value:.0f}"


def _rate(found: CellResult) -> str:
    rate = found.cell.samples_per_s
    return NOT_MEASURED if rate is None else f"{rate.value:.1f}"
