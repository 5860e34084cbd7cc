"""What a training may call to say what cannot be seen of it: `watch`, `step` and `phase`.

Outside a recording they do nothing. Importing this imports neither torch nor anything else of ours.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from .capture.active import Recording
    from .capture.hooks.loop import Phase
    from .capture.watched import Pass

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])

_RUN = "STALLSCOPE_RUN"
"""Set by `stallscope run`, as `capture.bootstrap` has it."""
DATA = "data"
"""The phase that is waiting for data."""


def watch(iterable: T, batch_size: int | None = None) -> T:
    """`iterable`, with each of its batches recorded as one of a DataLoader would be.

    Outside a recording, and of a torch DataLoader, which is seen anyway, it is the same object. Otherwise one that
    iterates as it does, and hands on everything else.

    Args:
        batch_size: samples in each batch; default: as the first tensor in it says.
    """
    if not _recorded() or (batch_size is None and _is_loader(iterable)):
        return iterable
    from .capture.watched import watched

    def begin(watched: Any) -> Pass | None:
        running = _recording()
        if running is None:
            return None
        from .capture.hooks.samples import samples_of

        return running.hooks.fetches.over(watched, samples_of if batch_size is None else lambda _: batch_size)

    return cast(T, watched(iterable, begin))


def step() -> None:
    """A training step begins here: for loops in which nothing else tells. From the first call on nothing else does."""
    running = _recording()
    if running is not None:
        running.hooks.tell(lambda loop: loop.step_begins(), learns=True)


class phase:  # noqa: N801
    """Names a part of the training: `with phase("checkpoint"):`, or `@phase("checkpoint")` on a function.

    `phase("data")` is time waiting for data, like the fetch from a loader. Any other phase is time outside the steps if
    it lies between two of them, and only named if it lies within one.
    """

    __slots__ = ("_begun", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._begun: list[tuple[Recording, Phase | None] | None] = []

    def __enter__(self) -> None:
        running = _recording()
        if running is None:
            self._begun.append(None)
            return
        phase = running.hooks.tell(lambda loop: loop.wait_begins() if self.name == DATA else loop.phase_begins())
        self._begun.append((running, phase))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        begun = self._begun.pop()
        if begun is None:
            return
        running, phase = begun
        if self.name == DATA:
            running.hooks.tell(lambda loop: loop.wait_ends(kind is not None))
        elif phase is not None:
            running.hooks.tell(lambda loop: loop.phase_ends(phase, running.hooks.name(self.name)))

    def __call__(self, function: Function) -> Function:
        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with phase(self.name):
                return function(*args, **kwargs)

        return cast(Function, within)


def _recorded() -> bool:
    """Whether this process is recorded, or will be."""
    return _RUN in os.environ or _current() is not None


def _current() -> Recording | None:
    active = sys.modules.get("stallscope.capture.active")
    return None if active is None else active.current()


def _recording() -> Recording | None:
    """The recording of this process, which begins now under `stallscope run`."""
    running = _current()
    if running is None and _RUN in os.environ:
        # There once torch was imported: a program without torch has no training.
        arm = sys.modules.get("stallscope.capture.bootstrap.arm")
        if arm is not None:
            arm.begin()
            running = _current()
    return running


def _is_loader(iterable: object) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(iterable, data.DataLoader)
