"""Where a training's batches come from while loader settings are tried: a source for each settings, side by side.

Knows nothing of torch's loader: a source is whatever makes batches for some settings. Each is kept, paused, until the
tuner closes it; so blocks of several settings can follow each other within seconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from ...record.tuning import LoaderSettings
from .kept import Kept

LONGEST_REST_S = 10.0
"""For workers to finish what they had begun when their source was paused."""
LONGEST_DRAIN_NS = 5_000_000_000
"""For a queue to be emptied of what it holds."""


class BatchSource(Protocol):
    """Batches made with some settings."""

    def next(self) -> tuple[Any, int | None]:
        """A batch, and its samples where that is known. Raises StopIteration where a pass over the data ends."""
        ...

    def restart(self) -> None:
        """Begin another pass, with the same workers where they persist."""
        ...

    def rest(self, seconds: float) -> None:
        """Return once no worker has anything to do, and at the latest after so many seconds."""
        ...

    def close(self) -> None:
        """End the workers. Never raises."""
        ...

    def why_failed(self) -> str | None:
        """What became of its workers, where one of them died."""
        ...


class BatchSources:
    """All that the tuner has not closed. Whatever a source raises passes through."""

    def __init__(self, make: Callable[[LoaderSettings], BatchSource], now: Callable[[], int]) -> None:
        self._make = make
        self._now = now
        self._all: dict[LoaderSettings, BatchSource] = {}
        self._kept: dict[int | None, Kept] = {}
        """By batch size."""
        self._working: LoaderSettings | None = None
        """Whose workers may be at work: those of the source that was taken from last."""
        self.current: BatchSource | Kept | None = None
        """What is taken from."""
        self._first: tuple[Any, int | None] | None = None
        """The batch that a new source began with, not handed out yet."""
        self._pass_ended = False

    def pass_ended(self) -> bool:
        """Whether a pass over the data has ended since this was asked last."""
        ended, self._pass_ended = self._pass_ended, False
        return ended

    def take(self) -> tuple[Any, int | None]:
        """The next batch of the current source, and its samples where they are known."""
        source = self.current
        assert source is not None
        if isinstance(source, Kept):
            return source.next()
        first, self._first = self._first, None
        return first if first is not None else self._next_of(source)

    def use(self, settings: LoaderSettings) -> tuple[int | None, int | None]:
        """Take from the source for these settings from here on.

        Returns how long its first batch took to come, if it is made now, and that of another pass, if its workers
        persist; ns.
        """
        self._pause()
        took: tuple[int | None, int | None] = None, None
        self.current = self._all.get(settings)
        if self.current is None:
            took = self._start(settings)
        self._working = settings
        return took

    def use_kept(self, settings: LoaderSettings) -> Kept:
        """Hand out a few batches of this size again and again from here on."""
        self._pause()
        kept = self._kept.setdefault(settings.batch_size, Kept())
        self.current = kept
        if not kept.filled:
            self._fill(kept, settings)
        return kept

    def settle(self, settings: LoaderSettings, fresh: bool = False) -> None:
        """Bring the current source to where it would be after a while of training. `fresh`: it was just made."""
        source = self.current
        if isinstance(source, Kept):
            if source.changed:
                self._fill(source, settings)
            source.begin()
        elif source is not None and not fresh:
            source.rest(LONGEST_REST_S)
            until = self._now() + LONGEST_DRAIN_NS
            for _ in range(settings.outstanding):
                if self._now() > until:
                    break
                self._next_of(source)
        self._pass_ended = False

    def why_failed(self, settings: LoaderSettings) -> str | None:
        """What became of its workers, where one of them died."""
        source = self._all.get(settings)
        return None if source is None else source.why_failed()

    def close(self, settings: LoaderSettings) -> None:
        """End a source, if there is one for these settings. Never raises."""
        source = self._all.pop(settings, None)
        if self._working == settings:
            self._working = None
        if source is not None:
            self._leave(source)
            with contextlib.suppress(Exception):
                source.close()

    def forget_kept(self, settings: LoaderSettings) -> None:
        """Batches of this size are not kept any longer."""
        self._leave(self._kept.pop(settings.batch_size, None))

    def _leave(self, source: BatchSource | Kept | None) -> None:
        if self.current is source:
            self.current = self._first = None

    def _pause(self) -> None:
        self._first = None
        paused = None if self._working is None else self._all.get(self._working)
        if paused is not None:
            # Its workers would take CPU from the block that follows; to drain a queue takes a full one too.
            paused.rest(LONGEST_REST_S)

    def _start(self, settings: LoaderSettings) -> tuple[int, int | None]:
        begin = self._now()
        self.current = source = self._all[settings] = self._make(settings)
        self._first = self._next_of(source)
        took, again = self._now() - begin, None
        if settings.persistent_workers:
            # As at an epoch's end: nothing of the pass before is under way any longer.
            source.rest(LONGEST_REST_S)
            begin = self._now()
            source.restart()
            self._first = self._next_of(source)
            again = self._now() - begin
        return took, again

    def _fill(self, kept: Kept, settings: LoaderSettings) -> None:
        """Fetch the batches that are handed out again and again, from a source of that size that is there."""
        alike = [each for each in self._all if each.batch_size == settings.batch_size]
        alike.sort(key=lambda each: each != self._working)
        own = alike[0] if alike else replace(settings, pipeline=None)
        source = self._all.get(own)
        if source is None:
            source = self._all[own] = self._make(own)
        kept.fill(lambda: self._next_of(source))
        source.rest(LONGEST_REST_S)

    def _next_of(self, source: BatchSource) -> tuple[Any, int | None]:
        """The next batch; of another pass where one ends."""
        try:
            return source.next()
        except StopIteration:
            self._pass_ended = True
            source.restart()
        try:
            return source.next()
        except StopIteration:
            raise RuntimeError("the loader has no batches in a further pass over the data") from None
