"""How settings are meant by each loader: what works on batches, and how many may be under way."""

from __future__ import annotations

from dataclasses import dataclass

from ...record.tuning import LoaderSettings

_POOLS = {"threads", "dali-cpu", "dali-gpu"}
"""Loaders whose `num_workers` threads make the samples of one batch together."""
_AHEAD = {"prefetch": 3}
"""Batches that a loader takes from its workers before the training asks: two pinned and one on its way."""


@dataclass(frozen=True)
class Hands:
    """What makes the batches of a loader."""

    workers: int
    """Workers that make a batch each; 0: the training process makes them."""
    threads: int
    """Threads of each worker, which work on its batch together."""
    outstanding: int
    """Batches ordered and not handed over, at most."""


def hands(settings: LoaderSettings, threads_per_worker: int) -> Hands:
    """What makes batches under these settings of their loader."""
    if settings.pipeline == "caffe":
        return Hands(1, 1, 3)  # its own threads and buffers, whatever is asked for; reads ahead are not counted
    if settings.pipeline == "naive" or settings.num_workers == 0:
        return Hands(0, 1, 0)
    prefetch = settings.prefetch_factor or 1
    if settings.pipeline in _POOLS:
        return Hands(1, settings.num_workers, prefetch + 1)
    return Hands(
        settings.num_workers, max(1, threads_per_worker), settings.outstanding + _AHEAD.get(settings.pipeline or "", 0)
    )


def in_processes(settings: LoaderSettings) -> bool:
    """Whether batches come from other processes, through shared memory."""
    return settings.pipeline not in {*_POOLS, "naive", "caffe"}
