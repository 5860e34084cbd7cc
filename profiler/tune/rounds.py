"""Interleaved repeats: each round runs every candidate once, so that drift of the machine hits all alike."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

Candidate = TypeVar("Candidate")


def rounds(candidates: Sequence[Candidate], repeats: int, seed: int = 0) -> Iterator[tuple[int, Candidate]]:
    """(round, candidate) pairs: round by round, each in a shuffled order that the seed fixes."""
    shuffle = random.Random(seed)
    for number in range(repeats):
        order = list(candidates)
        if number:
            # The first round keeps the given order: its table fills from top to bottom before a user's eyes.
            shuffle.shuffle(order)
        yield from ((number, candidate) for candidate in order)
