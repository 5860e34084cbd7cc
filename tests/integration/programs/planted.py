"""What a program spends its time on, as its own clock has it: spans written to $PLANTED_TRUTH at its end."""

import atexit
import os
import sys
import time
import types

if os.environ.get("PLANTED_WITHOUT_COMPILER"):
    import torch

    # As in tests/support/runs.py: torch imports it with the first optimizer, which takes as long as all else.
    torch._dynamo = sys.modules["torch._dynamo"] = types.SimpleNamespace(
        disable=lambda function, *_, **__: function, graph_break=lambda: None
    )

_spans = []
_pid = os.getpid()


def spend(what, seconds):
    """Sleep, and remember what for: a part of the step, as `tests/support/own_clock.py` has it."""
    begin = time.monotonic_ns()
    time.sleep(seconds)
    _spans.append((what, begin, time.monotonic_ns()))


class spending:
    """Remembers how long a block took."""

    def __init__(self, what):
        self.what = what

    def __enter__(self):
        self.begin = time.monotonic_ns()

    def __exit__(self, *_):
        _spans.append((self.what, self.begin, time.monotonic_ns()))


@atexit.register
def _write():
    folder = os.environ.get("PLANTED_TRUTH")
    if folder and _spans and os.getpid() == _pid:
        with open(os.path.join(folder, f"{_pid}.txt"), "w") as file:
            file.writelines(f"{what} {begin} {end}\n" for what, begin, end in _spans)
