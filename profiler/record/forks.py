"""What must let go of its parent's files in a forked child."""

from __future__ import annotations

import contextlib
import os
from typing import Protocol
from weakref import ref


class Inherited(Protocol):
    def forked(self) -> None:
        """This is a child, which has no part in what its parent writes."""


_alive: list[ref[Inherited]] = []


def tell_of_fork(thing: Inherited) -> None:
    """Have `forked` called in every child that is forked while `thing` lives."""
    _alive[:] = [*(each for each in _alive if each() is not None), ref(thing)]


def _forked() -> None:
    for each in _alive:
        with contextlib.suppress(Exception):
            if (thing := each()) is not None:
                thing.forked()


os.register_at_fork(after_in_child=_forked)
