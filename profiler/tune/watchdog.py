"""Ends what the tuner started, where the tuner itself was killed: run with a mark, a folder and seconds, and a pipe
from the tuner.

A training looks itself whether its tuner lives, but not while it waits for a batch that never comes. Launchers put what
they start into sessions of their own, so a process group is not enough. Every process of a training has the run folder
in its environment, as that was when its program began.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SHARES = "torch_shm_manag"
"""Name in /proc of torch's process that removes the shared memory of others once they are gone, and then ends."""
GONE_SECONDS = 5.0
"""How long killed processes may take to be gone."""


def members(mark: str) -> set[int]:
    """Processes with this `NAME=value` in their environment. Processes of others cannot be looked into."""
    wanted = mark.encode() + b"\0"
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            begin = (entry / "environ").read_bytes() + b"\0"
            if begin.startswith(wanted) or b"\0" + wanted in begin:
                found.add(int(entry.name))
    return found


def end_all(mark: str, group: int | None = None) -> None:
    """Kill the process group and every process so marked. Never raises."""
    until = time.monotonic() + GONE_SECONDS
    while True:
        left = members(mark)
        pids = left if time.monotonic() > until else {pid for pid in left if _name(pid) != SHARES}
        if group is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left or (pids and time.monotonic() > until):
            break
        time.sleep(0.02)


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


GRACE_SECONDS = 10.0
"""For a training to find out by itself, and to end better than by being killed."""


@contextmanager
def watched(mark: str, folder: Path, grace_s: float = GRACE_SECONDS) -> Iterator[None]:
    """Should this process end within, all that is so marked ends too, and the folder is removed."""
    # -P: what lies in the user's working folder must not stand in for a module of ours.
    command = [sys.executable, "-P", "-m", __name__, mark, str(folder), str(grace_s)]
    nothing = subprocess.DEVNULL
    with subprocess.Popen(
        command, bufsize=0, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, start_new_session=True
    ) as process:
        try:
            yield
        finally:
            process.kill()


def _watch(mark: str, folder: Path, grace_s: float) -> None:
    sys.stdin.buffer.read()  # ends with the tuner
    time.sleep(grace_s)
    end_all(mark)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _watch(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
