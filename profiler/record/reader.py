"""Reading record files: whole, piece by piece, or by column.

Files are read, never mapped: a file that is cut short under a reader would be a SIGBUS.

A record of a day's training is a row of 32 fields, and whoever asks for one field of 864,000 rows, or for those of some
rows, has all 32 moved through memory. In `Columns` a field is an array of its own. A field that is the same in all
records (not measured, as a rule) takes no memory, and of a selection a field is picked out when it is first asked for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ..errors import RecordError
from .files import open_recorded
from .schema import EVENT, FORMAT_VERSION, HEADER, HEADER_BYTES, KINDS, MAGIC, NAN, NOT_MEASURED, EventKind, Kind

CHUNK_BYTES = 1 << 20
MOST_BYTES = 1 << 38
"""Bytes of a record file: what a process may write in ten years."""
FEW_ROWS = 4096
"""Records up to which they are kept as rows: a megabyte of the largest."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""
KEPT_ARRAY_BYTES = 32 << 20
"""Bytes of an array that is kept: the most that glibc takes. Columns of a day's steps have 7 to 14 MB."""
KEPT_BYTES = 1 << 30

Rows = npt.NDArray[np.void]
"""Records one after another: a structured array with the dtype of its kind."""
Values = npt.NDArray[Any]
Which = slice | npt.NDArray[np.bool_] | npt.NDArray[np.integer[Any]]


class Columns:
    """Records of one kind, to be asked as `Rows` are: by the name of a field, or for some of the records. Not to be
    written; `numpy.asarray` makes `Rows` of them."""

    __slots__ = ("__weakref__", "_known", "_of", "_which", "dtype", "size")

    def __init__(
        self,
        dtype: np.dtype[np.void],
        size: int,
        known: dict[str, Values],
        of: Columns | None = None,
        which: slice | npt.NDArray[np.integer[Any]] = slice(None),
    ) -> None:
        """
        Args:
            known: columns that are there already.
            of: the records that the others are picked from.
            which: of those, these.
        """
        self.dtype = dtype
        self.size = size
        self._known = known
        self._of = of
        self._which = which

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
            place = range(self.size)[int(key)]
            row: np.void = np.asarray(self[place : place + 1])[0]
            return row
        if isinstance(key, list):
            return self._rows(key)
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
        return self._rows(self.dtype.names or ())

    def _selected(self, which: slice | npt.NDArray[np.integer[Any]], count: int) -> Columns:
        if self._of is not None and isinstance(self._which, np.ndarray):
            # Picking some of the selected records takes no picking of all these.
            return Columns(self.dtype, count, {}, self._of, self._which[which])
        return Columns(self.dtype, count, {}, self, which)

    def _picked(self, name: str) -> Values:
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

    def _rows(self, names: Sequence[str]) -> Rows:
        rows = np.empty(self.size, dtype=[(name, self.dtype[name]) for name in names])
        for name in names:
            rows[name] = self[name]
        return rows


Records = Rows | Columns
"""Records of one kind, however they lie in memory."""


def with_column(records: Records, name: str, values: Values) -> Records:
    """Give the same records with other values in one field."""
    if isinstance(records, Columns):
        return Columns(records.dtype, len(records), {name: values}, records)
    changed = records.copy()
    changed[name] = values
    return changed


def only(records: Records, names: Sequence[str]) -> Records:
    """Give the same records with these fields alone, which hold on to no others."""
    if not isinstance(records, Columns):
        kept: Rows = np.asarray(records[list(names)])
        return kept
    dtype = np.dtype([(name, records.dtype[name]) for name in names])
    return Columns(dtype, len(records), {name: records[name] for name in names})


