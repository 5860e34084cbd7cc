"""Ends what the tuner started, where the tuner itself was killed: run with a mark and seconds, and the tuner's pipe.

A training looks itself whether its tuner lives, but not while it waits for a batch that never comes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .leftovers import end_all

GRACE_SECONDS = 10.0
"""For a training to find out by itself, and to end better than by being killed."""


@contextmanager
def watched(mark: str, grace_s: float = GRACE_SECONDS) -> Iterator[None]:
    """Should this process end within, all that is so marked ends too (see `leftovers`)."""
    # -P: what lies in the user's working folder must not stand in for a module of ours.
    command = [sys.executable, "-P", "-m", __name__, mark, str(grace_s)]
    nothing = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, start_new_session=True
    ) as process:
        try:
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    sys.stdin.buffer.read()  # ends with the tuner
    time.sleep(float(sys.argv[2]))
    end_all(sys.argv[1])
