"""What a loader that trains was set to, as far as a report needs it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...record.schema import LoaderFlag
from ...record.stacks import Call
from .data_sets import own_workers


@dataclass(frozen=True)
class LoaderFacts:
    """A training loader's settings."""

    workers: int
    """0: batches are made in the training itself."""
    prefetch: int | None
    """Batches each worker prepares ahead; `None` without workers."""
    pin_memory: bool
    persistent_workers: bool
    iterable: bool = False
    """The dataset is iterated over."""
    out_of_order: bool = False
    starts_python: bool = False
    """Workers are new Python processes, not forks."""
    made: tuple[Call, ...] = ()
    """The calls in which the program made the loader, the outermost first; none where that was not seen."""
    data: Callable[[], Any] = field(default=lambda: None, compare=False)
    """Gives its data set, `None` once that is gone."""
    stream: Callable[[], Any] = field(default=lambda: None, compare=False)
    """Gives what asks the data set for samples in the training's process, `None` where workers do."""

    @property
    def flags(self) -> int:
        own = None if self.workers else own_workers(self.data(), self.stream())
        return (
            LoaderFlag.PIN_MEMORY * self.pin_memory
            | LoaderFlag.PERSISTENT_WORKERS * self.persistent_workers
            | LoaderFlag.ITERABLE * self.iterable
            | LoaderFlag.OUT_OF_ORDER * self.out_of_order
            | LoaderFlag.STARTS_PYTHON * self.starts_python
            | (0 if own is None else LoaderFlag.OWN_WORKERS | LoaderFlag.INNER_WORKER * own)
        )


def starts_python(method: str | None) -> bool:
    """Whether processes that multiprocessing starts by this method are new Pythons; `None` is its default."""
    # To ask for the default otherwise would settle it: the program could not choose any longer.
    method = method or multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    return method != "fork"
