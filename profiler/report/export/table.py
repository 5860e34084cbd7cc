"""What a table is, whatever file it goes into: typed columns that say their units, and rows in bounded chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy.typing as npt

Type = Literal["int", "float", "text"]

Values = npt.NDArray[Any] | Sequence[str | None]
"""Of one column in one chunk: int64 with `NOT_MEASURED`, float64 with NaN, or texts with None where nothing was
measured."""

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
