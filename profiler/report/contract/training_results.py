"""What trainings came to, as JSON."""

from __future__ import annotations

from typing import Any

from ...analyse.cells.comparison import Cell
from ...analyse.cells.training_results import CellResult, TrainingOutcome, result_of


def of_cell(cell: Cell) -> dict[str, Any]:
    """`accuracy`: the evaluation, means over the runs, `null` where there was none. `results`: each run, where the
    runs tell what they came to."""
    found = result_of(cell)
    if found is None:
        return {"accuracy": None}
    return {"accuracy": found.evaluation, "results": [_run(found, run) for run in found.runs]}


def _run(found: CellResult, run: TrainingOutcome) -> dict[str, Any]:
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
