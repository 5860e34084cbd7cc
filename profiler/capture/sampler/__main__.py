"""`python -m whyidle.capture.sampler RUN_FOLDER --pid PID [--rate HZ]`: samples into a run folder."""

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

import argparse  # noqa: E402
import socket  # noqa: E402
from pathlib import Path  # noqa: E402

from .loop import record  # noqa: E402
from .start import StackOptions  # noqa: E402

HIGHEST_RATE = 50.0


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate <= HIGHEST_RATE:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {HIGHEST_RATE:g} samples per second")
    return rate


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m whyidle.capture.sampler",
        description="Records what host and accelerators do, until standard input ends.",
    )
    parser.add_argument("folder", type=Path, metavar="RUN_FOLDER")
    parser.add_argument("--pid", type=int, required=True, help="root of the training's process tree")
    parser.add_argument("--rate", type=_rate, default=5.0, metavar="HZ", help="samples per second (default: 5)")
    parser.add_argument("--stacks", type=float, default=0.0, metavar="HZ", help="stack samples per second (0: none)")
    parser.add_argument("--no-source", action="store_true", help="record no lines of source")
    parser.add_argument("--not-within", action="store_true", help="no process samples its own stacks")
    parser.add_argument("--listen", type=int, metavar="FD", help="socket that processes deliver to")
    options = parser.parse_args(arguments)
    listener = None if options.listen is None else socket.socket(fileno=options.listen)
    stacks = StackOptions(min(options.stacks, HIGHEST_RATE), not options.no_source, not options.not_within)
    return record(options.folder.absolute(), options.pid, options.rate, START_NS, stacks, listener)


if __name__ == "__main__":
    sys.exit(main())
