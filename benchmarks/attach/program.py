"""Trainings with planted shares, which measure themselves: `program.py MODE RESULT`.

Each part of a step goes on until its planned time is over, so the shares are the same on any machine; what they
really were, on a machine that others use too, the program's own clocks say. It trains until SIGTERM; then RESULT gets
the stamp of each step's end and the time spent in each class until then. RESULT is made, empty, when training begins.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

if __name__ == "__main__":
    # Torch imports it with the first optimizer, which takes a while; who imports this file may need it.
    compiler: Any = SimpleNamespace(disable=lambda function, *_, **__: function, graph_break=lambda: None)
    torch._dynamo = sys.modules["torch._dynamo"] = compiler

BATCH = 8
LONGEST_S = 90.0
"""Should nobody end it."""


class Samples(Dataset[torch.Tensor]):
    """`sleeping` and `busy`: seconds a sample takes, waiting and on the CPU."""

    def __init__(self, sleeping: float = 0.0, busy: float = 0.0) -> None:
        self.sleeping, self.busy = sleeping, busy

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.busy:
            decode(self.busy)
        if self.sleeping:
            time.sleep(self.sleeping)
        return torch.full((256,), float(index % 7))


def decode(seconds: float) -> int:
    end, total = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        total += sum(range(200))
    return total


def bookkeeping(seconds: float) -> None:
    end, table = time.perf_counter() + seconds, {}
    while time.perf_counter() < end:
        table = {str(n): n * n for n in range(100)}
    table.clear()


class Clock:
    """Adds up what the program does, by class."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self.steps: list[tuple[int, dict[str, int]]] = []

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        begin = time.monotonic_ns()
        yield
        self.total[what] += time.monotonic_ns() - begin

    def step(self) -> None:
        self.steps.append((time.monotonic_ns(), dict(self.total)))


def again(seconds: float, do: Callable[[], object]) -> None:
    """Do it at least once, and until the time is over."""
    end = time.perf_counter() + seconds
    while True:
        do()
        if time.perf_counter() >= end:
            return


def main(mode: str, result: str) -> None:
    torch.set_num_threads(1)
    loaders = {"workers": (Samples(sleeping=0.01), 1), "serial": (Samples(sleeping=0.003, busy=0.004), 0)}
    dataset, workers = loaders.get(mode, (Samples(), 0))
    planned = {"compute": (0.04, 0.05, 0.01), "python": (0.01, 0.01, 0.04)}
    forward, backward, optimizing = planned.get(mode, (0.015, 0.02, 0.005))
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)])
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    log = logging.getLogger("training")
    log.addHandler(logging.FileHandler(os.devnull))
    clock = Clock()
    batches = iter(DataLoader(dataset, batch_size=BATCH, num_workers=workers))
    end = time.monotonic() + LONGEST_S
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    with tempfile.TemporaryDirectory() as folder:
        while not stop and time.monotonic() < end:
            with clock("data"):
                batch = next(batches)
            with clock("forward"):
                again(forward, lambda batch=batch: model(batch))
                loss = model(batch).pow(2).mean()
            with clock("backward"):
                again(backward, lambda loss=loss: loss.backward(retain_graph=True))
            with clock("optimizer"):
                again(optimizing, optimizer.step)
            optimizer.zero_grad()
            if mode == "checkpoint":
                with clock("checkpoint"):
                    again(0.05, lambda: torch.save(model.state_dict(), f"{folder}/model.pt"))
                with clock("logging"):
                    again(0.02, lambda: log.warning("loss %s", "small"))
            elif mode == "python":
                with clock("python"):
                    bookkeeping(0.03)
            clock.step()
            if len(clock.steps) == 1:
                Path(result).touch()
    Path(result).write_text(json.dumps(clock.steps))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
