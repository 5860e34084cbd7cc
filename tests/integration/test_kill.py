"""kill -9 at random moments, and a disk that is really full."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from stallscope.record.reader import RecordFile
from stallscope.record.schema import STEP

WRITER = """
import mmap, os, sys, time
from pathlib import Path
from types import SimpleNamespace
from stallscope.capture.session import Session
from stallscope.capture.thinning import Thinning

class Cpu:
    # The processor as the device, without importing torch for it.
    asynchronous = False
    now = staticmethod(time.monotonic_ns)
    memory_used = allocation_retries = staticmethod(lambda: None)
    clock_uncertainty_ns = staticmethod(lambda: 0)
    settle = staticmethod(lambda limit: None)
    record = staticmethod(lambda: SimpleNamespace(done=lambda: True))

folder = Path(sys.argv[1])
class Every(Thinning):
    # Steps that are let pass leave no record to lose.
    def first(self):
        return 1 << 60

session = Session(folder, Cpu(), thinning=Every())
with open(folder / "done", "r+b") as file:
    progress = mmap.mmap(file.fileno(), 8)

class Batch:
    samples, nbytes, trace = 4, 100, None

def batches():
    while True:
        yield Batch

done = 0
for _ in session.fetches(batches, 0):
    # This fetch ended the step before: it is stored, and whoever kills us may count on it.
    progress[:8] = done.to_bytes(8, "little")
    session.steps.compute_begin()
    session.steps.optimizer_end()
    done += 1
"""


def test_kill_at_any_moment_loses_at_most_the_step_in_flight(tmp_path: Path) -> None:
    chance = random.Random(4711)
    stored = []
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "done").write_bytes(bytes(8))
        child = subprocess.Popen([sys.executable, "-c", WRITER, folder])
        deadline = time.monotonic() + 60
        while not struct.unpack("<q", (folder / "done").read_bytes())[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.15)
        child.send_signal(signal.SIGKILL)
        child.wait()
        (promised,) = struct.unpack("<q", (folder / "done").read_bytes())
        (path,) = folder.glob("step-*.rec")
        records = RecordFile(path)
        assert not records.header.closed
        steps = records.all()
        # `promised` steps had ended; one more may have been stored before the count was.
        assert promised <= len(steps) <= promised + 1
        assert np.array_equal(steps["step"], np.arange(len(steps)))
        assert (steps["step_end_ns"] >= steps["fetch_begin_ns"]).all()
        stored.append(len(steps))
    assert min(stored) > 0
    assert len(set(stored)) > 10  # the kills did hit different moments


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_is_really_full_ends_recording_and_not_the_training(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    script = """
import sys
from pathlib import Path
from stallscope.record.schema import STEP
from stallscope.record.segment import RecordWriter
writer = RecordWriter(Path(sys.argv[1]), STEP)
for number in range(5000):
    writer.append(*[number] * (len(STEP.fields) - 1))
writer.close()
print(writer.stored, writer.dropped)
"""
    try:
        shown = subprocess.run([sys.executable, "-c", script, disk], capture_output=True, text=True)
        assert shown.returncode == 0, shown.stderr
        stored, dropped = map(int, shown.stdout.split())
        assert stored + dropped == 5000
        assert stored > 100
        assert dropped > 100
        (path,) = disk.glob("step-*.rec")
        assert len(RecordFile(path).all()) == stored
        assert RecordFile(path).header.dropped == dropped
        assert STEP.record_bytes * stored < 256 * 1024
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_folder_that_may_not_be_written_is_one_message(tmp_path: Path) -> None:
    # A file where a folder should be: no permission bits stop root.
    (tmp_path / "file").write_text("")
    shown = subprocess.run(
        [sys.executable, "-m", "stallscope", "compare", "ssd", "--data", tmp_path, "--out", tmp_path / "file" / "x"],
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 2
    assert shown.stderr.startswith("stallscope: ")
    assert shown.stderr.count("\n") == 1
    assert "Traceback" not in shown.stderr
