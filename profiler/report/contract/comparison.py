"""The JSON of a comparison (`compare --json`), of published logs' costs and of a roofline.

Which axes cells have, and what the setting says, is the scenario's: such keys stand beside those of the contract.
`null`: not known, or not measured. A rate is samples/s, the median over the runs with the lowest and highest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from ...analyse.cells import studies
from ...analyse.cells.batch_size import BatchVerdict
from ...analyse.cells.comparison import Cell, Comparison
from ...analyse.cells.cost import Bill, CellCost, cell_costs
from ...analyse.ranks import figures as ranks_figures
from ...analyse.statistics import Estimate, Range
from .encode import Json, builtins, finding
from .run import breakdown


def comparison(result: Comparison, setting: Mapping[str, Any]) -> Json:
    """Give a table, as `whyidle-compare` version 1. `setting`: scenario, device, cpu_budget, dataset, …"""
    tested = studies.differentials(result.cells, setting)
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
        "differential": [name(each.cell) | as_json(each) for each in tested],
        "augmentation": [name(e.cell) | as_json(e) for e in studies.augmentations(result.cells, tested, setting)],
        "roofline": as_json(studies.rooflines(setting)),  # of each kind of samples, where measured
        "scaling": as_json(studies.scaling(result.cells)),
    }
    return builtins(told)


def name(cell: Cell) -> Json:
    """Give what tells a cell from the others. Which axes there are is the scenario's."""
    return {"pipeline": cell.pipeline, "batch_size": cell.batch_size, **cell.axes}


def cells(of: Sequence[Cell], setting: Mapping[str, Any]) -> list[Json]:
    """Give each cell's figures, those of the run whose throughput is the median. `setting`: the comparison's."""
    costs, limits = cell_costs(of, setting), studies.rooflines(setting)
    several = len({row.host for cell in of for row, _ in cell.counted} - {None}) > 1
    made = []
    for number, cell in enumerate(of):
        told = _cell(cell, costs[number] if costs else None, limits)
        made.append(told | {"hosts": [row.host for row in cell.rows]} if several else told)  # machines of `runs`
    return made


def _cell(cell: Cell, cost: CellCost | None, limits: Sequence[studies.Roofline]) -> Json:
    row, verdict, found = cell.typical_row, cell.verdict, next(iter(studies.results([cell])), None)
    told = name(cell) | {
        "repeats": len(cell.analyses),
        "status": cell.status,  # `ok`, `oom`, `failed`, `skipped` or `stopped`
        "error": cell.error,
        "runs": [row.run for row in cell.rows],  # their folders
        "samples_per_s": as_json(cell.samples_per_s),
        "busy_pct": None if row is None else row.figure("busy_pct"),
        "au_pct": None if row is None else row.figure("au_pct"),
        "breakdown": breakdown({} if cell.typical is None else ranks_figures.shares(cell.typical)),
        "verdict": None if verdict is None else finding(verdict),  # null also of steps that do nothing
        "accuracy": None if found is None else found.evaluation,  # the evaluation at the end, means over the runs
    }
    if found is not None:
        # The study of Fashion-MNIST called accuracy at the end and length so; only there.
        named = cell.axes.get("plan") is not None
        told["results"] = [
            ({"Acc": (run["evaluation"] or {}).get("accuracy"), "Time": run["train_s"]} if named else {}) | dict(run)
            for run in found.runs
        ]
    if (reached := studies.of_limit(cell, limits)) is not None:
        told["of_limit_pct"] = 100 * reached  # of the most that this machine can prepare
    told["cost_usd"] = None if cost is None else cost.usd_per_epoch
    if cost is not None:
        per_hour, instance = (None, None) if cost.price is None else (cost.price.usd_per_hour, cost.price.name)
        told["cost"] = {"usd_per_hour": per_hour, "instance": instance} | as_json(cost, "price")
    return told


def batch_verdict(verdict: BatchVerdict) -> Json:
    """Give the effect of the batch size on a loader. Times are µs a sample, with intervals of 95 %."""
    return {
        "cause": verdict.cause,
        "grew": verdict.grew,  # the term that grew from one size to the other, if one did
        "text": verdict.text,
        "terms": {  # by batch size: each part of the time, and `total`
            size: {term: as_json(each) | {"median": verdict.medians[size][term]} for term, each in terms.items()}
            for size, terms in verdict.terms.items()
        },
        "compared": (verdict.smaller, verdict.larger),
        "changes": {term: as_json(each) for term, each in verdict.changes.items()},  # from the smaller to the larger
        "work": verdict.work,  # by batch size: what a run did, medians
        "runs": verdict.runs,  # by batch size
        "noise_pct": 100 * verdict.noise,  # assumed standard deviation between runs of one size
        "evidence": verdict.evidence,
    }


def roofline(found: studies.Roofline, setting: Mapping[str, Any]) -> Json:
    """Give what `roofline` measured by itself, as `whyidle-roofline` version 1. `setting`: `what`
    was measured, as it was named; `dataset` as the data describe themselves; `size` in pixels of
    the square that files are resized to, `null` of a scenario, whose nets say that; `batch_size`,
    `rounds`, and `notices` of what was wrong with the data."""
    return builtins(as_json(found) | {"format": "whyidle-roofline", "version": 1, **setting})


def logged(bills: Sequence[Bill], relative_to: str, target: float | None, problems: Sequence[str], folder: str) -> Json:
    """Give all bills, training by training: `compare cost --logs DIR --json`. `problems`: logs that
    could not be read."""
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


def as_json(of: Any, *without: str) -> Any:
    """Give a structure by the names of its fields: its keys, whose docstrings say what they are. A
    cell in it is left out, and what `without` names."""
    if isinstance(of, Range):
        return {"median": of.value, "low": of.low, "high": of.high}
    if isinstance(of, Estimate):
        return {"mean": of.value, "low": of.low, "high": of.high}
    if is_dataclass(of):
        fields = {key: value for key, value in vars(of).items() if key not in ("cell", *without)}
        ratios = {key: _ratio(fields[key]) for key in ("speedup", "efficiency") if key in fields}
        return {key: ratios[key] if key in ratios else as_json(value) for key, value in fields.items()}
    return [as_json(each) for each in of] if isinstance(of, list | tuple) else of


def _ratio(ratio: Range | None) -> Json | None:
    """Give a ratio, whose `low` and `high` are `null` without repeats."""
    if ratio is None:
        return None
    low, high = (ratio.low, ratio.high) if ratio.repeated else (None, None)
    return {"value": ratio.value, "low": low, "high": high}
