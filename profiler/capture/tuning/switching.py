"""A training that is given its batches as the tuner orders, and measured: settings take turns within seconds.

Each settings has a source of batches (a clone of the program's loader, or whatever makes batches for them), which is
kept, paused, until the tuner closes it. A measurement begins and ends at borders of steps, and the device is waited for
at those two only. First the loader settles: the training takes so many batches that its queue is as full as these
settings keep it. What follows is measured, until it is long enough to be believed. Where something else than training
comes into that, it settles and is measured anew.

Batches may also be *held*: fetched once and handed out again and again, as if a loader took no time. Each time a
training gets new lists and dictionaries, around the same tensors; of these torch counts the changes. A training that
changes them cannot be measured so.
"""

from __future__ import annotations

import contextlib
import copy
import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, NoReturn, Protocol

import torch

from ...devices.protocol import Device
from ...errors import WhyidleError
from ...record.tuning import LONGEST_BLOCK, WITHOUT_MEMORY, Block, Channel, ChannelClosed, LoaderSettings, Word
from ..hooks.parts import fields_of, parts_of
from ..hooks.switch import from_a_signal
from .processes import cpu_ns, forget_peak, memory_use, proportional_bytes

S = 1_000_000_000
KEPT = 8
"""Batches that are held."""
MOST_PARTS = 20_000
LEAST_BATCHES = 8
BURSTS = 3
"""Workers that started together finish together: a block has so many of such bursts at least."""
FEWEST = 3
"""Batches that a block has however slow they are."""
SETTLE_SHARE = 0.5
"""Share of the time asked for: longer than that no more batches than there are workers are trained to settle."""
MOST_CUTS = 2
"""Times that a block is begun anew because a validation or a new epoch came into it, before what lies between two such
is taken for it."""
MOST_TRIES = 12
LONGEST_REST_S = 10.0
"""For workers to finish what they had begun when their source was paused."""
LONGEST_DRAIN_NS = 5 * S
"""For a queue to be emptied of what it holds."""
ASK_EVERY_S, LOOK_EVERY_NS = 0.5, S
"""How often a training looks whether its tuner lives: one that waits, and one that trains."""

Fetched = tuple[Any, int | None]
"""A batch, and its samples where that is known."""


