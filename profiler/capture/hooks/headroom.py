"""`run --headroom`: now and then the training gets a stretch of batches without waiting for any.

Between two steps of the loader that trains, the hook asks the loader for the next batches itself (the *fill*), waits
until the workers have nothing left to do, and then lets the loop have those batches at once (the *stretch*). The
batches, their order and the number of steps stay what they are; only the waiting is done before. Afterwards the
workers' queue is fuller than usual: the steps until that is used up are marked too (the *recovery*).

What a batch takes, and what there is room for.

Batches fetched ahead from an iterator, which hands them out as its own. The iterator's `_next_data` is covered for
so long. That depends on no other hook, and ends with the iterator: whatever becomes of the recording, the training
gets its batches.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import resource
import statistics
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import dataloader

from ...record.notices import NO_HEADROOM
from ...record.schema import EventKind, StepFlag
from ..loop_detector.loaders import Iteration, Use
from ..memory_limits import memory_available
from ..session import Session
from .loop import Loop
from .parts import bytes_of_array, device_of, fields_of, has_plain_memory, parts_of, shape_of
from .switch import Switch, hand_on, ours

MEMORY_SHARE = 0.1
"""Of the memory that is available, for the batches of a stretch."""
SHM_SHARE = 0.5
FILES_SHARE = 0.25
"""Of the file descriptors left: each tensor that comes from a worker may hold one."""
MOST_PARTS = 20_000
"""Parts of a batch that are weighed."""


class Weight:
    """What one batch takes."""

    __slots__ = ("nbytes", "on_device", "tensors")

    def __init__(self) -> None:
        self.nbytes = 0
        self.tensors = 0
        self.on_device = False


def weigh(batch: Any) -> Weight | None:
    """Bytes and tensors in a batch, nested as it may be; `None` where nothing in it has a size, or it has no end."""
    weight = Weight()
    parts = [batch]
    seen: set[int] = set()
    while parts:
        part = parts.pop()
        if isinstance(part, torch.Tensor):
            weight.tensors += 1
            weight.on_device |= device_of(part) != "cpu"
            if has_plain_memory(part):
                weight.nbytes += shape_of(part)[2]
        elif isinstance(part, str | bytes | bytearray):
            weight.nbytes += len(part)
        elif part is None or isinstance(part, int | float | complex | type) or id(part) in seen:
            continue
        elif isinstance(part, np.ndarray):
            weight.nbytes += bytes_of_array(part)
        else:
            seen.add(id(part))
            inside = parts_of(part, MOST_PARTS + 1)
            parts += fields_of(part).values() if inside is None else inside
        if len(seen) + weight.tensors + len(parts) > MOST_PARTS:
            return None
    return weight if weight.nbytes else None


class Room:
    """What the batches of a stretch may take."""

    def __init__(self, nbytes: float, files: float) -> None:
        self._nbytes = nbytes
        self._files = files

    @classmethod
    def now(cls, iterator: Any) -> Room:
        nbytes = MEMORY_SHARE * (memory_available() or 0)
        files = float("inf")
        pinned = bool(getattr(iterator, "_pin_memory", False))
        if getattr(iterator, "_num_workers", 0) and not pinned:
            with contextlib.suppress(OSError):
                shm = os.statvfs("/dev/shm")
                nbytes = min(nbytes, SHM_SHARE * shm.f_bavail * shm.f_frsize)
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            if limit != resource.RLIM_INFINITY:
                files = FILES_SHARE * (limit - len(os.listdir("/proc/self/fd")))
        return cls(nbytes, files)

    def for_batches(self, nbytes: float, tensors: int) -> int:
        return int(min(10**9, self._nbytes / max(1.0, nbytes), self._files / max(1, tensors)))


LONGEST_FILL_S = 60.0
LONGEST_WAIT_S = 10.0
"""For workers to finish what they have begun."""
HANDED_OVER_S = 0.01
"""A worker's batch counts as finished before it is pickled."""
LEAST_BATCHES = 8
"""Fewer tell nothing: the first few of a stretch do not count."""


