"""The hook on checkpoints: what is neither a step nor a wait for data."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from .loop import Loop
from .switch import Switch
from .wrap import Unexpected, Wraps

_DISTRIBUTED = "torch.distributed.checkpoint"


class SaveHook:
    """Wraps `torch.save`, and `save` and `async_save` of torch's distributed checkpoints once they are imported.

    A checkpoint between a step's fetch and its computation leaves the step open; elsewhere it ends the step.
    """

    def __init__(self, loop: Loop, now: Callable[[], int], switch: Switch) -> None:
        self._loop = loop
        self._now = now
        self.switch = switch
        self._wraps = Wraps(switch, self._listens)
        self._distributed = False

    def install(self) -> None:
        same = torch.save is torch.serialization.save
        self._wraps.around(torch, "save", self._begins, self._ends, None, None)
        if same:
            # The same function under both names: what is pickled by name must be found by it.
            wrapped = torch.save
            self._wraps.replace(torch.serialization, "save", lambda _original: wrapped, None, None)
        self.look_for_late_ones()

    def remove(self) -> None:
        self._wraps.put_back()

    def look_for_late_ones(self) -> None:
        """Distributed checkpoints are seldom imported when the hooks are installed."""
        if self._distributed or _DISTRIBUTED not in sys.modules or not self.switch.on:
            return
        module = sys.modules[_DISTRIBUTED]
        if not hasattr(module, "save"):
            return  # its import is under way
        self._distributed = True
        with contextlib.suppress(Unexpected):
            for name in ("save", "async_save"):
                self._wraps.around(module, name, self._begins, self._ends, None)

    def _listens(self) -> bool:
        # One within a fetch is a matter of the loader.
        return not self._loop.fetching and get_ident() == self._loop.thread

    def _begins(self, *_args: Any, **_kwargs: Any) -> tuple[bool, int]:
        """Whether this is a boundary of its own, and when it began."""
        return self._loop.boundary_begins(), self._now()

    def _ends(self, begun: tuple[bool, int], _returned: Any) -> None:
        bounds, begin_ns = begun
        self._loop.saved(begin_ns)
        if bounds:
            self._loop.boundary_ends()
