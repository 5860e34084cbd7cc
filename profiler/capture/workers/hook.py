"""The hook on how batches are made: in the training process, what its loaders' workers need to know, and what the
training makes itself."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable
from itertools import count
from threading import get_ident
from time import monotonic_ns
from typing import Any

from torch.utils.data import dataloader
from torch.utils.data._utils import worker as torch_worker

from ...errors import RecordError
from ...record.names import Names
from ...record.schema import CONTENT, NOT_MEASURED, TRANSFORM
from ...record.segment import RecordWriter
from ..hidden import forget_frame
from ..hooks.identity import ByIdentity
from ..hooks.loop import Loop
from ..hooks.switch import Switch
from ..hooks.told_batches import ToldBatches
from ..hooks.wrap import Unexpected, Wraps
from ..loop_detector.loaders import Part
from ..session import Session
from ..steps import StepRecorder
from .batch_content import BatchContent
from .counters import ThreadCounters
from .fetch_timing import FetchTimer, Row
from .fetchers import fetchers
from .worker_loop import PASS, WorkerLoop, positions

STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"


class IteratorPasses:
    """An iterator with workers, and which of its passes over the data it is in."""

    __slots__ = ("loader", "order")

    def __init__(self, loader: int) -> None:
        self.loader = loader
        self.order: int | None = -PASS - 1
        """Plus `_rcvd_idx`: `batch` of what the iterator handed over last. The first pass has not begun yet. `None`:
        batches come as they are finished."""


_iterators: ByIdentity[IteratorPasses] = ByIdentity()
_numbers = count(1)
# Of the process, not of one recording: workers outlive a recording that is begun anew.


class WorkersHook:
    """Numbers the iterators with workers, and puts itself around the loop that their workers run."""

    def __init__(self, session: Session, loop: Loop, told: ToldBatches, switch: Switch) -> None:
        """`told`: what the program says of the making itself, which then is all that is recorded of it."""
        self.switch = switch
        self._session = session
        self._loop = loop
        self._told = told
        self._pid = os.getpid()
        self._wraps = Wraps(switch)
        self._loops: list[WorkerLoop] = []
        self._stateful = False
        self._installed = False
        self._training: TrainingFetchTimer | None = None

    def install(self) -> None:
        base = dataloader._BaseDataLoaderIter
        self._patch_loop(torch_worker)
        self._wraps.replace(base, "__init__", self._wrap_init, None, None)
        self._wraps.around(base, "_reset", self._begins_anew, None, None, None)
        self._training = TrainingFetchTimer(self._session, self._loop, self._told, self.switch)
        self._installed = True
        fetchers.install(self._training, self._loop.steady)

    def remove(self) -> None:
        self._wraps.put_back()
        for loop in self._loops:
            loop.serves(0)
        if self._installed:
            self._installed = False
            fetchers.leave_training()
        if self._training is not None:
            self._training.close()

    def passes_of(self, iterator: Any) -> IteratorPasses | None:
        """What its steps say of an iterator; `None` for one without workers."""
        passes = _iterators.get(iterator)
        if passes is not None and not getattr(iterator, "_in_order", True):
            passes.order = None
        return passes

    def _patch_loop(self, module: Any) -> None:
        def wrap(original: Callable[..., Any]) -> WorkerLoop:
            try:
                positions(original)
            except LookupError as error:
                raise Unexpected(str(error)) from None
            loop = WorkerLoop(original, self._session.folder.resolve(), self._session.rank, self._session.writer)
            self._loops.append(loop)
            return loop

        original = getattr(module, "_worker_loop", None)
        taken = len(inspect.signature(original).parameters) if callable(original) else 0
        self._wraps.replace(module, "_worker_loop", wrap, *[None] * taken)

    def _wrap_init(self, original: Callable[..., None]) -> Callable[..., None]:
        def __init__(self_: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            try:
                original(self_, *args, **kwargs)
            except BaseException as error:
                forget_frame(error)
                raise
            try:
                self._made(self_)
            except Exception as error:
                self.switch.fail(error)

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
        if not self._stateful and STATEFUL in sys.modules:
            self._stateful = True
            with contextlib.suppress(Unexpected):
                self._patch_loop(sys.modules[STATEFUL])
        loader = 0
        if self.switch.on and not self._told.under_way and int(getattr(iterator, "_num_workers", 0)) > 0:
            loader = next(_numbers)
            _iterators.put(iterator, IteratorPasses(loader))
        for loop in self._loops:
            loop.serves(loader)


class TrainingFetchTimer(FetchTimer):
    """Batches that the training makes itself, in the fetches of its steps.

    Whether a fetch belongs to a step is sure only when the next one begins: a record is stored then.
    """

    FREE = 32
    """As many as a loader is replayed from (`analyse.predict`), with those of the warm-up and the one under way: a
    first stretch that is tuned from may hold no others, where looking is slow."""
    SPACING = 4000
    """A fraction of a thousandth of the time: here the training itself waits, and its caches are cold after a look."""

    def __init__(self, session: Session, loop: Loop, told: ToldBatches, switch: Switch) -> None:
        self._loop = loop
        self._told = told
        self._steps: StepRecorder = session.steps
        self._session = session
        self._pid = os.getpid()
        self._thread = 0
        self._transforms_writer: RecordWriter | None = None
        self._contents_writer: RecordWriter | None = None
        self._contents_lost = False
        super().__init__(
            switch,
            ThreadCounters(own_process=False),
            Names(session.folder),
            self._keep,
            self._store_transform,
            BatchContent(self._store_content, in_worker=False),
            own_process=False,
            worker=0,
        )
        self.counters.close()  # they are those of a thread, which is known at the first batch

    def begins(self, fetcher: Any, indices: Any, stamps: bool = True) -> bool:
        loop = self._loop
        if not self._steps.recording or loop.part is Part.NOTHING or not loop.fetching or get_ident() != loop.thread:
            return False
        if self._told.under_way:
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
        for writer in (self._transforms_writer, self._contents_writer):
            if writer is not None:
                writer.close()

    def _keep(self, row: Row) -> None:
        row[0] = self._steps.count - 1
        self._pending = row

    def _flush(self, last: bool = False) -> None:
        """Store the record that waits, unless its step was taken back."""
        row, self._pending = self._pending, None
        if row is not None and os.getpid() == self._pid and row[0] < self._steps.count - (0 if last else 1):
            self._session.made(row)

    def _store_transform(self, name: int, position: int, calls: int, ns: int) -> None:
        if self._transforms_writer is None:
            self._transforms_writer = RecordWriter(
                self._session.folder, TRANSFORM, self._session.rank, self._session.writer
            )
        self._transforms_writer.append(self._session.writer, 0, name, position, calls, ns, NOT_MEASURED)

    def _store_content(self, _batch: int, *content: int) -> None:
        if self._contents_lost:
            return
        if self._contents_writer is None:
            try:
                self._contents_writer = RecordWriter(
                    self._session.folder, CONTENT, self._session.rank, self._session.writer
                )
            except RecordError:
                # Without them nothing is known of samples made for nothing; all else of a batch is.
                self._contents_lost = True
                return
        self._contents_writer.append(self._session.writer, 0, NOT_MEASURED, NOT_MEASURED, *content)
