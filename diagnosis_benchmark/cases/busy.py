"""A program that keeps CPUs busy until its standard input ends: `python busy.py PROCESSES RESTS`.

It imports the standard library alone and is started by its path, so that it is there at once.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TURN_S = 0.3
"""Busy for so long, then at rest for as long, where it rests."""
LONGEST_S = 120.0
"""It ends by itself after so long."""


def main(processes: int, rests: bool) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for _ in range(processes - 1):
        if os.fork() == 0:
            break
    begin = time.monotonic()
    while time.monotonic() - begin < LONGEST_S:
        turn = time.monotonic() + (TURN_S if rests else TURN_S / 10)
        while time.monotonic() < turn:
            pass
        if select.select([0], [], [], TURN_S if rests else 0)[0]:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "True")
