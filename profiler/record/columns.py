"""Records by column: what analyses of long recordings need.

A record of a day's training is a row of 32 fields, and whoever asks for one field of 864,000 rows, or for those of some
rows, has all 32 moved through memory. Here a field is an array of its own. A field that is the same in all records (not
measured, as a rule) takes no memory, and of a selection a field is picked out when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.void]
"""Records one after another: a structured array with the dtype of its kind."""
Values = npt.NDArray[Any]
NUMBER = "seq"
"""The first field of every kind: 1, 2, 3 … within a file."""
Which = slice | npt.NDArray[np.bool_] | npt.NDArray[np.integer[Any]]


class Columns:
    """Records of one kind, to be asked as `Rows` are: by the name of a field, or for some of the records. Not to be
    written; `numpy.asarray` makes `Rows` of them."""

    __slots__ = ("__weakref__", "_known", "_numbers", "_of", "_which", "dtype", "size")

    def __init__(
        self,
        dtype: np.dtype[np.void],
        size: int,
        known: dict[str, Values],
        of: tuple[Columns, slice | npt.NDArray[np.integer[Any]]] | None = None,
        numbers: Sequence[range] = (),
    ) -> None:
        """`known`: columns that are there already; `of`: the records that the others are picked from, and which of
        those; `numbers`: their `seq`, made when it is asked for."""
        self.dtype = dtype
        self._numbers = numbers
        self.size = size
        self._known = known
        self._of: Columns | None = None
        self._which: slice | npt.NDArray[np.integer[Any]] = slice(None)
        if of is not None:
            self._of, self._which = of

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, key: str) -> Values: ...
    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> np.void: ...
    @overload
    def __getitem__(self, key: Which) -> Columns: ...
    @overload
    def __getitem__(self, key: list[str]) -> Rows: ...
    def __getitem__(self, key: str | int | np.integer[Any] | Which | list[str]) -> Values | Columns | np.void | Rows:
        if isinstance(key, str):
            found = self._known.get(key)
            return found if found is not None else self._picked(key)
        if isinstance(key, slice):
            return self._selected(key, len(range(*key.indices(self.size))))
        if isinstance(key, (int, np.integer)):
            row = np.empty(1, dtype=self.dtype)
            place = range(self.size)[int(key)]
            for name in self.dtype.names or ():
                row[name] = self._value(name, place)
            found_row: np.void = row[0]
            return found_row
        if isinstance(key, list):
            return self._rows(key, self)
        if key.dtype != np.bool_:
            return self._selected(key.astype(np.int64), len(key))
        count = int(np.count_nonzero(key))
        if count == len(key):
            return self
        # Steps after the warm-up, and others that follow each other, need not be copied.
        first = int(key.argmax())
        if key[first : first + count].all():
            return self._selected(slice(first, first + count), count)
        return self._selected(np.flatnonzero(key), count)

    def __iter__(self) -> Iterator[np.void]:
        return iter(np.asarray(self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Rows:
        return self._rows(self.dtype.names or (), self)

    def _selected(self, which: slice | npt.NDArray[np.integer[Any]], count: int) -> Columns:
        if self._of is not None and isinstance(self._which, np.ndarray):
            # Of some of the selected records, all of these need not be picked out.
            return Columns(self.dtype, count, {}, (self._of, self._which[which]))
        return Columns(self.dtype, count, {}, (self, which))

    def _picked(self, name: str) -> Values:
        if self._of is None and name == NUMBER:
            return np.concatenate([np.arange(part.start, part.stop) for part in (range(0), *self._numbers)])
        if self._of is None:
            raise ValueError(f"no field of name {name}")
        whole = self._of[name]
        if whole.strides == (0,) and self.size:
            found = np.broadcast_to(whole[:1], self.size)
        else:
            found = whole[self._which]
            found.flags.writeable = False
        self._known[name] = found
        return found

    def _value(self, name: str, place: int) -> Any:
        """Of one record, without picking those of the others."""
        known = self._known.get(name)
        if known is not None:
            return known[place]
        if self._of is None:
            for part in self._numbers if name == NUMBER else ():
                if place < len(part):
                    return part[place]
                place -= len(part)
            raise ValueError(f"no field of name {name}")
        which = self._which
        return self._of._value(name, range(self._of.size)[which][place] if isinstance(which, slice) else which[place])

    @staticmethod
    def _rows(names: Sequence[str], records: Columns) -> Rows:
        rows = np.empty(records.size, dtype=[(name, records.dtype[name]) for name in names])
        for name in names:
            rows[name] = records[name]
        return rows


Records = Rows | Columns
"""Records of one kind, however they lie in memory."""


def with_column(records: Records, name: str, values: Values) -> Records:
    """The same records with other values in one field."""
    if isinstance(records, Columns):
        return Columns(records.dtype, len(records), {name: values}, (records, slice(None)))
    changed = records.copy()
    changed[name] = values
    return changed


def only(records: Records, names: Sequence[str]) -> Records:
    """The same records with these fields alone, which hold on to no others."""
    if not isinstance(records, Columns):
        kept: Rows = np.asarray(records[list(names)])
        return kept
    dtype = np.dtype([(name, records.dtype[name]) for name in names])
    return Columns(dtype, len(records), {name: records[name] for name in names})


def copied(records: Records) -> Rows:
    """As rows that may be written."""
    return np.array(records)


class Gathering:
    """Puts records that are read piece by piece into columns."""

    def __init__(self, dtype: np.dtype[np.void], most: int) -> None:
        """`most`: records at most; no memory is used for those that do not come."""
        self._dtype = dtype
        self._most = most
        self._count = 0
        self._first = np.zeros(dtype.itemsize // 8, dtype=np.int64)
        self._columns: dict[int, npt.NDArray[np.int64]] = {}
        """Number of the field → its values, once two of them differ."""
        self._numbers: list[range] = []
        """The first field, `seq`: the records of a file are numbered through."""

    def add(self, rows: Rows) -> None:
        """Rows that follow each other in a file; they may be overwritten afterwards."""
        words = rows.view(np.int64).reshape(len(rows), -1)
        number = int(words[0, 0])
        begins = self._numbers.pop().start if self._numbers and self._numbers[-1].stop == number else number
        self._numbers.append(range(begins, number + len(rows)))
        count, end = self._count, self._count + len(rows)
        if count == 0:
            self._first = words[0].copy()
        for field in range(1, words.shape[1]):
            if field not in self._columns and (words[:, field] != self._first[field]).any():
                self._columns[field] = np.empty(self._most, dtype=np.int64)
                self._columns[field][:count] = self._first[field]
        for field, column in self._columns.items():
            column[count:end] = words[:, field]
        self._count = end

    def columns(self) -> Columns:
        """All that was added."""
        known: dict[str, Values] = {}
        for number, name in enumerate(self._dtype.names or ()):
            if name == NUMBER:
                continue
            varies = self._columns.get(number)
            values = np.broadcast_to(self._first[number : number + 1], self._count) if varies is None else varies
            values = values[: self._count].view(self._dtype[name])
            values.flags.writeable = False
            known[name] = values
        return Columns(self._dtype, self._count, known, numbers=self._numbers)
