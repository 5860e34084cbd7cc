"""kill -9 at random moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import pytest

from whyidle.capture.sampler.receiver import Receiver, listen
from whyidle.record.reader import RecordFile

WRITER = """
import mmap, os, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
from whyidle.capture.session import Session
from whyidle.capture.steps import Thinning

class Cpu:
    # The processor as the device, without importing torch for it.
    asynchronous = False
    now = staticmethod(time.monotonic_ns)
    memory_used = allocation_retries = staticmethod(lambda: None)
    clock_uncertainty_ns = staticmethod(lambda: 0)
    settle = staticmethod(lambda limit: None)
    record = staticmethod(lambda: SimpleNamespace(done=lambda: True))

class Every(Thinning):
    # Steps that are let pass leave no record to lose.
    def first(self):
        return 1 << 60

def train(folder):
    session = Session(folder, Cpu(), thinning=Every())
    with open(folder / "done", "r+b") as file:
        progress = mmap.mmap(file.fileno(), 8)
    steps, done = session.steps, 0
    while done < 2000:
        steps.fetch_begin(0, done == 0, None)
        # This fetch ended the step before: it is stored, and whoever kills us may count on it.
        progress[:8] = done.to_bytes(8, "little")
        steps.fetch_end(4, begins=True)
        steps.optimizer_end()
        done += 1
    signal.pause()

# A process for each folder: all of them have imported what they need already.
for line in sys.stdin:
    child = os.fork()
    if not child:
        train(Path(line.strip()))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture
def writers() -> Iterator[Writers]:
    with Writers() as writers:
        yield writers


class Writers:
    """Starts processes that record steps until they are killed, one at a time."""

    def __enter__(self) -> Self:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([sys.executable, "-c", WRITER], text=True, **pipes)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def begin(self, folder: Path) -> int:
        """Its process id."""
        self._process.stdin.write(f"{folder}\n")
        self._process.stdin.flush()
        return self._number()

    def ended(self) -> int:
        """The exit code of the one that was begun last."""
        return self._number()

    def _number(self) -> int:
        return int(self._process.stdout.readline())


def test_kill_at_any_moment_loses_at_most_the_step_in_flight(tmp_path: Path, writers: Writers) -> None:
    chance = random.Random(4711)
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        progress = folder / "done"
        progress.write_bytes(bytes(8))
        receiver = Receiver(folder, listen(folder))
        child = writers.begin(folder)
        # So many steps at least have ended, and how far the next one has come is chance.
        least = chance.randint(1, 500)
        deadline = time.monotonic() + 120
        while ended(progress) < least:
            assert time.monotonic() < deadline, f"{ended(progress)} of {least} steps"
            receiver.look()
        os.kill(child, signal.SIGKILL)
        assert writers.ended() == -signal.SIGKILL
        promised = ended(progress)
        receiver.close()
        (path,) = folder.glob("step-*.rec")
        records = RecordFile(path)
        assert not records.closed
        steps = records.all()
        # `promised` steps had ended; one more may have been stored before the count was.
        assert least <= promised <= len(steps) <= promised + 1
        assert np.array_equal(steps["step"], np.arange(len(steps)))
        assert (steps["step_end_ns"] >= steps["fetch_begin_ns"]).all()


def ended(progress: Path) -> int:
    """Steps, as their writer says."""
    return int.from_bytes(progress.read_bytes(), "little")
