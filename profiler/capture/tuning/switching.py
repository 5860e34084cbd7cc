"""Gives a training its batches from whichever source the tuner orders, and measures how fast it trains on them.

Knows nothing of torch's loader: a source is whatever makes batches for some settings. Each source is kept, paused,
until the tuner closes it; so blocks of several settings can follow each other within seconds. All that is measured lies
between two borders of steps, and the device is waited for at those two only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol

from ...errors import WhyidleError
from ...record.tuning import LONGEST_BLOCK, Block, ChannelClosed, LoaderSettings, Word
from ..hooks.switch import from_a_signal
from .kept import Kept, NotKept
from .out_of_memory import is_out_of_memory

S = 1_000_000_000
LEAST_BATCHES = 8
BURSTS = 3
"""Workers that started together finish together: a block has so many of such bursts at least."""
FEWEST = 3
"""Batches that a block has however slow they are."""
SETTLE_SHARE = 0.5
"""Of the seconds asked for: longer than that no more batches than there are workers are trained to settle."""
LONGEST_REST_NS = 10 * S
"""For workers to finish what they had begun when their source was paused."""
LONGEST_DRAIN_NS = 5 * S
MOST_CUTS = 2
"""Times that a block is begun anew because a validation or a new epoch came into it, before what lies between two such
is taken for it."""
MOST_TRIES = 12
ASK_EVERY_S = 0.5
"""How often a training that waits looks whether its tuner lives."""
LOOK_EVERY_NS = S
"""The same of one that trains."""


class Source(Protocol):
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


class Line(Protocol):
    """To the tuner: `record.tuning.Channel`."""

    def send(self, say: str, **content: Any) -> None: ...
    def receive(self, seconds: float) -> dict[str, Any] | None: ...


@dataclass
class _Run:
    """An order to measure under way."""

    settings: LoaderSettings
    ns: int
    source: Source | Kept
    start_ns: int | None = None
    restart_ns: int | None = None
    settled: int = 0
    settle_begin_ns: int = 0
    begin_ns: int = 0
    """Of what is measured; 0 before that."""
    batches: int = 0
    samples: int = 0
    wait_ns: int = 0
    cuts: int = 0
    spans: bool = False
    """Several passes over the data: they are too short to measure within one."""
    last: tuple[int, int, int, int] | None = None
    """Time, batches, samples and wait at the last border of a step."""

    @property
    def held(self) -> bool:
        return isinstance(self.source, Kept)

    def restart_measuring(self, now: int) -> None:
        self.settled = self.begin_ns = self.batches = self.samples = self.wait_ns = 0
        self.settle_begin_ns = now
        self.spans = False
        self.last = None

    def has_settled(self, now: int) -> bool:
        workers, outstanding = self.settings.num_workers, self.settings.outstanding
        if self.held:
            workers = outstanding = 0
        took = now - self.settle_begin_ns
        if self.settled >= max(2, outstanding):
            return True
        return (self.settled >= max(2, workers) and took >= SETTLE_SHARE * self.ns) or (
            self.settled >= 1 and took >= LONGEST_BLOCK * self.ns
        )

    def is_long_enough(self, now: int) -> bool:
        took = now - self.begin_ns
        if isinstance(self.source, Kept) and self.source.used_up:
            return self.batches >= FEWEST
        wanted = max(LEAST_BATCHES, 0 if self.held else BURSTS * self.settings.num_workers)
        return (took >= self.ns and self.batches >= wanted) or (
            took >= LONGEST_BLOCK * self.ns and self.batches >= FEWEST
        )


class Switching:
    """Used from the training thread: `border` where one step ends and the next begins, then `next` for its batch."""

    def __init__(
        self,
        make: Callable[[LoaderSettings], Source],
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
        self._make = make
        self._line = line
        self._now = now
        self._synchronise = synchronise
        self._memory = memory
        self._stop = stop
        self._tuner_lives = tuner_lives
        self._stands = stands
        self._sources: dict[LoaderSettings, Source] = {}
        self._kept: dict[int | None, Kept] = {}
        self._current: LoaderSettings | None = None
        """Whose source gave the last batch."""
        self._run: _Run | None = None
        self._first: tuple[Any, int | None] | None = None
        """The batch that a new source began with, not handed out yet."""
        self._at_border = False
        self._cut = False
        """A pass over the data ended within this step."""
        self._looked_ns = 0

    @property
    def source(self) -> Source | Kept | None:
        """Where batches come from."""
        return None if self._run is None else self._run.source

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
        cut, self._cut = self._cut, False
        if self._run is None or self._ends(self._run, now, interrupted, cut):
            self._obey()

    def next(self) -> tuple[Any, int | None]:
        """The batch to train on next, and its samples where they are known."""
        if not self._at_border:
            self.border()
        self._at_border = False
        while True:
            run = self._run
            assert run is not None
            begin = self._now()
            try:
                batch, samples = self._take(run)
            except Exception as error:
                if from_a_signal(error):
                    raise
                self._fails(run, error)
                self._obey()
                continue
            if run.begin_ns:
                run.batches += 1
                run.samples += self._samples(run.settings, samples)
                run.wait_ns += self._now() - begin
            else:
                run.settled += 1
            return batch, samples

    def training_ended(self, why: str, out_of_memory: bool) -> None:
        """The training ends, and with it the order under way."""
        run, self._run = self._run, None
        if run is not None:
            word = Word.OOM if out_of_memory else Word.FAILED
            self._line.send(word, settings=run.settings.to_json(), why=why, ended=True)

    def _take(self, run: _Run) -> tuple[Any, int | None]:
        if isinstance(run.source, Kept):
            return run.source.next()
        first, self._first = self._first, None
        return first if first is not None else self._next_of(run.source)

    def _next_of(self, source: Source) -> tuple[Any, int | None]:
        """The next batch; of another pass where one ends."""
        try:
            return source.next()
        except StopIteration:
            self._cut = True
            source.restart()
        try:
            return source.next()
        except StopIteration:
            raise RuntimeError("the loader has no batches in a further pass over the data") from None

    @staticmethod
    def _samples(settings: LoaderSettings, told: int | None) -> int:
        # Where nothing tells: batches are counted instead, which compares settings of one batch size all the same.
        return told if told is not None else settings.batch_size or 1

    def _ends(self, run: _Run, now: int, interrupted: bool, cut: bool) -> bool:
        """Whether the order under way is over with this border."""
        try:
            return self._at_border_of(run, now, interrupted, cut)
        except Exception as error:
            if from_a_signal(error):
                raise
            self._fails(run, error)
            return True

    def _at_border_of(self, run: _Run, now: int, interrupted: bool, cut: bool) -> bool:
        often = run.cuts >= MOST_CUTS
        if (interrupted or cut) and often and not run.spans and run.last is not None and run.last[1] >= FEWEST:
            self._answer(run, *run.last)
            return True
        if interrupted or (cut and not often):
            self._stands()
            run.cuts += 1
            if run.cuts > MOST_TRIES:
                raise RuntimeError("validation or checkpoints come too often to measure between them")
            self._settle(run)
            return False
        run.spans |= cut
        ready = run.is_long_enough(now) if run.begin_ns else run.has_settled(now)
        if ready and isinstance(run.source, Kept) and run.source.changed:
            self._stands()
            self._settle(run)
            return False
        if not run.begin_ns:
            if ready:
                self._stands()
                self._synchronise()
                self._memory()
                run.begin_ns = self._now()
            return False
        if ready:
            self._stands()
            self._synchronise()
            self._answer(run, self._now(), run.batches, run.samples, run.wait_ns)
            return True
        run.last = now, run.batches, run.samples, run.wait_ns
        return False

    def _answer(self, run: _Run, end_ns: int, batches: int, samples: int, wait_ns: int) -> None:
        block = Block(
            run.settings,
            batches,
            samples,
            run.begin_ns,
            end_ns,
            wait_ns,
            run.start_ns,
            run.restart_ns,
            self._memory(),
            run.held,
        )
        self._run = None
        self._line.send(Word.BLOCK, block=block.to_json())

    def _fails(self, run: _Run, error: Exception) -> None:
        """Settings that do not work: said, and their source closed."""
        why = sentence(error)
        source = self._sources.get(run.settings) if not run.held else None
        if source is not None and (of_workers := source.why_failed()):
            why = f"{why} ({of_workers})"
        self._run = self._first = None
        self._close(run.settings, run.held)
        del source
        word = Word.OOM if is_out_of_memory(error, why) else Word.FAILED
        self._line.send(word, settings=run.settings.to_json(), why=why)

    def _obey(self) -> None:
        """Wait for orders, until one of them is to train on."""
        self._stands()
        while self._run is None:
            order = self._wait()
            say = order["say"]
            if say == Word.STOP:
                self._stop()
            settings = LoaderSettings.from_json(order["settings"])
            if say == Word.CLOSE:
                self._close(settings)
            elif say in (Word.MEASURE, Word.HELD):
                run = _Run(settings, int(order["seconds"] * S), _Nothing())
                try:
                    self._begin(run, held=say == Word.HELD)
                except Exception as error:
                    if from_a_signal(error):
                        raise
                    self._fails(run, error)

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

    def _begin(self, run: _Run, held: bool) -> None:
        """Make ready what was ordered: what follows is trained."""
        self._first = None
        paused = None if self._current is None else self._sources.get(self._current)
        if paused is not None:
            # Its workers would take CPU from the block that follows; to drain a queue takes a full one too.
            paused.rest(LONGEST_REST_NS / S)
        if held:
            size = run.settings.batch_size
            kept = self._kept.get(size)
            if kept is None:
                kept = self._kept[size] = Kept()
            run.source = kept
            if not kept.filled:
                self._fill(kept, run)
        else:
            source = self._sources.get(run.settings)
            run.source = self._start(run) if source is None else source
            self._current = run.settings
        self._settle(run, fresh=run.start_ns is not None)
        self._run = run

    def _start(self, run: _Run) -> Source:
        begin = self._now()
        source = self._make(run.settings)
        self._sources[run.settings] = source
        self._first = self._next_of(source)
        run.start_ns = self._now() - begin
        if run.settings.persistent_workers:
            # As at an epoch's end: nothing of the pass before is under way any longer.
            source.rest(LONGEST_REST_NS / S)
            begin = self._now()
            source.restart()
            self._first = self._next_of(source)
            run.restart_ns = self._now() - begin
        self._cut = False
        return source

    def _fill(self, kept: Kept, run: _Run) -> None:
        """Fetch the batches that are handed out again and again."""
        size = run.settings.batch_size
        alike = [s for s in self._sources if s.batch_size == size]
        alike.sort(key=lambda s: s != self._current)
        own = replace(run.settings, pipeline=None) if not alike else alike[0]
        source = self._sources.get(own)
        if source is None:
            source = self._sources[own] = self._make(own)
        kept.fill(lambda: self._next_of(source))
        source.rest(LONGEST_REST_NS / S)
        self._cut = False

    def _settle(self, run: _Run, fresh: bool = False) -> None:
        """Bring the source to where it would be after a while of training."""
        source = run.source
        if isinstance(source, Kept):
            if source.changed:
                self._fill(source, run)
            source.begin()
        elif not fresh:
            source.rest(LONGEST_REST_NS / S)
            until = self._now() + LONGEST_DRAIN_NS
            for _ in range(run.settings.outstanding):
                if self._now() > until:
                    break
                self._next_of(source)
        self._cut = False
        run.restart_measuring(self._now())

    def _close(self, settings: LoaderSettings, held: bool = False) -> None:
        if held:
            self._kept.pop(settings.batch_size, None)
            return
        source = self._sources.pop(settings, None)
        if self._current == settings:
            self._current = None
        if source is not None:
            with contextlib.suppress(Exception):
                source.close()


class _Nothing:
    """Before a source is there."""

    def next(self) -> tuple[Any, int | None]:
        raise NotKept("there is no source")

    restart = close = why_failed = rest = lambda *_: None


def sentence(error: BaseException) -> str:
    """What went wrong, in one line: of an error from a worker what it was there."""
    if isinstance(error, WhyidleError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and "Traceback" in str(error):
        return lines[-1]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
