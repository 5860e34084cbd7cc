"""Tables as CSV: a line of names, then a line a row; what was not measured is empty."""

from __future__ import annotations

import csv
from typing import Any, TextIO

import numpy as np

from ...record.files import plain
from ...record.schema import NOT_MEASURED
from .table import Chunk, Column, Table

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
