"""Which runs, in which order: interleaved repeats, and those of them that a budget of time has room for."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import TypeVar

Candidate = TypeVar("Candidate")


def rounds(candidates: Sequence[Candidate], repeats: int, seed: int = 0) -> Iterator[tuple[int, Candidate]]:
    """(round, candidate) pairs: round by round, each in a shuffled order that the seed fixes.

    Each round has every candidate once, so that drift of the machine hits all alike.
    """
    shuffle = random.Random(seed)
    for number in range(repeats):
        order = list(candidates)
        if number:
            # The first round keeps the given order: its table fills from top to bottom before a user's eyes.
            shuffle.shuffle(order)
        yield from ((number, candidate) for candidate in order)


def within(
    order: Iterable[tuple[int, Candidate]], seconds: float, begun: float, clock: Callable[[], float]
) -> Iterator[tuple[int, Candidate]]:
    """Those pairs of `order`, one after the other, whose run still fits into a budget of time.

    A run is expected to take as long as the latest of its candidate, and where there was none as long as the median of
    the candidates that ran. The first pair is always given; one that does not fit is left out, and a shorter one behind
    it may still fit. So what is given last ends late by no more than it takes longer than expected.

    Args:
        order: asked for the next pair only when the run of the one before is over.
        seconds: the budget.
        begun: what `clock` said when the budget began to be used.
        clock: seconds; a run lasts from the moment its pair is given until the next one is asked for.
    """
    took: dict[Candidate, float] = {}
    for number, candidate in order:
        before = clock()
        if took and before - begun + took.get(candidate, median(took.values())) > seconds:
            continue
        yield number, candidate
        took[candidate] = clock() - before
