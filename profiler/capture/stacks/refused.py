"""Has this process look at its own stacks, where the sampler may not.

It is loaded beside any torch, also where numpy is missing, so it imports what looks only once somebody is to look.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..hooks.switch import ours

_looks_in = 0
"""The process that has such a thread; a forked child has none."""


def look_within(folder: Path, wanted: Callable[[], Any], worker: bool = False) -> None:
    """Begin to look at this process's stacks if nobody does yet. Never raises.

    Args:
        folder: the run folder.
        wanted: tells how often and what, as the command that started us says it: `{"rate": 10.0, "source": true,
                "within": true}`; anything else: not at all.
        worker: whether this is a loader's worker, of which a training may start any number.
    """
    global _looks_in
    with ours():
        if _looks_in == os.getpid():
            return
        options = wanted()
        if not isinstance(options, dict) or not options.get("within"):
            return
        _looks_in = os.getpid()
        from .within import OwnStacks

        looks = OwnStacks(folder, float(options["rate"]), bool(options["source"]), worker)
        _thread.start_new_thread(looks.run, ())
