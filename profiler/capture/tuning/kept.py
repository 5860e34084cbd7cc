"""Batches that were fetched once and are handed out again and again, as if a loader took no time.

A training may change what it is given. So each time it gets new lists and dictionaries, around the same tensors; of
these torch counts the changes. Where there were any, batches are fetched anew, and copies are handed out that were made
before the block began.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from ...errors import WhyidleError
from ..hooks.parts import fields_of, parts_of
from ..hooks.room import MEMORY_SHARE, weigh
from ..memory_limits import memory_available

KEPT = 8
MOST_COPIES = 256
MOST_PARTS = 20_000


class NotKept(WhyidleError):
    """These batches cannot be handed out twice."""


class Kept:
    """A few batches of one size."""

    def __init__(self) -> None:
        self._batches: list[tuple[Any, int | None]] = []
        self._tensors: list[list[torch.Tensor]] = []
        self._versions: list[list[int]] = []
        self._turn = 0
        self._copies: list[tuple[Any, int | None]] = []
        self._copying = False

    @property
    def filled(self) -> bool:
        return bool(self._batches)

    @property
    def changed(self) -> bool:
        """The training changes its batches in place: what is kept is no longer as it was fetched."""
        return not self._copying and any(
            tensor._version != version
            for tensors, versions in zip(self._tensors, self._versions, strict=True)
            for tensor, version in zip(tensors, versions, strict=True)
        )

    @property
    def used_up(self) -> bool:
        return self._copying and not self._copies

    def fill(self, fetch: Callable[[], tuple[Any, int | None]]) -> None:
        """Raises NotKept where batches are nothing that can be kept, and whatever `fetch` raises."""
        self._copying = self.changed
        self._batches = [fetch() for _ in range(KEPT)]
        self._tensors = [tensors_in(batch) for batch, _ in self._batches]
        self._versions = [[tensor._version for tensor in tensors] for tensors in self._tensors]
        self._turn = 0
        try:
            _renewed(self._batches[0][0], self._tensors[0])
        except Exception as error:
            raise NotKept(f"batches of {type(self._batches[0][0]).__name__} cannot be kept ({error})") from error

    def begin(self) -> None:
        """A block begins: copies are made, where they are needed."""
        if not self._copying:
            return
        weight = weigh(self._batches[0][0])
        room = int(MEMORY_SHARE * (memory_available() or 0) / max(1, weight.nbytes)) if weight is not None else 0
        if room < KEPT:
            raise NotKept("the training changes its batches in place, and there is no room for copies of them")
        with torch.no_grad():
            self._copies = [
                (_renewed(batch, tensors, clone=True), samples)
                for _ in range(min(room, MOST_COPIES) // KEPT)
                for (batch, samples), tensors in zip(self._batches, self._tensors, strict=True)
            ]

    def next(self) -> tuple[Any, int | None]:
        if self._copying and self._copies:
            return self._copies.pop()
        turn = self._turn
        self._turn = (turn + 1) % KEPT
        batch, samples = self._batches[turn]
        return _renewed(batch, self._tensors[turn], clone=self._copying), samples


def tensors_in(batch: Any) -> list[torch.Tensor]:
    """Nested as they may be."""
    found: list[torch.Tensor] = []
    parts = [batch]
    seen: set[int] = set()
    while parts:
        part = parts.pop()
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif part is None or isinstance(part, str | bytes | int | float | complex | type) or id(part) in seen:
            continue
        else:
            seen.add(id(part))
            inside = parts_of(part, MOST_PARTS)
            parts += fields_of(part).values() if inside is None else inside
        if len(seen) + len(found) > MOST_PARTS:
            break  # the rest is copied with what it lies in
    return found


def _renewed(batch: Any, tensors: list[torch.Tensor], clone: bool = False) -> Any:
    """The batch with everything in it new, but for these tensors, unless `clone`."""
    memo: dict[int, Any] = {id(tensor): _cloned(tensor) if clone else tensor for tensor in tensors}
    return copy.deepcopy(batch, memo)


def _cloned(tensor: torch.Tensor) -> torch.Tensor:
    copied = tensor.clone()
    return copied.pin_memory() if tensor.device.type == "cpu" and tensor.is_pinned() else copied
