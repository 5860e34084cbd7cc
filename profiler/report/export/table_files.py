"""Tables as CSV and as Parquet: what was not measured is empty, or null. Parquet needs pyarrow."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from ...errors import MissingExtra
from ...record.files import plain
from ...record.schema import NOT_MEASURED
from .table import UNITLESS, Chunk, Column, Table

_FORMULA = ("=", "+", "-", "@", "\t")


def write_csv(table: Table, file: TextIO) -> int:
    """Write all rows, as they come; returns how many. Numbers have as many digits as it takes to read them back equal.

    A text that a spreadsheet would run as a formula gets an apostrophe in front: a file's name may begin with `=`.
    """
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    rows = 0
    for chunk in table.chunks():
        columns = [_cells(column, chunk) for column in table.columns]
        writer.writerows(zip(*columns, strict=True))
        rows += len(columns[0])
    return rows


def _cells(column: Column, chunk: Chunk) -> list[Any]:
    values = chunk[column.name]
    if column.type == "text":
        return [_text(value) for value in values]
    numbers = np.asarray(values)
    missing = numbers == NOT_MEASURED if column.type == "int" else np.isnan(numbers)
    if missing.all():
        return [""] * len(numbers)
    cells: list[Any] = numbers.tolist()
    for row in np.flatnonzero(missing).tolist():
        cells[row] = ""
    return cells


def _text(value: str | None) -> str:
    if value is None:
        return ""
    shown = str(plain(value))
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


GROUP_ROWS = 1 << 16
"""Rows of a row group at least, but for the last: fewer read badly, more take memory."""


def require_pyarrow() -> None:
    """Whether this can be written at all.

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
    schema = _schema(table)
    rows = 0
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for group in _groups(table, schema):
            writer.write_table(pyarrow.Table.from_batches(group, schema), row_group_size=1 << 30)
            rows += sum(batch.num_rows for batch in group)
    return rows


def _schema(table: Table) -> Any:
    import pyarrow

    types = {"int": pyarrow.int64(), "float": pyarrow.float64(), "text": pyarrow.string()}
    fields = []
    for column in table.columns:
        told = {"meaning": column.meaning} | ({} if column.unit in UNITLESS else {"unit": column.unit})
        fields.append(pyarrow.field(column.name, types[column.type], metadata=told))
    return pyarrow.schema(fields, metadata=plain({"table": table.name, **table.about}))


def _groups(table: Table, schema: Any) -> Iterator[list[Any]]:
    import pyarrow

    group: list[Any] = []
    rows = 0
    for chunk in table.chunks():
        arrays = [_array(column, chunk, field.type) for column, field in zip(table.columns, schema, strict=True)]
        group.append(pyarrow.RecordBatch.from_arrays(arrays, schema=schema))
        rows += group[-1].num_rows
        if rows >= GROUP_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


def _array(column: Column, chunk: Chunk, type_: Any) -> Any:
    """The values as pyarrow keeps them: its own copy, since chunks share one buffer."""
    import pyarrow

    values = chunk[column.name]
    if column.type == "text":
        return pyarrow.array([None if value is None else plain(value) for value in values], type=type_)
    numbers = np.array(values)
    missing = numbers == NOT_MEASURED if column.type == "int" else np.isnan(numbers)
    return pyarrow.array(numbers, type=type_, mask=missing)
