"""Whether a data set has worker processes of its own: told by what it holds, and nothing of it is called."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from support.hooked import learn, recording
from whyidle.record.run import open_run
from whyidle.record.schema import EVENT, EventKind, LoaderFlag

pytestmark = pytest.mark.usefixtures("either_path")


class Ones(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(4)


class Queue(Dataset[torch.Tensor]):
    """As torchio's: its samples come from a loader within it, which is made when the first one is asked for."""

    def __init__(self, workers: int) -> None:
        self.workers, self.samples = workers, iter(())

    def __len__(self) -> int:
        return 12

    @property
    def loader(self) -> Any:
        raise AssertionError("nothing of the data set is called")

    def __getitem__(self, index: int) -> Any:
        sample = next(self.samples, None)
        if sample is None:
            self.samples = iter(forked(self.workers))
            sample = next(self.samples)
        return sample


def forked(workers: int) -> Any:
    context = "fork" if workers else None
    return DataLoader(Ones(), batch_size=None, num_workers=workers, multiprocessing_context=context)


class Looping(IterableDataset[torch.Tensor]):
    """Keeps its loader nowhere but in its loop."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from forked(2)


class Processes(Dataset[torch.Tensor]):
    """A process of its own makes the samples."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self.made = context.SimpleQueue()
        self.worker = context.Process(target=lambda: [self.made.put([1.0] * 4) for _ in range(12)], daemon=True)
        self.worker.start()

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(self.made.get())


class Pooled(Ones):
    """Threads read ahead: each worker could have some of its own."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(2)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.threads.submit(super().__getitem__, index).result()


INNER = LoaderFlag.OWN_WORKERS + 2 * LoaderFlag.INNER_WORKER


@pytest.mark.parametrize(
    ("data", "flags"),
    [
        (lambda: Queue(2), INNER),
        (lambda: Subset(Queue(2), range(12)), INNER),
        (Looping, INNER | LoaderFlag.ITERABLE),
        (Processes, LoaderFlag.OWN_WORKERS),
        (lambda: Queue(0), 0),
        (Pooled, 0),
    ],
    ids=["queue", "within another", "in a loop", "processes", "a loader without workers", "threads"],
)
def test_workers_of_the_data_set_s_own_are_told(tmp_path: Path, data: Callable[[], Any], flags: int) -> None:
    net = torch.nn.Linear(4, 1)
    # Another loader's worker lives all the while: that is none of the data set's.
    others = iter(forked(1))
    with recording(tmp_path):
        for batch in DataLoader(data(), batch_size=4):
            learn(net, batch)
    events = open_run(tmp_path / "run").records(EVENT)
    assert events["value"][events["what"] == EventKind.LOADER_FLAGS].tolist() == [flags]
    assert next(others) is not None
