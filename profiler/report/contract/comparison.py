"""The JSON of a comparison (`compare --json`), of published logs' costs and of a roofline.

Which axes cells have, and what the setting says, is the scenario's: such keys stand beside those of the contract.
`null`: not known, or not measured. A rate is samples/s, the median over the runs with the lowest and highest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...analyse.cells.batch_size import BatchVerdict
from ...analyse.cells.comparison import Cell, Comparison
from ...analyse.cells.cost import Bill, CellCost, cell_costs
from ...analyse.cells.studies import (
    Augmentation,
    Curve,
    Differential,
    Roofline,
    augmentations,
    differentials,
    of_limit,
    results,
    rooflines,
    scaling,
)
from ...analyse.ranks import figures as ranks_figures
from ...analyse.statistics import Estimate, Range
from .common import finding
from .encode import builtins
from .run import breakdown

Json = dict[str, Any]


def comparison(result: Comparison, setting: Mapping[str, Any]) -> Json:
    """A table, as `whyidle-compare` version 1. `setting`: scenario, device, cpu_budget, dataset, …"""
    tested = differentials(result.cells)
    groups: list[Json] = [
        {
            "axes": each.axes,  # on which groups differ: cells of one train the same thing under the same conditions
            "best": None if each.best is None else name(each.best),  # the fastest
            "ties": [name(tie) for tie in each.ties],  # equally fast within noise
        }
        for each in result.groups
    ]
    # Of all cells there is one best only where all train the same thing.
    best = groups[0]["best"] | {"ties": groups[0]["ties"]} if len(groups) == 1 and groups[0]["best"] else None
    told = {
        "format": "whyidle-compare",
        "version": 1,
        **setting,
        "cells": cells(result.cells, setting),
        "best": best,
        "groups": groups,
        "batch_verdicts": {loader: batch_verdict(each) for loader, each in result.batch_verdicts.items()},
        "differential": [_differential(each, each.cell.samples(setting)) for each in tested],
        "augmentation": [_augmentation(each) for each in augmentations(result.cells, tested, setting)],
        "roofline": [_roofline(each) for each in rooflines(setting)],  # of each kind of samples, where measured
        "scaling": [_curve(curve) for curve in scaling(result.cells)],
    }
    return builtins(told)


def name(cell: Cell) -> Json:
    """What tells a cell from the others. Which axes there are is the scenario's."""
    return {"pipeline": cell.pipeline, "batch_size": cell.batch_size, **cell.axes}


def cells(of: Sequence[Cell], setting: Mapping[str, Any]) -> list[Json]:
    """Give each cell's figures, those of the run whose throughput is the median. `setting`: the comparison's."""
    costs, limits = cell_costs(of, setting), rooflines(setting)
    return [_cell(cell, costs[number] if costs else None, limits) for number, cell in enumerate(of)]


def _cell(cell: Cell, cost: CellCost | None, limits: Sequence[Roofline]) -> Json:
    row, verdict, found = cell.typical_row, cell.verdict, next(iter(results([cell])), None)
    told = name(cell) | {
        "repeats": len(cell.analyses),
        "status": cell.status,  # `ok`, `oom`, `failed`, `skipped` or `stopped`
        "error": cell.error,
        "runs": [row.run for row in cell.rows],  # their folders
        "samples_per_s": _rate(cell.samples_per_s),
        "busy_pct": None if row is None else row.figure("busy_pct"),
        "au_pct": None if row is None else row.figure("au_pct"),
        "breakdown": breakdown({} if cell.typical is None else ranks_figures.shares(cell.typical)),
        "verdict": None if verdict is None else finding(verdict),  # null also of steps that do nothing
        "accuracy": None if found is None else found.evaluation,  # the evaluation at the end, means over the runs
    }
    if found is not None:
        # The study of Fashion-MNIST called accuracy at the end and length so; only there.
        old = (
            [{"Acc": (run["evaluation"] or {}).get("accuracy"), "Time": run["train_s"]} for run in found.runs]
            if cell.axes.get("plan") is not None
            else [{} for _ in found.runs]
        )
        told["results"] = [before | dict(run) for before, run in zip(old, found.runs, strict=True)]
    if (reached := of_limit(cell, limits)) is not None:
        told["of_limit_pct"] = 100 * reached  # of the most that this machine can prepare
    told["cost_usd"] = None if cost is None else cost.usd_per_epoch
    if cost is not None:
        told["cost"] = {
            "usd_per_hour": None if cost.price is None else cost.price.usd_per_hour,
            "instance": None if cost.price is None else cost.price.name,
            "usd_per_epoch": cost.usd_per_epoch,  # one pass over the data at the rate within steps
            "waited_usd_per_epoch": cost.waited_usd_per_epoch,  # part of it in which nothing was computed
            "ratio": cost.ratio,  # usd_per_epoch over that of the reference cell
            "target_epochs": cost.target_epochs,  # until the requested accuracy
            "target_cost_usd": cost.target_cost_usd,
        }
    return told


