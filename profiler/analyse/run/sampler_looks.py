"""The looks of a sampler within a window.

The ranks of a job on one host have the same sampler, and most of them the same of its looks: what these tell is worked
out once for ranks that are judged one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from .window import Window

Found = TypeVar("Found")


class OncePerLooks(Generic[Found]):
    """A function of looks, which gives again what it gave last where it is asked of the very same. Only of few: many
    are not kept in memory for it."""

    def __init__(self, make: Callable[[Records], Found]) -> None:
        self._make = make
        self._last: tuple[Records, Found] | None = None

    def __call__(self, looks: Records) -> Found:
        last = self._last
        if last is not None and last[0] is looks:
            return last[1]
        found = self._make(looks)
        self._last = (looks, found) if isinstance(looks, np.ndarray) else None
        return found


_selected: dict[np.dtype[np.void], tuple[Records, npt.NDArray[np.bool_], Records]] = {}
"""By their kind, the looks that were last selected from, which, and the selection."""


def inside(looks: Records, window: Window) -> Records:
    """Those that were made within the window."""
    which = (looks["t_ns"] >= window.begin_ns) & (looks["t_ns"] <= window.end_ns)
    last = _selected.get(looks.dtype)
    if last is not None and last[0] is looks and np.array_equal(last[1], which):
        return last[2]
    found: Records = looks[which]
    if isinstance(looks, np.ndarray):
        _selected[looks.dtype] = (looks, which, found)
    return found


def _by_device(looks: Records) -> list[Records]:
    return [looks[looks["device"] == number] for number in np.unique(looks["device"])]


by_device = OncePerLooks(_by_device)
"""The looks at each device, by its number."""
