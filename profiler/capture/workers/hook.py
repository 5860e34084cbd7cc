"""The hook on how batches are made: in the training process, what its loaders' workers need to know, and what the
training makes itself.

What runs in a worker of torch's loader: torch's own loop, its orders looked at, its batches recorded. torch's
fetchers, which make batches of samples: each call is told to whoever times what is made in this process.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import get_ident
from time import monotonic_ns
from typing import Any

from torch.utils.data import dataloader
from torch.utils.data._utils import fetch as torch_fetch
from torch.utils.data._utils import worker as torch_worker

from ...record.notices import TRAINING_NOTICES, Notices
from ..hidden import forget_frame, passes_on
from ..hooks.fetches import ToldBatches
from ..hooks.identity import ByIdentity
from ..hooks.loader import STATEFUL
from ..hooks.loop import Loop
from ..hooks.steady import PASS, IteratorPasses, instead
from ..hooks.switch import Switch
from ..hooks.wrap import Hook, Patches, Unexpected
from ..loop_detector.loaders import Part
from .counters import ThreadCounters
from .fetch_timing import BatchRecords, FetchTimer, Row

FETCHERS = ("_MapDatasetFetcher", "_IterableDatasetFetcher")


class _OfThread(threading.local):
    timer: FetchTimer | None = None


class Fetchers:
    """torch's two kinds of fetcher, in workers and in the training alike, and who times what they make in this process.

    Fetchers that nobody times cost one look-up more.
    """

    def __init__(self) -> None:
        self.of_thread = _OfThread()
        self.in_training: TrainingFetchTimer | None = None
        """Of batches that no worker makes."""
        self._patches = Patches()
        self._users = 0

    def install(self, in_training: TrainingFetchTimer | None = None) -> None:
        """Replace the fetchers' `fetch`; as often as wanted.

        `in_training`: times the batches of this process that no worker makes.

        Raises:
            Unexpected: this torch has other fetchers.
        """
        self._users += 1
        self.in_training = in_training or self.in_training
        if self._users > 1:
            return
        try:
            for name in FETCHERS:
                self._patches.replace(getattr(torch_fetch, name, None), "fetch", self._wrap, None, None)
        except Unexpected:
            self.remove()
            raise

    def leave_training(self) -> None:
        """Undo the `install` of a recording."""
        self.in_training = None
        self.remove()

    def remove(self) -> None:
        """Undo one `install`; the last one puts torch's functions back."""
        self._users = max(0, self._users - 1)
        if not self._users:
            self._patches.put_back()

    def forked(self) -> None:
        """This is a child: nobody times its batches unless it says so, and torch's functions are back."""
        for timer in (self.of_thread.timer, self.in_training):
            if timer is not None:
                timer.forked()
        self._users = 0
        self.of_thread = _OfThread()
        self.in_training = None

    def _wrap(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        # A program may have put a function of its own there, which does with the indices what it likes.
        stamps = getattr(getattr(original, "__code__", None), "co_filename", "") == torch_fetch.__file__

        def fetch(self_: Any, possibly_batched_index: Any) -> Any:
            timer = self.of_thread.timer or self.in_training
            if timer is not None and not timer.begins(self_, possibly_batched_index, stamps):
                timer = None
            try:
                batch = original(self_, possibly_batched_index if timer is None else timer.indices)
                if timer is not None:
                    timer.ends(batch)
            except BaseException as error:
                if timer is not None:
                    timer.fails()
                forget_frame(error)
                raise
            return batch

        here = self.in_training
        return fetch if here is None else instead(here.steady, "fetch", original, fetch, here.switch.fail, here)


fetchers = Fetchers()
"""Of this process."""
os.register_at_fork(after_in_child=fetchers.forked)


OFTEN_NS = 200_000_000
NAME = "the workers of torch's loader"
WITHOUT = "their work is not recorded"
NEEDED = ("index_queue", "worker_id")
"""Arguments of torch's loop that have to be found."""

# The child may not have whyidle: an environment of its own, say. Then torch's own loop is what it gets.
_REVIVE = """
def revive(module, name, state):
    import importlib
    try:
        if state is not None:
            from whyidle.capture.workers.hook import WorkerLoop
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
        loader, timer = getattr(self._next, "loader", 0), None
        if loader:
            switch = Switch(NAME, WITHOUT, Notices(self._folder / TRAINING_NOTICES))
            with switch:
                bound = inspect.signature(self._original).bind(*args, **kwargs)
                worker, own = int(bound.arguments["worker_id"]), os.getpid() != self._training
                records = BatchRecords(self._folder, self._rank, self._training, worker, loader)
                ids = {"worker": worker, "training": self._training, "loader": loader}
                timer = WorkerFetchTimer(switch, records, own, **ids)
                fetchers.install()
                fetchers.of_thread.timer = timer
                bound.arguments["index_queue"] = Orders(bound.arguments["index_queue"], timer)
                args, kwargs = bound.args, bound.kwargs
        try:
            with passes_on:
                return self._original(*args, **kwargs)
        finally:
            if timer is not None:
                with timer.switch:
                    fetchers.of_thread.timer = None
                    fetchers.remove()
                    timer.close()

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


class WorkerFetchTimer(FetchTimer):
    """Knows from its orders which batch is made."""

    _pass = 0

    def ordered(self, order: Any, waited_ns: int) -> None:
        """The worker was told something by the training, for which it waited."""
        self.idle_ns = waited_ns
        if type(order) is tuple and len(order) == 2 and type(order[0]) is int:
            self.number = self._pass * PASS + order[0]
        elif type(order).__name__ == "_ResumeIteration":
            self._pass += 1


class Orders:
    """A worker's queue of orders, with a look at what comes out of it."""

    def __init__(self, queue: Any, timer: WorkerFetchTimer) -> None:
        self._queue = queue
        self._timer = timer
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
            self._timer.records.look_where_refused()
        return order

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


_iterators: ByIdentity[IteratorPasses] = ByIdentity()
_numbers = count(1)
# Of the process, not of one recording: workers outlive a recording that is begun anew.


class WorkersHook(Hook):
    """Numbers the iterators with workers, and puts itself around the loop that their workers run."""

    name, without = "preparing batches", "what it costs is not recorded"

    def __init__(self, loop: Loop, told: ToldBatches) -> None:
        """`told`: what the program says of the making itself, which then is all that is recorded of it."""
        super().__init__(loop)
        self._told = told
        self._pid = os.getpid()
        self._loops: list[WorkerLoop] = []
        self._training: TrainingFetchTimer | None = None

    def install(self) -> None:
        base = dataloader._BaseDataLoaderIter
        self._patch_loop(torch_worker)
        self.imports.when(STATEFUL, self._stateful)
        self.replace(base, "__init__", self._wrap_init, None, None)
        self.around(base, "_reset", self._begins_anew, None, None, None)
        self._training = TrainingFetchTimer(self._loop, self._told, self.switch)
        fetchers.install(self._training)

    def remove(self) -> None:
        self.put_back()
        for loop in self._loops:
            loop.serves(0)
        timer, self._training = self._training, None
        if timer is not None:
            fetchers.leave_training()
            timer.close()

    def passes_of(self, iterator: Any) -> IteratorPasses | None:
        """What its steps say of an iterator; `None` for one without workers."""
        passes = _iterators.get(iterator)
        if passes is not None and not getattr(iterator, "_in_order", True):
            passes.order = None
        return passes

    def _stateful(self, module: Any) -> None:
        with contextlib.suppress(Unexpected):
            self._patch_loop(module)

    def _patch_loop(self, module: Any) -> None:
        def wrap(original: Callable[..., Any]) -> WorkerLoop:
            # Its arguments have changed between releases of torch.
            if missing := [name for name in NEEDED if name not in inspect.signature(original).parameters]:
                raise Unexpected(f"_worker_loop takes no {' and no '.join(missing)}")
            loop = WorkerLoop(original, self._session.folder.resolve(), self._session.rank, self._session.writer)
            self._loops.append(loop)
            return loop

        original = getattr(module, "_worker_loop", None)
        taken = len(inspect.signature(original).parameters) if callable(original) else 0
        self.replace(module, "_worker_loop", wrap, *[None] * taken)

    def _wrap_init(self, original: Callable[..., None]) -> Callable[..., None]:
        def __init__(self_: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            with passes_on:
                original(self_, *args, **kwargs)
            with self.switch:
                self._made(self_)

        return __init__

    def _begins_anew(self, iterator: Any, *_args: Any, **_kwargs: Any) -> None:
        passes = _iterators.get(iterator)
        if passes is not None and passes.order is not None:
            passes.order += PASS

    def _made(self, iterator: Any) -> None:
        """An iterator begins; its workers are started next, by the same thread."""
        if os.getpid() != self._pid:
            # A child of the training is no training of this recording.
            for loop in self._loops:
                loop.serves(0)
            return
        loader = 0
        if self.switch.on and not self._told.telling and int(getattr(iterator, "_num_workers", 0)) > 0:
            loader = next(_numbers)
            _iterators.put(iterator, IteratorPasses(loader))
        for loop in self._loops:
            loop.serves(loader)


class TrainingFetchTimer(FetchTimer):
    """Batches that the training makes itself, in the fetches of its steps."""

    FREE = 32
    """As many as a loader is replayed from (`analyse.predict`), with those of the warm-up and the one under way: a
    first stretch that is tuned from may hold no others, where looking is slow."""
    SPACING = 4000
    """A fraction of a thousandth of the time: here the training itself waits, and its caches are cold after a look."""

    def __init__(self, loop: Loop, told: ToldBatches, switch: Switch) -> None:
        self._loop, self.steady = loop, loop.steady
        self._told = told
        self._session = session = loop.session
        self._steps = session.steps
        self._thread = 0
        super().__init__(switch, BatchRecords(session.folder, session.rank, session.writer), False, worker=0)
        self.counters.close()  # they are those of a thread, which is known at the first batch

    def begins(self, fetcher: Any, indices: Any, stamps: bool = True) -> bool:
        loop = self._loop
        if not self._steps.recording or loop.part is Part.NOTHING or not loop.fetching or get_ident() != loop.thread:
            return False
        if self._told.telling:
            return False
        begin = monotonic_ns()
        if begin < self._not_before and self._pending is None:
            # The common case: one that is left out.
            return self._leaves_out(begin, indices)
        if self._thread != loop.thread:
            self._thread = loop.thread
            self.counters.close()
            self.counters = ThreadCounters(own_process=False)
        self._flush()
        begins = super().begins(fetcher, indices, stamps)
        try:
            self._steps.add_overhead(monotonic_ns() - begin)
        except BaseException:
            if begins:
                self.fails()
            raise
        return begins

    def ends(self, batch: Any) -> None:
        if self._left_out_since:
            self._left_out()
            return
        begin = monotonic_ns()
        super().ends(batch)
        self._steps.add_overhead(monotonic_ns() - begin)

    def close(self) -> None:
        """The recording ends, all steps are stored."""
        self._flush(last=True)
        super().close()

    def _store(self, row: Row) -> None:
        row[0] = self._steps.count - 1
        self._pending = row

    def _flush(self, last: bool = False) -> None:
        """Store the record that waits, unless its step was taken back."""
        row, self._pending = self._pending, None
        if row is not None:
            self._session.made(row, last)
