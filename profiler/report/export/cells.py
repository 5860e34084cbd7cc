"""A comparison as a table: a row for each cell and run, for the study of spread and rounds elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...analyse.cells.comparison import Comparison, RunRow
from ...analyse.ranks import figures as ranks_figures
from ...analyse.run.stall_breakdown import PARTS
from ...record.schema import NOT_MEASURED
from .table import Column, Table, Values

_CELL = (
    Column("cell", "int", "", "number of the cell in the comparison, from 0"),
    Column("pipeline", "text", "", "loader"),
    Column("batch_size", "int", "samples", "samples in a batch"),
    Column("status", "text", "", "how the cell ended: ok, oom, failed or skipped"),
    Column("error", "text", "", "why it did not end well; empty where it did"),
)
_RUN = (
    Column("run", "text", "", "folder of the run within the comparison's; empty where none was made"),
    Column("round", "int", "", "round of the comparison in which it ran, from 0"),
    Column("device_kind", "text", "", "cuda, cpu or emulated; an emulated device's figures are computed, not measured"),
    Column("device", "text", "", "the device, in words"),
    Column("stand_in", "text", "", "what the generated data stand in for; empty for real data"),
    Column("ranks", "int", "", "ranks that trained"),
    Column("steps", "int", "", "steps after the warm-up; of several ranks those of the leading one while all ran"),
    Column("wall_s", "float", "s", "time they took"),
    Column("samples_per_s", "float", "samples/s", "of all ranks together"),
    *(Column(f"{part}_pct", "float", "%", f"share of the wall time: {part}") for part in PARTS),
    Column("utilisation_pct", "float", "%", "mean utilisation, from NVML or an emulated device"),
    Column("step_ms_p50", "float", "ms", "a step on the host: the median"),
    Column("step_ms_p99", "float", "ms", "a step on the host: the 99th percentile"),
    Column("cause", "text", "", "code of the first cause; empty where none was found"),
    Column("verdict", "text", "", "the verdict in a sentence"),
)
_HOST = Column("host", "text", "", "machine that it ran on, where not all ran on one")


def cells_table(result: Comparison, setting: Mapping[str, Any]) -> Table:
    """Make the table of a comparison, finished or not."""
    axes = sorted({name for cell in result.cells for name in cell.axes})
    of_axes = (Column(f"axis_{name}", "text", "", f"place of the cell on the axis {name}") for name in axes)
    several = len({row.host for cell in result.cells for row in cell.rows} - {None}) > 1
    columns = (*_CELL, *of_axes, *_RUN, *([_HOST] if several else []))
    rows = [
        {"cell": number, **{f"axis_{name}": value for name, value in cell.axes.items()}}
        | {name: getattr(cell, name) for name in ("pipeline", "batch_size", "status", "error")}
        | ({} if row is None else _of_run(row))
        for number, cell in enumerate(result.cells)
        for row in cell.rows or (None,)
    ]
    about = {"scenario": str(setting.get("scenario", ""))}
    return Table("cells", columns, lambda: iter([{each.name: _values(each, rows) for each in columns}]), about)


def _of_run(row: RunRow) -> dict[str, Any]:
    """Give what is known of a run: its name and round where it is gone."""
    known: dict[str, Any] = {"run": Path(row.run).name, "round": row.round}
    if (analysis := row.analysis) is None:
        return known
    device, shares = analysis.info.get("device") or {}, ranks_figures.shares(analysis)
    return known | {
        "host": row.host,
        "device_kind": device.get("kind"),
        "device": device.get("title"),
        "stand_in": (analysis.info.get("dataset") or {}).get("stand_in"),
        "cause": analysis.verdict.cause,
        "verdict": analysis.verdict.title,
        **({} if (job := analysis.job) is None else {"steps": job.steps, "wall_s": job.wall_ns / 1e9}),
        "ranks": None if analysis.facts is None else len(analysis.ranks) or 1,
        "samples_per_s": row.figure("samples_per_s") if analysis.facts and analysis.facts.samples_known else None,
        **{f"{part}_pct": 100 * shares[part] for part in PARTS if part in shares},
        "utilisation_pct": row.figure("utilisation_pct"),
        "step_ms_p50": analysis.step_ms.get("p50"),
        "step_ms_p99": analysis.step_ms.get("p99"),
    }


def _values(column: Column, rows: Sequence[Mapping[str, Any]]) -> Values:
    values = [row.get(column.name) for row in rows]
    if column.type == "text":
        return [None if value is None else str(value) for value in values]
    kind, missing = (np.int64, NOT_MEASURED) if column.type == "int" else (np.float64, np.nan)
    return np.array([missing if value is None else value for value in values], dtype=kind)
