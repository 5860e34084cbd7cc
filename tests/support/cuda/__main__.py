"""Runs a script on a machine of ordinary devices: `python -m support.cuda DEVICES SCRIPT [ARGUMENT…]`.

So a command that is recorded as users record theirs, in a process of its own, can be one that trains on CUDA. Its clock
is virtual: what it says of its time is exact, and nobody waits for it.
"""

from __future__ import annotations

import runpy
import sys

import pytest

from . import GpuSpec, Machine, installed


def main() -> None:
    devices, script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    # Never undone: a recording ends when Python does.
    installed(Machine(*(GpuSpec() for _ in range(int(devices)))), pytest.MonkeyPatch())
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
