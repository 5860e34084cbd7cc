"""torch's fetchers, with whoever watches the thread they work in.

Both kinds of fetcher are replaced as classes, in workers and in the training alike; fetchers that nobody watches cost
one look-up more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from torch.utils.data._utils import fetch as torch_fetch

from ..hidden import forget_frame
from ..hooks.wrap import Patches, Unexpected
from .fetch_timing import FetchTimer

FETCHERS = ("_MapDatasetFetcher", "_IterableDatasetFetcher")


class _OfThread(threading.local):
    watch: FetchTimer | None = None


class Fetches:
    """The watches of this process, and the functions they sit in."""

    def __init__(self) -> None:
        self.of_thread = _OfThread()
        self.in_training: FetchTimer | None = None
        """Of batches that no worker makes."""
        self._patches = Patches()
        self._users = 0

    def install(self) -> None:
        """Replace the fetchers' `fetch`; as often as wanted.

        Raises:
            Unexpected: this torch has other fetchers.
        """
        self._users += 1
        if self._users > 1:
            return
        try:
            for name in FETCHERS:
                self._patches.replace(getattr(torch_fetch, name, None), "fetch", self._wrap, None, None)
        except Unexpected:
            self.remove()
            raise

    def remove(self) -> None:
        """Undo one `install`; the last one puts torch's functions back."""
        self._users = max(0, self._users - 1)
        if not self._users:
            self._patches.put_back()

    def forked(self) -> None:
        """This is a child: nobody watches it unless it says so, and torch's functions are back."""
        self._users = 0
        self.of_thread = _OfThread()
        self.in_training = None

    def _wrap(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        # A program may have put a function of its own there, which does with the indices what it likes.
        stamps = getattr(getattr(original, "__code__", None), "co_filename", "") == torch_fetch.__file__

        def fetch(self_: Any, possibly_batched_index: Any) -> Any:
            watch = self.of_thread.watch or self.in_training
            if watch is None or not watch.begins(self_, possibly_batched_index, stamps):
                return original(self_, possibly_batched_index)
            try:
                batch = original(self_, watch.indices)
            except BaseException as error:
                watch.fails()
                forget_frame(error)
                raise
            watch.ends(batch)
            return batch

        return fetch


fetches = Fetches()
"""Of this process."""
os.register_at_fork(after_in_child=fetches.forked)
