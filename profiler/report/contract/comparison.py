"""The JSON of a comparison: `compare --json`.

Which axes its cells have, and what its setting says, is the scenario's: such keys stand beside those of the contract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from ...analyse.causes.finding import Evidence
from ...analyse.cells.augmentation import augmentations
from ...analyse.cells.batch_size.result import BatchVerdict, Work
from ...analyse.cells.cell_costs import samples_of
from ...analyse.cells.comparison import Cell, Comparison
from ...analyse.cells.differential import differentials, verdict_of
from ...analyse.cells.roofline import PlacedRoofline, limit_of, rooflines
from ...analyse.cells.scaling import Curve, Held, Point, Scaling, scaling
from ...analyse.cells.training_results import CellResult, TrainingOutcome, result_of
from ...analyse.ranks import figures as ranks_figures
from ...analyse.statistics import Range
from . import cost as cost_json
from . import roofline as roofline_json
from .common import FindingJson, finding
from .differential import SpreadJson, augmentation, differential, name, spread
from .encode import beside
from .roofline import RooflineJson
from .run import BreakdownJson, breakdown

FORMAT, VERSION = "whyidle-compare", 1


class OutcomeJson(Struct, kw_only=True):
    """Results of one training; `null` where it reported none."""

    acc: float | UnsetType | None = field(name="Acc", default=UNSET)
    """Accuracy at the end and `train_s`, as the study of Fashion-MNIST called them; only there."""
    time: float | UnsetType | None = field(name="Time", default=UNSET)
    train_s: float | None
    samples: int | None
    """Processed by all ranks, the warm-up included."""
    epochs: tuple[Mapping[str, Any], ...]
    """Each with `epoch`, `seconds`, `augment` and `evaluation`."""
    evaluation: Mapping[str, Any] | None
    """At the end: `accuracy`, `loss` and other figures of the scenario."""


class CellJson(Struct):
    """One training, beside its loader, batch size and place on further axes. Figures are those of the run whose
    throughput is the median."""

    repeats: int
    status: str
    """`ok`, `oom`, `failed`, `skipped` or `stopped`."""
    error: str | None
    runs: tuple[str, ...]
    """Their folders."""
    samples_per_s: SpreadJson | None
    busy_pct: float | None
    au_pct: float | None
    breakdown: BreakdownJson
    verdict: FindingJson | None
    """`null` also where steps are empty, which wait for data by construction."""
    accuracy: Mapping[str, Any] | None
    """The evaluation at the end, means over the runs."""
    results: list[OutcomeJson] | UnsetType
    """Each run, where runs report results."""
    of_limit_pct: float | UnsetType
    """Samples/s in percent of the most that this machine can prepare, where measured."""
    cost_usd: float | None
    """Of an epoch."""
    cost: cost_json.CellCostJson | UnsetType
    """Where the setting has prices."""


class GroupJson(Struct):
    """Cells that train the same thing under the same conditions."""

    axes: dict[str, Any]
    """Where they stand on those in which groups differ."""
    best: dict[str, Any] | None
    """Name of the fastest: `pipeline`, `batch_size` and axes."""
    ties: list[dict[str, Any]]
    """Names of those equally fast within noise."""


class MeanJson(Struct):
    """µs a sample, with an interval of 95 %."""

    mean: float
    low: float | None
    high: float | None


class TermJson(MeanJson):
    median: float


class BatchVerdictJson(Struct):
    """The effect of the batch size on a loader."""

    cause: str
    grew: str | None
    """The term that grew from one size to the other, if one did."""
    text: str
    terms: dict[int, dict[str, TermJson]]
    """By batch size: each part of the time, and `total`."""
    compared: tuple[int, int]
    """The smaller and the larger size."""
    changes: dict[str, MeanJson]
    """Of each term, from the smaller to the larger."""
    work: Mapping[int, Work]
    """By batch size: what a run did, medians."""
    runs: Mapping[int, int]
    """By batch size."""
    noise_pct: float
    """Assumed difference between runs of one size: a standard deviation, of the time per sample."""
    evidence: tuple[Evidence, ...]


class RatioJson(Struct):
    value: float
    low: float | None
    """`null` without repeats."""
    high: float | None


class PointJson(Struct):
    """A point of the curve: a number of ranks."""

    ranks: int
    batch_size: int
    """Of each rank."""
    status: str
    samples_per_s: SpreadJson | None
    """Of all ranks together."""
    speedup: RatioJson | None
    efficiency: RatioJson | None
    """Speed-up by ranks; 1 is ideal."""
    why: str | None
    """Why there is no speed-up; `null` where there is."""
    waiting_pct: float | None
    """Percent of the time in which ranks wait for the last one."""
    exchange_ms: float | None
    """What the exchange of gradients adds to a step where that is emulated: computed, not measured."""


class CurveJson(Struct):
    """Trainings that differ in the number of ranks alone."""

    held: Held
    """What has the same batch size on all points: each rank, or all together."""
    batch_size: int
    """That one."""
    pipeline: str
    interconnect: str | None
    place: str
    """On other axes, in words."""
    emulated: bool
    points: list[PointJson]


class ComparisonJson(Struct):
    """The results of a comparison, beside its setting."""

    cells: list[dict[str, Any]]
    """Each a `CellJson` beside its name."""
    best: dict[str, Any] | None
    """Name of the fastest cell, with those equally fast within noise as `ties`; `null` where not all cells
    train the same thing."""
    groups: list[GroupJson]
    batch_verdicts: dict[str, BatchVerdictJson]
    """By loader."""
    differential: list[dict[str, Any]]
    """Each a `DifferentialJson` beside the cell's name."""
    augmentation: list[dict[str, Any]]
    """Each an `AugmentationJson` beside the cell's name."""
    roofline: list[RooflineJson]
    """Of each kind of samples; none where it was not measured."""
    scaling: list[CurveJson]
    """None where all cells have the same number of ranks."""