def by_column(parts: Iterable[Rows], kind: Kind, most: int) -> Columns:
    """Put records that are read piece by piece into columns.

    `most`: records at most; no memory is used for those that do not come.
    """
    first = np.zeros(kind.record_bytes // 8, dtype=np.int64)
    varying: dict[int, npt.NDArray[np.int64]] = {}
    """Number of the field → its values, once two of them differ."""
    count = 0
    for rows in parts:
        words = rows.view(np.int64).reshape(len(rows), -1)
        if count == 0:
            first = words[0].copy()
        end = count + len(rows)
        for field in range(words.shape[1]):
            if field not in varying and (words[:, field] != first[field]).any():
                varying[field] = np.empty(most, dtype=np.int64)
                varying[field][:count] = first[field]
        for field, column in varying.items():
            column[count:end] = words[:, field]
        count = end
    known: dict[str, Values] = {}
    for number, name in enumerate(kind.dtype.names or ()):
        values = varying[number] if number in varying else np.broadcast_to(first[number : number + 1], count)
        known[name] = values[:count].view(kind.dtype[name])
        known[name].flags.writeable = False
    return Columns(kind.dtype, count, known)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    # A job has thousands of files: what Python's own files do besides would take most of the time.
    file = open_recorded(path, MOST_BYTES)
    try:
        yield file
    finally:
        os.close(file)


class RecordFile:
    """The records of one file, up to the last whole one.

    Raises:
        RecordError: not a record file, cut within its header, or of an unknown version or kind.
    """

    def __init__(self, path: Path) -> None:
        try:
            with _opened(path) as file:
                page, size = os.pread(file, HEADER_BYTES, 0), os.fstat(file).st_size
        except OSError as error:
            raise RecordError(f"cannot read {path}: {error.strerror}.") from error
        if len(page) < HEADER_BYTES or not page.startswith(MAGIC):
            if size == 0:
                raise RecordError(f"{path} is empty: its records could not be written. Was the disk full?")
            raise RecordError(f"{path} is not a whyidle record file, or is cut off within its first page.")
        _, version, header_bytes, record_bytes, *process, closed, ended = HEADER.unpack_from(page)
        name = ended.rstrip(b"\0").decode("ascii", "replace")
        if version != FORMAT_VERSION:
            says = f"{path} has record format {version}; this whyidle reads format {FORMAT_VERSION}."
            raise RecordError(f"{says} Read it with the version of whyidle that recorded it.")
        kind = KINDS.get(name)
        if kind is None or header_bytes != HEADER_BYTES or record_bytes != kind.record_bytes:
            raise RecordError(f"{path} holds records of an unknown kind: {name!r} of {record_bytes} bytes.")
        self.path, self.kind = path, kind
        self.rank, self.pid, self.dropped = process
        self.closed = bool(closed)
        """False for a writer that was killed or still runs."""
        self.most_at_first, rest = divmod(max(0, size - HEADER_BYTES), kind.record_bytes)
        """How many records fitted into the file when it was opened."""
        self.is_cut = self.closed and rest != 0
        """Whether a file that was complete ended in the middle of a record when it was opened."""

    def read(self, first: int, count: int) -> Rows:
        """Read at most `count` whole records from number `first` (from 0) on; cheap if few. Not to be written.

        Raises:
            OSError: the file cannot be read (any more).
        """
        size = self.kind.record_bytes
        with _opened(self.path) as file:
            data = os.pread(file, count * size, HEADER_BYTES + first * size)
        records: Rows = np.frombuffer(data, dtype=self.kind.dtype, count=len(data) // size)
        fits = records["seq"] == np.arange(first + 1, first + 1 + len(records))
        return self._sound(records if fits.all() else records[: int(np.argmin(fits))])

    def _sound(self, records: Rows) -> Rows:
        """Whole records, with a number that nothing measures as one that was not measured: a damaged file is a reason
        neither to compute without end nor to ask for all memory."""
        kind = self.kind
        floats = [field.name for field in kind.fields if field.type == "f8"]
        words = records.view(np.int64).reshape(-1, kind.record_bytes // 8)[:, : len(kind.fields)]
        # The size of `NOT_MEASURED` is no number of 64 bits, and stays below all.
        beyond = np.abs(words) > kind.most
        if kind is EVENT:
            counts = np.isin(records["what"], EventKind.COUNTS)
            beyond[:, kind.offset("value") // 8] |= counts & (records["value"].view(np.uint64) > EventKind.MOST_COUNTED)
        infinite = any(np.isinf(records[name]).any() for name in floats)
        if not (infinite or beyond.any()):
            return records
        sound = records.copy()
        sound.view(np.int64).reshape(-1, kind.record_bytes // 8)[:, : len(kind.fields)][beyond] = NOT_MEASURED
        for name in floats:
            sound[name][np.isinf(sound[name])] = NAN
        return sound

    def chunks(self, first: int = 0) -> Iterator[Rows]:
        """Read runs of whole records from number `first` (from 0) on, about a megabyte each. Not to be written."""
        most = CHUNK_BYTES // self.kind.record_bytes
        count = most
        while count == most:
            records = self.read(first, most)
            if count := len(records):
                yield records
            first += count

    def count(self) -> int:
        """Count the whole records without reading them: their numbers end where the file does."""
        size = self.kind.record_bytes
        with _opened(self.path) as file:
            low, high = 0, (os.fstat(file).st_size - HEADER_BYTES) // size
            # If the file is complete, the last one tells at once.
            middle = high - 1
            while low < high:
                stored = os.pread(file, 8, HEADER_BYTES + middle * size)
                if int.from_bytes(stored, "little", signed=True) == middle + 1:
                    low = middle + 1
                else:
                    high = middle
                middle = (low + high) // 2
        return low

    def all(self) -> Records:
        """Read all records into memory at once."""
        return read_all([self], self.kind)


def read_all(files: Sequence[RecordFile], kind: Kind) -> Records:
    """Read all records of files of one kind, one after another: by column where there are many. A job has thousands of
    small files, whose columns would cost more than they save."""
    if sum(file.most_at_first for file in files) <= FEW_ROWS:
        parts = [chunk for file in files for chunk in file.chunks()]
        if len(parts) == 1:
            return parts[0]
        # What numpy.concatenate does to find out that all are alike takes longer than to copy small ones.
        joined: Rows = np.empty(sum(map(len, parts)), dtype=kind.dtype)
        end = 0
        for part in parts:
            joined[end : (end := end + len(part))] = part
        return joined
    # A file may have no records where it has room for them, and be as large as it likes.
    counts = [file.count() for file in files]
    # It may have grown since it was counted.
    counted = (
        rows
        for file, count in zip(files, counts, strict=True)
        for chunk in file.chunks()
        if len(rows := chunk[: max(0, count + 1 - int(chunk["seq"][0]))])
    )
    return by_column(counted, kind, sum(counts))


def measured(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Make field values floats, with NaN for what was not measured."""
    if values.dtype.kind == "f":
        return values.astype(np.float64)
    return np.where(values == NOT_MEASURED, NAN, values.astype(np.float64))


def reuse_memory() -> None:
    """Keep freed memory for the rest of this process; does nothing where the C library is not glibc.

    Judging a long recording makes and drops hundreds of arrays. To get as much from the system each time, page by page,
    took a tenth of the time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_MMAP_THRESHOLD, KEPT_ARRAY_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
