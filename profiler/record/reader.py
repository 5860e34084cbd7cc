"""Reading record files: whole, by column, or followed while they are written.

Files are read, never mapped: a file that is cut short under a reader would be a SIGBUS.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import RecordError
from .columns import Gathering, Records, Rows
from .files import open_recorded
from .schema import EVENT, FORMAT_VERSION, HEADER, HEADER_BYTES, KINDS, MAGIC, NAN, NOT_MEASURED, EventKind, Kind

__all__ = ["Follower", "RecordFile", "RecordHeader", "Records", "Rows", "measured", "read_all", "read_header"]

CHUNK_BYTES = 1 << 20
MOST_BYTES = 1 << 38
"""Of a record file: what a process may write in ten years."""
FEW_ROWS = 4096
"""Records up to which they are kept as rows: a megabyte of the largest."""


@dataclass(frozen=True)
class RecordHeader:
    """What the first page of a record file says. `closed` is false for a writer that was killed or still runs."""

    path: Path
    kind: Kind
    rank: int
    pid: int
    dropped: int
    closed: bool


def read_header(path: Path) -> RecordHeader:
    """The header of a record file.

    Raises:
        RecordError: not a record file, cut within its header, or of an unknown version or kind.
    """
    return _header(path)[0]


def _header(path: Path) -> tuple[RecordHeader, int]:
    """(the header, how many bytes the file has)"""
    try:
        # A job has thousands of files: what Python's own files do besides would take most of the time.
        file = open_recorded(path, MOST_BYTES)
        try:
            page, size = os.pread(file, HEADER_BYTES, 0), os.fstat(file).st_size
        finally:
            os.close(file)
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}.") from error
    if len(page) < HEADER_BYTES or not page.startswith(MAGIC):
        if size == 0:
            raise RecordError(f"{path} is empty: its records could not be written. Was the disk full?")
        raise RecordError(f"{path} is not a whyidle record file, or is cut off within its first page.")
    _, version, header_bytes, record_bytes, rank, pid, dropped, closed, ended = HEADER.unpack_from(page)
    name = ended.rstrip(b"\0").decode("ascii", "replace")
    if version != FORMAT_VERSION:
        raise RecordError(
            f"{path} has record format {version}; this whyidle reads format {FORMAT_VERSION}. "
            "Read it with the version of whyidle that recorded it, or a newer one."
        )
    kind = KINDS.get(name)
    if kind is None or header_bytes != HEADER_BYTES or record_bytes != kind.record_bytes:
        raise RecordError(f"{path} holds records of an unknown kind: {name!r} of {record_bytes} bytes.")
    return RecordHeader(path, kind, rank, pid, dropped, bool(closed)), size


class RecordFile:
    """The records of one file, up to the last whole one."""

    def __init__(self, path: Path) -> None:
        self.header, size = _header(path)
        self.path = path
        self._dtype = self.header.kind.dtype
        self.most_at_first = max(0, size - HEADER_BYTES) // self.header.kind.record_bytes
        """How many records fitted into the file when it was opened."""

    def read(self, first: int, count: int) -> Rows:
        """At most `count` whole records from number `first` (from 0) on; cheap where there are few. Not to be written.

        Raises:
            OSError: the file cannot be read (any more).
        """
        size = self.header.kind.record_bytes
        file = open_recorded(self.path, MOST_BYTES)
        try:
            data = os.pread(file, count * size, HEADER_BYTES + first * size)
        finally:
            os.close(file)
        records: Rows = np.frombuffer(data, dtype=self._dtype, count=len(data) // self.header.kind.record_bytes)
        fits = records["seq"] == np.arange(first + 1, first + 1 + len(records))
        return self._sound(records if fits.all() else records[: int(np.argmin(fits))])

    def _sound(self, records: Rows) -> Rows:
        """Whole records, with a number that nothing measures as one that was not measured: a damaged file is a reason
        neither to compute without end nor to ask for all memory."""
        kind = self.header.kind
        floats = [field.name for field in kind.fields if field.type == "f8"]
        words = records.view(np.int64).reshape(-1, kind.record_bytes // 8)[:, : len(kind.fields)]
        # The size of `NOT_MEASURED` is no number of 64 bits, and stays below all.
        beyond = np.abs(words) > kind.most
        if kind is EVENT:
            counts = np.isin(records["what"], EventKind.COUNTS)
            beyond[:, kind.offset("value") // 8] |= counts & (records["value"].view(np.uint64) > EventKind.MOST_COUNTED)
        if not beyond.any() and not any(np.isinf(records[name]).any() for name in floats):
            return records
        sound = records.copy()
        sound.view(np.int64).reshape(-1, kind.record_bytes // 8)[:, : len(kind.fields)][beyond] = NOT_MEASURED
        for name in floats:
            sound[name][np.isinf(sound[name])] = NAN
        return sound

    def chunks(self, first: int = 0) -> Iterator[Rows]:
        """Runs of whole records from number `first` (from 0) on, about a megabyte each.

        An array is valid until the next one is asked for: all share one buffer.
        """
        kind = self.header.kind
        file = open_recorded(self.path, MOST_BYTES)
        try:
            # A job has thousands of small files, for which a large buffer would cost more than the reading.
            left = os.fstat(file).st_size - HEADER_BYTES - first * kind.record_bytes
            per_chunk = max(1, min(CHUNK_BYTES, left) // kind.record_bytes)
            buffer = bytearray(per_chunk * kind.record_bytes)
            records: Rows = np.frombuffer(buffer, dtype=kind.dtype)
            expected = np.arange(1, per_chunk + 1, dtype=np.int64)
            os.lseek(file, HEADER_BYTES + first * kind.record_bytes, os.SEEK_SET)
            while True:
                whole = _read_full(file, buffer) // kind.record_bytes
                fits = records["seq"][:whole] == expected[:whole] + first
                valid = whole if fits.all() else int(np.argmin(fits))
                if valid:
                    yield self._sound(records[:valid])
                if valid < per_chunk:
                    return
                first += valid
        finally:
            os.close(file)

    def count(self) -> int:
        """How many whole records there are, without reading them: their numbers end where the file does."""
        size = self.header.kind.record_bytes
        file = open_recorded(self.path, MOST_BYTES)
        try:
            low, high = 0, (os.fstat(file).st_size - HEADER_BYTES) // size
            # Of a file that is complete, the last one tells at once.
            middle = high - 1
            while low < high:
                stored = os.pread(file, 8, HEADER_BYTES + middle * size)
                if int.from_bytes(stored, "little", signed=True) == middle + 1:
                    low = middle + 1
                else:
                    high = middle
                middle = (low + high) // 2
        finally:
            os.close(file)
        return low

    def is_cut(self) -> bool:
        """Whether a file that was complete ends in the middle of a record."""
        size = self.path.stat().st_size - HEADER_BYTES
        return self.header.closed and size % self.header.kind.record_bytes != 0

    def all(self) -> Records:
        """All records in memory at once."""
        return read_all([self], self.header.kind)

    def sums(self) -> dict[str, float]:
        """The sum of every field's measured values, in constant memory; `seq` counts the records."""
        fields = self.header.kind.fields
        totals: dict[str, float] = {f.name: 0 for f in fields}
        for chunk in self.chunks():
            totals["seq"] += len(chunk)
            for field in fields[1:]:
                values = chunk[field.name]
                if field.type == "f8":
                    totals[field.name] += float(np.nansum(values))
                else:
                    totals[field.name] += int(np.sum(values, where=values != NOT_MEASURED))
        return totals


