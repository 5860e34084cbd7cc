"""torch's fetchers, which make batches of samples: each call is told to whoever times what is made in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from torch.utils.data._utils import fetch as torch_fetch

from ..hidden import forget_frame
from ..hooks.steady import SteadyPath
from ..hooks.wrap import Patches, Unexpected
from .fetch_timing import FetchTimer

FETCHERS = ("_MapDatasetFetcher", "_IterableDatasetFetcher")


class _OfThread(threading.local):
    timer: FetchTimer | None = None


class Fetchers:
    """torch's two kinds of fetcher, in workers and in the training alike, and who times what they make in this process.

    Fetchers that nobody times cost one look-up more.
    """

    def __init__(self) -> None:
        self.of_thread = _OfThread()
        self.in_training: FetchTimer | None = None
        """Of batches that no worker makes."""
        self._steady: SteadyPath | None = None
        self._patches = Patches()
        self._users = 0

    def install(self, in_training: FetchTimer | None = None, steady: SteadyPath | None = None) -> None:
        """Replace the fetchers' `fetch`; as often as wanted.

        Args:
            in_training: times the batches of this process that no worker makes.
            steady: the recording's.

        Raises:
            Unexpected: this torch has other fetchers.
        """
        self._users += 1
        if in_training is not None:
            self.in_training, self._steady = in_training, steady
        if self._users > 1:
            return
        try:
            for name in FETCHERS:
                self._patches.replace(getattr(torch_fetch, name, None), "fetch", self._wrap, None, None)
        except Unexpected:
            self.remove()
            raise

    def leave_training(self) -> None:
        """Undo the `install` of a recording."""
        self.in_training = self._steady = None
        self.remove()

    def remove(self) -> None:
        """Undo one `install`; the last one puts torch's functions back."""
        self._users = max(0, self._users - 1)
        if not self._users:
            self._patches.put_back()

    def forked(self) -> None:
        """This is a child: nobody times its batches unless it says so, and torch's functions are back."""
        for timer in (self.of_thread.timer, self.in_training):
            if timer is not None:
                timer.forked()
        self._users = 0
        self.of_thread = _OfThread()
        self.in_training = self._steady = None

    def _wrap(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        # A program may have put a function of its own there, which does with the indices what it likes.
        stamps = getattr(getattr(original, "__code__", None), "co_filename", "") == torch_fetch.__file__

        def fetch(self_: Any, possibly_batched_index: Any) -> Any:
            timer = self.of_thread.timer or self.in_training
            if timer is not None and not timer.begins(self_, possibly_batched_index, stamps):
                timer = None
            try:
                batch = original(self_, possibly_batched_index if timer is None else timer.indices)
                if timer is not None:
                    timer.ends(batch)
            except BaseException as error:
                if timer is not None:
                    timer.fails()
                forget_frame(error)
                raise
            return batch

        if self._steady is None or self.in_training is None:
            return fetch
        return self._steady.instead("fetch", original, fetch, self.in_training.switch.fail, self.in_training)


fetchers = Fetchers()
"""Of this process."""
os.register_at_fork(after_in_child=fetchers.forked)
