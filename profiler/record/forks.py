"""What must let go of its parent's files in a forked child."""

from __future__ import annotations

import contextlib
import os
from typing import Protocol
from weakref import WeakSet


class Inherited(Protocol):
    def forked(self) -> None:
        """This is a child, which has no part in what its parent writes."""


_alive: WeakSet[Inherited] = WeakSet()


def tell_of_fork(thing: Inherited) -> None:
    """Have `forked` called in every child that is forked while `thing` lives."""
    _alive.add(thing)


def _forked() -> None:
    for thing in list(_alive):
        with contextlib.suppress(Exception):
            thing.forked()


os.register_at_fork(after_in_child=_forked)
