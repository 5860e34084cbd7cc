"""Datasets whose cost is known, importable by spawned workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


def spin(seconds: float) -> None:
    """Compute, as a decoder would."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Spin:
    """A transform that computes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, sample: torch.Tensor) -> torch.Tensor:
        spin(self.seconds)
        return sample + 0


class Planted(Dataset[torch.Tensor]):
    """Reads a file and waits as a slow disk would, transforms, and is slow at one index: several times as slow as at
    any that this process was asked for before."""

    def __init__(self, file: Path, samples: int, read_s: float = 0.0, transform_s: float = 0.0) -> None:
        self.files = [str(file)] * samples
        self.files[13 % samples] = f"{file.parent}/thirteen.jpg"
        self.file = str(file)
        self.read_s = read_s
        self.longest_s = 0.0
        self.transform = Spin(transform_s)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        begin = time.monotonic()
        if self.read_s:
            with open(self.file, "rb") as file:
                file.read()
            time.sleep(self.read_s)
        if index == 13:
            time.sleep(4 * self.longest_s)
        sample = self.transform(torch.full((3,), float(index)))
        self.longest_s = max(self.longest_s, time.monotonic() - begin)
        return sample


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        first, every = (info.id, info.num_workers) if info is not None else (0, 1)
        for index in range(first, self.samples, every):
            yield torch.full((3,), float(index))


class Keyed(Dataset[torch.Tensor]):
    """Makes whole batches."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(3) * index

    def __getitems__(self, indices: Any) -> list[torch.Tensor]:
        assert type(indices) is list
        return [self[index] for index in indices]
