"""What tuning came to."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...analyse.statistics import Estimate
from ...record.tuning import LoaderSettings


@dataclass(frozen=True)
class Trial:
    """One setting that was really run, over all of its blocks."""

    settings: LoaderSettings
    status: str
    """`ok`, `failed` or `oom`."""
    error: str | None = None
    rate: Estimate | None = None
    """Samples/s: the baseline's rate times the paired ratio, so that drift of the machine is out of it; with the
    beginnings of epochs, where an epoch's length is known."""
    steady_samples_per_s: float | None = None
    """The same within epochs."""
    predicted: float | None = None
    """By the model before this setting was first run."""
    seconds: float = 0.0
    """Spent on it, warming up and starting workers included."""
    blocks: int = 0
    dropped: str | None = None
    """Why it was not tried further: slower than which other, by how much; `None` for what stayed to the end."""

    @property
    def samples_per_s(self) -> float | None:
        return None if self.rate is None else self.rate.value


@dataclass(frozen=True)
class BatchAdvice:
    """Two answers to how large a batch should be, in samples. `None`: not known, `notes` say why."""

    b_max: int | None
    """The largest that fits with a margin; every size up to it that was run is in `memory_bytes`."""
    b_95: int | None
    """The smallest whose throughput is within 5 % of the best measured."""
    rates: dict[int, Estimate] = field(default_factory=dict)
    """Samples/s that were measured, by batch size."""
    memory_bytes: dict[int, int] = field(default_factory=dict)
    """Most memory in use, by batch size."""
    failed: dict[int, str] = field(default_factory=dict)
    """Sizes that do not fit, and what they ended with."""
    alpha_ns: float | None = None
    beta_ns: float | None = None
    """Of T(B) = alpha + beta B, the time of a step."""
    off_line: tuple[int, ...] = ()
    """Sizes whose throughput is more than 5 % off that line."""
    micro_batch: int | None = None
    """A smaller batch that is clearly faster, to be accumulated `accumulate` times to the program's; `None`: none."""
    accumulate: int | None = None
    settings: LoaderSettings | None = None
    """The loader's, raced again at `micro_batch`."""
    notes: tuple[str, ...] = ()
    loader_bound: bool = False
    """The loader sets the pace, so that rates do not tell sizes apart."""
    alone: dict[int, float] = field(default_factory=dict)
    """Samples/s with batches that were fetched before, by batch size: what a loader would have to deliver. Measured
    where the loader sets the pace."""


@dataclass(frozen=True)
class Tuned:
    baseline: Trial
    best: Trial
    """The cheapest of those that none is clearly faster than; the baseline itself where nothing is to gain."""
    trials: tuple[Trial, ...]
    """Everything that was run, the baseline first."""
    speedup: Estimate
    """Best against baseline, from paired blocks."""
    headroom: float | None
    """What an infinitely fast loader would gain, of the baseline's rate: 0.25 is a quarter. `None`: not measured."""
    ended: str
    """Why it ended: a value of `SearchEnd`."""
    because: str
    """The same in one sentence, with its figures."""
    binding: str | None
    """What binds with the best setting: `analyse.replay.workload.Binding`."""
    not_tested: tuple[str, ...]
    """What else could matter and was not tried, and why."""
    noise: float | None
    """Standard deviation of the log rate between blocks of one setting, drift removed; 0.05 is 5 %."""
    wall_s: float
    batch: BatchAdvice | None = None
    promising: str | None = None
    """What was clearly faster in the one block that it had before the search was cut short, in a clause."""


class SearchEnd:
    DECIDED = "decided"
    NOTHING_TO_GAIN = "nothing_to_gain"
    """Headroom below 3 %: the loader is not what holds the training up."""
    BUDGET = "budget"
    STOPPED = "stopped"
    """By Ctrl-C."""
    TOO_NOISY = "too_noisy"
    """The machine's own changes are larger than what is to be told apart; nothing is ranked."""
    FAILED = "failed"
    """The training ended before enough was measured."""