def comparison(result: Comparison, setting: dict[str, Any]) -> dict[str, Any]:
    """A table, as `whyidle-compare` version 1. `setting`: scenario, device, cpu_budget, dataset, …"""
    tested = differentials(result.cells)
    told = ComparisonJson(
        cells=[beside(name(cell), told) for cell, told in zip(result.cells, cells(result.cells, setting), strict=True)],
        best=None if result.best is None else name(result.best) | {"ties": [name(tie) for tie in result.ties]},
        groups=[
            GroupJson(each.axes, None if each.best is None else name(each.best), [name(tie) for tie in each.ties])
            for each in result.groups
        ],
        batch_verdicts={loader: batch_verdict(each) for loader, each in result.batch_verdicts.items()},
        differential=[differential(each, samples_of(each.cell, setting)) for each in tested],
        augmentation=[augmentation(each) for each in augmentations(result.cells, tested, setting)],
        roofline=[roofline_json.placed(each) for each in rooflines(setting)],
        scaling=curves(scaling(result.cells)),
    )
    return beside({"format": FORMAT, "version": VERSION, **setting}, told)


def cells(of: Sequence[Cell], setting: Mapping[str, Any]) -> list[CellJson]:
    """`setting`: the comparison's."""
    costs = cost_json.of_cells(of, setting)
    limits = rooflines(setting)
    return [_cell(cell, costs[number] if costs else None, limits) for number, cell in enumerate(of)]


def _cell(cell: Cell, cost: cost_json.CellCostJson | None, limits: Sequence[PlacedRoofline]) -> CellJson:
    limit = limit_of(cell, limits)
    reached = None if limit is None else limit.share(cell)
    typical, verdict, found = cell.typical, verdict_of(cell), result_of(cell)
    return CellJson(
        repeats=len(cell.analyses),
        status=cell.status,
        error=cell.error,
        runs=cell.runs,
        samples_per_s=spread(cell.samples_per_s),
        busy_pct=None if typical is None else ranks_figures.figure(typical, "busy_pct"),
        au_pct=None if typical is None else ranks_figures.figure(typical, "au_pct"),
        breakdown=breakdown({} if typical is None else ranks_figures.shares(typical)),
        verdict=None if verdict is None else finding(verdict),
        accuracy=None if found is None else found.evaluation,
        results=UNSET if found is None else [_outcome(found, run) for run in found.runs],
        of_limit_pct=UNSET if reached is None else 100 * reached,
        cost_usd=None if cost is None else cost.usd_per_epoch,
        cost=UNSET if cost is None else cost,
    )


def _outcome(found: CellResult, run: TrainingOutcome) -> OutcomeJson:
    told = OutcomeJson(train_s=run.train_s, samples=run.samples, epochs=run.epochs, evaluation=run.evaluation)
    if found.cell.axes.get("plan") is not None:
        told.acc, told.time = (run.evaluation or {}).get("accuracy"), run.train_s
    return told


def batch_verdict(verdict: BatchVerdict) -> BatchVerdictJson:
    return BatchVerdictJson(
        cause=verdict.cause,
        grew=verdict.grew,
        text=verdict.text,
        terms={
            size: {
                term: TermJson(each.value, each.low, each.high, verdict.medians[size][term])
                for term, each in terms.items()
            }
            for size, terms in verdict.terms.items()
        },
        compared=(verdict.smaller, verdict.larger),
        changes={term: MeanJson(each.value, each.low, each.high) for term, each in verdict.changes.items()},
        work=verdict.work,
        runs=verdict.runs,
        noise_pct=100 * verdict.noise,
        evidence=verdict.evidence,
    )


def curves(found: Scaling | None) -> list[CurveJson]:
    return [] if found is None else [_curve(curve) for curve in found.curves]


def _curve(curve: Curve) -> CurveJson:
    return CurveJson(
        held=curve.held,
        batch_size=curve.batch_size,
        pipeline=curve.pipeline,
        interconnect=curve.interconnect,
        place=curve.place,
        emulated=curve.emulated,
        points=[_point(point) for point in curve.points],
    )


def _point(point: Point) -> PointJson:
    return PointJson(
        ranks=point.ranks,
        batch_size=point.batch_size,
        status=point.cell.status,
        samples_per_s=spread(point.rate),
        speedup=_ratio(point.speedup),
        efficiency=_ratio(point.efficiency),
        why=point.why,
        waiting_pct=None if point.waiting_share is None else 100 * point.waiting_share,
        exchange_ms=point.exchange_ms,
    )


def _ratio(ratio: Range | None) -> RatioJson | None:
    if ratio is None:
        return None
    return RatioJson(ratio.value, *((ratio.low, ratio.high) if ratio.repeated else (None, None)))
