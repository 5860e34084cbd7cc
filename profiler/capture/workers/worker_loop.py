"""What runs in a worker of torch's loader: torch's own loop, its orders looked at, its batches recorded."""

from __future__ import annotations

import importlib
import inspect
import os
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

from ...record.names import Names
from ...record.notices import TRAINING_NOTICES, Notices
from ...record.schema import BATCH, CONTENT, TRANSFORM
from ...record.segment import RecordWriter
from ..bootstrap import stack_options
from ..hidden import forget_frame
from ..hooks.switch import Switch
from ..stacks.within import look_within
from .batch_content import BatchContent
from .counters import ThreadCounters
from .fetch_timing import FetchTimer
from .fetchers import fetchers

OFTEN_NS = 200_000_000
PASS = 1 << 32
"""`batch` is so much times the iterator's pass over the data, plus the batch's number in it."""
NAME = "the workers of torch's loader"
WITHOUT = "what happens inside them is not seen"
NEEDED = ("index_queue", "worker_id")
"""Arguments of torch's loop that have to be found."""

# The child may not have whyidle: an environment of its own, say. Then torch's own loop is what it gets.
_REVIVE = """
def revive(module, name, state):
    import importlib
    try:
        if state is not None:
            from whyidle.capture.workers.worker_loop import WorkerLoop
            return WorkerLoop.revived(module, name, *state)
    except Exception:
        pass
    return getattr(importlib.import_module(module), name)
"""


class WorkerLoop:
    """Stands in for a `_worker_loop`, the target of worker processes, of torch or torchdata.

    It is told in the training for which iterator the next workers are, and reaches them by fork or by pickle.
    """

    def __init__(
        self, original: Callable[..., Any], folder: Path, rank: int, training: int, loader: int | None = None
    ) -> None:
        self._original = original
        self._folder = folder
        self._rank = rank
        self._training = training
        # Workers are started by the thread that makes the iterator.
        self._next = threading.local()
        if loader is not None:
            self._next.loader = loader

    def serves(self, loader: int) -> None:
        """The workers that this thread starts next work for this iterator; 0: for one that is not recorded."""
        self._next.loader = loader

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        loader = getattr(self._next, "loader", 0)
        recording = None
        if loader:
            switch = Switch(NAME, WITHOUT, Notices(self._folder / TRAINING_NOTICES))
            try:
                recording = WorkerRecording(switch, self._folder, self._rank, self._training, loader)
                args, kwargs = recording.sees(self._original, args, kwargs)
            except Exception as error:
                switch.fail(error)
        try:
            return self._original(*args, **kwargs)
        except BaseException as error:
            forget_frame(error)
            raise
        finally:
            if recording is not None:
                recording.close()

    def __reduce__(self) -> Any:
        loader = getattr(self._next, "loader", 0)
        state = (str(self._folder), self._rank, self._training, loader) if loader else None
        names: dict[str, Any] = {"source": _REVIVE, "space": {}}
        names["arguments"] = self._original.__module__, self._original.__name__, state
        return eval, ("exec(source, space) or space['revive'](*arguments)", names)

    @classmethod
    def revived(cls, module: str, name: str, folder: str, rank: int, training: int, loader: int) -> WorkerLoop:
        """What a worker that was not forked makes of it."""
        original = getattr(importlib.import_module(module), name)
        if isinstance(original, cls):
            original = original._original
        return cls(original, Path(folder), rank, training, loader)


def positions(loop: Callable[..., Any]) -> dict[str, int]:
    """Where a `_worker_loop` takes what we need: its arguments have changed between releases of torch.

    Raises:
        LookupError: it does not take them.
    """
    names = list(inspect.signature(loop).parameters)
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise LookupError(f"_worker_loop takes no {' and no '.join(missing)}")
    return {name: names.index(name) for name in NEEDED}


