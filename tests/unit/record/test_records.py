"""Records on their way from the process that stores them through shared memory into a file, whoever writes it, and
back: round trips, torn tails, patches, files that workers continue; by row and by column."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.small_disk import small_disk
from whyidle.capture.sampler.receiver import Receiver, listen
from whyidle.errors import RecordError
from whyidle.record import segment
from whyidle.record.files import deliver, received_here, socket_address
from whyidle.record.reader import (
    FEW_ROWS,
    Columns,
    RecordFile,
    Rows,
    by_column,
    only,
    reuse_memory,
    with_column,
)
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import BATCH, DEVICE, HEADER_BYTES, HOST, KINDS, NOT_MEASURED, PAUSE, SPAN, STEP, Kind
from whyidle.record.segment import RecordRing, RecordSink, RecordWriter

ROOM = 64
"""Records that memory holds."""
OPERATIONS = st.one_of(
    *(st.tuples(st.just(what), st.integers(1, ROOM)) for what in ("store", "patch")),
    *(st.tuples(st.just(what), st.just(0)) for what in ("drain", "fail", "die")),
)


def body(kind: Kind, number: int) -> list[int]:
    """A record body whose every field can be told from every other."""
    return [number * 100 + place for place, _ in enumerate(kind.fields[1:])]


def store(writer: RecordWriter, *numbers: int) -> RecordWriter:
    for number in numbers:
        writer.append(*body(writer.kind, number))
    return writer


def numbers(path: Path) -> list[int]:
    """Those of the bodies in a file."""
    records = RecordFile(path).all()
    assert records["seq"].tolist() == list(range(1, len(records) + 1))
    return [value // 100 for value in records[records.dtype.names[1]].tolist()]


def in_a_child(does: Callable[[], object]) -> int:
    """How a forked child ends that does this."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            received_here.clear()
            code = int(bool(does()))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda k: k.name)
def test_every_field_comes_back_as_stored(tmp_path: Path, kind: Kind) -> None:
    assert kind.record_bytes & (kind.record_bytes - 1) == 0
    assert (kind.dtype.itemsize, kind.body.size) == (kind.record_bytes, 8 * (len(kind.fields) - 1))
    writer = store(RecordWriter(tmp_path, kind), *range(3))
    writer.close()
    records = RecordFile(writer.path).all()
    assert records["seq"].tolist() == [1, 2, 3]
    for place, field in enumerate(kind.fields[1:]):
        assert records[field.name].tolist() == [n * 100 + place for n in range(3)]


@pytest.mark.parametrize("stored", [0, 1, FEW_ROWS, FEW_ROWS + 1])
def test_records_are_counted_without_reading_them(tmp_path: Path, stored: int) -> None:
    """And many of them are read by column, few as rows."""
    writer = store(RecordWriter(tmp_path, STEP), *range(stored))
    writer.flush()
    file = RecordFile(writer.path)
    assert (file.count(), file.closed) == (stored, False)
    assert isinstance(file.all(), Columns) is (stored > FEW_ROWS)
    assert numbers(writer.path) == list(range(stored))
    writer.close()
    writer.close()
    assert writer.append(*STEP.missing()) == -1
    assert (RecordFile(writer.path).count(), RecordFile(writer.path).closed) == (stored, True)


@given(cut=st.integers(0, 40 * SPAN.record_bytes), wipe=st.integers(0, 7))
def test_a_torn_tail_is_cut_and_no_more(tmp_path_factory: pytest.TempPathFactory, cut: int, wipe: int) -> None:
    writer = store(RecordWriter(tmp_path_factory.mktemp("torn"), SPAN), *range(40))
    writer.close()
    # Cut anywhere, and leave behind a record whose sequence number was not stored yet.
    os.truncate(writer.path, HEADER_BYTES + cut)
    whole = cut // SPAN.record_bytes
    with writer.path.open("r+b") as file:
        file.seek(HEADER_BYTES + whole * SPAN.record_bytes)
        file.write(b"\0" * (8 + wipe))
    assert numbers(writer.path) == list(range(whole))


