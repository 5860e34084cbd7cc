"""Tables of what was recorded, as CSV and as Parquet: typed columns that say their units, and rows in bounded chunks.

A kind of record is a table of its own, with the fields of the record format, in constant memory: beside them stand the
rank and the process that wrote the record, and in words what a number stands for. What was not measured is empty, or
null. Parquet needs pyarrow. A comparison is a table of its cells and their runs.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO

import numpy as np
import numpy.typing as npt

from ...analyse.cells.comparison import Comparison, RunRow
from ...analyse.ranks import figures as ranks_figures
from ...analyse.run.stall_breakdown import PARTS
from ...errors import MissingExtra
from ...record.files import plain
from ...record.run import Run
from ...record.schema import (
    BATCH,
    CONTENT,
    DEVICE,
    EVENT,
    HOST,
    NOT_MEASURED,
    PAUSE,
    SPAN,
    STEP,
    TRANSFORM,
    EventKind,
    Kind,
    PauseKind,
    SpanKind,
)
from ...record.stacks import read_names

Type = Literal["int", "float", "text"]

Values = npt.NDArray[Any] | Sequence[str | None]
"""Of one column in one chunk: int64 with `NOT_MEASURED`, float64 with NaN, or texts with None where
nothing was measured."""

Chunk = Mapping[str, Values]
"""Some rows: the values of every column, all equally long. Valid until the next chunk is asked for."""

UNITLESS = ("count", "")
"""Units that say nothing."""


@dataclass(frozen=True)
class Column:
    name: str
    type: Type
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    chunks: Callable[[], Iterator[Chunk]]
    about: Mapping[str, str] = field(default_factory=dict)
    """What holds for the whole table, such as that its data stand in for others."""


KINDS_OF_TABLES: dict[str, Kind] = {
    "batches": BATCH,
    "device": DEVICE,
    "host": HOST,
    "events": EVENT,
    "pauses": PAUSE,
    "transforms": TRANSFORM,
    "contents": CONTENT,
    "spans": SPAN,
    "step_records": STEP,
}
"""By the name of a table, the kind of record it holds."""
_WHATS = {EVENT.name: EventKind, PAUSE.name: PauseKind, SPAN.name: SpanKind}
_NAMED = {TRANSFORM.name: "name", BATCH.name: "slowest_name"}
"""Fields that hold the number of a name."""
_PHASE = Column("value_text", "text", "", "the phase's name, where the event is a phase")


def raw_table(name: str, runs: Sequence[Run]) -> Table:
    """Make the table of that name of `KINDS_OF_TABLES`, of all processes of these runs."""
    kind = KINDS_OF_TABLES[name]
    told = vars(_WHATS[kind.name]) if kind.name in _WHATS else {}
    words = {value: name.lower() for name, value in told.items() if isinstance(value, int)}
    named = _NAMED.get(kind.name)
    columns = [
        Column("rank", "int", "count", "rank of the process that wrote the record"),
        Column("pid", "int", "count", "id of that process"),
        *(Column(each.name, "float" if each.type == "f8" else "int", each.unit, each.meaning) for each in kind.fields),
        *([Column("what_text", "text", "", "`what` in words")] if words else []),
        *([_PHASE] if kind is EVENT else []),
        *([Column(f"{named}_text", "text", "", f"name for the number `{named}`")] if named else []),
    ]
    return Table(name, tuple(columns), partial(_chunks, kind, tuple(runs), words, named), about_of(runs[0].info))


def about_of(info: Mapping[str, Any]) -> dict[str, str]:
    """Tell what a table of a run says of itself; `info`: run.json."""
    device, data = info.get("device") or {}, info.get("dataset")
    told = {
        "device_kind": device.get("kind"),
        "stand_in_data": data.get("stand_in") if isinstance(data, dict) else None,
    }
    return {name: str(value) for name, value in told.items() if value}


def _chunks(kind: Kind, runs: Sequence[Run], words: Mapping[int, str], named: str | None) -> Iterator[Chunk]:
    for run in runs:
        names = read_names(run.folder) if kind is EVENT or named else {}
        for file, records in run.chunks(kind):
            chunk: dict[str, Values] = {
                **{name: np.full(len(records), getattr(file, name), dtype=np.int64) for name in ("rank", "pid")},
                **{each.name: records[each.name] for each in kind.fields},
            }
            if words:
                chunk["what_text"] = [words.get(what) for what in records["what"].tolist()]
            if kind is EVENT:
                phases = np.where(records["what"] == EventKind.PHASE, records["value"], NOT_MEASURED)
                chunk[_PHASE.name] = [names.get(value) for value in phases.tolist()]
            if named:
                chunk[f"{named}_text"] = [names.get(number) for number in records[named].tolist()]
            yield chunk


# A comparison: a row for each cell and run, for the study of spread and rounds elsewhere.

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
    return Table("cells", columns, lambda: iter([{each.name: _of_rows(each, rows) for each in columns}]), about)


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


def _of_rows(column: Column, rows: Sequence[Mapping[str, Any]]) -> Values:
    values = [row.get(column.name) for row in rows]
    if column.type == "text":
        return [None if value is None else str(value) for value in values]
    kind, missing = (np.int64, NOT_MEASURED) if column.type == "int" else (np.float64, np.nan)
    return np.array([missing if value is None else value for value in values], dtype=kind)


# Writing them.


def _values(column: Column, chunk: Chunk) -> tuple[list[str | None] | npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """The values of a column, and which were not measured. Texts cannot act on a terminal. Numbers
    are copied, since chunks share one buffer."""
    values = chunk[column.name]
    if column.type == "text":
        texts = [None if value is None else str(plain(value)) for value in values]
        return texts, np.array([value is None for value in texts], dtype=bool)
    numbers = np.array(values)
    return numbers, numbers == NOT_MEASURED if column.type == "int" else np.isnan(numbers)


_FORMULA = ("=", "+", "-", "@", "\t")


def write_csv(table: Table, file: TextIO) -> int:
    """Write all rows, as they come; returns how many. Numbers have as many digits as it takes to read them back equal.

    A text that a spreadsheet would run as a formula gets an apostrophe in front: a file's name may begin with `=`.
    """

    def cells(column: Column, chunk: Chunk) -> list[Any]:
        values, missing = _values(column, chunk)
        if missing.all():
            return [""] * len(values)
        if not isinstance(values, list):
            shown: list[Any] = values.tolist()
        else:
            shown = [f"'{value}" if value and value.startswith(_FORMULA) else value for value in values]
        for row in np.flatnonzero(missing).tolist():
            shown[row] = ""
        return shown

    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    rows = 0
    for chunk in table.chunks():
        columns = [cells(column, chunk) for column in table.columns]
        writer.writerows(zip(*columns, strict=True))
        rows += len(columns[0])
    return rows


GROUP_ROWS = 1 << 16
"""Rows of a row group at least, but for the last: fewer read badly, more take memory."""


def require_pyarrow() -> None:
    """Check that Parquet can be written at all.

    Raises:
        MissingExtra: pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtra("--format parquet writes with pyarrow, which is not installed", "parquet")