def batch_verdict(verdict: BatchVerdict) -> Json:
    """The effect of the batch size on a loader. Times are µs a sample, with intervals of 95 %."""
    return {
        "cause": verdict.cause,
        "grew": verdict.grew,  # the term that grew from one size to the other, if one did
        "text": verdict.text,
        "terms": {  # by batch size: each part of the time, and `total`
            size: {term: _mean(each) | {"median": verdict.medians[size][term]} for term, each in terms.items()}
            for size, terms in verdict.terms.items()
        },
        "compared": (verdict.smaller, verdict.larger),
        "changes": {term: _mean(each) for term, each in verdict.changes.items()},  # from the smaller to the larger
        "work": verdict.work,  # by batch size: what a run did, medians
        "runs": verdict.runs,  # by batch size
        "noise_pct": 100 * verdict.noise,  # assumed standard deviation between runs of one size
        "evidence": verdict.evidence,
    }


def _differential(tested: Differential, samples: int | None) -> Json:
    """A training beside its net alone and its loader alone. `samples`: of an epoch."""
    rates = {
        "net_alone": tested.net,
        "loader_alone": tested.loader,
        "expected": tested.expected,  # what both limits together allow
        "measured": tested.measured,
    }
    epochs = {key: None if samples is None or each is None else samples / each.value for key, each in rates.items()}
    return name(tested.cell) | {
        **{key: _rate(each) for key, each in rates.items()},
        "epoch_s": epochs,  # seconds for one pass over the data at each rate
        "deviation_pct": _percent(tested.deviation),  # took longer than expected; negative: shorter
        "agrees": tested.agrees,
        "overlaps": tested.overlaps,  # whether the loader works while the net computes
        "limit": tested.limit,
        "reasons": tested.reasons,  # where expectation and measurement do not agree
    }


def _augmentation(found: Augmentation) -> Json:
    """Time that augmentation adds to a training."""
    return name(found.cell) | {
        "plain_epoch_s": found.plain_s,
        "augmented_epoch_s": found.augmented_s,
        "cost_pct": 100 * found.cost,
        "free": found.free,
        "sure": found.sure,  # whether repeats, or epochs, differ by less than the cost
        "doubt": found.doubt,  # why too little was run to claim anything
        "limit": found.limit,  # of the augmented training
    }


def _curve(curve: Curve) -> Json:
    """Trainings that differ in the number of ranks alone, a point for each."""
    points = [
        {
            "ranks": point.ranks,
            "batch_size": point.cell.batch_size,  # of each rank
            "status": point.cell.status,
            "samples_per_s": _rate(point.rate),  # of all ranks together
            "speedup": _ratio(point.speedup),
            "efficiency": _ratio(point.efficiency),  # speed-up by ranks; 1 is ideal
            "why": point.why,  # there is no speed-up
            "waiting_pct": _percent(point.waiting_share),  # of the time, for the last rank
            "exchange_ms": point.exchange_ms,  # a step, of gradients, where emulated: computed, not measured
        }
        for point in curve.points
    ]
    # `held`: what has the same batch size on all points, each rank or all together; `place`: on other axes, in words.
    return vars(curve) | {"points": points}


def _roofline(found: Roofline) -> Json:
    """The most that this machine can make of some samples."""
    parts = [
        {
            "name": part.name,
            "kind": part.kind,  # `making`: one after the other; `beside`: meanwhile; `stored`: reading files that are
            # not in memory, in place of reading them from it; `aside`: a loader can do without
            "one_core": _rate(part.one),
            "all_cores": _rate(part.all),
        }
        for part in found.parts
    ]
    return {
        "place": found.place,  # `net`, `store` and `augment` of the samples
        "decoder": found.decoder,
        "transformer": found.transformer,
        "cores": found.cores,
        "one_core": found.one,
        "limit": found.all,  # samples/s that all cores together can prepare
        "bound_by": found.bound_by,  # `making`, or the part beside it that is slower
        "parts": parts,
    }


def roofline(found: Roofline, setting: Mapping[str, Any]) -> Json:
    """What `roofline` measured by itself, as `whyidle-roofline` version 1. `setting`: `what` was measured, as it was
    named; `dataset` as the data describe themselves; `size` in pixels of the square that files are resized to, `null`
    of a scenario, whose nets say that; `batch_size`, `rounds`, and `notices` of what was wrong with the data."""
    return builtins(_roofline(found) | {"format": "whyidle-roofline", "version": 1, **setting})


def logged(bills: Sequence[Bill], relative_to: str, target: float | None, problems: Sequence[str], folder: str) -> Json:
    """All bills, training by training: `compare cost --logs DIR --json`. `problems`: logs that could not be read."""
    tests: dict[str, list[Json]] = {}
    for each in bills:
        told = vars(each) | {"price": None if each.price is None else each.price.name}
        tests.setdefault(told.pop("test"), []).append(told)
    prices = {str(each.price.name): each.price for each in bills if each.price is not None}
    content = {
        "format": "whyidle-cost",
        "version": 1,
        "folder": folder,
        "relative_to": relative_to,
        "target_accuracy": target,
        "prices": prices,
        "tests": tests,
        "problems": problems,
    }
    return builtins(content)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _rate(rate: Range | None) -> Json | None:
    return None if rate is None else {"median": rate.value, "low": rate.low, "high": rate.high}


def _ratio(ratio: Range | None) -> Json | None:
    """`low` and `high` are `null` without repeats."""
    if ratio is None:
        return None
    low, high = (ratio.low, ratio.high) if ratio.repeated else (None, None)
    return {"value": ratio.value, "low": low, "high": high}


def _mean(estimate: Estimate) -> Json:
    return {"mean": estimate.value, "low": estimate.low, "high": estimate.high}
