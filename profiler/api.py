"""What a training may call: `watch`, `step` and `phase` say what cannot be seen of it, `log_to` logs what was.

Outside a recording they do nothing. Importing this imports neither torch nor anything else of ours.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from .capture.active import Recording
    from .capture.hooks.fetches import Pass
    from .capture.hooks.loop import Phase

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])

_RUN = "WHYIDLE_RUN"
"""Set by `whyidle run`, as `capture.bootstrap` has it."""
DATA = "data"
"""The phase that is waiting for data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeBatch:
    """How a batch was made, for `watch(…, made=…)`; `None` is what is not known.

    Durations are nanoseconds. Where several threads make the samples of one batch, they are summed over those.
    """

    begin_ns: int
    """When work on the batch began, by `time.monotonic_ns()` in whichever process."""
    end_ns: int
    """When it was complete where it was made, before any hand-over."""
    worker: int = 0
    """Which worker made it, from 0."""
    threads: int = 1
    """Threads that work on batches in this worker at a time."""
    read_ns: int | None = None
    """Waiting in reads."""
    decode_ns: int | None = None
    transform_ns: int | None = None
    collate_ns: int | None = None
    """Putting samples together."""
    cpu_ns: int | None = None
    """CPU time of the threads that made it."""
    minor_faults: int | None = None
    """Page faults without I/O."""
    read_bytes: int | None = None
    batch_bytes: int | None = None
    """Bytes of the finished batch."""


def watch(
    iterable: T,
    batch_size: int | None = None,
    *,
    made: Callable[[Any], MadeBatch | None] | None = None,
    ready: Callable[[], int] | None = None,
    capacity: int | None = None,
) -> T:
    """`iterable`, with each of its batches recorded as one of a DataLoader would be.

    Outside a recording it is the same object. So is a torch DataLoader of which nothing more is told, since it is seen
    anyway, and what nothing could stand for: lists, mappings, tensors, arrays and the like, and what is iterated
    asynchronously. Otherwise it is one that iterates as the object does, and hands on everything else.

    Args:
        batch_size: samples in each batch; default: as the first tensor in it says.
        made: tells how a batch was made, for loaders that stamp their own work; called with each batch that is looked
            at. What a torch DataLoader within the iterable does is then not recorded besides.
        ready: tells how many finished batches wait to be fetched; called when a batch is asked for.
        capacity: how many can wait.
    """
    if _RUN not in os.environ and _current() is None:
        return iterable
    data = sys.modules.get("torch.utils.data")
    told = not (batch_size is None and made is None and ready is None)
    if not told and data is not None and isinstance(iterable, data.DataLoader):
        return iterable
    from .capture.stand_in import watched

    def begin(watched: Any) -> Pass | None:
        running = _recording(begins=not _is_child())
        if running is None:
            return None
        from .capture.hooks.loader_facts import ToldQueue
        from .capture.hooks.parts import samples_of

        count = samples_of if batch_size is None else lambda _: batch_size
        queue = None if ready is None else ToldQueue(ready, capacity)
        return running.hooks.fetches.over(watched, count, tells=made, queue=queue)

    seen = watched(iterable, begin)
    if seen is iterable and not hasattr(type(iterable), "__aiter__") and (running := _recording()) is not None:
        running.session.notice(
            f"whyidle.watch gives a {type(iterable).__name__} back as it is; watch(iter(…)) records its batches."
        )
    return cast(T, seen)


def step() -> None:
    """A training step begins here: for loops in which nothing else tells. From the first call on nothing else does."""
    running = _recording()
    if running is not None:
        running.hooks.tell(lambda loop: loop.happens(loop.step_marked), learns=True)