class Held:
    """Batches that were fetched ahead from one iterator, which hands them out as its own."""

    def __init__(self, iterator: Any) -> None:
        # Not held: what it covers is a part of the iterator.
        self.iterator = weakref.ref(iterator)
        self.batches: deque[tuple[Any, int | None]] = deque()
        self.number: int | None = None
        """`_rcvd_idx` when the batch handed out last was fetched."""
        self.error: BaseException | None = None
        """What the loader raised behind them: its end, or an error of the training's own code."""

    @property
    def left(self) -> int:
        """What is still to be handed out, an end or an error included."""
        return len(self.batches) + (self.error is not None)

    def fill(self, wanted: int) -> str | None:
        """Fetch so many batches, or fewer if the loader ends or room is short; why that is too few, if it is so."""
        iterator = self.iterator()
        fetch: Callable[[Any], Any] = vars(type(iterator))["_next_data"]
        self._cover(iterator)
        self.number = getattr(iterator, "_rcvd_idx", None)
        until = time.monotonic() + LONGEST_FILL_S
        most, amount = wanted, 0
        room: Room | None = None
        try:
            while len(self.batches) < most and time.monotonic() < until:
                try:
                    batch = fetch(iterator)
                except StopIteration as end:
                    # A new one: frames of the old would keep the iterator alive.
                    self.error = StopIteration(*end.args)
                    break
                except Exception as error:
                    hand_on(error)
                    self.error = error
                    break
                self.batches.append((batch, getattr(iterator, "_rcvd_idx", None)))
                weight = weigh(batch)
                if weight is None:
                    return "the size of its batches is unknown"
                if weight.on_device:
                    return "the loader's batches are already on the device"
                room = room or Room.now(iterator)
                amount += weight.nbytes
                most = min(wanted, room.for_batches(amount / len(self.batches), weight.tensors))
                if most < LEAST_BATCHES:
                    return (
                        f"memory holds {most} batches of {weight.nbytes / 1e6:.1f} MB and {weight.tensors} tensors; "
                        f"{LEAST_BATCHES} are needed"
                    )
        finally:
            if not self.left:
                self._uncover()
        if len(self.batches) < LEAST_BATCHES and self.error is None:
            return f"only {len(self.batches)} batches came in {LONGEST_FILL_S:.0f} s; {LEAST_BATCHES} are needed"
        return None

    def wait_for_workers(self) -> None:
        """Until they have finished what they were told to make. They are told no more until the stretch is over."""
        iterator = self.iterator()
        if not getattr(iterator, "_num_workers", 0):
            return
        until = time.monotonic() + LONGEST_WAIT_S
        with contextlib.suppress(AttributeError, NotImplementedError, OSError):
            while iterator._data_queue.qsize() < iterator._tasks_outstanding and time.monotonic() < until:  # type: ignore[union-attr]
                time.sleep(0.001)
        time.sleep(HANDED_OVER_S)

    def _cover(self, iterator: Any) -> None:
        iterator._next_data = self._next_data
        iterator._reset = self._reset

    def _uncover(self) -> Any:
        iterator = self.iterator()
        for name in ("_next_data", "_reset"):
            vars(iterator).pop(name, None)
        return iterator

    def _next_data(self) -> Any:
        if self.batches:
            batch, self.number = self.batches.popleft()
            if not self.left:
                self._uncover()
            return batch
        if self.error is None:
            return self._uncover()._next_data()
        self._uncover()
        try:
            raise self.error
        finally:
            # No frame keeps it, for it would keep the iterator alive.
            self.error = None

    def _reset(self, *args: Any, **kwargs: Any) -> Any:
        """The iterator begins anew: an epoch was left early whose workers persist."""
        self.batches.clear()
        self.error = self.number = None
        return self._uncover()._reset(*args, **kwargs)


BATCHES = 24
"""Batches of a stretch."""
FIRST_AT = 50
"""Steps before the first stretch."""
APART = 20
"""Between two stretches lie so many times the steps that one takes, with its recovery."""
MOST_STRETCHES = 8
AROUND = 2
"""Batches of an epoch at either end that belong to no stretch."""
LOOKS = 16
"""Looks at the queue before a stretch; as full as it was then, it has recovered."""
LONGEST_RECOVERY = 4
"""Times the batches that the queue holds."""


