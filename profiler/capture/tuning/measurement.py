"""When a measurement of loader settings begins and ends: a function of what was trained up to each border of steps.

First the loader settles: the training takes so many batches that its queue is as full as these settings keep it. What
follows is measured, until it is long enough to be believed. Where something else than training comes into that, it
settles and is measured anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ...record.tuning import LONGEST_BLOCK, Block, LoaderSettings
from .kept import Kept

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
