"""Records on their way from the process that stores them through shared memory into a file, whoever writes it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.small_disk import small_disk
from whyidle.capture.sampler.receiver import Receiver, listen
from whyidle.record import segment
from whyidle.record.files import deliver, received_here, socket_address
from whyidle.record.reader import RecordFile
from whyidle.record.schema import PAUSE, Kind
from whyidle.record.segment import RecordRing, RecordSink, RecordWriter

ROOM = 64
"""Records that memory holds."""
KIND = PAUSE
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.integers(1, ROOM)),
        st.tuples(st.just("patch"), st.integers(1, ROOM)),
        st.tuples(st.just("drain"), st.just(0)),
        st.tuples(st.just("fail"), st.just(0)),
        st.tuples(st.just("die"), st.just(0)),
    ),
    max_size=40,
)


class Sampler:
    """Takes the memory that a writer hands over, as the sampler does, without a socket between."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lives = True
        self.drain: RecordSink | None = None

    def deliver(self, _folder: Path, message: dict[str, Any] | None = None, descriptor: int = -1) -> bool:
        if self.lives and message is not None:
            kind: Kind = KIND
            ring = RecordRing(kind.record_bytes, message["length"], descriptor)
            self.drain = RecordSink(ring, self.folder, kind, message["rank"], message["pid"], message["slot"])
        return self.lives


def body(number: int) -> list[int]:
    return [number * 10 + place for place in range(len(KIND.fields) - 1)]


@pytest.mark.parametrize("slot", [False, True])
@example(operations=[("store", 1), ("drain", 0), ("patch", 1), ("fail", 0), ("drain", 0), ("die", 0)])
@given(operations=OPERATIONS)
def test_the_file_holds_what_was_stored_and_not_said_to_be_lost(
    tmp_path_factory: pytest.TempPathFactory, slot: bool, operations: list[tuple[str, int]]
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
        writer = RecordWriter(folder, KIND, 3, 4711, slot=slot, length=ROOM * KIND.record_bytes)
        stored: list[list[int]] = []
        lost = 0
        for what, number in operations:
            if what == "store":
                for _ in range(number):
                    made = body(len(stored) + lost)
                    handle = writer.append(*made)
                    if handle < 0:
                        lost += 1
                    else:
                        stored.append(made)
                        assert handle == len(stored)
            elif what == "patch" and stored:
                handle = max(1, len(stored) + 1 - number)
                if writer.patch(handle, KIND.fields[2].name, -7):
                    stored[handle - 1][1] = -7
                else:
                    assert number > ROOM // 2
            elif what == "drain" and sampler.drain is not None and sampler.lives:
                sampler.drain.write()
            elif what == "fail":
                full = not full
            elif what == "die":
                sampler.lives = False
                if sampler.drain is not None:
                    sampler.drain.let_go()
        full = False
        if sampler.lives:
            writer.close()
            assert sampler.drain.close() == 0
        else:
            writer.close()
    (path,) = folder.glob("*.rec")
    records = RecordFile(path)
    rows = [list(row)[1 : len(KIND.fields)] for row in records.all()[[f.name for f in KIND.fields]]]
    assert rows == stored
    assert (records.header.dropped, records.header.closed) == (lost, True)


def test_memory_that_could_shrink_or_is_of_another_length_is_refused(tmp_path: Path) -> None:
    """A read of what is no longer there would end the reader."""
    with (tmp_path / "file").open("wb+") as file:
        file.truncate(2 << 20)
        with pytest.raises(OSError, match=r"no memory of a ring|Invalid argument"):
            RecordRing(KIND.record_bytes, (2 << 20) - 4096, file.fileno())
    ring = RecordRing(KIND.record_bytes, 1 << 20)
    with pytest.raises(OSError, match="no memory of a ring"):
        RecordRing(KIND.record_bytes, 2 << 20, ring.descriptor)
    os.close(ring.descriptor)
    ring.close()


def test_what_another_user_delivers_is_not_taken(tmp_path: Path) -> None:
    """Its socket's name is no secret, and root's sampler writes where others may not."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    receiver = Receiver(tmp_path, listen(tmp_path))
    child = os.fork()
    if child == 0:
        received_here.clear()
        os.setuid(54321)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(socket_address(tmp_path))
            connection.send(json.dumps({"put": "run.json", "text": "forged"}).encode())
        os._exit(deliver(tmp_path, {"put": "run.json", "text": "forged"}))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    receiver.close()
    assert list(tmp_path.iterdir()) == []


def test_no_file_by_another_name_and_none_elsewhere_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    receiver = Receiver(folder, listen(folder))
    child = os.fork()
    if child == 0:
        received_here.clear()
        for name in ("../outside.txt", "/tmp/outside.txt", ".hidden.txt", "train.py", "a/b.json"):
            deliver(folder, {"put": name, "text": "x"})
            deliver(folder, {"add": name, "lines": "x\n", "most": 100, "once": False})
        os._exit(deliver(folder, {"put": "mine.json", "text": "{}"}))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    receiver.close()
    assert [path.name for path in folder.iterdir()] == ["mine.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


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
            writer = RecordWriter(disk, KIND, 3, 4711)
            writer.append(*body(0))
            os.read(go, 1)
            writer.append(*body(1))
            writer.close()
            os._exit(0)
        while not receiver._unmade:
            receiver.look()
        filler.unlink()
        os.write(told, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        receiver.close()
        assert RecordFile(disk / f"{KIND.name}-3-4711.rec").count() == 2
