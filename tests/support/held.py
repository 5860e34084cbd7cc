"""A training that stays where it is, so that any look at it sees the same: `held.py MODE READY`.

making: it makes a sample itself, and is never done. waiting: it waits for one that a worker never finishes. The file
READY is made when it is there. It ends by a signal, or after some minutes.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

if __name__ == "__main__":
    # As in `runs.WITHOUT_COMPILER`.
    compiler: Any = SimpleNamespace(disable=lambda function, *_, **__: function, graph_break=lambda: None)
    torch._dynamo = sys.modules["torch._dynamo"] = compiler

MAKING, WAITING = "making", "waiting"
BATCH = 4
LONGEST_S = 240.0
"""Should nobody end it."""


class Samples(Dataset[torch.Tensor]):
    """The first two batches are there at once."""

    def __init__(self, ready: Path) -> None:
        self.ready, self.training = ready, os.getpid()

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= 2 * BATCH:
            if get_worker_info() is None:
                self.ready.touch()
            decode(self.training)
        return torch.full((8,), float(index))


def decode(training: int) -> None:
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end and training in (os.getpid(), os.getppid()):
        time.sleep(0.02)


def main(mode: str, ready: Path) -> None:
    torch.set_num_threads(1)
    net = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    batches = iter(DataLoader(Samples(ready), batch_size=BATCH, num_workers=int(mode == WAITING)))
    for step in range(3):
        if mode == WAITING and step == 2:
            ready.touch()
        net(next(batches)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
