"""Which samples come when, and the randomness of each: the same in every loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # the protocol imports torch, which counting does not need
    from .protocol import Settings

_ORDER = 0
"""Spawn key that keeps the shuffling apart from the augmentation of any sample."""


def epoch_order(samples: int, settings: Settings, epoch: int) -> list[int]:
    """The sample indices of this epoch in their order, a function of (samples, seed, epoch) alone; of several ranks
    every one takes turns, and as many as any other: no sample twice, the few that are left over not at all."""
    order: list[int] = list(range(samples))
    if settings.shuffle:
        seeds = np.random.SeedSequence([settings.seed, epoch], spawn_key=(_ORDER,))
        order = np.random.default_rng(seeds).permutation(samples).tolist()
    return order[settings.rank : samples - samples % settings.ranks : settings.ranks]


def batches(samples: int, settings: Settings, epoch: int) -> list[list[int]]:
    """The order cut into batches; a short last one is left out under `drop_last`."""
    order = epoch_order(samples, settings, epoch)
    size = settings.batch_size
    return [order[start : start + size] for start in range(0, count(samples, settings) * size, size)]


def count(samples: int, settings: Settings) -> int:
    """Batches per epoch."""
    whole, rest = divmod(samples // settings.ranks, settings.batch_size)
    return whole + (rest > 0 and not settings.drop_last)


def randomness(settings: Settings, epoch: int, index: int) -> np.random.Generator:
    """The generator that augments one sample in one epoch, whichever worker makes it."""
    return np.random.default_rng([settings.seed, epoch, index])
