"""A training that is given its batches as the tuner orders, and measured: settings take turns within seconds.

All that is measured lies between two borders of steps, and the device is waited for at those two only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from ...record.tuning import ChannelClosed, LoaderSettings, Word
from ..hooks.switch import from_a_signal
from .failures import is_out_of_memory, sentence
from .kept import Kept
from .measurement import Due, Measurement
from .sources import BatchSource, BatchSources

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