def test_device_stamps_are_patched_into_stored_records(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, STEP)
    handles = [writer.append(*STEP.missing()) for _ in range(100)]
    writer.flush()
    handles += [writer.append(*STEP.missing()) for _ in range(2)]
    # The first is in the file already, the last only in memory.
    patched = handles[0], handles[-1]
    for handle in patched:
        assert writer.patch(handle, "device_copy_begin_ns", 1, 2, 3, 4 + handle)
    writer.close()
    records = RecordFile(writer.path).all()
    late = ["device_copy_begin_ns", "device_copy_end_ns", "device_begin_ns", "device_end_ns"]
    assert [tuple(records[late][handle - 1]) for handle in patched] == [(1, 2, 3, 4 + handle) for handle in patched]
    assert (records["device_end_ns"] == NOT_MEASURED).sum() == len(handles) - 2
    assert np.array_equal(records["seq"], handles)


def test_a_folder_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"cannot write .*No such file.*--out"):
        RecordWriter(tmp_path / "gone", STEP)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: b"not a record", "not a whyidle record file"),
        (lambda b: b[:100], "cut off within its first page"),
        (lambda b: b[:8] + (99).to_bytes(4, "little") + b[12:], "format 99; this whyidle reads format 2"),
        (lambda b: b[:48] + b"riddle".ljust(16, b"\0") + b[64:], "unknown kind: 'riddle'"),
    ],
)
def test_files_that_are_none_are_refused_with_one_sentence(tmp_path: Path, damage, message: str) -> None:
    writer = RecordWriter(tmp_path, DEVICE)
    writer.close()
    writer.path.write_bytes(damage(writer.path.read_bytes()))
    with pytest.raises(RecordError, match=message):
        RecordFile(writer.path)


