"""Storing records: round trips, torn tails, patches; files that workers continue."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.errors import RecordError
from whyidle.record import segment
from whyidle.record.names import LONGEST, Names, read_names
from whyidle.record.reader import Follower, RecordFile
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import BATCH, DEVICE, HEADER_BYTES, KINDS, NOT_MEASURED, SPAN, STEP, Kind
from whyidle.record.segment import RecordWriter


def body(kind: Kind, number: int) -> list[float]:
    """A record body whose every field can be told from every other."""
    return [number * 100 + place for place, _ in enumerate(kind.fields[1:])]


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda k: k.name)
def test_every_field_comes_back_as_stored(tmp_path: Path, kind: Kind) -> None:
    assert kind.record_bytes & (kind.record_bytes - 1) == 0
    assert (kind.dtype.itemsize, kind.body.size) == (kind.record_bytes, 8 * (len(kind.fields) - 1))
    writer = RecordWriter(tmp_path, kind)
    for number in range(3):
        writer.append(*body(kind, number))
    writer.close()
    records = RecordFile(writer.path).all()
    assert records["seq"].tolist() == [1, 2, 3]
    for place, field in enumerate(kind.fields[1:]):
        assert records[field.name].tolist() == [n * 100 + place for n in range(3)]


@given(counts=st.lists(st.integers(0, 700), min_size=1, max_size=5))
def test_a_follower_sees_every_record_once(tmp_path_factory: pytest.TempPathFactory, counts: list[int]) -> None:
    writer = RecordWriter(tmp_path_factory.mktemp("follow"), BATCH)
    follower = Follower(writer.path)
    seen: list[int] = []
    stored = 0
    for count in counts:
        for _ in range(count):
            stored += 1
            writer.append(*body(BATCH, stored))
        writer.flush()
        seen += follower.new()["step"].tolist()
    writer.close()
    seen += follower.new()["step"].tolist()
    assert seen == [n * 100 for n in range(1, stored + 1)]


@pytest.mark.parametrize("stored", [0, 1, 5, 1000])
def test_records_are_counted_without_reading_them(tmp_path: Path, stored: int) -> None:
    writer = RecordWriter(tmp_path, STEP)
    for number in range(stored):
        writer.append(*body(STEP, number))
    writer.flush()
    assert RecordFile(writer.path).count() == stored
    follower = Follower(writer.path, last=3)
    assert follower.new()["step"].tolist() == [n * 100 for n in range(max(0, stored - 3), stored)]
    assert follower.seen == stored
    assert follower.at(0)["step"].tolist() == ([0] if stored else [])
    assert not RecordFile(writer.path).header.closed
    writer.close()
    writer.close()
    assert writer.append(*STEP.missing()) == -1
    assert (RecordFile(writer.path).count(), RecordFile(writer.path).header.closed) == (stored, True)


@given(cut=st.integers(0, 40 * SPAN.record_bytes), wipe=st.integers(0, 7))
def test_a_torn_tail_is_cut_and_no_more(tmp_path_factory: pytest.TempPathFactory, cut: int, wipe: int) -> None:
    writer = RecordWriter(tmp_path_factory.mktemp("torn"), SPAN)
    for number in range(40):
        writer.append(*body(SPAN, number))
    writer.close()
    # Cut anywhere, and leave behind a record whose sequence number was not stored yet.
    os.truncate(writer.path, HEADER_BYTES + cut)
    whole = cut // SPAN.record_bytes
    with writer.path.open("r+b") as file:
        file.seek(HEADER_BYTES + whole * SPAN.record_bytes)
        file.write(b"\0" * (8 + wipe))
    assert RecordFile(writer.path).all()["device"].tolist() == [n * 100 for n in range(whole)]


def test_device_stamps_are_patched_into_stored_records(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, STEP)
    many = 100
    handles = [writer.append(*STEP.missing()) for _ in range(many)]
    writer.flush()
    handles += [writer.append(*STEP.missing()) for _ in range(2)]
    # The first is in the file already, the last only in memory.
    for handle in (handles[0], handles[-1]):
        assert writer.patch(handle, "device_copy_begin_ns", 1, 2, 3, 4 + handle)
    writer.close()
    records = RecordFile(writer.path).all()
    for handle in (handles[0], handles[-1]):
        row = records[handle - 1]
        assert (row["device_copy_begin_ns"], row["device_copy_end_ns"], row["device_begin_ns"]) == (1, 2, 3)
        assert row["device_end_ns"] == 4 + handle
    assert (records["device_end_ns"] == NOT_MEASURED).sum() == many
    assert np.array_equal(records["seq"], np.arange(1, many + 3))


def test_a_folder_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"cannot write .*No such file.*--out"):
        RecordWriter(tmp_path / "gone", STEP)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: b"not a record", "not a whyidle record file"),
        (lambda b: b[:100], "cut off within its first page"),
        (lambda b: b[:8] + (99).to_bytes(4, "little") + b[12:], "format 99; this whyidle reads format 1"),
        (lambda b: b[:48] + b"riddle".ljust(16, b"\0") + b[64:], "unknown kind: 'riddle'"),
    ],
)
def test_files_that_are_none_are_refused_with_one_sentence(tmp_path: Path, damage, message: str) -> None:
    writer = RecordWriter(tmp_path, DEVICE)
    writer.close()
    writer.path.write_bytes(damage(writer.path.read_bytes()))
    with pytest.raises(RecordError, match=message):
        RecordFile(writer.path)


def in_a_child(does: Callable[[], bool]) -> bool:
    """Whether it is so in a forked child."""
    child = os.fork()
    if child == 0:
        ok = False
        try:
            ok = does()
        finally:
            os._exit(0 if ok else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("told", [True, False], ids=["by Python", "by C code"])
def test_a_forked_child_leaves_the_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    writer = RecordWriter(tmp_path, STEP)
    first = writer.append(*body(STEP, 0))
    if not told:
        monkeypatch.setattr(writer, "forked", lambda: None)

    def does() -> bool:
        monkeypatch.undo()
        if told:
            assert writer.append(*body(STEP, 7)) == -1
        assert not writer.patch(first, "step", 99)
        writer.close()
        return True

    assert in_a_child(does)
    assert writer.append(*body(STEP, 1)) == 2
    writer.close()
    assert RecordFile(writer.path).all()["step"].tolist() == [0, 100]


def store(writer: RecordWriter, *steps: int) -> None:
    for step in steps:
        row = BATCH.missing()
        row[0] = step
        writer.append(*row)


def steps(folder: Path) -> list[int]:
    return [int(s) for s in open_run(folder).records(BATCH, (3, 4711))["step"]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return create_run(tmp_path / "run", {})


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("first", [0, 1, 15, 16, 63, 64, 500])
def test_the_next_worker_goes_on_where_the_last_one_stopped(folder: Path, first: int, closed: bool) -> None:
    child = os.fork()
    if child == 0:
        one = RecordWriter(folder, BATCH, 3, 4711, slot=True)
        store(one, *range(first))
        one.flush()
        if closed:
            one.close()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    two = RecordWriter(folder, BATCH, 3, 4711, slot=True)
    assert two.path.name == "batch-3-4711.w0.rec"
    store(two, *range(first, first + 100))
    two.flush()
    assert steps(folder) == list(range(first + 100))
    two.close()
    assert steps(folder) == list(range(first + 100))
    assert two.path.stat().st_size == HEADER_BYTES + (first + 100) * BATCH.record_bytes
    assert RecordFile(two.path).header.closed


def test_workers_that_run_at_a_time_have_a_file_each(folder: Path) -> None:
    writers = [RecordWriter(folder, BATCH, 3, 4711, slot=True) for _ in range(3)]
    assert len({writer.path for writer in writers}) == 3
    writers[1].close()
    assert RecordWriter(folder, BATCH, 3, 4711, slot=True).path == writers[1].path


def test_a_file_cut_within_its_header_begins_anew(folder: Path) -> None:
    path = folder / "batch-3-4711.w0.rec"
    path.write_bytes(b"STALL")
    writer = RecordWriter(folder, BATCH, 3, 4711, slot=True)
    assert writer.path == path
    store(writer, 7)
    writer.flush()
    assert steps(folder) == [7]


def test_a_full_disk_is_counted_over_all_workers_of_a_slot(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = RecordWriter(folder, BATCH, 3, 4711, slot=True)
    store(first, 1)
    first.close()
    really = os.pwrite

    def full(file: int, data: bytes, offset: int) -> int:
        if offset >= HEADER_BYTES:
            raise OSError(28, "No space left on device")
        return really(file, data, offset)

    monkeypatch.setattr(segment.os, "pwrite", full)
    for _ in range(2):
        writer = RecordWriter(folder, BATCH, 3, 4711, slot=True)
        store(writer, 2, 3)
        writer.close()
    assert open_run(folder).dropped() == 4
    assert steps(folder) == [1]


def test_names_are_the_same_for_all_writers_and_written_once(folder: Path) -> None:
    one, two = Names(folder), Names(folder)
    number = one.number("Resize")
    assert [two.number("Resize"), one.number("Resize")] == [number] * 2
    other = two.number("Normalise")
    assert read_names(folder) == {number: "Resize", other: "Normalise"}
    assert len((folder / "names.tsv").read_text().splitlines()) == 2
    assert Names(folder / "missing").number("Resize") == NOT_MEASURED


def test_names_cannot_harm_whoever_reads_them(folder: Path) -> None:
    names = Names(folder)
    number = names.number("a\tb\n\x1b[2Jc" + "x" * 1000 + "end")
    read = read_names(folder)[number]
    assert len(read) == LONGEST
    assert read.endswith("end")
    assert "\x1b" not in (folder / "names.tsv").read_text()
