"""Ends what the tuner started, where the tuner itself was killed: run with a mark and seconds, and the tuner's pipe.

A training looks itself whether its tuner lives, but not while it waits for a batch that never comes. Where it ends by
itself, the temporary folders of its processes stay: those are looked for while it does, and named in the pipe before.

Ends everything that a training started, and removes what it could not remove itself. Launchers put what they start
into sessions of their own, so a process group is not enough. Every process of a training has the run folder in its
environment, as that was when its program began.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LISTENER = re.compile(rb" (/\S*/pymp-[^/\s]+)/listener-\S+$")
"""In /proc/net/unix: where a process of multiprocessing listens, in a temporary folder of its own."""
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


def end_all(mark: str, group: int | None = None, folders: Iterable[Path] = ()) -> None:
    """Kill the process group and every process so marked, and remove their temporary folders. Never raises.

    Args:
        folders: `temporary_folders` of processes that may have ended since.
    """
    found = set(folders)
    until = time.monotonic() + GONE_SECONDS
    while True:
        left = members(mark)
        pids = left if time.monotonic() > until else {pid for pid in left if _name(pid) != SHARES}
        for pid in pids:
            # None of them makes another folder after the look.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP)
        found |= temporary_folders(pids)
        if group is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left or (pids and time.monotonic() > until):
            break
        time.sleep(0.02)
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)


def temporary_folders(pids: set[int]) -> set[Path]:
    """Of multiprocessing, in which these processes listen. They remove them when they end well, and only then."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    folders = set()
    with suppress(OSError):
        for line in Path("/proc/net/unix").read_bytes().splitlines()[1:]:
            listener = _LISTENER.search(line)
            if listener and line.split()[6] in inodes:
                folders.add(Path(os.fsdecode(listener[1])))
    return folders


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _sockets(pid: int) -> set[bytes]:
    """Inodes of the sockets that a process has open."""
    found = set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                kind, _, inode = str(descriptor.readlink()).partition(":")
                if kind == "socket":
                    found.add(inode.strip("[]").encode())
    return found


GRACE_SECONDS = 10.0
"""For a training to find out by itself, and to end better than by being killed."""
LOOK_SECONDS = 0.02
"""Between looks meanwhile: less than a training takes to find out."""


@contextmanager
def watched(mark: str, grace_s: float = GRACE_SECONDS) -> Iterator[Callable[[Iterable[Path]], None]]:
    """Should this process end within, all that is so marked ends too (see `leftovers`).

    Gives what tells of `temporary_folders` whose processes may have ended by then.
    """
    # -P: what lies in the user's working folder must not stand in for a module of ours.
    command = [sys.executable, "-P", "-m", __name__, mark, str(grace_s)]
    nothing = subprocess.DEVNULL
    with subprocess.Popen(
        command, bufsize=0, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, start_new_session=True
    ) as process:
        pipe = process.stdin
        assert pipe is not None

        def tell(folders: Iterable[Path]) -> None:
            with suppress(OSError):
                pipe.write(b"".join(os.fsencode(folder) + b"\0" for folder in folders))

        try:
            yield tell
        finally:
            process.kill()


def _watch(mark: str, grace_s: float) -> None:
    told = sys.stdin.buffer.read()  # ends with the tuner
    folders = {Path(os.fsdecode(each)) for each in told.split(b"\0") if each}
    until = time.monotonic() + grace_s
    while time.monotonic() < until:
        folders |= temporary_folders(members(mark))
        time.sleep(LOOK_SECONDS)
    end_all(mark, folders=folders)


if __name__ == "__main__":
    _watch(sys.argv[1], float(sys.argv[2]))
