"""How fast a few batch sizes train: blocks in interleaved rounds on one training under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from ...analyse.cells.batch_size.fit import RunTerms, SweepFit
from ...analyse.run.stall_breakdown import TOTAL
from ...analyse.statistics import Estimate
from ...matrix.rounds import rounds
from ...record.tuning import Block, LoaderSettings
from ..bench.bench import Bench, BenchEnded, TrialFailed
from .ladder import neat

MOST_SIZES = 6
FEWEST_SIZES = 4
"""With many workers, since each size keeps its own."""
MANY_PROCESSES = 96
MOST_BELOW = 2
"""Of them below the program's own, where there is something above."""
APART = 1.25
"""A size that is less than so many times another tells nothing new."""
BLOCK_S = 1.0
MOST_ROUNDS = 6
LEAST_BATCHES = 3
LOADER_BOUND = 0.2
"""Share of the time that a training waits for batches, from which sizes tell of the loader as much as of it."""


def sizes_to_measure(own: int, largest: int, workers: int = 0) -> list[int]:
    """Four to six, geometric, the program's own first and then the largest, should there be no time for all; smaller
    ones divide the own, so that gradients can be accumulated to the same global batch."""
    most = max(FEWEST_SIZES, min(MOST_SIZES, MANY_PROCESSES // max(1, workers)))
    most_below = min(MOST_BELOW, most - 3)
    above: list[int] = []
    room = most - 1 - most_below
    steps = next((n for n in range(room, 0, -1) if largest / own >= APART**n), 0)
    ratio = max(2.0, (largest / own) ** (1 / steps)) if steps else 0.0
    size = float(own)
    while steps and size * ratio <= largest * 1.001 and len(above) < room:
        size *= ratio
        above.append(largest if size * APART > largest else neat(round(size)))
    if largest >= APART * (above[-1] if above else own):
        above = [*above[: room - 1], largest]
    below: list[int] = []
    while len(below) < most - 1 - len(above) and len(below) < (most_below if len(above) > 1 else 3):
        smaller = _half(below[-1] if below else own)
        if smaller is None:
            break
        below.append(smaller)
    return list(dict.fromkeys((own, *reversed(above), *below)))


def _half(size: int) -> int | None:
    """The largest divisor that is at most half of it, and not far less."""
    return next((part for part in range(size // 2, max(0, size // 5), -1) if size % part == 0), None)


@dataclass
class Measurements:
    """What blocks told, by batch size."""

    blocks: dict[int, list[Block]] = field(default_factory=dict)
    rounds: dict[int, list[int]] = field(default_factory=dict)
    """In which round each block was."""
    alone: dict[int, float] = field(default_factory=dict)
    """Samples/s with batches that were fetched before, where the loader sets the pace."""
    failed: dict[int, str] = field(default_factory=dict)
    ended: str | None = None
    """Why no more could be measured."""

    def fit(self) -> SweepFit | None:
        """Drift of the machine taken out."""
        runs = [
            RunTerms(size, number, {TOTAL: 1e6 / block.samples_per_s})
            for size, blocks in self.blocks.items()
            for number, block in zip(self.rounds[size], blocks, strict=True)
        ]
        return SweepFit(runs) if runs else None

    def rates(self) -> dict[int, Estimate]:
        """Samples/s by size."""
        fit = self.fit()
        return {} if fit is None else {size: _per_second(fit.at(size, TOTAL)) for size in sorted(self.blocks)}

    def waiting(self, size: int) -> float:
        """Share of the time in which the training waited for a batch, 0..1."""
        blocks = self.blocks[size]
        return sum(b.wait_ns for b in blocks) / sum(b.end_ns - b.begin_ns for b in blocks)

    @property
    def loader_bound(self) -> bool:
        """Whether the loader sets the pace at a size."""
        return any(self.waiting(size) > LOADER_BOUND for size in self.blocks)


def _per_second(took: Estimate) -> Estimate:
    """From µs a sample."""
    return Estimate(1e6 / took.value, 1e6 / took.high, 1e6 / took.low if took.low > 0 else inf)


def measure(
    bench: Bench,
    settings: LoaderSettings,
    sizes: Sequence[int],
    until: float,
    now: Callable[[], float],
    say: Callable[[str], object],
    seconds: float = BLOCK_S,
) -> Measurements:
    """Rounds over the sizes for as long as there is time, two at least where each size can have one.

    Args:
        until: seconds, of the clock `now`; a round that would not end by then is not begun.
        seconds: of a block.
    """
    found = Measurements()
    left = list(sizes)
    begun, current = now(), 0
    for number, size in rounds(sizes, MOST_ROUNDS):
        if number != current:
            took, begun, current = now() - begun, now(), number
            if len(left) < 1 or now() + took > until:
                break
        if size not in left or now() > until:
            continue
        say(f"measuring batches of {size}, round {number + 1}")
        try:
            block = bench.measure(replace(settings, batch_size=size), seconds)
        except TrialFailed as error:
            found.failed[size] = str(error)
            # Where memory runs out for one size, it does for larger ones.
            left = [each for each in left if each != size and not (error.out_of_memory and each > size)]
            continue
        except BenchEnded as error:
            found.ended = str(error)
            break
        if block.batches >= LEAST_BATCHES:
            found.blocks.setdefault(size, []).append(block)
            found.rounds.setdefault(size, []).append(number)
    if found.loader_bound and found.ended is None:
        _measure_alone(bench, found, until, now, say, seconds)
    for size in found.blocks:
        # Its workers hold memory. The program's own loader stays.
        if (tried := replace(settings, batch_size=size)) not in (settings, bench.baseline):
            bench.close(tried)
    return found


def _measure_alone(
    bench: Bench,
    found: Measurements,
    until: float,
    now: Callable[[], float],
    say: Callable[[str], object],
    seconds: float,
) -> None:
    """What the training does of each size without a loader: a block each, as long as there is time."""
    for size in sorted(found.blocks):
        if now() > until:
            return
        say(f"measuring batches of {size} that were fetched before")
        try:
            found.alone[size] = bench.held(seconds, size).samples_per_s
        except TrialFailed:
            continue
        except BenchEnded as error:
            found.ended = str(error)
            return