class Follower:
    """Reads what is appended to a record file, again and again."""

    def __init__(self, path: Path) -> None:
        self._file = RecordFile(path)
        self._seen = 0
        """Records taken in so far."""

    def new(self) -> Rows:
        """Records stored since the last call."""
        parts = [chunk.copy() for chunk in self._file.chunks(self._seen)]
        self._seen += sum(map(len, parts))
        return joined(parts, self._file.header.kind)


def read_all(files: Sequence[RecordFile], kind: Kind) -> Records:
    """All records of files of one kind, one file after another: by column where there are many. A job has thousands of
    small files, of which columns would cost more than they save."""
    if sum(file.most_at_first for file in files) <= FEW_ROWS:
        return joined([chunk.copy() for file in files for chunk in file.chunks()], kind)
    # A file may have no records where it has room for them, and be as large as it likes.
    counts = [file.count() for file in files]
    gathering = Gathering(kind.dtype, sum(counts))
    for file, count in zip(files, counts, strict=True):
        for chunk in file.chunks():
            # It may have grown since it was counted.
            if len(counted := chunk[: max(0, count + 1 - int(chunk["seq"][0]))]):
                gathering.add(counted)
    return gathering.columns()


def measured(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Field values as floats, with NaN for what was not measured."""
    if values.dtype.kind == "f":
        return values.astype(np.float64)
    return np.where(values == NOT_MEASURED, NAN, values.astype(np.float64))


def joined(parts: Sequence[Records], kind: Kind) -> Rows:
    """Parts of a kind one after another, without copying a single one again."""
    if len(parts) == 1 and isinstance(parts[0], np.ndarray):
        return parts[0]
    # What numpy.concatenate does to find out that all are alike takes longer than to copy small ones.
    found: Rows = np.empty(sum(map(len, parts)), dtype=kind.dtype)
    end = 0
    for part in parts:
        found[end : (end := end + len(part))] = part
    return found


def _read_full(fd: int, buffer: bytearray) -> int:
    """Fill the buffer from the file's position; fewer bytes only at the end of the file."""
    view = memoryview(buffer)
    done = 0
    while done < len(buffer):
        got = os.readv(fd, [view[done:]])
        if got == 0:
            break
        done += got
    return done
