"""A training that is given its batches as the tuner orders, and measured: settings take turns within seconds.

All that is measured lies between two borders of steps, and the device is waited for at those two only.

What is said of settings that do not work, and whether they failed for want of memory.

When a measurement of loader settings begins and ends: a function of what was trained up to each border of steps.
First the loader settles: the training takes so many batches that its queue is as full as these settings keep it.
What follows is measured, until it is long enough to be believed. Where something else than training comes into
that, it settles and is measured anew.

Where a training's batches come from while loader settings are tried: a source for each settings, side by side.
Knows nothing of torch's loader: a source is whatever makes batches for some settings. Each is kept, paused, until
the tuner closes it; so blocks of several settings can follow each other within seconds.

Batches that were fetched once and are handed out again and again, as if a loader took no time. A training may
change what it is given. So each time it gets new lists and dictionaries, around the same tensors; of these torch
counts the changes. Where there were any, batches are fetched anew, and copies are handed out that were made before
the block began.
"""

from __future__ import annotations

import contextlib
import copy
import errno
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, NoReturn, Protocol

import torch

from ...errors import WhyidleError
from ...record.tuning import LONGEST_BLOCK, WITHOUT_MEMORY, Block, ChannelClosed, LoaderSettings, Word
from ..hooks.parts import fields_of, parts_of, weigh
from ..hooks.switch import from_a_signal
from ..memory_limits import memory_available

KEPT = 8
MOST_COPIES = 256
MEMORY_SHARE = 0.1
"""Of the memory that is available, for copies of them."""
MOST_PARTS = 20_000


class NotKept(WhyidleError):
    """These batches cannot be handed out twice."""


