"""Files that workers continue one after another, and the names that records point to."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from whyidle.record import sink
from whyidle.record.names import LONGEST, Names, read_names
from whyidle.record.reader import RecordFile
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import BATCH, HEADER_BYTES, NOT_MEASURED
from whyidle.record.segment import RecordWriter


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

    monkeypatch.setattr(sink.os, "pwrite", full)
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
