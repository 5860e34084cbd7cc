"""What came of the samples that were made for a batch: how many of them are in it, which batch it is, and what that
consists of.

Samples can be thrown away where they are put together, and can be made by several workers alike. Both show in what a
worker holds in its hands anyway: the samples that `collate_fn` is given, and the batch that it returns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...record.schema import NOT_MEASURED
from ..hooks.parts import first_within, has_plain_memory, held_by, parts_of, shape_told
from .stream_calls import StreamCalls, is_due

ALWAYS = 32
"""Batches of a worker that are looked at, whatever comes."""
THEN_EVERY = 16
"""Of the others one in so many."""
MOST_SAMPLES = 1024
"""Larger batches are not searched for samples that are `None`."""
PROBED = 4
"""Samples of a batch whose shapes are looked at."""
DEEPEST, WIDEST = 4, 16
"""Levels and items that a sample or a batch is searched for its first tensor."""
PIECES, PIECE_BYTES = 16, 16
"""Of a tensor's memory, all over it, from which its fingerprint is made."""
FEWER = 0.9
"""Elements of a batch, as a share of those that its samples had, below which some of the samples are not in it: one
that packs several samples into a row has all their elements, one that pads has more."""
LIKE_ONE = 1.5
"""Elements of a tensor, as a multiple of what samples have on average, up to which it may be one sample."""

Shape = tuple[int, ...]


class BatchContent:
    """`begins`, `given` and `became`, then `forget`, for each batch that is looked at."""

    def __init__(self, store: Callable[..., object], in_worker: bool) -> None:
        """
        Args:
            store: takes a CONTENT record's fields from `batch` on.
            in_worker: whether there may be other workers, with whose batches its own are compared, and whether its
                calls may be looked at.
        """
        self._store = store
        self._in_worker = in_worker
        self._calls = StreamCalls()
        self._looked = 0
        self._made = NOT_MEASURED
        self._present = NOT_MEASURED
        self._shapes: list[Shape] = []
        self._streamed: tuple[int, int] | None = None

    def begins(self, number: int, streamed: bool) -> None:
        """A batch is about to be made, the worker's so-manieth from 0. `streamed`: by an iterable dataset."""
        if streamed and self._in_worker and is_due(number):
            self._calls.begin()

    def given(self, samples: Sequence[Any]) -> None:
        """`collate_fn` is about to get these samples."""
        self._streamed = self._calls.end()
        self._looked += 1
        thinned = self._looked > ALWAYS and self._looked % THEN_EVERY and self._streamed is None
        if thinned or len(samples) > MOST_SAMPLES:
            return
        self._made = len(samples)
        present = [each for each in samples if each is not None]
        self._present = len(present)
        probed = present[:: max(1, len(present) // PROBED)][:PROBED]
        self._shapes = [leaf[0] for each in probed if (leaf := _leaf(each, DEEPEST)) is not None]

    def became(self, batch: Any, number: int) -> None:
        """That is what it made of them."""
        if self._made == NOT_MEASURED:
            return
        kept = kept_of(batch, self._present, self._shapes)
        fingerprint = NOT_MEASURED
        if self._in_worker and self._looked <= ALWAYS:
            fingerprint = fingerprint_of(batch)
        streamed = self._streamed or (NOT_MEASURED, NOT_MEASURED)
        self._store(number, self._made, self._present, kept, fingerprint, *streamed, *held_by(batch))

    def forget(self) -> None:
        """The batch is over."""
        self._calls.end()
        self._streamed = None
        self._made = self._present = NOT_MEASURED
        self._shapes = []


def kept_of(batch: Any, given: int, shapes: Sequence[Shape]) -> int:
    """How many of so many samples are in a batch, by what its first tensor is like; all of them where that does not
    speak against it.

    Args:
        batch: what `collate_fn` returned.
        given: samples that it was given.
        shapes: of the first tensor in some of them.
    """
    leaf = _leaf(batch, DEEPEST)
    if leaf is None or not shapes:
        return given
    shape, around = leaf
    each = sum(_elements(sample) for sample in shapes) / len(shapes)
    rows = len(shape) == len(shapes[0]) + 1
    if rows and shape[1:] == shapes[0]:
        return min(given, shape[0])
    if given in around or _elements(shape) >= FEWER * given * each:
        return given
    if rows:
        return given if given in shape else min(given, shape[0])
    # Samples that are not put together: a list has one tensor for each, no larger than they are.
    listed = len(shape) == len(shapes[0]) and around and _elements(shape) <= LIKE_ONE * each
    return around[-1] if listed else given


def fingerprint_of(batch: Any) -> int:
    """A number for the first tensor or array of a batch, by its shape and pieces of its memory; `NOT_MEASURED` where
    it has none that lies in one piece."""
    found = first_within(batch, _memory)
    if type(found) is torch.Tensor and found.device.type == "cpu" and has_plain_memory(found):
        if not found.is_contiguous() or found.dim() == 0 or found.numel() == 0:
            return NOT_MEASURED
        shape: Shape = tuple(found.shape)
        flat = found.detach().view(-1).view(torch.uint8).numpy()
    elif type(found) is np.ndarray and found.flags.c_contiguous and found.size and not found.dtype.hasobject:
        shape, flat = found.shape, found.reshape(-1).view(np.uint8)
    else:
        return NOT_MEASURED
    told = hashlib.blake2b(repr(shape).encode(), digest_size=8)
    apart = max(PIECE_BYTES, len(flat) // PIECES)
    for begin in range(0, len(flat), apart):
        told.update(flat[begin : begin + PIECE_BYTES].tobytes())
    return int.from_bytes(told.digest(), "big") >> 1


def _elements(shape: Shape) -> int:
    elements = 1
    for length in shape:
        elements *= length
    return elements


def _leaf(thing: Any, depth: int, around: Shape = ()) -> tuple[Shape, Shape] | None:
    """The shape of the first tensor or array in something, or of a list of numbers; and the lengths of the lists and
    tuples around it."""
    shape = shape_told(thing)
    if shape is not None:
        return (shape, around) if all(type(length) is int for length in shape) else None
    inside = parts_of(thing, WIDEST) if depth else None
    if not inside:
        return None
    length = len(thing) if type(thing) in (list, tuple) else None
    if length is not None and type(inside[0]) in (int, float) and type(inside[-1]) in (int, float):
        return (length,), around
    around = around if length is None else (*around, length)
    for each in inside:
        found = _leaf(each, depth - 1, around)
        if found is not None:
            return found
    return None


def _memory(thing: Any) -> Any:
    return thing if isinstance(thing, torch.Tensor | np.ndarray) else None
