"""One thread that fills a bounded queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from threading import Condition, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Runs `source` in a thread of its own, at most `capacity` items ahead of who iterates over this.

    The item in the making counts: the source is only asked once there is room for what it makes. An exception of
    the source is raised where the items are taken, after the good ones. `close` ends both sides.
    """

    def __init__(self, source: Iterator[T], capacity: int, name: str) -> None:
        self._source = source
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._changed = Condition()
        self._ended = False
        self._closed = False
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._fill, name=name, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended or self._closed)
            if self._items and not self._closed:
                self._changed.notify_all()
                return self._items.popleft()
            failure, self._failure = self._failure, None
        if failure is not None and not self._closed:
            raise failure
        raise StopIteration

    def ready(self) -> int:
        """Items waiting to be taken."""
        return len(self._items)

    def close(self) -> None:
        """Drops what is waiting and returns when the thread is gone; safe to call twice."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
        self._thread.join()

    def _fill(self) -> None:
        try:
            while self._room():
                item = next(self._source)
                with self._changed:
                    if not self._closed:
                        self._items.append(item)
                        self._changed.notify_all()
        except StopIteration:
            pass
        except BaseException as error:
            self._failure = error
        finally:
            del self._source  # closes a generator here, in the thread that ran it
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _room(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._capacity or self._closed)
            return not self._closed
