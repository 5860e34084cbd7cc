from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whyidle.tune.leftovers import members
from whyidle.tune.watch import watched

TUNER = """
import os, subprocess, sys, time
from whyidle.tune.watch import watched
with watched(sys.argv[1], 0.2):
    subprocess.Popen(["sleep", "1000"], env={**os.environ, "WATCH_TEST": sys.argv[1].split("=")[1]},
                     stdout=subprocess.DEVNULL, start_new_session=True)
    print("there", flush=True)
    time.sleep(1000)
"""


def gone(mark: str) -> bool:
    until = time.monotonic() + 60
    while members(mark) and time.monotonic() < until:
        time.sleep(0.1)
    return not members(mark)


def test_what_hangs_ends_with_a_tuner_that_was_killed(tmp_path: Path) -> None:
    mark = f"WATCH_TEST={tmp_path}"
    tuner = subprocess.Popen([sys.executable, "-c", TUNER, mark], stdout=subprocess.PIPE, text=True)
    assert tuner.stdout is not None
    assert tuner.stdout.readline() == "there\n"
    assert len(members(mark)) == 1
    tuner.send_signal(signal.SIGKILL)
    tuner.wait()
    tuner.stdout.close()
    assert gone(mark)


LISTENS = """
import os, subprocess, sys, time
from multiprocessing.connection import Listener
from pathlib import Path
from whyidle.tune.watch import watched
child = "from multiprocessing.connection import Listener; import os, time; "
child += "kept = Listener(family='AF_UNIX'); print(kept.address, flush=True); "
ends = sys.argv[2] == "ends"
# As a training whose tuner is gone: it ends on its own, and removes nothing.
child += f"time.sleep({1.5 if ends else 1000}); os._exit(0)"
with watched(sys.argv[1], 3.0 if ends else 0.2) as tell:
    gone = Listener(family="AF_UNIX")
    tell([Path(gone.address).parent])
    print(gone.address, flush=True)
    subprocess.Popen([sys.executable, "-c", child], start_new_session=True,
                     env={**os.environ, "WATCH_TEST": sys.argv[1].split("=")[1]})
    time.sleep(1000)
"""


@pytest.mark.parametrize("way", ["ends", "hangs"])
def test_temporary_folders_of_a_training_whose_tuner_was_killed_are_removed(tmp_path: Path, way: str) -> None:
    mark = f"WATCH_TEST={tmp_path}"
    tuner = subprocess.Popen([sys.executable, "-c", LISTENS, mark, way], stdout=subprocess.PIPE, text=True)
    assert tuner.stdout is not None
    folders = [Path(tuner.stdout.readline().strip()).parent for _ in range(2)]
    assert all(folder.is_dir() for folder in folders)
    tuner.send_signal(signal.SIGKILL)
    tuner.wait()
    tuner.stdout.close()
    assert gone(mark)
    until = time.monotonic() + 60
    while any(folder.exists() for folder in folders) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(folder.exists() for folder in folders)


def test_what_is_no_longer_watched_is_left_alone(tmp_path: Path) -> None:
    mark = f"WATCH_TEST={tmp_path}"
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, "WATCH_TEST": str(tmp_path)}) as running:
        try:
            with watched(mark, 0.0):
                pass
            time.sleep(0.5)
            assert running.poll() is None
        finally:
            running.kill()
