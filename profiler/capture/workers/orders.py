"""The orders that a worker gets."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from ..hidden import forget_frame
from .fetch_timing import FetchTimer

PASS = 1 << 32
"""`batch` is so much times the iterator's pass over the data, plus the batch's number in it."""


class WorkerFetchTimer(FetchTimer):
    """Knows from its orders which batch is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pass = 0

    def ordered(self, order: Any, waited_ns: int) -> None:
        """The worker was told something by the training, for which it waited."""
        self.idle_ns = waited_ns
        if type(order) is tuple and len(order) == 2 and type(order[0]) is int:
            self.number = self._pass * PASS + order[0]
        elif type(order).__name__ == "_ResumeIteration":
            self._pass += 1


class Orders:
    """A worker's queue of orders, with a look at what comes out of it."""

    def __init__(self, queue: Any, watch: WorkerFetchTimer) -> None:
        self._queue = queue
        self._watch = watch
        self._waited = 0

    def get(self, *args: Any, **kwargs: Any) -> Any:
        begin = monotonic_ns()
        try:
            order = self._queue.get(*args, **kwargs)
        except BaseException as error:
            # Every few seconds without an order the loop looks whether the training is still there.
            self._waited += monotonic_ns() - begin
            forget_frame(error)
            raise
        self._watch.ordered(order, self._waited + monotonic_ns() - begin)
        self._waited = 0
        return order

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)
