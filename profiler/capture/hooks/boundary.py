"""The hook on checkpoints: what is neither a step nor a wait for data."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from .loop import Loop
from .switch import Patches, Switch, Unexpected

_DISTRIBUTED = "torch.distributed.checkpoint"


class SaveHook:
    """Wraps `torch.save`, and `save` and `async_save` of torch's distributed checkpoints once they are imported.

    A checkpoint between a step's fetch and its computation leaves the step open; elsewhere it ends the step.
    """

    def __init__(self, loop: Loop, now: Callable[[], int], switch: Switch) -> None:
        self._loop = loop
        self._now = now
        self.switch = switch
        self._patches = Patches()
        self._distributed = False
        self._saving = False

    def install(self) -> None:
        same = torch.save is torch.serialization.save
        self._patches.replace(torch, "save", self._wrap, None, None)
        if same:
            # The same function under both names: what is pickled by name must be found by it.
            wrapped = torch.save
            self._patches.replace(torch.serialization, "save", lambda _original: wrapped, None, None)
        self.look_for_late_ones()

    def remove(self) -> None:
        self._patches.put_back()

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
                self._patches.replace(module, name, self._wrap, None)

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        loop, switch = self._loop, self.switch

        def save(*args: Any, **kwargs: Any) -> Any:
            # One within another is part of it; one within a fetch is a matter of the loader.
            if not switch.on or get_ident() != loop.thread or self._saving or loop.fetching:
                return original(*args, **kwargs)
            bounds, begin_ns = self._begins()
            self._saving = True
            try:
                return original(*args, **kwargs)
            finally:
                self._saving = False
                self._ends(bounds, begin_ns)

        return save

    def _begins(self) -> tuple[bool, int]:
        """Whether this is a boundary of its own, and when it began."""
        try:
            return self._loop.begin_boundary(), self._now()
        except Exception as error:
            self.switch.fail(error)
            return False, 0

    def _ends(self, bounds: bool, begin_ns: int) -> None:
        if not begin_ns:
            return
        try:
            self._loop.saved(begin_ns)
            if bounds:
                self._loop.end_boundary()
        except Exception as error:
            self.switch.fail(error)