class Kept:
    """A few batches of one size."""

    def __init__(self) -> None:
        self._batches: list[tuple[Any, int | None]] = []
        self._tensors: list[list[torch.Tensor]] = []
        self._versions: list[list[int]] = []
        self._turn = 0
        self._copies: list[tuple[Any, int | None]] = []
        self._copying = False

    @property
    def filled(self) -> bool:
        return bool(self._batches)

    @property
    def changed(self) -> bool:
        """The training changes its batches in place: what is kept is no longer as it was fetched."""
        return not self._copying and any(
            tensor._version != version
            for tensors, versions in zip(self._tensors, self._versions, strict=True)
            for tensor, version in zip(tensors, versions, strict=True)
        )

    @property
    def used_up(self) -> bool:
        return self._copying and not self._copies

    def fill(self, fetch: Callable[[], tuple[Any, int | None]]) -> None:
        """Raises NotKept where batches are nothing that can be kept, and whatever `fetch` raises."""
        self._copying = self.changed
        self._batches = [fetch() for _ in range(KEPT)]
        self._tensors = [tensors_in(batch) for batch, _ in self._batches]
        self._versions = [[tensor._version for tensor in tensors] for tensors in self._tensors]
        self._turn = 0
        try:
            _renewed(self._batches[0][0], self._tensors[0])
        except Exception as error:
            raise NotKept(f"batches of {type(self._batches[0][0]).__name__} cannot be kept ({error})") from error

    def begin(self) -> None:
        """A block begins: copies are made, where they are needed."""
        if not self._copying:
            return
        nbytes = weigh(self._batches[0][0])
        room = 0 if nbytes is None else int(MEMORY_SHARE * (memory_available() or 0) / nbytes)
        if room < KEPT:
            raise NotKept("the training changes its batches in place, and there is no memory for copies of them")
        with torch.no_grad():
            self._copies = [
                (_renewed(batch, tensors, clone=True), samples)
                for _ in range(min(room, MOST_COPIES) // KEPT)
                for (batch, samples), tensors in zip(self._batches, self._tensors, strict=True)
            ]

    def next(self) -> tuple[Any, int | None]:
        if self._copying and self._copies:
            return self._copies.pop()
        turn = self._turn
        self._turn = (turn + 1) % KEPT
        batch, samples = self._batches[turn]
        return _renewed(batch, self._tensors[turn], clone=self._copying), samples


def tensors_in(batch: Any) -> list[torch.Tensor]:
    """Nested as they may be."""
    found: list[torch.Tensor] = []
    parts = [batch]
    seen: set[int] = set()
    while parts:
        part = parts.pop()
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif part is None or isinstance(part, str | bytes | int | float | complex | type) or id(part) in seen:
            continue
        else:
            seen.add(id(part))
            inside = parts_of(part, MOST_PARTS)
            parts += fields_of(part).values() if inside is None else inside
        if len(seen) + len(found) > MOST_PARTS:
            break  # the rest is copied with what it lies in
    return found


def _renewed(batch: Any, tensors: list[torch.Tensor], clone: bool = False) -> Any:
    """The batch with everything in it new, but for these tensors, unless `clone`."""
    memo: dict[int, Any] = {id(tensor): _cloned(tensor) if clone else tensor for tensor in tensors}
    return copy.deepcopy(batch, memo)


def _cloned(tensor: torch.Tensor) -> torch.Tensor:
    copied = tensor.clone()
    return copied.pin_memory() if tensor.device.type == "cpu" and tensor.is_pinned() else copied


def is_out_of_memory(error: BaseException, said: str = "") -> bool:
    """Whether it failed for want of memory: of the device, of the machine, or of /dev/shm. `said`: what else is known
    about it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.ENOSPC):
        return True
    return WITHOUT_MEMORY.search(f"{type(error).__name__} {error} {said}") is not None


def sentence(error: BaseException) -> str:
    """What went wrong, in one line: of an error from a worker what it was there."""
    if isinstance(error, WhyidleError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and "Traceback" in str(error):
        return lines[-1]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


LONGEST_REST_S = 10.0
"""For workers to finish what they had begun when their source was paused."""
LONGEST_DRAIN_NS = 5_000_000_000
"""For a queue to be emptied of what it holds."""


class BatchSource(Protocol):
    """Batches made with some settings."""

    def next(self) -> tuple[Any, int | None]:
        """A batch, and its samples where that is known. Raises StopIteration where a pass over the data ends."""
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
        """What became of its workers, where one of them died."""
        ...


class BatchSources:
    """All that the tuner has not closed. Whatever a source raises passes through."""

    def __init__(self, make: Callable[[LoaderSettings], BatchSource], now: Callable[[], int]) -> None:
        self._make = make
        self._now = now
        self._all: dict[LoaderSettings, BatchSource] = {}
        self._kept: dict[int | None, Kept] = {}
        """By batch size."""
        self._working: LoaderSettings | None = None
        """Whose workers may be at work: those of the source that was taken from last."""
        self.current: BatchSource | Kept | None = None
        """What is taken from."""
        self._first: tuple[Any, int | None] | None = None
        """The batch that a new source began with, not handed out yet."""
        self._pass_ended = False

    def pass_ended(self) -> bool:
        """Whether a pass over the data has ended since this was asked last."""
        ended, self._pass_ended = self._pass_ended, False
        return ended

    def take(self) -> tuple[Any, int | None]:
        """The next batch of the current source, and its samples where they are known."""
        source = self.current
        assert source is not None
        if isinstance(source, Kept):
            return source.next()
        first, self._first = self._first, None
        return first if first is not None else self._next_of(source)

    def use(self, settings: LoaderSettings) -> tuple[int | None, int | None]:
        """Take from the source for these settings from here on.

        Returns how long its first batch took to come, if it is made now, and that of another pass, if its workers
        persist; ns.
        """
        self._pause()
        took: tuple[int | None, int | None] = None, None
        self.current = self._all.get(settings)
        if self.current is None:
            took = self._start(settings)
        self._working = settings
        return took

    def use_kept(self, settings: LoaderSettings) -> Kept:
        """Hand out a few batches of this size again and again from here on."""
        self._pause()
        kept = self._kept.setdefault(settings.batch_size, Kept())
        self.current = kept
        if not kept.filled:
            self._fill(kept, settings)
        return kept

    def settle(self, settings: LoaderSettings, fresh: bool = False) -> None:
        """Bring the current source to where it would be after a while of training. `fresh`: it was just made."""
        source = self.current
        if isinstance(source, Kept):
            if source.changed:
                self._fill(source, settings)
            source.begin()
        elif source is not None and not fresh:
            source.rest(LONGEST_REST_S)
            until = self._now() + LONGEST_DRAIN_NS
            for _ in range(settings.outstanding):
                if self._now() > until:
                    break
                self._next_of(source)
        self._pass_ended = False

    def why_failed(self, settings: LoaderSettings) -> str | None:
        """What became of its workers, where one of them died."""
        source = self._all.get(settings)
        return None if source is None else source.why_failed()

    def close(self, settings: LoaderSettings) -> None:
        """End a source, if there is one for these settings. Never raises."""
        source = self._all.pop(settings, None)
        if self._working == settings:
            self._working = None
        if source is not None:
            self._leave(source)
            with contextlib.suppress(Exception):
                source.close()

    def forget_kept(self, settings: LoaderSettings) -> None:
        """Batches of this size are not kept any longer."""
        self._leave(self._kept.pop(settings.batch_size, None))

    def _leave(self, source: BatchSource | Kept | None) -> None:
        if self.current is source:
            self.current = self._first = None

    def _pause(self) -> None:
        self._first = None
        paused = None if self._working is None else self._all.get(self._working)
        if paused is not None:
            # Its workers would take CPU from the block that follows; to drain a queue takes a full one too.
            paused.rest(LONGEST_REST_S)

    def _start(self, settings: LoaderSettings) -> tuple[int, int | None]:
        begin = self._now()
        self.current = source = self._all[settings] = self._make(settings)
        self._first = self._next_of(source)
        took, again = self._now() - begin, None
        if settings.persistent_workers:
            # As at an epoch's end: nothing of the pass before is under way any longer.
            source.rest(LONGEST_REST_S)
            begin = self._now()
            source.restart()
            self._first = self._next_of(source)
            again = self._now() - begin
        return took, again

    def _fill(self, kept: Kept, settings: LoaderSettings) -> None:
        """Fetch the batches that are handed out again and again, from a source of that size that is there."""
        alike = [each for each in self._all if each.batch_size == settings.batch_size]
        alike.sort(key=lambda each: each != self._working)
        own = alike[0] if alike else replace(settings, pipeline=None)
        source = self._all.get(own)
        if source is None:
            source = self._all[own] = self._make(own)
        kept.fill(lambda: self._next_of(source))
        source.rest(LONGEST_REST_S)

    def _next_of(self, source: BatchSource) -> tuple[Any, int | None]:
        """The next batch; of another pass where one ends."""
        try:
            return source.next()
        except StopIteration:
            self._pass_ended = True
            source.restart()
        try:
            return source.next()
        except StopIteration:
            raise RuntimeError("the loader gives no batches in another pass over the data") from None


LEAST_BATCHES = 8
BURSTS = 3
"""Workers that started together finish together: a block has so many of such bursts at least."""
FEWEST = 3
"""Batches that a block has however slow they are."""
SETTLE_SHARE = 0.5
"""Of the time asked for: longer than that no more batches than there are workers are trained to settle."""
MOST_CUTS = 2
"""Times that a block is begun anew because a validation or a new epoch came into it, before what lies between two such
is taken for it."""
MOST_TRIES = 12


class Due(Enum):
    """What a border of steps is to a measurement."""

    NOTHING = auto()
    SETTLING = auto()
    """It is to settle anew."""
    BEGIN = auto()
    """What follows is measured."""
    END = auto()
    """All up to here was measured."""
    ENDED = auto()
    """All up to an earlier border was: `end_ns` says when that was."""


@dataclass
class Measurement:
    """How fast a training is with some settings. Times are ns."""

    settings: LoaderSettings
    wanted_ns: int
    """How long to measure."""
    held: bool
    """A few batches are trained on again and again."""
    kept: Kept | None = None
    """Those."""
    start_ns: int | None = None
    restart_ns: int | None = None
    """As in `Block`."""
    begin_ns: int = 0
    """Of what is measured; 0 while it settles."""
    end_ns: int = 0
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
        """The training has its next batch, after so long."""
        if not self.begin_ns:
            self._settled += 1
            return
        self._batches += 1
        # Where nothing tells: batches are counted instead, which compares settings of one batch size all the same.
        self._samples += samples if samples is not None else self.settings.batch_size or 1
        self._wait_ns += wait_ns

    def at_border(self, now: int, interrupted: bool, pass_ended: bool) -> Due:
        """A step has ended.

        Args:
            interrupted: something else than training came since the last batch.
            pass_ended: the loader began another pass over the data within the step.

        Raises:
            RuntimeError: it was begun anew too often.
        """
        often = self._cuts >= MOST_CUTS
        if (interrupted or pass_ended) and often and not self._spans and self._last and self._last[1] >= FEWEST:
            self.end_ns, self._batches, self._samples, self._wait_ns = self._last
            return Due.ENDED
        if interrupted or (pass_ended and not often):
            self._cuts += 1
            if self._cuts > MOST_TRIES:
                raise RuntimeError("validation or checkpoints come too often to measure between them")
            return Due.SETTLING
        self._spans |= pass_ended
        if self._is_long_enough(now) if self.begin_ns else self._has_settled(now):
            if self.kept is not None and self.kept.changed:
                return Due.SETTLING
            return Due.END if self.begin_ns else Due.BEGIN
        if self.begin_ns:
            self._last = now, self._batches, self._samples, self._wait_ns
        return Due.NOTHING

    def block(self, memory_bytes: int | None) -> Block:
        """What was measured."""
        return Block(
            self.settings,
            self._batches,
            self._samples,
            self.begin_ns,
            self.end_ns,
            self._wait_ns,
            self.start_ns,
            self.restart_ns,
            memory_bytes,
            self.held,
        )

    def _has_settled(self, now: int) -> bool:
        workers, outstanding = self.settings.num_workers, self.settings.outstanding
        if self.held:
            workers = outstanding = 0
        took = now - self._settling_ns
        if self._settled >= max(2, outstanding):
            return True
        return (self._settled >= max(2, workers) and took >= SETTLE_SHARE * self.wanted_ns) or (
            self._settled >= 1 and took >= LONGEST_BLOCK * self.wanted_ns
        )

    def _is_long_enough(self, now: int) -> bool:
        took = now - self.begin_ns
        if self.kept is not None and self.kept.used_up:
            return self._batches >= FEWEST
        wanted = max(LEAST_BATCHES, 0 if self.held else BURSTS * self.settings.num_workers)
        return (took >= self.wanted_ns and self._batches >= wanted) or (
            took >= LONGEST_BLOCK * self.wanted_ns and self._batches >= FEWEST
        )


S = 1_000_000_000
ASK_EVERY_S = 0.5
"""How often a training that waits looks whether its tuner lives."""
LOOK_EVERY_NS = S
"""The same of one that trains."""


class Line(Protocol):
    """To the tuner: `record.tuning.Channel`."""

    def send(self, say: str, **content: Any) -> None: ...
    def receive(self, seconds: float) -> dict[str, Any] | None: ...


class Switching:
    """Used from the training thread: `border` where one step ends and the next begins, then `next` for its batch."""

    def __init__(
        self,
        make: Callable[[LoaderSettings], BatchSource],
        line: Line,
        now: Callable[[], int],
        synchronise: Callable[[], None],
        memory: Callable[[], int | None],
        stop: Callable[[], NoReturn],
        tuner_lives: Callable[[], bool] = lambda: True,
        stands: Callable[[], object] = lambda: None,
    ) -> None:
        """
        Args:
            make: a source for settings; raises where they do not work. WhyidleErrors are sentences for people.
            now: ns of a clock that only goes forward.
            synchronise: waits for the device.
            memory: asked where a block begins, and again where it ends: bytes at most in use since.
            stop: ends the process.
            stands: called before the training is held up at a border.
        """
        self._sources = BatchSources(make, now)
        self._line = line
        self._now = now
        self._synchronise = synchronise
        self._memory = memory
        self._stop = stop
        self._tuner_lives = tuner_lives
        self._stands = stands
        self._measured: Measurement | None = None
        """The order under way."""
        self._at_border = False
        self._looked_ns = 0

    @property
    def source(self) -> BatchSource | Kept | None:
        """Where batches come from."""
        return self._sources.current

    def border(self, interrupted: bool = False) -> None:
        """A step has ended. Returns when there is a setting to train on with, however long that takes.

        Args:
            interrupted: something else than training came since the last batch: validation, say.
        """
        self._at_border = True
        now = self._now()
        if now - self._looked_ns > LOOK_EVERY_NS:
            self._looked_ns = now
            if not self._tuner_lives():
                self._stop()
        pass_ended = self._sources.pass_ended()
        measured = self._measured
        if measured is not None:
            try:
                self._goes_on(measured, measured.at_border(now, interrupted, pass_ended))
            except Exception as error:
                self._fails(measured, error)
        if self._measured is None:
            self._obey()

    def next(self) -> tuple[Any, int | None]:
        """The batch to train on next, and its samples where they are known."""
        if not self._at_border:
            self.border()
        self._at_border = False
        while True:
            measured = self._measured
            assert measured is not None
            begin = self._now()
            try:
                batch, samples = self._sources.take()
            except Exception as error:
                self._fails(measured, error)
                self._obey()
                continue
            measured.trains(samples, self._now() - begin)
            return batch, samples

    def training_ended(self, why: str, out_of_memory: bool) -> None:
        """The training ends, and with it the order under way."""
        measured, self._measured = self._measured, None
        if measured is not None:
            word = Word.OOM if out_of_memory else Word.FAILED
            self._line.send(word, settings=measured.settings.to_json(), why=why, ended=True)

    def _goes_on(self, measured: Measurement, due: Due) -> None:
        """Do what is due at a border; an order that is over is answered."""
        if due is Due.NOTHING:
            return
        self._stands()
        if due is Due.SETTLING:
            self._sources.settle(measured.settings)
            measured.settles(self._now())
        elif due is Due.BEGIN:
            self._synchronise()
            self._memory()
            measured.begin_ns = self._now()
        else:
            if due is Due.END:
                self._synchronise()
                measured.end_ns = self._now()
            block = measured.block(self._memory())
            self._measured = None
            self._line.send(Word.BLOCK, block=block.to_json())

    def _fails(self, measured: Measurement, error: Exception) -> None:
        """These settings do not work: that is said, and their source closed.

        Raises what a signal handler of the program raised: it is the program's.
        """
        if from_a_signal(error):
            raise error
        why, settings = sentence(error), measured.settings
        if measured.held:
            self._sources.forget_kept(settings)
        else:
            if of_workers := self._sources.why_failed(settings):
                why = f"{why} ({of_workers})"
            self._sources.close(settings)
        self._measured = None
        word = Word.OOM if is_out_of_memory(error, why) else Word.FAILED
        self._line.send(word, settings=settings.to_json(), why=why)

    def _obey(self) -> None:
        """Wait for orders, until one of them is to train on."""
        self._stands()
        while self._measured is None:
            order = self._wait()
            say = order["say"]
            if say == Word.STOP:
                self._stop()
            settings = LoaderSettings.from_json(order["settings"])
            if say == Word.CLOSE:
                self._sources.close(settings)
            elif say in (Word.MEASURE, Word.HELD):
                ordered = Measurement(settings, int(order["seconds"] * S), held=say == Word.HELD)
                try:
                    self._begin(ordered)
                except Exception as error:
                    self._fails(ordered, error)

    def _wait(self) -> dict[str, Any]:
        while True:
            try:
                order = self._line.receive(ASK_EVERY_S)
            except ChannelClosed:
                self._stop()
            if order is not None:
                return order
            if not self._tuner_lives():
                self._stop()

    def _begin(self, ordered: Measurement) -> None:
        """Make ready what was ordered: what follows is trained."""
        settings = ordered.settings
        if ordered.held:
            ordered.kept = self._sources.use_kept(settings)
        else:
            ordered.start_ns, ordered.restart_ns = self._sources.use(settings)
        self._sources.settle(settings, fresh=ordered.start_ns is not None)
        ordered.settles(self._now())
        self._measured = ordered
