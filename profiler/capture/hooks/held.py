"""Batches fetched ahead from an iterator, which hands them out as its own.

The iterator's `_next_data` is covered for so long. That depends on no other hook, and ends with the iterator: whatever
becomes of the recording, the training gets its batches.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from .room import Room, weigh
from .switch import hand_on

LONGEST_FILL_S = 60.0
LONGEST_WAIT_S = 10.0
"""For workers to finish what they have begun."""
HANDED_OVER_S = 0.01
"""A worker's batch counts as finished before it is pickled."""
LEAST_BATCHES = 8
"""Fewer tell nothing: the first few of a stretch do not count."""


class Held:
    """Batches that were fetched ahead from one iterator, which hands them out as its own."""

    def __init__(self, iterator: Any) -> None:
        # Not held: what it covers is a part of the iterator.
        self.iterator = weakref.ref(iterator)
        self.batches: deque[tuple[Any, int | None]] = deque()
        self.number: int | None = None
        """`_rcvd_idx` when the batch handed out last was fetched."""
        self.error: BaseException | None = None
        """What the loader raised behind them: its end, or an error of the training's own code."""

    @property
    def left(self) -> int:
        """What is still to be handed out, an end or an error included."""
        return len(self.batches) + (self.error is not None)

    def fill(self, wanted: int) -> str | None:
        """Fetch so many batches, or fewer if the loader ends or room is short; why that is too few, if it is so."""
        iterator = self.iterator()
        fetch: Callable[[Any], Any] = vars(type(iterator))["_next_data"]
        self._cover(iterator)
        self.number = getattr(iterator, "_rcvd_idx", None)
        until = time.monotonic() + LONGEST_FILL_S
        most, amount = wanted, 0
        room: Room | None = None
        try:
            while len(self.batches) < most and time.monotonic() < until:
                try:
                    batch = fetch(iterator)
                except StopIteration as end:
                    # A new one: frames of the old would keep the iterator alive.
                    self.error = StopIteration(*end.args)
                    break
                except Exception as error:
                    hand_on(error)
                    self.error = error
                    break
                self.batches.append((batch, getattr(iterator, "_rcvd_idx", None)))
                weight = weigh(batch)
                if weight is None:
                    return "the size of its batches is not known"
                if weight.on_device:
                    return "the loader hands out batches that lie on the device"
                room = room or Room.now(iterator)
                amount += weight.nbytes
                most = min(wanted, room.for_batches(amount / len(self.batches), weight.tensors))
                if most < LEAST_BATCHES:
                    return (
                        f"there is room for {most} batches of {weight.nbytes / 1e6:.1f} MB and {weight.tensors} "
                        f"tensors, {LEAST_BATCHES} are needed"
                    )
        finally:
            if not self.left:
                self._uncover()
        if len(self.batches) < LEAST_BATCHES and self.error is None:
            return f"{len(self.batches)} batches took {LONGEST_FILL_S:.0f} s to load, {LEAST_BATCHES} are needed"
        return None

    def wait_for_workers(self) -> None:
        """Until they have finished what they were told to make. They are told no more until the stretch is over."""
        iterator = self.iterator()
        if not getattr(iterator, "_num_workers", 0):
            return
        until = time.monotonic() + LONGEST_WAIT_S
        with contextlib.suppress(AttributeError, NotImplementedError, OSError):
            while iterator._data_queue.qsize() < iterator._tasks_outstanding and time.monotonic() < until:  # type: ignore[union-attr]
                time.sleep(0.001)
        time.sleep(HANDED_OVER_S)

    def _cover(self, iterator: Any) -> None:
        iterator._next_data = self._next_data
        iterator._reset = self._reset

    def _uncover(self) -> Any:
        iterator = self.iterator()
        for name in ("_next_data", "_reset"):
            vars(iterator).pop(name, None)
        return iterator

    def _next_data(self) -> Any:
        if self.batches:
            batch, self.number = self.batches.popleft()
            if not self.left:
                self._uncover()
            return batch
        if self.error is None:
            return self._uncover()._next_data()
        self._uncover()
        try:
            raise self.error
        finally:
            # No frame keeps it, for it would keep the iterator alive.
            self.error = None

    def _reset(self, *args: Any, **kwargs: Any) -> Any:
        """The iterator begins anew: an epoch was left early whose workers persist."""
        self.batches.clear()
        self.error = self.number = None
        return self._uncover()._reset(*args, **kwargs)
