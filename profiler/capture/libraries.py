"""Libraries whose iterators are no torch DataLoader: which of their methods make iterators and batches.

Read also by processes that never train, so this imports nothing of torch.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class Gives(Enum):
    """What a method that is replaced gives."""

    BATCH = auto()
    """The next batch of the object it is called on."""
    ITERATOR = auto()
    """An iterator whose own method gives batches, and is replaced too."""
    GENERATOR = auto()
    """An iterator of a class that is not ours to change, as a generator is."""


@dataclass(frozen=True)
class Source:
    """One method of a library."""

    library: str
    module: str
    owner: str
    method: str
    gives: Gives
    example: tuple[Any, ...] = ()
    """Arguments it must take besides the object itself."""
    count: str = "leading"
    """How samples are counted, see `hooks/fetches.py`; default: by the first tensor of a batch."""
    ends: type[Exception] = StopIteration


_DALI = "nvidia.dali.plugin.pytorch"
_SPDL = "spdl.dataloader"

SOURCES = (
    *(
        Source("NVIDIA DALI", _DALI, owner, method, gives, count="dali")
        for owner in ("DALIGenericIterator", "DALIRaggedIterator")
        for method, gives in (("__next__", Gives.BATCH), ("__iter__", Gives.ITERATOR))
    ),
    Source("SPDL", "spdl.pipeline", "Pipeline", "get_item", Gives.BATCH, ends=EOFError),
    Source("SPDL", _SPDL, "DataLoader", "__iter__", Gives.GENERATOR),
    Source("SPDL", _SPDL, "PyTorchDataLoader", "__iter__", Gives.GENERATOR),
    Source("SPDL", _SPDL, "CacheDataLoader", "__iter__", Gives.GENERATOR),
    Source("WebDataset", "webdataset.pipeline", "DataPipeline", "__iter__", Gives.GENERATOR, count="webdataset"),
    Source("FFCV", "ffcv.loader.loader", "Loader", "__iter__", Gives.ITERATOR),
    Source("FFCV", "ffcv.loader.epoch_iterator", "EpochIterator", "__next__", Gives.BATCH),
    Source("datasets", "datasets.arrow_dataset", "Dataset", "__iter__", Gives.GENERATOR, count="one"),
    Source("datasets", "datasets.arrow_dataset", "Dataset", "iter", Gives.GENERATOR, (1,), "columns"),
    Source("datasets", "datasets.iterable_dataset", "IterableDataset", "__iter__", Gives.GENERATOR, count="one"),
    Source("datasets", "datasets.iterable_dataset", "IterableDataset", "iter", Gives.GENERATOR, (1,), "columns"),
    Source("torchdata.nodes", "torchdata.nodes.loader", "Loader", "__iter__", Gives.ITERATOR),
    Source("torchdata.nodes", "torchdata.nodes.loader", "LoaderIterator", "__next__", Gives.BATCH),
)


def called_from(source: Source, depth: int) -> bool:
    """Whether the function `depth` frames up is the library's own: what it iterates over itself are no fetches."""
    name = sys._getframe(depth).f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] == source.module.partition(".")[0]