def is_out_of_memory(error: BaseException, said: str = "") -> bool:
    """Tell whether it failed for want of memory: of the device, of the machine, or of /dev/shm. `said`: what else is
    known about it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.ENOSPC):
        return True
    return WITHOUT_MEMORY.search(f"{type(error).__name__} {error} {said}") is not None


def sentence(error: BaseException) -> str:
    """Tell what went wrong, in one line: of an error from a worker what it was there."""
    if isinstance(error, WhyidleError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and "Traceback" in str(error):
        return lines[-1]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


class BatchSource(Protocol):
    """Batches made with some settings. One that has `pids`, processes of its workers, is asked what they cost."""

    def next(self) -> Fetched:
        """Give the next batch. Raises StopIteration where a pass over the data ends."""
        ...

    def restart(self) -> None:
        """Begin another pass, with the same workers where they persist."""
        ...

    def rest(self, seconds: float) -> None:
        """Return once no worker has anything to do, and at the latest after so many seconds."""
        ...

    def close(self) -> None:
        """End the workers. Never raises."""
        ...

    def why_failed(self) -> str | None:
        """Tell what became of its workers, where one of them died."""
        ...


class Kept:
    """A few batches of one size that are handed out again and again."""

    def __init__(self) -> None:
        self._batches: list[tuple[Fetched, list[torch.Tensor], list[int]]] = []
        """Batches with their tensors, and how often those were changed in place until they were fetched."""
        self._turn = 0

    def fill(self, fetch: Callable[[], Fetched]) -> None:
        """Fetch them, once. Raises WhyidleError where batches are nothing that can be kept, and whatever `fetch`
        raises."""
        while len(self._batches) < KEPT:
            fetched = fetch()
            tensors = tensors_in(fetched[0])
            self._batches.append((fetched, tensors, [tensor._version for tensor in tensors]))
        try:
            self.next()
        except Exception as error:
            name = type(self._batches[0][0][0]).__name__
            raise WhyidleError(f"batches of {name} cannot be kept ({error})") from error

    def require_unchanged(self) -> None:
        """
        Raises:
            WhyidleError: the training changes its batches: what is kept is no longer as it was fetched.
        """
        known = (pair for _, tensors, versions in self._batches for pair in zip(tensors, versions, strict=True))
        if any(tensor._version != version for tensor, version in known):
            raise WhyidleError("the training changes its batches in place, so they cannot be trained on again")

    def next(self) -> Fetched:
        """Give a batch with everything in it new, but for its tensors."""
        (batch, samples), tensors, _ = self._batches[self._turn]
        self._turn = (self._turn + 1) % KEPT
        return copy.deepcopy(batch, {id(each): each for each in tensors}), samples


def tensors_in(batch: Any) -> list[torch.Tensor]:
    """Find the tensors, nested as they may be."""
    found: list[torch.Tensor] = []
    parts, seen = [batch], set[int]()
    while parts and len(seen) + len(found) <= MOST_PARTS:  # the rest is copied with what it lies in
        part = parts.pop()
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif not (part is None or isinstance(part, str | bytes | int | float | complex | type) or id(part) in seen):
            seen.add(id(part))
            inside = parts_of(part, MOST_PARTS)
            parts += fields_of(part).values() if inside is None else inside
    return found


class Due(Enum):
    """What is due at a border of steps: to settle anew, to measure what follows, or to answer."""

    SETTLING, BEGIN, END = auto(), auto(), auto()


@dataclass
class Measurement:
    """How fast a training is with some settings. Times are ns."""

    settings: LoaderSettings
    wanted_ns: int
    """How long to measure."""
    kept: Kept | None = None
    """A few batches that are trained on again and again, where that is asked for."""
    first: Sequence[int] | None = None
    """Samples that the first batches are made of; `None`: nobody asks for the memory that it takes."""
    start_ns: int | None = None
    restart_ns: int | None = None
    """As in `Block`."""
    begin_ns: int = 0
    """When measuring began; 0 while it settles."""
    end_ns: int = 0
    cpu_ns: int = 0
    """CPU time of the loader's workers when measuring began."""
    _settling_ns: int = 0
    """When it began to settle."""
    _settled: int = 0
    """Batches trained since."""
    _batches: int = 0
    _samples: int = 0
    _wait_ns: int = 0
    _last: tuple[int, int, int, int] | None = None
    """Time, batches, samples and wait at the last border of a step."""
    _cuts: int = 0
    _spans: bool = False
    """Several passes over the data: they are too short to measure within one."""

    def settles(self, now: int) -> None:
        """From here on it settles, and nothing is measured yet."""
        self._settling_ns = now
        self._settled = self.begin_ns = self._batches = self._samples = self._wait_ns = 0
        self._spans = False
        self._last = None

    def trains(self, samples: int | None, wait_ns: int) -> None:
        """Count the training's next batch, which came after so long."""
        if not self.begin_ns:
            self._settled += 1
            return
        self._batches += 1
        # Where nothing tells: batches are counted instead, which compares settings of one batch size all the same.
        self._samples += samples if samples is not None else self.settings.batch_size or 1
        self._wait_ns += wait_ns

    def at_border(self, now: int, interrupted: bool, pass_ended: bool) -> Due | None:
        """Tell what is due where a step has ended, if anything is. `end_ns` is set where an earlier border was the end.

        Args:
            interrupted: something else than training came since the last batch.
            pass_ended: the loader began another pass over the data within the step.

        Raises:
            RuntimeError: it was begun anew too often.
            WhyidleError: the training changes batches that are held.
        """
        often = self._cuts >= MOST_CUTS
        if (interrupted or pass_ended) and often and not self._spans and self._last and self._last[1] >= FEWEST:
            self.end_ns, self._batches, self._samples, self._wait_ns = self._last
            return Due.END
        if interrupted or (pass_ended and not often):
            self._cuts += 1
            if self._cuts > MOST_TRIES:
                raise RuntimeError("validation or checkpoints come too often to measure between them")
            return Due.SETTLING
        self._spans |= pass_ended
        if self._is_long_enough(now) if self.begin_ns else self._has_settled(now):
            if self.kept is not None:
                self.kept.require_unchanged()
            return Due.END if self.begin_ns else Due.BEGIN
        if self.begin_ns:
            self._last = now, self._batches, self._samples, self._wait_ns
        return None

    def block(self) -> Block:
        """Give what was measured."""
        span = self.begin_ns, self.end_ns, self._wait_ns, self.start_ns, self.restart_ns
        return Block(self.settings, self._batches, self._samples, *span)

    def _has_settled(self, now: int) -> bool:
        workers, outstanding = self.settings.num_workers, self.settings.outstanding
        took = now - self._settling_ns
        if self._settled >= max(2, outstanding):
            return True
        return (self._settled >= max(2, workers) and took >= SETTLE_SHARE * self.wanted_ns) or (
            self._settled >= 1 and took >= LONGEST_BLOCK * self.wanted_ns
        )

    def _is_long_enough(self, now: int) -> bool:
        took = now - self.begin_ns
        wanted = max(LEAST_BATCHES, BURSTS * self.settings.num_workers)
        return (took >= self.wanted_ns and self._batches >= wanted) or (
            took >= LONGEST_BLOCK * self.wanted_ns and self._batches >= FEWEST
        )


