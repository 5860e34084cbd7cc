"""A comparison as a table: a row for each cell and run, for the study of spread and rounds elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...analyse.cells.comparison import RunRow, host_of, round_of
from ...analyse.ranks import figures as ranks_figures
from ...analyse.run.analysis import analyse
from ...analyse.run.stall_breakdown import PARTS
from ...errors import RecordError
from ...record.comparison import CellRecord, read_comparison
from ...record.run import is_run, open_run
from ...record.schema import NOT_MEASURED
from .table import Chunk, Column, Table, Values

NAN = float("nan")

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


def cells_table(folder: Path) -> Table:
    """Make the table. `folder`: of a comparison, finished or not.

    Raises:
        RecordError: no comparison, or none that can be read.
    """
    setting, cells = read_comparison(folder)
    hosts = set()
    for name in (name for cell in cells for name in cell.runs if is_run(folder / name)):
        with suppress(RecordError):
            hosts.add(host_of(open_run(folder / name).info))
    axes = sorted({name for cell in cells for name in cell.axes})
    of_axes = (Column(f"axis_{name}", "text", "", f"place of the cell on the axis {name}") for name in axes)
    columns = (*_CELL, *of_axes, *_RUN, *([_HOST] if len(hosts - {None}) > 1 else []))
    about = {"scenario": str(setting.get("scenario", ""))}
    return Table("cells", columns, partial(_chunks, folder, cells, columns), about)


def _chunks(folder: Path, cells: Sequence[CellRecord], columns: Sequence[Column]) -> Iterator[Chunk]:
    for number, cell in enumerate(cells):
        places = {f"axis_{name}": None if value is None else str(value) for name, value in cell.axes.items()}
        of_cell = {
            "cell": number,
            "pipeline": cell.pipeline,
            "batch_size": cell.batch_size,
            "status": cell.status,
            "error": cell.error,
        }
        for run in cell.runs or (None,):
            values = of_cell | places | _of_run(folder, run)
            yield {column.name: _value(column, values.get(column.name)) for column in columns}


def _value(column: Column, value: Any) -> Values:
    if column.type == "text":
        return [None if value is None else str(value)]
    if column.type == "int":
        return np.array([NOT_MEASURED if value is None else int(value)], dtype=np.int64)
    return np.array([NAN if value is None else float(value)])


def _of_run(folder: Path, name: str | None) -> dict[str, Any]:
    """Give what is known of a run: nothing where there is none, its name and round where it cannot be read."""
    known: dict[str, Any] = {} if name is None else {"run": name, "round": round_of(name)}
    if name is None or not is_run(folder / name):
        return known
    try:
        row = RunRow(name, known["round"], analyse(open_run(folder / name)))
    except RecordError:
        return known
    analysis = row.analysis
    assert analysis is not None
    device, facts = analysis.info.get("device") or {}, analysis.facts
    known |= {
        "host": row.host,
        "device_kind": device.get("kind"),
        "device": device.get("title"),
        "stand_in": (analysis.info.get("dataset") or {}).get("stand_in"),
        "cause": analysis.verdict.cause,
        "verdict": analysis.verdict.title,
    }
    if facts is None or analysis.job is None:
        return known
    return known | {
        "ranks": len(analysis.ranks) or 1,
        "steps": analysis.job.steps,
        "wall_s": analysis.job.wall_ns / 1e9,
        "samples_per_s": row.figure("samples_per_s") if facts.samples_known else None,
        **{f"{part}_pct": 100 * share for part, share in ranks_figures.shares(analysis).items() if part in PARTS},
        "utilisation_pct": row.figure("utilisation_pct"),
        "step_ms_p50": analysis.step_ms.get("p50"),
        "step_ms_p99": analysis.step_ms.get("p99"),
    }
