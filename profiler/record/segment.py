"""One file of fixed-size records, as the process that stores them sees it: a ring in memory.

A store is one copy of the body and one of `seq`: no system call, no lock, nothing that gives up the GIL. The ring is
memory that nothing outside can take away, so that no file's fate (cut, full, gone, on a server that hangs) reaches the
program that stores. The sampler has the same memory and takes what is new into the run folder, five times a second
(`delivery.py`); what a killed process had stored is there for it still. Where no sampler listens, the process writes
its records itself, as often.

What must let go of its parent's files in a forked child.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from array import array
from pathlib import Path
from typing import Protocol
from weakref import WeakSet, ref

from ..native import AppenderBase
from .delivery import deliver
from .ring import CLOSED, DONE, DROPPED, PAGE, REFUSED, RecordRing
from .schema import Kind
from .sink import Drain, RecordSink


class Inherited(Protocol):
    def forked(self) -> None:
        """This is a child, which has no part in what its parent writes."""


_alive: list[ref[Inherited]] = []


def tell_of_fork(thing: Inherited) -> None:
    """Have `forked` called in every child that is forked while `thing` lives."""
    _alive[:] = [*(each for each in _alive if each() is not None), ref(thing)]


def _forked() -> None:
    for each in _alive:
        with contextlib.suppress(Exception):
            if (thing := each()) is not None:
                thing.forked()


os.register_at_fork(after_in_child=_forked)


RING_BYTES = 2 << 20
SLOT_BYTES = 512 << 10
"""A worker may live for a few batches, and there may be many."""
EVERY_NS = 200_000_000
"""How often a process writes its records itself."""


class RecordWriter(AppenderBase):
    """Appends records of one kind to one file. One writer per file, used from one thread.

    In a forked child it stores nothing and closes nothing: the file is the parent's.

    Raises:
        RecordError: the file cannot be made at all. Once made, storing never raises: `stored` and
            `dropped` tell what happened.
    """

    def __init__(
        self,
        folder: Path,
        kind: Kind,
        rank: int = 0,
        pid: int | None = None,
        slot: bool = False,
        length: int | None = None,
    ) -> None:
        """
        Args:
            pid: the process in whose name it writes, by default this one.
            slot: short-lived processes share files: this one goes on behind the records of one that has ended.
            length: bytes for records in memory, of which half may wait to be written.
        """
        self.kind = kind
        self.stored = 0
        self.dropped = 0
        self._pack_into = kind.body.pack_into
        self._body_words = kind.body.size // 8
        self._size = kind.record_bytes
        self._position = self._limit = 0
        """Where the next record goes, in bytes, and up to where there is room in a row."""
        self._folder = folder
        self._who = rank, os.getpid() if pid is None else pid, slot
        self._maker = os.getpid()
        self.path = folder / f"{kind.name}-{rank}-{self._who[1]}.rec"
        """The file; of a slot only where this process writes it itself."""
        self._drain: Drain | None = None
        """Where this process writes the records itself."""
        self._eager = False
        """Whether it writes each record itself at once: whoever stores is not waited for, and may be killed."""
        self._asked_ns = 0
        length = length or (SLOT_BYTES if slot else RING_BYTES)
        self._ring: RecordRing | None
        ring = self._ring = RecordRing(kind.record_bytes, length)
        """`None` once it is closed."""
        self._address = ring.address
        self._bytes, self._words = ring.bytes[PAGE:], ring.words[PAGE // 8 :]
        told = {"kind": kind.name, "rank": rank, "pid": self._who[1], "slot": slot, "length": length}
        self._handed = ring.descriptor >= 0 and deliver(folder, told, ring.descriptor)
        if ring.descriptor >= 0:
            os.close(ring.descriptor)
        if not self._handed:
            self._writes_itself()
        tell_of_fork(self)

    def _writes_itself(self) -> None:
        assert self._ring is not None
        done = self._ring.words[DONE] if self._handed else None
        sink = RecordSink(self._folder, self.kind, *self._who, done)
        self._drain, self.path, self._eager = Drain(self._ring, sink), sink.path, self._who[2]
        _alone.add(self)

    @property
    def refused(self) -> bool:
        """Whether the sampler has said that it may not look into this process."""
        return self._ring is not None and bool(self._ring.words[REFUSED])

    def forked(self) -> None:
        """A child has the memory, and must not store into it."""
        self._ring = None
        self._limit = self._position = 0
        drain, self._drain = self._drain, None
        if drain is not None:
            drain.sink.let_go()

    def _is_inherited(self) -> bool:
        """Whether this is a child that Python was not told of: C code may fork, too."""
        if os.getpid() == self._maker:
            return False
        self.forked()
        return True

    def append(self, *values: float) -> int:
        """Store one record: the fields of the kind after `seq`, in order. Returns its handle for `patch`.

        Returns -1 where the record could not be stored (nobody takes them any more, or closed).
        """
        if self._position >= self._limit and not self._room():
            return -1
        self._pack_into(self._bytes, self._position + 8, *values)
        return self._stored()

    def store(self, body: array[int]) -> int:
        """As `append`, for fields that lie in a row already: cheaper where a record is filled in bit by bit."""
        if self._position >= self._limit and not self._room():
            return -1
        first = (self._position >> 3) + 1
        self._words[first : first + self._body_words] = body
        return self._stored()

    def _stored(self) -> int:
        self.stored += 1
        self._words[self._position >> 3] = self.stored
        self._position += self._size
        if self._eager:
            self.flush()
        return self.stored

    def _room(self) -> bool:
        """Find room for the next record; where there is none it is lost."""
        if self._ring is None or self._is_inherited():
            self.dropped += 1
            return False
        room = self._ring.room(self.stored)
        if self._drain is not None:
            if (now := time.monotonic_ns()) - self._asked_ns >= EVERY_NS or room <= 0:
                _write_all(now)
                room = self._ring.room(self.stored)
            # So it is asked again at the next record, whether it is time.
            room = min(room, 1)
        elif room <= 0 and (now := time.monotonic_ns()) - self._asked_ns >= EVERY_NS:
            self._asked_ns = now
            if self._takes_over():
                room = self._ring.room(self.stored)
        if room <= 0:
            self.dropped += 1
            self._ring.words[DROPPED] = self.dropped
            return False
        self._position = self._ring.place(self.stored + 1)
        self._limit = self._position + room * self._size
        return True

    def _takes_over(self) -> bool:
        """Write the records itself if the sampler is gone."""
        if self._drain is None and not deliver(self._folder):
            with contextlib.suppress(Exception):
                self._writes_itself()
                self.flush()
        return self._drain is not None

    def flush(self) -> None:
        """Write what is stored to the file, where this process does that. Never raises."""
        if self._drain is not None and not self._is_inherited():
            self._drain()

    def patch(self, handle: int, field: str, *values: int) -> bool:
        """Fill in `i8` fields from `field` on of a record stored before; in order, the last one last.

        False if the record was never stored, or so many were stored since that it is no longer in memory.
        """
        if handle < 1 or self._ring is None or self._is_inherited():
            return False
        if self.stored - handle >= self._ring.capacity // 2:
            return False
        start = self._ring.place(handle) + self.kind.offset(field)
        self._bytes[start : start + 8 * len(values)] = struct.pack(f"<{len(values)}q", *values)
        self._ring.patched(handle)
        return True

    def close(self) -> None:
        """Mark the file complete. Safe to call twice; never raises."""
        if self._ring is None or self._is_inherited():
            return
        ring = self._ring
        ring.words[CLOSED] = 1
        if self._takes_over() and self._drain is not None:
            lost = self._drain.close()
            self.stored, self.dropped = self.stored - lost, self.dropped + lost
        self.forked()
        self._bytes.release()
        self._words.release()
        ring.close()


_alone: WeakSet[RecordWriter] = WeakSet()
"""Writers of this process that write their records themselves."""


def _write_all(now_ns: int) -> None:
    """What one has stored is not to wait until it stores again."""
    for writer in list(_alone):
        writer._asked_ns = now_ns
        writer.flush()