class Headroom:
    """Tells where a stretch may begin, and marks its steps. Used from the training thread."""

    def __init__(self, session: Session, loop: Loop, now: Callable[[], int]) -> None:
        self._session = session
        self._steps = session.steps
        self._loop = loop
        self._now = now
        self._switch = Switch("headroom", "headroom is not measured further", session.notice)
        self._next_at = FIRST_AT
        self._left = MOST_STRETCHES
        self._measured = False
        self._why = _NOT_ALONE
        """Why no stretch has begun so far."""
        self._held: Held | None = None
        self._of: Iteration | None = None
        self._begin_ns = 0
        """Of the stretch under way, if it is long enough; else 0."""
        self._recovered = -1
        """Steps of the recovery so far; -1 during the stretch."""
        self._ready: deque[int] = deque(maxlen=LOOKS)
        """Finished batches that waited at the last fetches before a stretch."""
        self._alone = 0
        """Fetches in a row whose step had no other loader."""
        self._early = False
        """A loader whose length is not known ended in a fill: stretches begin where its epochs do."""

    def before(self, iterator: Any, of: Iteration | None, now: int) -> int:
        """`iterator` is asked for a batch, as part of `of` where that is known; when that is, after a fill maybe."""
        if self._held is None and (self._left == 0 or of is None or self._steps.count < self._next_at - LOOKS):
            return now
        try:
            if self._held is not None and self._marks(self._held, iterator, of, now):
                return now
            if self._left and of is not None and self._may_begin(iterator, of):
                self._begins(iterator, of, now)
                return self._now()
        except Exception as error:
            self._left, self._held = 0, None
            self._switch.fail(error)
        return now

    def received(self, iterator: Any) -> int:
        """`_rcvd_idx` of an iterator, as if nothing had been fetched ahead."""
        held = getattr(vars(iterator).get("_next_data"), "__self__", None)
        return held.number if isinstance(held, Held) and held.number is not None else int(iterator._rcvd_idx)

    def finish(self) -> None:
        """The recording ends."""
        self._stretch_ends(self._now())
        if not self._measured:
            steps = self._steps.count
            few = f"the training ended after {steps} steps; the first stretch comes after {FIRST_AT}"
            self._refuse(few if 0 < steps <= FIRST_AT else self._why)

    def _marks(self, held: Held, iterator: Any, of: Iteration | None, now: int) -> bool:
        """Mark the step that begins as one of the stretch or its recovery; false once both are over."""
        owner = held.iterator()
        if owner is not None and owner is not iterator and self._of is not None and not self._of.done:
            return True  # a validation in its midst, say
        if owner is iterator and of is self._of:
            if held.left:
                self._steps.look(StepFlag.HEADROOM)
                return True
            self._stretch_ends(now)
            if self._recovers():
                self._steps.look(StepFlag.RECOVERY)
                return True
        # Left early, or begun anew.
        self._stretch_ends(now)
        self._held = self._of = None
        self._ready.clear()
        return False

    def _recovers(self) -> bool:
        queue = None if self._of is None else self._of.queue
        capacity = getattr(queue, "capacity", 0)
        self._recovered += 1
        if queue is None or self._recovered >= LONGEST_RECOVERY * capacity:
            return False
        if self._recovered < capacity or not self._ready:
            return self._recovered < capacity
        return bool(queue.ready() > statistics.median(self._ready))

    def _stretch_ends(self, now: int) -> None:
        if self._begin_ns:
            self._session.event(EventKind.HEADROOM_STRETCH, MOST_STRETCHES - self._left, now, self._begin_ns)
            self._measured = True
            self._begin_ns = 0

    def _may_begin(self, iterator: Any, of: Iteration) -> bool:
        """Whether a stretch may begin with this fetch. Only what every rank of a job finds alike decides, but for
        what is refused for good."""
        loop = self._loop
        if of.use is not Use.TRAINS or of.epoch is None or of.done or of.fetched < AROUND:
            return False
        self._alone = 0 if loop.shared or loop.open not in (None, of) else self._alone + 1
        if of.queue is not None:
            self._ready.append(of.queue.ready())
        if self._steps.count < self._next_at:
            return False
        if self._alone < LOOKS:
            self._why = _NOT_ALONE
            return False
        if not loop.learnt or loop.open is not of or loop.in_boundary or loop.captures():
            self._why = "whyidle found no place between two steps"
            return False
        if type(iterator) not in _KNOWN_ITERATORS or "_next_data" in vars(iterator):
            kind = type(iterator)
            name = f"{kind.__module__}.{kind.__qualname__}"
            return self._refuse(
                f"batches come from {name}"
                + (", whose saved state would be ahead of the training" if "stateful" in name else "")
            )
        length = length_of(iterator)
        if length is None and self._early and of.fetched > AROUND:
            self._why = "its epochs are too short"
            return False
        wanted = _wanted(length)
        if wanted < LEAST_BATCHES:
            least = LEAST_BATCHES + 2 * AROUND
            return self._refuse(f"an epoch has {length} batches; a stretch needs at least {least}")
        left = wanted if length is None else length - of.fetched
        if left < wanted:
            self._why = "the training ended before there was room for a stretch"
            return False
        return True

    def _begins(self, iterator: Any, of: Iteration, now: int) -> None:
        """Fetch the batches of a stretch, and have them handed out from now on."""
        loop, steps = self._loop, self._steps
        steps.end_step(end_ns=now)
        draws = _Draws()
        self._held = held = Held(iterator)
        self._of, self._recovered = of, -1
        self._left -= 1
        loop.fetching = True
        try:
            why = held.fill(_wanted(length_of(iterator)))
            if why is None:
                held.wait_for_workers()
        finally:
            # When the user interrupts, what was fetched is handed out later.
            loop.fetching = False
        capacity = getattr(of.queue, "capacity", 0)
        self._next_at = max(2 * steps.count, steps.count + APART * (BATCHES + capacity))
        if isinstance(held.error, StopIteration) and not self._early:
            self._early = True
            if len(held.batches) < LEAST_BATCHES:
                # Once more, in the next epoch.
                self._left += 1
                self._next_at = steps.count
        if draws.happened():
            self._session.notice(
                "Headroom: the training process draws random numbers when it fetches a batch, and stretches draw them "
                "earlier. If the training uses the same generators between fetches, as for dropout on the CPU, "
                "--headroom changes its results."
            )
        self._warns(iterator)
        end = self._now()
        self._session.event(EventKind.HEADROOM_FILL, len(held.batches), end, now)
        steps.look(StepFlag.HEADROOM)
        if why is not None:
            self._refuse(why)
        elif len(held.batches) >= LEAST_BATCHES:
            self._begin_ns = end

    def _warns(self, iterator: Any) -> None:
        """Name what may depend on the training, as it now prepares a batch some steps earlier."""
        samplers = [vars(iterator).get("_index_sampler")]
        samplers.append(getattr(samplers[0], "__dict__", {}).get("sampler"))
        own = [type(each).__qualname__ for each in samplers if not type(each).__module__.startswith(_TORCH_OR_PLAIN)]
        made = (
            [] if getattr(iterator, "_num_workers", 0) else ["the dataset, which runs in the training (num_workers=0)"]
        )
        for what in [*(f"the sampler {name}" for name in own), *made]:
            self._session.notice(
                f"Headroom: stretches ask {what} for batches earlier than the training would. If it depends on the "
                "training's progress, as a curriculum or a replay buffer does, --headroom changes the results."
            )

    def _refuse(self, why: str) -> bool:
        self._left = 0
        if not self._measured:
            self._session.notice(f"{NO_HEADROOM}{why}.")
            self._measured = True  # it is said
        return False


def length_of(iterator: Any) -> int | None:
    """Batches of an iterator's epoch; `None` where that is not known."""
    if getattr(iterator, "_dataset_kind", None) != dataloader._DatasetKind.Map:
        return None
    with ours():
        return len(iterator)
    return None


def _wanted(length: int | None) -> int:
    return BATCHES if length is None else min(BATCHES, length - 2 * AROUND)


class _Draws:
    """Whether the training's own random generators were used since."""

    def __init__(self) -> None:
        self._before = self._states()

    def happened(self) -> bool:
        return self._states() != self._before

    @staticmethod
    def _states() -> tuple[object, ...]:
        numpy = sys.modules.get("numpy.random")
        with torch._C.DisableTorchFunction():
            drawn = torch.default_generator.get_state().numpy().tobytes()
        return drawn, random.getstate(), None if numpy is None else pickle.dumps(numpy.get_state())


_TORCH_OR_PLAIN = ("torch.utils.data.", "builtins")
"""Modules whose samplers know nothing of the training."""
_NOT_ALONE = "its steps are not fed by one torch DataLoader alone"
_KNOWN_ITERATORS = (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)