def log_to(
    target: Any, every_s: float = 10.0, *, run: str | os.PathLike[str] | None = None, every_rank: bool = False
) -> None:
    """Log what the training waits for with its own logger, beside its loss: flat figures named `whyidle/…`.

    Under `whyidle run` the figures of the last seconds are logged at the begin of a step, in the thread that trains,
    by the step's number. An error of the logger's ends that and nothing else. Outside a recording nothing happens.

    Args:
        target: a TensorBoard `SummaryWriter`, a Weights & Biases run, the `mlflow` module, a Lightning logger, or any
            function of (figures, step). `None` is logged to by nobody: ranks without a logger may pass it.
        every_s: seconds between two times, at the least. Called again with the same target, the later call counts.
        run: folder of a recording that has ended: it is logged now, as it went and as a whole.
        every_rank: log in each process of a job, with its own figures, instead of in rank 0 alone.

    Raises:
        TypeError: `target` is no logger.
        ValueError: `every_s` is not above 0, or more than 1e9.
        WhyidleError: `run` holds no recorded steps.
    """
    from pathlib import Path

    from .capture.scalars import sender
    from .record.scalars import MOST_SECONDS

    if not 0 < every_s <= MOST_SECONDS:
        raise ValueError(f"log_to: every_s is {every_s!r:.40}; it takes seconds above 0 and up to {MOST_SECONDS:g}.")
    every_s = float(every_s)
    if target is None:
        return
    send = sender(target, alone=run is not None)
    if run is not None:
        from .report.export.scalars import figures_of

        for figures, at in figures_of(Path(run), every_s):
            send(figures, at)
    elif folder := os.environ.get(_RUN):
        from .capture import scalars

        scalars.begin(Path(folder), target, every_s, every_rank)


class phase:  # noqa: N801
    """Names a part of the training: `with phase("checkpoint"):`, or `@phase("checkpoint")` on a function.

    `phase("data")` is time waiting for data, like the fetch from a loader. Any other phase is time outside the steps if
    it lies between two of them, and only named if it lies within one. On a generator function, each of its items is
    made within the phase. An `async` function is left as it is: what else runs while it waits is not the phase's.
    """

    __slots__ = ("_begun", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._begun: list[tuple[Recording, Phase | bool | None] | None] = []

    def __enter__(self) -> None:
        running = _recording(begins=not _is_child())
        if running is None:
            self._begun.append(None)
            return
        if self.name == DATA:
            self._begun.append((running, running.hooks.tell(lambda loop: loop.wait_begins())))
        else:
            self._begun.append((running, running.hooks.tell(lambda loop: loop.phase_begins())))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        begun = self._begun.pop()
        if begun is None:
            return
        running, phase = begun
        if isinstance(phase, bool):
            if phase:  # the outermost: a wait within a wait is part of it
                running.hooks.tell(lambda loop: loop.happens(loop.wait_ended, kind is not None))
        elif phase is not None:
            name = running.hooks.names.number
            running.hooks.tell(lambda loop: loop.happens(loop.phase_ended, *phase, name(self.name)))

    def __call__(self, function: Function) -> Function:
        import inspect

        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            return function
        if inspect.isgeneratorfunction(function):
            return cast(Function, self._each(function))

        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with phase(self.name):
                return function(*args, **kwargs)

        return cast(Function, within)

    def _each(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def each(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            made = function(*args, **kwargs)
            go_on, given = made.send, None
            while True:
                try:
                    with phase(self.name):
                        item = go_on(given)
                except StopIteration as end:
                    return end.value
                try:
                    go_on, given = made.send, (yield item)
                except GeneratorExit:
                    made.close()
                    raise
                except BaseException as error:
                    go_on, given = made.throw, error

        return each


def _current() -> Recording | None:
    active = sys.modules.get("whyidle.capture.active")
    return None if active is None else active.current()


def _is_child() -> bool:
    """Whether this is a process of multiprocessing. Many read data and train nothing, and mark that they read."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def _recording(begins: bool = True) -> Recording | None:
    """The recording of this process. `begins`: which begins now under `whyidle run`."""
    compiler = sys.modules.get("torch.compiler")
    if compiler is not None and compiler.is_dynamo_compiling():
        # A graph has no place for us; Dynamo finds this answer when it traces what called us.
        return None
    running = _current()
    if running is None and begins and _RUN in os.environ:
        # There once torch was imported: a program without torch has no training.
        arm = sys.modules.get("whyidle.capture.bootstrap.arm")
        if arm is not None:
            arm.begin()
            running = _current()
    return running
