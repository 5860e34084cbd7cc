"""The sampler as a process, started by `start_sampler` with what it is told as JSON."""

from __future__ import annotations

import signal
import sys
import time

START_NS = time.monotonic_ns()
# Ctrl-C and Ctrl-Z in a terminal go to everything started from it; the starter decides when the sampler ends, and the
# training whether it stops at all. Before the imports, which take a moment.
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTSTP, signal.SIG_IGN)
# Where the starter ignores this, which is inherited, nobody is told what py-spy came to.
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
# The starter may have blocked these for itself, which is inherited.
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGHUP})

import json  # noqa: E402
import socket  # noqa: E402
from pathlib import Path  # noqa: E402

from .loop import record  # noqa: E402
from .start import StackOptions  # noqa: E402

if __name__ == "__main__":
    folder, pid, rate, stacks, listen = json.loads(sys.argv[1])
    listener = None if listen is None else socket.socket(fileno=listen)
    sys.exit(record(Path(folder), pid, rate, START_NS, StackOptions(**stacks), listener))
