"""Which sample of a batch took longest, and which file it came from."""

from __future__ import annotations

import bisect
import operator
import os
from collections.abc import Iterator
from time import monotonic_ns
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from ...record.schema import NOT_MEASURED

FILE_LISTS = ("samples", "imgs", "images", "files", "paths", "filenames", "image_paths", "image_files")
"""Attributes under which datasets keep their files, a path or a tuple that begins with one for each sample."""
DEEPEST = 8
"""Subsets and concatenations a dataset is searched through."""


class Stamped:
    """Stands in for a batch's indices while torch's fetcher goes through them.

    The fetcher makes one sample between two indices that it asks for. So samples are timed without a function of
    ours around the dataset's.
    """

    __slots__ = ("_indices", "slowest", "slowest_ns")

    def __init__(self, indices: Any) -> None:
        self._indices = indices
        self.slowest: Any = None
        """Index of the sample that took longest so far."""
        self.slowest_ns = NOT_MEASURED

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[Any]:
        before = monotonic_ns()
        for index in self._indices:
            yield index
            now = monotonic_ns()
            if now - before > self.slowest_ns:
                self.slowest, self.slowest_ns = index, now - before
            before = now


def one_by_one(dataset: Any) -> bool:
    """Whether torch's fetcher asks for one sample after another, going through the indices as it does.

    Datasets with a `__getitems__` make whole batches, and may do with the indices what they like. torch's own Subset
    does the same as the fetcher unless what it is a part of has one.
    """
    if type(dataset) is Subset:
        return not callable(getattr(dataset.dataset, "__getitems__", None))
    return not getattr(dataset, "__getitems__", None)


def number_of(index: Any) -> int:
    """An index as a number; `NOT_MEASURED` for keys that are none."""
    try:
        number = operator.index(index)
    except TypeError:
        return NOT_MEASURED
    return number if abs(number) < 1 << 62 else NOT_MEASURED


def file_of(dataset: Any, index: Any) -> str | None:
    """The file of a sample, where its dataset keeps a list of them; nothing of the dataset is called."""
    for _ in range(DEEPEST):
        if isinstance(dataset, Subset):
            dataset, index = dataset.dataset, dataset.indices[index]
        elif isinstance(dataset, ConcatDataset):
            number = operator.index(index)
            part = bisect.bisect_right(dataset.cumulative_sizes, number)
            index = number - (dataset.cumulative_sizes[part - 1] if part else 0)
            dataset = dataset.datasets[part]
        else:
            break
    number = operator.index(index)
    held = getattr(dataset, "__dict__", {})
    for name in FILE_LISTS:
        files: Any = held.get(name)
        if type(files) not in (list, tuple) or not -len(files) <= number < len(files):
            continue
        entry = files[number]
        if type(entry) in (list, tuple) and entry:
            entry = entry[0]
        if isinstance(entry, str | os.PathLike):
            return os.fsdecode(entry)
    return None
