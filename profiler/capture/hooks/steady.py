"""The hooks' steady path in C (`native.py`), joined to the recorder and the detector of a recording."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ... import native
from ...record.schema import NOT_MEASURED, StepFlag
from ..loop_detector.loaders import Iteration, Part, Role, Use
from ..loop_detector.unfed import OptimizerPace
from ..open_step import LEAST_STAGE_NS, SLOT
from ..steps import BLANK, StepRecorder
from .known_iterators import KnownIterator
from .shapes import Shapes
from .switch import Switch

LEAST_DRAW_NS = 100_000
"""A sampler's work that is shorter is not recorded: torch's own samplers draw hundreds of indices in that time."""
FORWARD_KEY = "whyidle"
"""Of our hook among those of a module."""


class SteadyPath:
    """What the hooks ask first. Each question is answered with `NOT_OURS`, and then nothing has changed, or by what
    there was to be done being done. Errors of ours are raised."""

    NOT_OURS = 0
    DONE = 1
    OPEN = 2
    """Done, and its end is to be told too."""

    def __init__(self, of: Any) -> None:
        self._of = of
        self.follow = of.follow
        """(what is known of an iterator): it is the one that is asked for batches."""
        self.learns = of.learns
        """(whether it is an optimizer step): a backward pass begins, or that; the rest of the step's hooks may ask."""
        self.backward_ends = of.backward_ends
        self.updated = of.updated
        """An optimizer step is over."""
        self.forward_begins = of.forward_begins
        """(hook, module): the module that the hook waits for is called."""

    def instead(self, what: str, *args: Any) -> Callable[[Any], Any]:
        """What stands in the place of `__next__` ("next") or `_next_index` ("index") of torch's iterators.

        Args:
            args: the original, ours in Python, and what takes the rarer cases, see `_native.c`.
        """
        made: Callable[[Any], Any] = native.extension.Instead(what, self._of, *args)
        return made


def steady_of(steps: StepRecorder, loop: Any, switch: Switch, shapes: Shapes) -> SteadyPath | None:
    """The steady path of one recording; `None` without the extension, or where what it relies on is not as it was
    built for."""
    if native.extension is None or not isinstance(steps, native.RecorderBase):
        return None
    try:
        _lay_out()
        return SteadyPath(native.extension.Steady(steps, loop, switch, shapes.flags, shapes.switch))
    except Exception:
        return None


def _lay_out() -> None:
    numbers = dict(SLOT) | {
        "FORWARD_AFTER": StepFlag.FORWARD_AFTER,
        "FORWARD_SEEN": StepFlag.FORWARD_SEEN,
        "OPTIMIZER": StepFlag.OPTIMIZER,
        "NEW_SHAPE": StepFlag.NEW_SHAPE,
        "ONE_ELEMENT": 1 << StepFlag.ELEMENTS_SHIFT,
        "LEAST_STAGE_NS": LEAST_STAGE_NS,
        "LEAST_DRAW_NS": LEAST_DRAW_NS,
        "words": len(BLANK),
    }
    types = {"pass": Iteration, "role": Role, "pace": OptimizerPace, "switch": Switch, "known": KnownIterator}
    things: dict[str, Any] = {
        "monotonic": time.monotonic_ns,
        "opens": Part.OPENS,
        "trains": Use.TRAINS,
        "tensor": torch.Tensor,
        "modes": torch._C._len_torch_function_stack,
        "not_delivered": (NOT_MEASURED, NOT_MEASURED),
        "s_key": FORWARD_KEY,
        "blank": BLANK,
    }
    native.extension.lay_out(numbers, types, things)
