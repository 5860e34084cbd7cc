"""What trainings came to: what their nets are worth on held-out data, in which time, after how many samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ..run.analysis import Analysis
from ..statistics import Range, range_of
from .axes import BATCH_SIZE, ladders
from .batch_size.terms import samples_of
from .comparison import Cell

HELD_WITHIN = 0.01
"""Fall of a figure (an accuracy, 0..1) up to which it held, however alike the repeats are."""
LEAST_MERIT = 0.1
"""The best accuracy or precision of several nets, 0..1, from which they have learnt enough for it to hold or fall."""
SETTINGS = ("samples", "objects", "iou", "threshold")
"""Figures that say how a net was tried, not what it is worth."""


@dataclass(frozen=True)
class TrainingOutcome:
    """What one run came to. `None`: it did not say."""

    train_s: float | None
    """Length of the whole training."""
    samples: int | None
    """Samples that all ranks processed, the warm-up included."""
    epochs: tuple[Mapping[str, Any], ...]
    """Each with `epoch`, `seconds`, `augment` and `evaluation`."""
    evaluation: Mapping[str, Any] | None
    """What the net came to at the end: `accuracy`, `loss` and what else the scenario tells."""


@dataclass(frozen=True)
class CellResult:
    """What the runs of a cell came to."""

    cell: Cell
    runs: tuple[TrainingOutcome, ...]

    @property
    def train_s(self) -> Range | None:
        """Mean length of a training; `None` where no run told it."""
        return mean_of([run.train_s for run in self.runs])

    @property
    def samples(self) -> Range | None:
        """Mean of the samples processed; `None` where no run told them."""
        return mean_of([run.samples for run in self.runs])

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what an evaluation came to, in its order."""
        told = tuple(name for name in self._figures if name not in SETTINGS)
        # Of detections the accuracy is the average precision.
        return tuple(name for name in told if name != "accuracy" or "average_precision" not in told)

    @property
    def _figures(self) -> tuple[str, ...]:
        told = (run.evaluation or {} for run in self.runs)
        return tuple(dict.fromkeys(name for each in told for name, value in each.items() if _is_figure(value)))

    def metric(self, name: str) -> Range | None:
        """Mean of a figure of the evaluation; `None` where no run told it."""
        return mean_of([(run.evaluation or {}).get(name) for run in self.runs])

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """An evaluation without the confusion matrix: figures are means over the runs, all else is of the last run that
        tells it. `None` where none was evaluated."""
        told = [run.evaluation for run in self.runs if run.evaluation is not None]
        if not told:
            return None
        last = {name: value for each in told for name, value in each.items() if name != "confusion"}
        means = {name: found for name in self._figures if (found := self.metric(name)) is not None}
        return last | {name: found.value for name, found in means.items() if found.low < found.high}

    @property
    def confusion(self) -> list[list[int]] | None:
        """How many samples of each class (row) were taken for which (column), all runs together."""
        matrices = [matrix for run in self.runs if (matrix := (run.evaluation or {}).get("confusion"))]
        if not matrices:
            return None
        return [[sum(counts) for counts in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes; `None` where no evaluation tells them."""
        told = [(run.evaluation or {}).get("classes") for run in self.runs]
        return next((list(map(str, names)) for names in told if names), None)


@dataclass(frozen=True)
class MetricByBatchSize:
    """What became of a figure from the smallest batch on; all else is the same."""

    metric: str
    cells: tuple[Cell, ...]
    """By batch size, ascending."""
    means: tuple[Range, ...]
    """The figure of each cell, the mean over its runs."""
    learnt: bool
    """Whether the best of these nets is clearly above what chance or nothing gives."""

    @property
    def change(self) -> float:
        """The lowest figure of the larger batches less that of the smallest."""
        return min(each.value for each in self.means[1:]) - self.means[0].value

    @property
    def spread(self) -> float | None:
        """The most by which repeats of one cell differ; `None` where none was repeated."""
        spreads = [each.high - each.low for each in self.means if each.repeated]
        return max(spreads) if spreads else None

    @property
    def held(self) -> bool | None:
        """Whether it fell by no more than repeats differ. `None`: it fell, and nothing was repeated."""
        if self.change >= -HELD_WITHIN:
            return True
        return None if self.spread is None else self.change >= -self.spread


def results(cells: Sequence[Cell]) -> tuple[CellResult, ...]:
    """The results of the cells whose runs told what they came to."""
    every = (CellResult(cell, tuple(_runs(cell))) for cell in cells if cell.status == "ok")
    return tuple(each for each in every if each.runs)


def result_of(cell: Cell) -> CellResult | None:
    """The results of one cell; `None` where its runs told none."""
    return next(iter(results([cell])), None)


def _runs(cell: Cell) -> list[TrainingOutcome]:
    found = []
    for analysis in cell.analyses:
        told = analysis.info.get("results")
        if isinstance(told, Mapping):
            epochs = tuple(each for each in told.get("epochs") or () if isinstance(each, Mapping))
            found.append(TrainingOutcome(told.get("train_s"), _samples(analysis), epochs, told.get("evaluation")))
    return found


def _samples(analysis: Analysis) -> int | None:
    """Samples that all ranks together processed; `None` unless those of each are known."""
    every = [part.analysis.facts for part in analysis.ranks] or [analysis.facts]
    known = [facts for facts in every if facts is not None and facts.samples_known]
    return sum(samples_of(facts) for facts in known) if len(known) == len(every) else None


def is_told(found: CellResult) -> bool:
    """Whether the training came to anything: was tried on held-out data, or followed a plan."""
    return bool(found.metrics) or found.cell.axes.get("plan") is not None


def metrics_by_batch_size(found: Sequence[CellResult]) -> tuple[MetricByBatchSize, ...]:
    """What became of every merit, wherever cells differ in batch size alone."""
    told = []
    for several in ladders(found, BATCH_SIZE):
        for metric in dict.fromkeys(name for each in several for name in each.metrics if name != "loss"):
            known = [(each.cell, mean) for each in several if (mean := each.metric(metric)) is not None]
            if len(known) > 1:
                cells, means = zip(*known, strict=True)
                told.append(MetricByBatchSize(metric, cells, means, _learnt(several, metric)))
    return tuple(told)


def _learnt(found: Sequence[CellResult], metric: str) -> bool:
    """Whether the best of these nets has learnt enough for a figure to hold or fall: detections by their average
    precision, whatever the metric; an accuracy from twice chance on, of two classes from half the way between chance
    and 1."""
    merit = "average_precision" if any("average_precision" in each.metrics for each in found) else metric
    best = max(mean.value for each in found if (mean := each.metric(merit)) is not None)
    classes = _classes(found) if merit == "accuracy" else None
    if classes is None:
        return best >= LEAST_MERIT
    chance = 1 / classes
    return best >= max(LEAST_MERIT, min(2 * chance, (1 + chance) / 2))


def _classes(found: Sequence[CellResult]) -> int | None:
    """How many classes there are, by their names or the confusion matrix."""
    every = (each.classes or each.confusion for each in found)
    return next((len(known) for known in every if known), None)


def mean_of(values: Sequence[Any]) -> Range | None:
    """The mean of the values that are figures, and their range; `None` where none is."""
    return range_of((float(value) for value in values if _is_figure(value)), fmean)


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
