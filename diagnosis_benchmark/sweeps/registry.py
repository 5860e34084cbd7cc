"""All planted sweeps, by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from whyidle.errors import WhyidleError

from . import device_sweeps, input_sweeps, khosravi
from .sweep import Sweep

_MODULES = (input_sweeps, khosravi, device_sweeps)
"""Each has its sweeps in `SWEEPS`, in the order in which they are run and shown."""

SWEEPS: Mapping[str, Sweep] = MappingProxyType({sweep.name: sweep for module in _MODULES for sweep in module.SWEEPS})


def sweeps(names: Collection[str] = ()) -> list[Sweep]:
    """Sweeps by name; all by default.

    Raises:
        WhyidleError: there is none of a name.
    """
    for name in names:
        if name not in SWEEPS:
            near = get_close_matches(name, SWEEPS, cutoff=0.6)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise WhyidleError(f"unknown case {name!r}.{meant} There are: {', '.join(SWEEPS)}.")
    return [sweep for sweep in SWEEPS.values() if not names or sweep.name in names]