class Switching:
    """Used from the training thread: `border` where one step ends and the next begins, then `next` for its batch."""

    def __init__(
        self,
        make: Callable[[LoaderSettings, Sequence[int]], BatchSource],
        line: Channel,
        device: Device,
        stop: Callable[[], NoReturn],
        tuner_lives: Callable[[], bool] = lambda: True,
        stands: Callable[[], object] = lambda: None,
    ) -> None:
        """Args:
        make: a source for settings, its first batches of the samples with these indices if there are any; raises where
            they do not work. WhyidleErrors are sentences for people.
        stop: ends the process.
        stands: called before the training is held up at a border.
        """
        self._make, self._line, self._device, self._now = make, line, device, device.now
        self._stop, self._tuner_lives, self._stands = stop, tuner_lives, stands
        self._sources: dict[LoaderSettings, BatchSource] = {}
        """All that the tuner has not closed."""
        self._kept: dict[int | None, Kept] = {}
        """Held batches, by batch size."""
        self._working: BatchSource | None = None
        """The source whose workers may be at work: that was taken from last."""
        self._source: BatchSource | Kept | None = None
        """What is taken from."""
        self._first: Fetched | None = None
        """The batch that a new source began with, not handed out yet."""
        self._pass_ended = False
        self._measured: Measurement | None = None
        """The order under way."""
        self._at_border = False
        self._looked_ns = 0

    def border(self, interrupted: bool = False) -> None:
        """Note that a step has ended. Returns when there is a setting to train on with, however long that takes.

        Args:
            interrupted: something else than training came since the last batch: validation, say.
        """
        self._at_border = True
        now = self._now()
        if now - self._looked_ns > LOOK_EVERY_NS:
            self._looked_ns = now
            if not self._tuner_lives():
                self._stop()
        pass_ended, self._pass_ended = self._pass_ended, False
        measured = self._measured
        if measured is not None:
            try:
                self._go_on(measured, measured.at_border(now, interrupted, pass_ended))
            except Exception as error:
                self._fail(measured, error)
        if self._measured is None:
            self._obey()

    def next(self) -> Fetched:
        """Give the batch to train on next."""
        if not self._at_border:
            self.border()
        self._at_border = False
        while True:
            measured, source = self._measured, self._source
            assert measured is not None
            assert source is not None
            begin = self._now()
            try:
                first, self._first = self._first, None
                if first is None:
                    first = source.next() if isinstance(source, Kept) else self._next_of(source)
            except Exception as error:
                self._fail(measured, error)
                self._obey()
                continue
            measured.trains(first[1], self._now() - begin)
            return first

    def training_ended(self, why: str, out_of_memory: bool) -> None:
        """The training ends, and with it the order under way."""
        measured, self._measured = self._measured, None
        if measured is not None:
            word = Word.OOM if out_of_memory else Word.FAILED
            self._line.send(word, settings=measured.settings, why=why, ended=True)

    def _go_on(self, measured: Measurement, due: Due | None) -> None:
        """Do what is due at a border; an order that is over is answered."""
        if due is None:
            return
        self._stands()
        pids: list[int] = getattr(self._source, "pids", [])
        if due is Due.SETTLING:
            self._settle(measured)
        elif due is Due.BEGIN:
            measured.cpu_ns = sum(map(cpu_ns, pids))
            self._device.synchronize()
            measured.begin_ns = self._now()
        else:
            if not measured.end_ns:
                self._device.synchronize()
                measured.end_ns = self._now()
            block, took = measured.block(), max(1, self._now() - measured.begin_ns)
            if pids:
                used, cpus = sum(map(proportional_bytes, pids)), (sum(map(cpu_ns, pids)) - measured.cpu_ns) / took
                block = replace(block, workers_bytes=used, workers_cpus=cpus)
            if measured.first is not None:
                block = replace(block, memory=memory_use(self._device))
            self._measured = None
            self._line.send(Word.BLOCK, block=block)

    def _fail(self, measured: Measurement, error: Exception) -> None:
        """Say that these settings do not work, and close their source.

        Raises what a signal handler of the program raised: it is the program's.
        """
        if from_a_signal(error):
            raise error
        why, settings = sentence(error), measured.settings
        if settings.held:
            self._leave(self._kept.pop(settings.batch_size, None))
        else:
            source = self._sources.get(settings)
            if source is not None and (of_workers := source.why_failed()):
                why = f"{why} ({of_workers})"
            self._close(settings)
        self._measured = None
        word = Word.OOM if is_out_of_memory(error, why) else Word.FAILED
        self._line.send(word, settings=settings, why=why)

    def _obey(self) -> None:
        """Wait for orders, until one of them is to train on."""
        self._stands()
        while self._measured is None:
            try:
                order = self._line.receive(ASK_EVERY_S)
            except ChannelClosed:
                self._stop()
            if order is None:
                if not self._tuner_lives():
                    self._stop()
                continue
            if order["say"] == Word.STOP:
                self._stop()
            settings: LoaderSettings = order["settings"]
            if order["say"] == Word.CLOSE:
                self._close(settings)
            elif order["say"] == Word.MEASURE:
                ordered = Measurement(settings, int(order["seconds"] * S), first=order.get("first"))
                try:
                    self._begin(ordered)
                except Exception as error:
                    self._fail(ordered, error)

    # Where batches come from. Whatever a source raises passes through.

    def _begin(self, ordered: Measurement) -> None:
        """Make ready what was ordered: what follows is trained."""
        settings, self._first = ordered.settings, None
        if self._working is not None:
            # Its workers would take CPU from the block that follows; to drain a queue takes a full one too.
            self._working.rest(LONGEST_REST_S)
        if settings.held:
            self._source = ordered.kept = self._kept.setdefault(settings.batch_size, Kept())
            self._fill(ordered.kept, settings)
        elif settings in self._sources:
            self._source = self._working = self._sources[settings]
        else:
            self._start(ordered)
        if ordered.start_ns is None:
            self._settle(ordered)
        else:
            self._pass_ended = False
            ordered.settles(self._now())
        self._measured = ordered

    def _start(self, ordered: Measurement) -> None:
        """Make a source, and measure how long its first batch takes to come, and that of another pass if its workers
        persist."""
        if ordered.first is not None:
            forget_peak()
        begin, settings = self._now(), ordered.settings
        source = self._source = self._working = self._sources[settings] = self._make(settings, ordered.first or ())
        self._first = self._next_of(source)
        ordered.start_ns = self._now() - begin
        if settings.persistent_workers:
            # As at an epoch's end: nothing of the pass before is under way any longer.
            source.rest(LONGEST_REST_S)
            begin = self._now()
            source.restart()
            self._first = self._next_of(source)
            ordered.restart_ns = self._now() - begin

    def _settle(self, measured: Measurement) -> None:
        """Bring the current source to where it would be after a while of training."""
        source = self._source
        if source is not None and not isinstance(source, Kept):
            source.rest(LONGEST_REST_S)
            until = self._now() + LONGEST_DRAIN_NS
            for _ in range(measured.settings.outstanding):
                if self._now() > until:
                    break
                self._next_of(source)
        self._pass_ended = False
        measured.settles(self._now())

    def _fill(self, kept: Kept, settings: LoaderSettings) -> None:
        """Fetch the batches that are handed out again and again, from a source of that size that is there."""
        alike = [each for each in self._sources if each.batch_size == settings.batch_size]
        alike.sort(key=lambda each: self._sources[each] is not self._working)
        own = alike[0] if alike else replace(settings, pipeline=None)
        if own not in self._sources:
            self._sources[own] = self._make(own, ())
        source = self._sources[own]
        kept.fill(lambda: self._next_of(source))
        source.rest(LONGEST_REST_S)

    def _next_of(self, source: BatchSource) -> Fetched:
        """Give the next batch; of another pass where one ends."""
        try:
            return source.next()
        except StopIteration:
            self._pass_ended = True
            source.restart()
        try:
            return source.next()
        except StopIteration:
            raise RuntimeError("the loader gives no batches in another pass over the data") from None

    def _close(self, settings: LoaderSettings) -> None:
        """End a source, if there is one for these settings. Never raises."""
        source = self._sources.pop(settings, None)
        if source is not None:
            self._leave(source)
            with contextlib.suppress(Exception):
                source.close()

    def _leave(self, source: BatchSource | Kept | None) -> None:
        if self._source is source:
            self._source = self._first = None
        if self._working is source:
            self._working = None
