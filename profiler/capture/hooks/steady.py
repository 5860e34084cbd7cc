"""The hooks' steady path in C (`native.py`), joined to the recorder and the detector of a recording.

What is known of an iterator of torch's DataLoader, beside what it is to the steps.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import dataloader

from ... import native
from ...record.schema import NOT_MEASURED, StepFlag
from ..loop_detector.loaders import Iteration, OptimizerPace, Part, Role, Use
from ..steps import BLANK, LEAST_STAGE_NS, SLOT
from .switch import Switch, ours

MOST_LENGTHS = 100_000
"""Index lists remembered for one iterator; a loader prefetches far fewer."""


PASS = 1 << 32
"""`batch` of a record is so much times the iterator's pass over the data, plus the batch's number in it."""


class IteratorPasses:
    """An iterator with workers, and which of its passes over the data it is in."""

    __slots__ = ("loader", "order")

    def __init__(self, loader: int) -> None:
        self.loader = loader
        self.order: int | None = -PASS - 1
        """Plus `_rcvd_idx`: `batch` of what the iterator handed over last. The first pass has not begun yet. `None`:
        batches come as they are finished."""


class KnownIterator:
    """What is known of an iterator."""

    __slots__ = ("counts", "iteration", "iterator", "lengths", "passes")

    def __init__(self, iterator: Any, passes: IteratorPasses | None) -> None:
        self.iterator = weakref.ref(iterator)
        self.iteration: Iteration | None = None
        self.passes = passes
        """Tells its batches apart, where workers make them."""
        self.lengths: deque[int] = deque(maxlen=MOST_LENGTHS)
        """Numbers of indices drawn for the batches that were not handed over yet."""
        # An iterable dataset is asked for so many samples, and may have fewer.
        self.counts = iterator._dataset_kind == dataloader._DatasetKind.Map and getattr(iterator, "_in_order", True)
        """Whether batches come in the order in which their indices were drawn, and with as many samples."""


LEAST_DRAW_NS = 100_000
"""A sampler's work that is shorter is not recorded: torch's own samplers draw hundreds of indices in that time."""


def steady_of(loop: Any, switch: Switch) -> Any:
    """What the hooks of one recording do in the common case, in C; `None` without the extension, or where what that
    relies on is not as it was built for. `switch`: that of the hook on loaders."""
    if native.extension is None or not isinstance(loop.steps, native.RecorderBase):
        return None
    with ours():
        _lay_out()
        return native.extension.Steady(loop.steps, loop, switch, loop.shapes.flags, loop.shapes.switch)
    return None


def instead(
    steady: Any,
    what: str,
    original: Callable[..., Any] | None,
    slow: Callable[..., Any],
    fail: Callable[[Exception], None],
    first: Any = None,
    second: Any = None,
) -> Callable[..., Any]:
    """What stands in the place of a function of torch's, or does what a hook of ours does; `slow`, where that is all.

    Args:
        steady: of `steady_of`.
        what: "next" and "index" are `__next__` and `_next_index` of torch's iterators, "fetch" that of a fetcher,
            "backward" torch's backward pass, "update" and "updated" what is done before and after an optimizer's
            step, "forward" is told that the model is called.
        original: torch's function.
        slow: ours in Python, which does the rarer cases.
        fail: takes errors of ours.
        first, second: what `_native.c` says at the kind.
    """
    if steady is None:
        return slow
    made: Callable[..., Any] = native.extension.Instead(what, steady, original, slow, first, second, fail)
    return made


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
        "blank": BLANK,
    }
    native.extension.lay_out(numbers, types, things)
