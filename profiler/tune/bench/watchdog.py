"""Ends what the tuner started, where the tuner itself was killed: run with a mark and seconds, and the tuner's pipe.

A training looks itself whether its tuner lives, but not while it waits for a batch that never comes. Where it ends by
itself, the temporary folders of its processes stay: those are looked for while it does, and named in the pipe before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .orphan_cleanup import end_all, members, temporary_folders

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