class WorkerRecording:
    """One worker's recording."""

    def __init__(self, switch: Switch, folder: Path, rank: int, training: int, loader: int) -> None:
        self._switch = switch
        self._folder = folder
        self._who = rank, training
        self._loader = loader
        self._batches: RecordWriter | None = None
        self._transforms: RecordWriter | None = None
        self._contents: RecordWriter | None = None
        self._timer: WorkerFetchTimer | None = None
        self._worker = 0
        self._patched = False

    def sees(
        self, loop: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for torch's loop, with the queue of orders looked into."""
        bound = inspect.signature(loop).bind(*args, **kwargs).arguments
        where = positions(loop)
        self._worker = int(bound["worker_id"])
        rank, training = self._who
        self._batches = RecordWriter(self._folder, BATCH, rank, training, slot=True)
        own = os.getpid() != training
        self._timer = WorkerFetchTimer(
            self._switch,
            ThreadCounters(own_process=own),
            Names(self._folder),
            self._batches.store,
            self._store_transform,
            BatchContent(self._store_content, in_worker=True),
            own_process=own,
            worker=self._worker,
            training=training,
            loader=self._loader,
        )
        fetchers.install()
        self._patched = True
        fetchers.of_thread.timer = self._timer
        orders = Orders(bound["index_queue"], self._timer, self._look_where_refused)
        if "index_queue" in kwargs:
            return args, kwargs | {"index_queue": orders}
        at = where["index_queue"]
        return (*args[:at], orders, *args[at + 1 :]), kwargs

    def _look_where_refused(self) -> None:
        if self._batches is not None and self._batches.refused:
            look_within(self._folder, stack_options, worker=True)

    def close(self) -> None:
        """The worker ends."""
        try:
            fetchers.of_thread.timer = None
            if self._patched:
                fetchers.remove()
            if self._timer is not None:
                self._timer.close()
            for writer in (self._batches, self._transforms, self._contents):
                if writer is not None:
                    writer.close()
        except Exception as error:
            self._switch.fail(error)

    def _store_transform(self, name: int, position: int, calls: int, ns: int) -> None:
        rank, training = self._who
        if self._transforms is None:
            self._transforms = RecordWriter(self._folder, TRANSFORM, rank, training, slot=True)
        self._transforms.append(training, self._worker, name, position, calls, ns, self._loader)

    def _store_content(self, batch: int, *content: int) -> None:
        rank, training = self._who
        if self._contents is None:
            self._contents = RecordWriter(self._folder, CONTENT, rank, training, slot=True)
        self._contents.append(training, self._worker, self._loader, batch, *content)


class WorkerFetchTimer(FetchTimer):
    """Knows from its orders which batch is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pass = 0

    def ordered(self, order: Any, waited_ns: int) -> None:
        """The worker was told something by the training, for which it waited."""
        self.idle_ns = waited_ns
        if type(order) is tuple and len(order) == 2 and type(order[0]) is int:
            self.number = self._pass * PASS + order[0]
        elif type(order).__name__ == "_ResumeIteration":
            self._pass += 1


class Orders:
    """A worker's queue of orders, with a look at what comes out of it."""

    def __init__(self, queue: Any, timer: WorkerFetchTimer, now_and_then: Callable[[], None]) -> None:
        """`now_and_then`: called with an order, at most every `OFTEN_NS`; does not raise."""
        self._queue = queue
        self._timer = timer
        self._now_and_then = now_and_then
        self._then_ns = 0
        self._waited = 0

    def get(self, *args: Any, **kwargs: Any) -> Any:
        begin = monotonic_ns()
        try:
            order = self._queue.get(*args, **kwargs)
        except BaseException as error:
            # Every few seconds without an order the loop looks whether the training is still there.
            self._waited += monotonic_ns() - begin
            forget_frame(error)
            raise
        now = monotonic_ns()
        self._timer.ordered(order, self._waited + now - begin)
        self._waited = 0
        if now >= self._then_ns:
            self._then_ns = now + OFTEN_NS
            self._now_and_then()
        return order

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)
