"""The JSON of the contract of a comparison: `compare --json`. `null` means not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...analyse.cells.batch_size.result import BatchVerdict
from ...analyse.cells.comparison import Cell, Comparison
from ...analyse.cells.differential import verdict_of
from ...analyse.cells.scaling import Curve, Point, Scaling, scaling
from ...analyse.cells.training_results import CellResult, TrainingOutcome, result_of
from ...analyse.ranks import figures as ranks_figures
from ...analyse.statistics import Estimate, Range
from . import cost as cost_json
from . import differential as differential_json
from .differential import spread
from .run import evidence, finding, percentages

VERSION = 1


def comparison(result: Comparison, setting: dict[str, Any]) -> dict[str, Any]:
    """A table, as `whyidle-compare` version 1. `setting`: scenario, device, cpu_budget, dataset, …"""
    return {
        "format": "whyidle-compare",
        "version": VERSION,
        **setting,
        "cells": [
            cell(c) | costs for c, costs in zip(result.cells, cost_json.of_cells(result.cells, setting), strict=True)
        ],
        "best": _best(result.best, result.ties),
        "groups": [
            {
                "axes": group.axes,
                "best": None if group.best is None else differential_json.name(group.best),
                "ties": [differential_json.name(c) for c in group.ties],
            }
            for group in result.groups
        ],
        "batch_verdicts": {name: batch_verdict(v) for name, v in result.batch_verdicts.items()},
        **differential_json.comparison(result.cells, setting),
        "scaling": scaling_curves(scaling(result.cells)),
    }


def _best(best: Cell | None, ties: Sequence[Cell]) -> dict[str, Any] | None:
    """The fastest cell and those not told apart from it; `None` where cells do not all train the same thing."""
    if best is None:
        return None
    return differential_json.name(best) | {"ties": [differential_json.name(c) for c in ties]}


def cell(cell: Cell) -> dict[str, Any]:
    """One training. Steps that do nothing wait for data by construction: they have no verdict."""
    typical = cell.typical
    verdict = verdict_of(cell)
    return {
        **differential_json.name(cell),
        "repeats": len(cell.analyses),
        "status": cell.status,
        "error": cell.error,
        "runs": list(cell.runs),
        "samples_per_s": differential_json.spread(cell.samples_per_s),
        "busy_pct": None if typical is None else ranks_figures.figure(typical, "busy_pct"),
        "au_pct": None if typical is None else ranks_figures.figure(typical, "au_pct"),
        "breakdown": percentages({} if typical is None else ranks_figures.shares(typical)),
        "verdict": None if verdict is None else finding(verdict),
        **training_results_of(cell),
        "cost_usd": None,
    }


def batch_verdict(verdict: BatchVerdict) -> dict[str, Any]:
    return {
        "cause": verdict.cause,
        "grew": verdict.grew,
        "text": verdict.text,
        "terms": {
            str(size): {
                name: estimate | {"median": verdict.medians[size][name]} for name, estimate in _estimates(terms).items()
            }
            for size, terms in verdict.terms.items()
        },
        "compared": [verdict.smaller, verdict.larger],
        "changes": _estimates(verdict.changes),
        "work": {str(size): {"samples": w.samples, "seconds": w.seconds} for size, w in verdict.work.items()},
        "runs": {str(size): number for size, number in verdict.runs.items()},
        "noise_pct": 100 * verdict.noise,
        "evidence": [evidence(e) for e in verdict.evidence],
    }


def _estimates(terms: Mapping[str, Estimate]) -> dict[str, dict[str, float]]:
    """µs a sample, with intervals of 95 %."""
    return {name: {"mean": e.value, "low": e.low, "high": e.high} for name, e in terms.items()}


def scaling_curves(found: Scaling | None) -> list[dict[str, Any]]:
    """A curve each; none where all cells have the same number of ranks."""
    return [] if found is None else [_curve(curve) for curve in found.curves]


def _curve(curve: Curve) -> dict[str, Any]:
    """`held`: whose batch size is the same on all points, `per rank` or `total`."""
    return {
        "held": curve.held,
        "batch_size": curve.batch_size,
        "pipeline": curve.pipeline,
        "interconnect": curve.interconnect,
        "place": curve.place,
        "emulated": curve.emulated,
        "points": [_point(point) for point in curve.points],
    }


def _point(point: Point) -> dict[str, Any]:
    """`samples_per_s` is of all ranks, `batch_size` of each; `exchange_ms` is computed; `waiting_pct` is the share of
    the time in which ranks wait for the last of them."""
    return {
        "ranks": point.ranks,
        "batch_size": point.batch_size,
        "status": point.cell.status,
        "samples_per_s": spread(point.rate),
        "speedup": _ratio(point.speedup),
        "efficiency": _ratio(point.efficiency),
        "why": point.why,
        "waiting_pct": None if point.waiting_share is None else 100 * point.waiting_share,
        "exchange_ms": point.exchange_ms,
    }


def _ratio(ratio: Range | None) -> dict[str, float | None] | None:
    """Without bounds where neither side was repeated."""
    if ratio is None:
        return None
    low, high = (ratio.low, ratio.high) if ratio.repeated else (None, None)
    return {"value": ratio.value, "low": low, "high": high}


def training_results_of(cell: Cell) -> dict[str, Any]:
    """`accuracy`: the evaluation, means over the runs, `null` where there was none. `results`: each run, where the
    runs tell what they came to."""
    found = result_of(cell)
    if found is None:
        return {"accuracy": None}
    return {"accuracy": found.evaluation, "results": [_outcome(found, run) for run in found.runs]}


def _outcome(found: CellResult, run: TrainingOutcome) -> dict[str, Any]:
    told = {
        "train_s": run.train_s,
        "samples": run.samples,
        "epochs": [dict(epoch) for epoch in run.epochs],
        "evaluation": None if run.evaluation is None else dict(run.evaluation),
    }
    if found.cell.axes.get("plan") is None:
        return told
    # The names under which the study of Fashion-MNIST wrote them.
    return {"Acc": (run.evaluation or {}).get("accuracy"), "Time": run.train_s} | told
