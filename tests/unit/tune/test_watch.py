from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.fakes.driver import wait_for
from whyidle.tune.bench import watchdog as watch
from whyidle.tune.bench.orphan_cleanup import members

LISTENS = """
import sys
from multiprocessing.connection import Listener
kept = Listener(family="AF_UNIX")
print(kept.address, flush=True)
sys.stdin.read()
"""
TUNER = f"""
import os, subprocess, sys
from multiprocessing.connection import Listener
from pathlib import Path
from whyidle.tune.bench.watchdog import watched
with watched(sys.argv[1], 0.2) as tell:
    gone = Listener(family="AF_UNIX")
    tell([Path(gone.address).parent])
    print(gone.address, flush=True)
    subprocess.run([sys.executable, "-c", {LISTENS!r}], start_new_session=True,
                   env={{**os.environ, "WATCH_TEST": sys.argv[1].split("=")[1]}})
"""


@contextmanager
def started(*command: str, mark: str | None = None) -> Iterator[subprocess.Popen[str]]:
    more = {} if mark is None else dict([mark.split("=")])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **more}) as process:
        try:
            yield process
        finally:
            process.kill()


def folder_of(process: subprocess.Popen[str]) -> Path:
    """Where it listens, as it says in its next line."""
    assert process.stdout is not None
    return Path(process.stdout.readline().strip()).parent


def test_what_hangs_ends_with_a_tuner_that_was_killed_and_its_temporary_folders_are_removed(tmp_path: Path) -> None:
    mark = f"WATCH_TEST={tmp_path}"
    with started(sys.executable, "-c", TUNER, mark) as tuner:
        folders = [folder_of(tuner) for _ in range(2)]
        assert all(folder.is_dir() for folder in folders)
        assert len(members(mark)) == 1
        tuner.send_signal(signal.SIGKILL)
        wait_for(lambda: not members(mark) and not any(folder.exists() for folder in folders))


def test_temporary_folders_of_a_training_that_ends_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a training whose tuner is gone: it ends on its own, and removes nothing."""
    now = 0.0
    mark = f"WATCH_TEST={tmp_path}"
    with started(sys.executable, "-c", LISTENS, mark=mark) as training:
        folder = folder_of(training)

        def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds
            training.kill()
            training.wait(60)

        monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
        assert folder.is_dir()
        watch._watch(mark, 3 * watch.LOOK_SECONDS)
        assert not folder.exists()
        assert now >= 3 * watch.LOOK_SECONDS


def test_what_is_no_longer_watched_is_left_alone(tmp_path: Path) -> None:
    mark = f"WATCH_TEST={tmp_path}"
    with started("sleep", "1000", mark=mark) as running:
        with watch.watched(mark, 0.0):
            pass
        # Whoever watched is gone by now.
        assert running.poll() is None
        assert len(members(mark)) == 1
