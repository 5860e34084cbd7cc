"""Cells of a comparison, made of planned trainings on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whyidle.analyse.cells.comparison import Cell, RunRow
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.record.run import open_run, update_run
from whyidle.scenarios.planted import MS, Step, train
from whyidle.scenarios.variant import AXES, Variant, axes

STEPS = 40
NOTHING = 0.001
"""ms: as good as no time, of steps that do nothing and of fetches from memory."""
SETTING: dict[str, Any] = {
    "scenario": "ssd",
    "experiment": "loaders",
    "question": "Which loader is fastest?",
    "net": "vgg",
    "device": {"kind": "emulated", "name": "emulated:k80", "title": "emulated K80", "count": 1},
    "cpu_budget": 2.0,
    "workers": 2,
    "stop": {"epochs": 2},
    "repeats": 2,
    "augment": True,
    "dataset": {"samples": 800, "unit": "image", "stand_in": None},
    "notices": [],
}
NET_SETTING = SETTING | {
    "scenario": "fashion-mnist",
    "experiment": "nets",
    "question": "Where does augmentation cost time?",
    "net": "cnn1, vgg",
    "device": {"kind": "emulated", "name": "emulated:k80", "title": "emulated K80, emulated V100", "count": 1},
    "augment": None,
    "dataset": {"samples": 48_000, "unit": "image", "stand_in": None},
}


def place(**known: Any) -> dict[str, Any]:
    """A place on every axis: that of a plain training unless said otherwise."""
    of_all = axes(Variant(net="vgg", pipeline="workers", batch_size=8, device="emulated:k80", workers=2))
    assert set(known) <= set(AXES)
    return of_all | known


class Planned:
    """Makes cells; their runs lie in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def analysis(
        self, fetch_ms: float, compute_ms: float, batch_size: int = 8, results: dict[str, Any] | None = None
    ) -> Analysis:
        self._made += 1
        run = self._folder / f"run-{self._made}"
        step = Step(fetch_ns=round(fetch_ms * MS), compute_ns=round(compute_ms * MS))
        train(run, [[step] * STEPS], samples=batch_size)
        if results is not None:
            update_run(run, {"results": results})
        return analyse(open_run(run))

    def cell(
        self,
        fetch_ms: float,
        compute_ms: float,
        *,
        pipeline: str = "workers",
        batch_size: int = 8,
        results: tuple[dict[str, Any] | None, ...] = (None,),
        **place_on: Any,
    ) -> Cell:
        """A cell with a run for each of its results."""
        analyses = tuple(self.analysis(fetch_ms, compute_ms, batch_size, each) for each in results)
        return cell_of_analyses(analyses, place(**place_on), pipeline=pipeline, batch_size=batch_size)


def training_result(accuracy: float, seconds: float = 10.0, **more: Any) -> dict[str, Any]:
    """What a training came to, as run.json has it."""
    return {"train_s": seconds, "epochs": [], "evaluation": {"accuracy": accuracy, "loss": 0.2, **more}}


def on_processor(cell: Cell, **known: Any) -> Cell:
    """The same cell, as if the processor had been its device; facts that are known of it."""
    return replace(with_facts(cell, device_kind="cpu", **known), axes=cell.axes | {"device": "cpu"})


def with_facts(cell: Cell, **known: Any) -> Cell:
    """The same cell, as if that had been known of each of its runs."""
    return with_runs(cell, lambda each: replace(each, facts=replace(each.facts, **known)))


def with_info(cell: Cell, **told: Any) -> Cell:
    """The same cell, as if its runs said so of themselves."""
    return with_runs(cell, lambda each: replace(each, info=each.info | told))


def with_runs(cell: Cell, changed: Callable[[Any], Analysis]) -> Cell:
    return replace(cell, rows=tuple(replace(row, analysis=changed(each)) for row, each in cell.counted))


def cell_of_analyses(analyses: Sequence[Analysis], axes: Mapping[str, Any], **more: Any) -> Cell:
    """A cell whose runs lie nowhere."""
    rows = tuple(RunRow(f"run-{number}", number, each) for number, each in enumerate(analyses))
    told = {"pipeline": "workers", "batch_size": 8, "status": "ok", "error": None} | more
    return Cell(**told, rows=rows, axes=dict(axes))
