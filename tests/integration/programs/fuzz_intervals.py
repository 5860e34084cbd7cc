"""Sets of intervals at random, good and garbage, for the functions in C: `fuzz_intervals.py SEED ROUNDS`.

Of good sets the results must be those without the extension; garbage may give anything, but an error that says so.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import numpy as np

from whyidle import _intervals as in_c  # type: ignore[attr-defined]

SPAN = 200
FAR = np.iinfo(np.int64)


def good(chance: np.random.Generator) -> np.ndarray[Any, Any]:
    """Sorted and disjoint."""
    edges = np.sort(chance.choice(SPAN, 2 * chance.integers(0, 20), replace=False))
    return edges.reshape(-1, 2).astype(np.int64)


def covers(intervals: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which moments lie in them."""
    inside = np.zeros(SPAN, bool)
    for begin, end in intervals:
        inside[begin:end] = True
    return inside


def made(call: Any, *sets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    into = np.empty((len(sets[0]) + len(sets[1]), 2), np.int64)
    return into[: call(*sets, into)]


def check(chance: np.random.Generator) -> None:
    first, second = good(chance), good(chance)
    one, other = covers(first), covers(second)
    for call, wanted in ((in_c.merged, one | other), (in_c.intersected, one & other), (in_c.subtracted, one & ~other)):
        assert (covers(made(call, first, second)) == wanted).all(), (call, first, second)
    both = np.concatenate([first, second])
    both = both[np.argsort(both[:, 0], kind="stable")]
    into = np.empty((len(both), 2), np.int64)
    assert (covers(into[: in_c.united(both[:, 0], both[:, 1], into)]) == one | other).all()
    begins = chance.integers(0, SPAN, 30)
    ends, lengths = begins + chance.integers(-5, 80, 30), np.empty(30, np.int64)
    in_c.covered(first, begins, ends, lengths)
    assert lengths.tolist() == [int(one[b : max(b, e)].sum()) for b, e in zip(begins, ends, strict=True)]


def garbage(chance: np.random.Generator) -> None:
    def numbers(*shape: int) -> np.ndarray[Any, Any]:
        low, high = ((-9, 9), (0, SPAN), (FAR.min, FAR.max))[chance.integers(3)]
        found = chance.integers(low, high, shape, np.int64, endpoint=True)
        return np.sort(found, axis=0) if chance.random() < 0.5 else found

    count, others = chance.integers(0, 40, 2)
    sets = [np.repeat(numbers(1, 2), count, axis=0) if chance.random() < 0.3 else numbers(count, 2), numbers(others, 2)]
    # An array of its own for the result: what lies behind it is the sanitizer's.
    into = np.empty((max(0, count + others - int(chance.integers(0, 3))), 2), np.int64)
    arguments: list[Any]
    for call in (in_c.merged, in_c.intersected, in_c.subtracted, in_c.united, in_c.covered):
        arguments = [*sets, into]
        if call is in_c.united:
            arguments = [sets[0][:, 0], sets[0][:, 1], into]
        elif call is in_c.covered:
            arguments = [sets[0], numbers(others), numbers(others), np.empty(others, np.int64)]
        if chance.random() < 0.1:
            wrong = (
                None,
                3,
                b"text",
                np.empty((2, 3), np.int64),
                np.empty(4, np.int32),
                np.empty((4, 2), float),
                into.T,
            )
            arguments[chance.integers(len(arguments))] = wrong[chance.integers(len(wrong))]
        with contextlib.suppress(ValueError, TypeError, BufferError):
            call(*arguments)


if __name__ == "__main__":
    generator = np.random.default_rng(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        check(generator)
        garbage(generator)
    print(f"{sys.argv[2]} rounds")
