from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from stallscope.tune.leftovers import members
from stallscope.tune.watch import watched

TUNER = """
import os, subprocess, sys, time
from stallscope.tune.watch import watched
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
