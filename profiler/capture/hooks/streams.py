"""Which stream of the device the training computes on."""

from __future__ import annotations

from collections.abc import Callable


class Streams:
    """Compares the current stream with the one that was current when the training last learnt something."""

    def __init__(self, current: Callable[[], object] | None = None) -> None:
        """`current` tells the current stream from others; without it there is only the computing one."""
        self._current = current
        self._computing: object = current() if current is not None else None

    def computes(self) -> None:
        """The stream that is current now is the one that computes."""
        if self._current is not None:
            self._computing = self._current()

    def aside(self) -> bool:
        """Whether the current stream is another one than the computing one."""
        return self._current is not None and self._current() != self._computing

    def is_computing(self, stream: object) -> bool:
        """Whether `stream` (`None`: the current one) computes, and is the current one: a mark set now lies in it."""
        current = None if self._current is None else self._current()
        return current is not None and current == self._computing and stream in (None, current)
