"""Which samples come when, and the randomness of each: the same in every loader."""

from __future__ import annotations

import numpy as np

from .protocol import Settings

_ORDER = 0
"""Spawn key that keeps the shuffling apart from the augmentation of any sample."""


def epoch_order(samples: int, settings: Settings, epoch: int) -> list[int]:
    """All sample indices in the order of this epoch; a function of (samples, seed, epoch) alone."""
    if not settings.shuffle:
        return list(range(samples))
    seeds = np.random.SeedSequence([settings.seed, epoch], spawn_key=(_ORDER,))
    order: list[int] = np.random.default_rng(seeds).permutation(samples).tolist()
    return order


def batches(samples: int, settings: Settings, epoch: int) -> list[list[int]]:
    """The order cut into batches; a short last one is left out under `drop_last`."""
    order = epoch_order(samples, settings, epoch)
    size = settings.batch_size
    return [order[start : start + size] for start in range(0, count(samples, settings) * size, size)]


def count(samples: int, settings: Settings) -> int:
    """Batches per epoch."""
    whole, rest = divmod(samples, settings.batch_size)
    return whole + (rest > 0 and not settings.drop_last)


def randomness(settings: Settings, epoch: int, index: int) -> np.random.Generator:
    """The generator that augments one sample in one epoch, whichever worker makes it."""
    return np.random.default_rng([settings.seed, epoch, index])