def write_parquet(table: Table, file: BinaryIO | Path) -> int:
    """Write all rows, a row group at a time; returns how many."""
    import pyarrow
    from pyarrow import parquet

    # That of the arrays, which are dropped all the time: its own would come on top.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    types = {"int": pyarrow.int64(), "float": pyarrow.float64(), "text": pyarrow.string()}
    fields = []
    for column in table.columns:
        told = {"meaning": column.meaning} | ({} if column.unit in UNITLESS else {"unit": column.unit})
        fields.append(pyarrow.field(column.name, types[column.type], metadata=told))
    schema = pyarrow.schema(fields, metadata=plain({"table": table.name, **table.about}))
    rows = 0
    group: list[Any] = []
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:

        def write() -> None:
            if group:
                writer.write_table(pyarrow.Table.from_batches(group, schema), row_group_size=1 << 30)
                group.clear()

        for chunk in table.chunks():
            arrays = []
            for column in table.columns:
                values, missing = _values(column, chunk)
                arrays.append(pyarrow.array(values, type=types[column.type], mask=missing))
            group.append(pyarrow.RecordBatch.from_arrays(arrays, schema=schema))
            rows += group[-1].num_rows
            if sum(batch.num_rows for batch in group) >= GROUP_ROWS:
                write()
        write()
    return rows
