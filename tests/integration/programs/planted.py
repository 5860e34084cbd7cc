"""What a program spends its time on, as its own clock has it: spans written to $PLANTED_TRUTH at its end."""

import atexit
import os
import sys
import time
import types

import torch
from torch.utils.data import Dataset

if os.environ.get("PLANTED_WITHOUT_COMPILER"):
    # As in tests/support/runs.py: torch imports it with the first optimizer, which takes as long as all else.
    torch._dynamo = sys.modules["torch._dynamo"] = types.SimpleNamespace(
        disable=lambda function, *_, **__: function, graph_break=lambda: None
    )

_spans = []
_pid = os.getpid()


def spend(what, seconds):
    """Sleep, and remember what for: a part of the step, as `PARTS` of the analysis has it."""
    begin = time.monotonic_ns()
    time.sleep(seconds)
    _spans.append((what, begin, time.monotonic_ns()))


class Data(Dataset):
    """Eight numbers, and one to be learnt from them where `targets`; each sample takes its time."""

    def __init__(self, samples, targets=False, seconds=0.001, what="input"):
        self.samples, self.targets, self.seconds, self.what = samples, targets, seconds, what

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        spend(self.what, self.seconds)
        return (torch.randn(8), torch.randn(1)) if self.targets else torch.randn(8)


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