@pytest.mark.parametrize("told", [True, False], ids=["by Python", "by C code"])
def test_a_forked_child_leaves_the_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    writer = store(RecordWriter(tmp_path, STEP), 0)
    if not told:
        monkeypatch.setattr(writer, "forked", lambda: None)

    def does() -> None:
        monkeypatch.undo()
        if told:
            assert writer.append(*body(STEP, 7)) == -1
        assert not writer.patch(1, "step", 99)
        writer.close()

    assert in_a_child(does) == 0
    assert writer.append(*body(STEP, 1)) == 2
    writer.close()
    assert numbers(writer.path) == [0, 1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return create_run(tmp_path / "run", {})


def slot(folder: Path) -> RecordWriter:
    return RecordWriter(folder, BATCH, 3, 4711, slot=True)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("first", [0, 1, 15, 16, 63, 64, 500])
def test_the_next_worker_goes_on_where_the_last_one_stopped(folder: Path, first: int, closed: bool) -> None:
    def does() -> None:
        one = store(slot(folder), *range(first))
        one.flush()
        if closed:
            one.close()
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_child(does) == -signal.SIGKILL
    two = store(slot(folder), *range(first, first + 100))
    assert two.path.name == "batch-3-4711.w0.rec"
    two.flush()
    assert numbers(two.path) == list(range(first + 100))
    two.close()
    assert numbers(two.path) == list(range(first + 100))
    assert two.path.stat().st_size == HEADER_BYTES + (first + 100) * BATCH.record_bytes
    assert RecordFile(two.path).closed


def test_workers_that_run_at_a_time_have_a_file_each_and_one_cut_within_its_header_begins_anew(folder: Path) -> None:
    (folder / "batch-3-4711.w0.rec").write_bytes(b"STALL")
    writers = [store(slot(folder), 7) for _ in range(3)]
    assert len({writer.path for writer in writers}) == 3
    writers[0].flush()
    assert numbers(folder / "batch-3-4711.w0.rec") == [7]
    writers[1].close()
    assert slot(folder).path == writers[1].path


def test_a_full_disk_is_counted_over_all_workers_of_a_slot(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = store(slot(folder), 1)
    first.close()
    really = os.pwrite

    def full(file: int, data: bytes, offset: int) -> int:
        if offset >= HEADER_BYTES:
            raise OSError(28, "No space left on device")
        return really(file, data, offset)

    monkeypatch.setattr(segment.os, "pwrite", full)
    for _ in range(2):
        store(slot(folder), 2, 3).close()
    assert open_run(folder).dropped() == 4
    assert numbers(first.path) == [1]


class Sampler:
    """Takes the memory that a writer hands over, as the sampler does, without a socket between."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lives = True
        self.sink: RecordSink | None = None

    def deliver(self, _folder: Path, message: dict[str, Any] | None = None, descriptor: int = -1) -> bool:
        if self.lives and message is not None:
            ring = RecordRing(PAUSE.record_bytes, message["length"], descriptor)
            self.sink = RecordSink(ring, self.folder, PAUSE, message["rank"], message["pid"], message["slot"])
        return self.lives


@pytest.mark.parametrize("shared", [False, True])
@example(operations=[("store", 1), ("drain", 0), ("patch", 1), ("fail", 0), ("drain", 0), ("die", 0)])
@given(operations=st.lists(OPERATIONS, max_size=40))
def test_the_file_holds_what_was_stored_and_not_said_to_be_lost(
    tmp_path_factory: pytest.TempPathFactory, shared: bool, operations: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("ring")
    sampler = Sampler(folder)
    full = False
    with pytest.MonkeyPatch.context() as patch:
        really = os.pwrite

        def write(file: int, data: bytes, offset: int) -> int:
            if full:
                raise OSError(28, "No space left on device")
            return really(file, data, offset)

        patch.setattr(segment, "deliver", sampler.deliver)
        patch.setattr("whyidle.record.segment.os.pwrite", write)
        # As if it were long ago each time: who is gone is noticed at once.
        patch.setattr(segment, "EVERY_NS", 0)
        writer = RecordWriter(folder, PAUSE, 3, 4711, slot=shared, length=ROOM * PAUSE.record_bytes)
        stored: list[list[int]] = []
        lost = 0
        for what, number in operations:
            if what == "store":
                for _ in range(number):
                    made = body(PAUSE, len(stored) + lost)
                    handle = writer.append(*made)
                    if handle < 0:
                        lost += 1
                    else:
                        stored.append(made)
                        assert handle == len(stored)
            elif what == "patch" and stored:
                handle = max(1, len(stored) + 1 - number)
                if writer.patch(handle, PAUSE.fields[2].name, -7):
                    stored[handle - 1][1] = -7
                else:
                    assert number > ROOM // 2
            elif what == "drain" and sampler.sink is not None and sampler.lives:
                sampler.sink.write()
            elif what == "fail":
                full = not full
            elif what == "die":
                sampler.lives = False
                if sampler.sink is not None:
                    sampler.sink.let_go()
        full = False
        writer.close()
        assert not sampler.lives or sampler.sink.close() == 0
    (path,) = folder.glob("*.rec")
    records = RecordFile(path)
    rows = [list(row)[1 : len(PAUSE.fields)] for row in records.all()[[f.name for f in PAUSE.fields]]]
    assert rows == stored
    assert (records.dropped, records.closed) == (lost, True)


def test_memory_that_could_shrink_or_is_of_another_length_is_refused(tmp_path: Path) -> None:
    """A read of what is no longer there would end the reader."""
    with (tmp_path / "file").open("wb+") as file:
        file.truncate(2 << 20)
        with pytest.raises(OSError, match=r"no memory of a ring|Invalid argument"):
            RecordRing(PAUSE.record_bytes, (2 << 20) - 4096, file.fileno())
    ring = RecordRing(PAUSE.record_bytes, 1 << 20)
    with pytest.raises(OSError, match="no memory of a ring"):
        RecordRing(PAUSE.record_bytes, 2 << 20, ring.descriptor)
    os.close(ring.descriptor)
    ring.close()


@pytest.fixture
def receiver(folder: Path) -> Receiver:
    return Receiver(folder, listen(folder))


def test_what_another_user_delivers_is_not_taken(folder: Path, receiver: Receiver) -> None:
    """Its socket's name is no secret, and root's sampler writes where others may not."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")

    def does() -> bool:
        os.setuid(54321)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(socket_address(folder))
            connection.send(json.dumps({"put": "mine.json", "text": "forged"}).encode())
        return deliver(folder, {"put": "mine.json", "text": "forged"})

    assert in_a_child(does) == 0
    receiver.close()
    assert [path.name for path in folder.iterdir()] == ["run.json"]


def test_no_file_by_another_name_and_none_elsewhere_is_written(folder: Path, receiver: Receiver) -> None:
    before = [*folder.parent.rglob("*")]

    def does() -> bool:
        for name in ("../outside.txt", "/tmp/outside.txt", ".hidden.txt", "train.py", "a/b.json"):
            deliver(folder, {"put": name, "text": "x"})
            deliver(folder, {"add": name, "lines": "x\n", "most": 100, "once": False})
        return deliver(folder, {"put": "mine.json", "text": "{}"})

    assert in_a_child(does) == 1
    receiver.close()
    assert {*folder.parent.rglob("*")} == {*before, folder / "mine.json"}


def test_a_disk_that_is_full_when_a_recording_begins_takes_it_once_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        receiver = Receiver(disk, listen(disk))
        filler = disk / "filler"
        with contextlib.suppress(OSError):
            filler.write_bytes(bytes(1 << 20))
        go, told = os.pipe()
        child = os.fork()
        if child == 0:
            received_here.clear()
            writer = store(RecordWriter(disk, PAUSE, 3, 4711), 0)
            os.read(go, 1)
            store(writer, 1).close()
            os._exit(0)
        while not receiver._unmade:
            receiver.look()
        filler.unlink()
        os.write(told, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        receiver.close()
        assert RecordFile(disk / f"{PAUSE.name}-3-4711.rec").count() == 2


COUNT = 1000


@pytest.fixture
def rows() -> Rows:
    """Of two files."""
    found = np.zeros(COUNT, dtype=HOST.dtype)
    found["seq"] = np.concatenate((np.arange(1, 302), np.arange(1, COUNT - 300)))
    found["t_ns"] = np.arange(COUNT) * 7
    found["late_ns"] = NOT_MEASURED
    found["steal_pct"] = np.nan
    found["machine_busy_pct"][600:] = 3.5
    return found


@pytest.fixture
def columns(rows: Rows) -> Columns:
    return by_column(np.split(rows, (300, 301, 500)), HOST, 2 * COUNT)


@pytest.mark.parametrize(
    "which",
    [
        *(slice(None), slice(3, None), slice(None, None, -2), np.array([9, 2, 2, -1]), np.empty(0, dtype=np.int64)),
        *(np.arange(COUNT) > 4, np.arange(COUNT) % 3 == 1, np.ones(COUNT, dtype=bool), np.zeros(COUNT, dtype=bool)),
    ],
)
def test_by_column_records_say_what_they_say_as_rows(which: Any, rows: Rows, columns: Columns) -> None:
    for records, same in ((columns[which], rows[which]), (columns[which][1:], rows[which][1:])):
        assert np.array(records).tobytes() == same.tobytes()
        assert (len(records), records.size) == (len(same), len(same))
        if len(same):
            assert (records[-1].tobytes(), records[0].tobytes()) == (same[-1].tobytes(), same[0].tobytes())


def test_columns_take_no_memory_for_what_never_changes_and_are_not_written(rows: Rows, columns: Columns) -> None:
    assert columns["late_ns"].strides == columns[::2]["late_ns"].strides == (0,)
    assert columns["t_ns"].strides == (8,)
    for records in (columns, columns[::2]):
        with pytest.raises(ValueError, match="read-only"):
            records["t_ns"][0] = 1
    assert with_column(columns, "t_ns", rows["t_ns"] + 1)["t_ns"][0] == 1
    assert columns["t_ns"][0] == 0


@pytest.mark.parametrize("by", [by_column, None])
def test_some_fields_alone_hold_on_to_no_others(rows: Rows, columns: Columns, by: object) -> None:
    kept = only((columns if by else rows)[5:], ("t_ns", "late_ns"))
    assert len(kept) == COUNT - 5
    assert (kept[3:]["t_ns"] == rows["t_ns"][8:]).all()
    assert (kept["late_ns"] == NOT_MEASURED).all()
    with pytest.raises(ValueError, match="steal_pct"):
        kept["steal_pct"]


def test_another_c_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    reuse_memory()
