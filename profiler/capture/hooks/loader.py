"""The hook on torch's DataLoader: when a batch is asked for, when it comes, how many samples it has.

Workers that died: torch tells the training by an error, which is looked at as it passes. Who it was stands in the
error's text. How it ended the kernel tells without being asked for good (`WNOWAIT`), so that torch and multiprocessing
find it as they would have.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Callable
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch import is_grad_enabled
from torch.utils.data import DataLoader, dataloader
from torch.utils.data._utils import signal_handling

from ...record.schema import NOT_MEASURED, EventKind
from ...record.stacks import Call
from ..bootstrap.arm import made_at
from ..hidden import forget_frame, passes_on
from ..loop_detector.loaders import Iteration, Part, Role
from .identity import ByIdentity
from .loader_facts import LoaderFacts, queue_of, reference_to, starts_python
from .loop import Loop
from .parts import samples_of
from .steady import LEAST_DRAW_NS, IteratorPasses, KnownIterator, instead
from .wrap import Hook, Unexpected

if TYPE_CHECKING:
    from ..tuning.takeover import Takeover

STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"


class LoaderHook(Hook):
    """Wraps what makes an iterator and what asks it for a batch.

    `_BaseDataLoaderIter.__next__` serves every kind of torch's loader and of `StatefulDataLoader`. The iterator's type,
    its length and its state stay what they are.
    """

    name, without = "torch's DataLoader", "no later steps are recorded"

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop, on_failure=loop.give_up)
        self._roles: ByIdentity[Role] = ByIdentity()
        self._known: ByIdentity[KnownIterator] = ByIdentity()
        self._last: KnownIterator | None = None
        """What is known of the iterator that was asked for a batch last, or is being asked."""
        self.passes_of: Callable[[Any], IteratorPasses | None] | None = None
        """Tells which batch an iterator handed over, once somebody watches its workers."""
        self.takeover: Takeover | None = None
        """What stands between the training and its iterators under `whyidle tune`."""
        self.on_error: Callable[[BaseException], object] | None = None
        """Told what a fetch raised, but for the end of the data."""

    def install(self) -> None:
        base = dataloader._BaseDataLoaderIter
        self.replace(base, "__next__", self._wrap_next, None)
        self.replace(DataLoader, "__iter__", self._wrap_iter, None)
        try:
            self.replace(base, "_next_index", self._wrap_next_index, None)
        except Unexpected as error:
            self._session.notice(f"The first tensor of each batch tells its number of samples: {error}.")
        try:
            self.replace(base, "__init__", self._wrap_sampler_iter, None, None)
            self.replace(base, "_reset", self._wrap_sampler_iter, None, None)
        except Unexpected as error:
            self._session.notice(f"Work of a sampler at the start of an epoch counts for its first batch: {error}.")
        self.imports.when(STATEFUL, self._stateful)

    def _stateful(self, module: ModuleType) -> None:
        with contextlib.suppress(Unexpected):
            # Without it, making the iterator is part of the first fetch, and nothing else is missing.
            self.replace(getattr(module, "StatefulDataLoader", None), "__iter__", self._wrap_iter, None)

    def last(self) -> Any | None:
        """The iterator that was asked for a batch last, while it is there."""
        return None if self._last is None else self._last.iterator()

    def fed_from_elsewhere(self, iterator: Any) -> Callable[[int | None], None]:
        """An iterator does not make its batches any longer. Returns what is to be told the samples of each before it
        is handed over; which batch it is, is not known."""
        known = self._know(iterator)
        known.passes, known.counts = None, False
        known.lengths.clear()

        def tell(samples: int | None) -> None:
            known.lengths.clear()
            if samples is not None:
                known.lengths.append(samples)

        return tell

    def _wrap_iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        loop, switch = self._loop, self.switch

        def __iter__(self_: Any) -> Any:  # noqa: N807
            listens = switch.on and not loop.fetching and get_ident() == loop.thread
            of = self._iter_begins(self_) if listens else None
            if listens:
                loop.fetching = True
            try:
                iterator = original(self_)
            except BaseException as error:
                if listens:
                    loop.fetching = False
                    loop.hears(switch, loop.iter_failed)
                forget_frame(error)
                raise
            if listens:
                loop.fetching = False
            if of is not None:
                self._iter_ends(iterator, of, self_)
            return iterator

        return __iter__

    def _wrap_next(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        loop, steps, switch, clock = self._loop, self._steps, self.switch, self._now

        def __next__(self_: Any) -> Any:  # noqa: N807
            listens, asked, known = switch.on and not loop.fetching, None, self._last
            if listens and get_ident() != loop.thread:
                loop.fetches_elsewhere(switch)
                listens = False
            try:
                if not listens:
                    return original(self_)
            except BaseException as error:
                forget_frame(error)
                raise
            try:
                now = clock()
                if known is None or known.iterator() is not self_:
                    known = self._know(self_)
                if self.takeover is not None:
                    now = self.takeover.before(self_, known.iteration, now)
                self._follows(known)
                of = known.iteration
                if of is None or of.done:
                    of = self._begin_late(self_, known, now)
                if loop.next_begins(of, now):
                    if steps.passing and steps.skip_left > 0:
                        steps.let_pass(now)
                    else:
                        steps.fetch_begin(of.epoch or 0, False, of.queue, now)
                else:
                    loop.tell(loop.fetch_began, of, now, is_grad_enabled(), steps.computed())
                asked = of
            except Exception as error:
                switch.fail(error)
            loop.fetching = True
            try:
                batch = original(self_)
            except BaseException as error:
                loop.fetching = False
                self._raised(error, known, asked)
                forget_frame(error)
                raise
            loop.fetching = False
            if asked is None or known is None or not switch.on:
                return batch
            try:
                self._came(known, asked, self_, batch)
            except Exception as error:
                switch.fail(error)
            return batch

        steady = None if self.takeover is not None else loop.steady
        return instead(steady, "next", original, __next__, switch.fail, self._came, self._raised)

    def _came(self, known: KnownIterator, asked: Iteration, iterator: Any, batch: Any) -> None:
        """A batch was handed over."""
        loop, steps = self._loop, self._steps
        now = self._now()
        samples = known.lengths.popleft() if known.lengths else self._count(batch)
        loader = number = NOT_MEASURED
        flags = 0
        if steps.recording and loop.part is not Part.NOTHING:
            flags = loop.shapes.flags(batch)
            made = known.passes
            if made is not None:
                loader = made.loader
                if made.order is not None:
                    number = made.order + self._received(iterator)
        if loop.next_ends(asked, now, samples, loader, number):
            if steps.recording:
                steps.fetch_end(samples, now, True, loader, number, flags)
            elif steps.passing:
                steps.passes_with(samples)
        else:
            loop.tell(loop.fetch_ended, asked, now, samples, loader, number, flags)

    def _raised(self, error: BaseException, known: KnownIterator | None, asked: Iteration | None) -> None:
        """There was no further batch, or the fetch failed."""
        if isinstance(error, StopIteration):
            if asked is not None:
                self._loop.hears(self.switch, self._loop.fetch_stopped, asked, self._now())
            return
        if asked is not None and known is not None:
            self._fetch_fails(known)
        if self.on_error is not None:
            self.on_error(error)

    def _wrap_next_index(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        loop, steps, switch, clock = self._loop, self._steps, self.switch, self._now

        def _next_index(self_: Any) -> Any:
            listens = switch.on and get_ident() == loop.thread
            # In steps that are let pass no clock is read.
            begin = clock() if listens and not steps.passing else 0
            try:
                index = original(self_)
            except BaseException as error:
                forget_frame(error)
                raise
            if not listens:
                return index
            try:
                drawn = len(index) if type(index) is list else NOT_MEASURED
                if begin and (end := clock()) - begin >= LEAST_DRAW_NS:
                    loop.drew(begin, end, drawn)
                if drawn >= 0:
                    self._drew(self_, drawn)
            except Exception as error:
                switch.fail(error)
            return index

        return instead(loop.steady, "index", original, _next_index, switch.fail, self._drew, loop.drew)

    def _drew(self, iterator: Any, indices: int) -> None:
        """So many were drawn for a batch."""
        known = self._last
        if known is None or known.iterator() is not iterator:
            known = self._know(iterator)
        if known.counts:
            known.lengths.append(indices)

    def _follows(self, known: KnownIterator) -> None:
        """Its iterator is asked for a batch, where another was before."""
        if self._loop.steady is not None and self._last is not known:
            self._loop.steady.follow(known)
        self._last = known

    def _wrap_sampler_iter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Of torch's two functions that do hardly more than make the iterator of a sampler."""
        loop, switch, clock = self._loop, self.switch, self._now

        def make(self_: Any, *args: Any, **kwargs: Any) -> Any:
            begin = clock() if switch.on and get_ident() == loop.thread else 0
            with passes_on:
                made = original(self_, *args, **kwargs)
            with switch:
                # Others than map-style datasets have a sampler of constants.
                mapped = getattr(self_, "_dataset_kind", None) == dataloader._DatasetKind.Map
                if begin and mapped and (end := clock()) - begin >= LEAST_DRAW_NS:
                    loop.drew(begin, end, 0)
            return made

        return make

    def _iter_begins(self, loader: Any) -> Iteration | None:
        try:
            now = self._now()
            role = self._roles.get(loader)
            if role is None:
                role = Role()
                self._roles.put(loader, role)
            # An iterator whose workers persist starts anew: indices of an epoch left early are void.
            kept = getattr(loader, "_iterator", None)
            known = None if kept is None else self._known.get(kept)
            if known is not None:
                known.lengths.clear()
            of = Iteration(role, now)
            self._loop.tell(self._loop.iter_began, of, now, is_grad_enabled())
            return of
        except Exception as error:
            self.switch.fail(error)
            return None

    def _iter_ends(self, iterator: Any, of: Iteration, loader: Any) -> None:
        with self.switch:
            self._loop.tell(self._loop.iter_ended, of, self._now())
            if isinstance(iterator, dataloader._BaseDataLoaderIter):
                made = tuple(Call(*call) for call in made_at(loader))
                self._begin_iteration(iterator, self._know(iterator), of, made)

    def _begin_late(self, iterator: Any, known: KnownIterator, now: int) -> Iteration:
        """A pass over an iterator that was made before the hooks were, or by a loader whose `__iter__` is its own."""
        of = Iteration(Role() if known.iteration is None else known.iteration.role, now)
        self._begin_iteration(iterator, known, of)
        return of

    def _received(self, iterator: Any) -> int:
        """Number of the batch that an iterator with workers handed over last, from 1."""
        return int(iterator._rcvd_idx)

    def _count(self, batch: Any) -> int:
        """Samples of a batch whose indices were not seen."""
        samples = samples_of(batch)
        if samples is None:
            self._session.notice(
                f"The number of samples in a batch of {type(batch).__name__} is unknown; it counts as 0."
            )
        return samples or 0

    def _fetch_fails(self, asked: KnownIterator) -> None:
        with self.switch:
            iterator = asked.iterator()
            sent = getattr(iterator, "_send_idx", None)
            # A fetch that timed out took no batch: what was sent to the workers and has not come is still to come.
            left = len(asked.lengths) - 1 if sent is None else sent - self._received(iterator)
            while len(asked.lengths) > max(0, left):
                asked.lengths.popleft()
        self._loop.hears(self.switch, self._loop.fetch_failed)

    def _know(self, iterator: Any) -> KnownIterator:
        known = self._known.get(iterator)
        if known is None:
            known = KnownIterator(iterator, None if self.passes_of is None else self.passes_of(iterator))
            self._known.put(iterator, known)
        return known

    def _begin_iteration(
        self, iterator: Any, known: KnownIterator, iteration: Iteration, made: tuple[Call, ...] = ()
    ) -> None:
        workers = int(getattr(iterator, "_num_workers", 0))
        iteration.queue = queue_of(iterator)
        iteration.role.data = iteration.role.data or self._loop.data_sets.number_of(iterator._dataset)
        iteration.facts = LoaderFacts(
            workers,
            getattr(iterator, "_prefetch_factor", None) if workers else None,
            bool(getattr(iterator, "_pin_memory", False)),
            bool(getattr(iterator, "_persistent_workers", False)),
            iterator._dataset_kind == dataloader._DatasetKind.Iterable,
            not getattr(iterator, "_in_order", True),
            workers > 0 and starts_python(getattr(iterator._workers[0], "_start_method", None)),
            made,
            reference_to(iterator._dataset),
            reference_to(getattr(iterator, "_dataset_fetcher", None)),
        )
        known.iteration = iteration


_DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)")
MOST_DEATHS = 64
"""Deaths that are kept: a job has no more to learn from further ones."""


class WorkerDeaths(Hook):
    """Records them. The error reaches the training by a fetch, or by the handler of a signal, wherever it is then."""

    name, without = "workers that die", "the cause is not recorded"

    def __init__(self, loop: Loop, iterator: Callable[[], Any | None]) -> None:
        """`iterator`: of a loader, that was asked for a batch last."""
        super().__init__(loop)
        self._iterator = iterator
        self._seen: set[int] = set()
        self._noted: deque[tuple[int, int, int, int]] = deque(maxlen=MOST_DEATHS)
        """(when, pid, number, exit code) of what is not recorded yet: a signal's handler must not write."""

    def install(self) -> None:
        # Torch's handler of SIGCHLD asks for it by this name.
        self.replace(signal_handling, "_error_if_any_worker_fails", self._wrap)

    def remove(self) -> None:
        self.put_back()
        # What a signal's handler raised has left no fetch since.
        self.record()

    def note(self, error: BaseException) -> None:
        """An error on its way to the training; most say nothing of workers."""
        if not (self.switch.on and isinstance(error, RuntimeError)):
            return
        with self.switch:
            found = _DIED.search(str(error))
            for pid in map(int, found[1].split(",")) if found is not None else ():
                if pid not in self._seen and len(self._seen) < MOST_DEATHS:
                    self._seen.add(pid)
                    self._noted.append((self._now(), pid, *_looked_up(self._iterator(), pid)))

    def fetch_failed(self, error: BaseException) -> None:
        """A fetch raised this, in the thread that trains."""
        self.note(error)
        with self.switch:
            self.record()

    def record(self) -> None:
        """Of the thread that trains, and not within a signal's handler."""
        while self._noted:
            t_ns, pid, number, code = self._noted.popleft()
            self._session.event(EventKind.WORKER_DIED, code, t_ns=t_ns)
            self._session.event(EventKind.DIED_WORKER, (number << 32) + pid, t_ns=t_ns)

    def _wrap(self, original: Callable[[], None]) -> Callable[[], None]:
        def _error_if_any_worker_fails() -> None:
            try:
                original()
            except BaseException as error:
                self.note(error)
                forget_frame(error)
                raise

        return _error_if_any_worker_fails


def _looked_up(iterator: Any, pid: int) -> tuple[int, int]:
    """(its number in the loader from 1, 0: not known; its exit code)."""
    workers = list(getattr(iterator, "_workers", ()))
    at = next((at for at, worker in enumerate(workers) if worker.pid == pid), None)
    known = None if at is None else getattr(workers[at]._popen, "returncode", None)
    return 0 if at is None else at + 1, _exit_code(pid) if known is None else int(known)


def _exit_code(pid: int) -> int:
    """Of a child that nobody has waited for yet; it stays so."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return NOT_MEASURED  # a child of the fork server
    if ended is None:
        return NOT_MEASURED
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
