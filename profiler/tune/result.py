"""What a tuning came to, one structure whose fields are the keys of `tune --json`, and the file that keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, nan
from pathlib import Path
from typing import Any

from ..analyse.statistics import Estimate
from ..errors import RecordError
from ..record.files import read_json, write_json
from ..record.tuning import LoaderSettings
from .patch import Patch

FORMAT = "whyidle-tuning"
VERSION = 1
TUNE_JSON = "tune.json"
RECORDING = "first-stretch"
"""Run folder, within the tuning's."""


class SearchEnd:
    """Why a search ended."""

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


def describe(settings: LoaderSettings, beside: LoaderSettings | None = None) -> str:
    """Tell settings in a few words. `beside`: persistence is named where these differ from it in nothing else."""
    if settings.num_workers == 0:
        words = "no workers"
    else:
        plural = "" if settings.num_workers == 1 else "s"
        words = f"{settings.num_workers} worker{plural}, prefetch {settings.prefetch_factor}"
    if not settings.in_order:
        words += ", out of order"
    if settings.pin_memory:
        words += ", pinned"
    differ = [name for name, value in vars(settings).items() if beside and value != getattr(beside, name)]
    if differ == ["persistent_workers"]:
        words += ", persistent" if settings.persistent_workers else ", not persistent"
    return f"{settings.pipeline}: {words}" if settings.pipeline else words


def _estimate(value: float, low: float | None, high: float | None) -> Estimate:
    """Make an estimate of what JSON holds, which has neither NaN nor infinity: no low end is an interval that is not
    known, a low end without a high one is an interval without end."""
    return Estimate(value, nan, nan) if low is None else Estimate(value, low, inf if high is None else high)


@dataclass(frozen=True)
class WorkersCost:
    """What a loader's workers cost. `None`: not measured."""

    memory_bytes: int | None = None
    """Memory of all of them; what they share is counted once."""
    cpus: float | None = None
    """CPUs that they used."""
    start_s: float | None = None
    """Seconds from the beginning of an epoch to its first batch."""


@dataclass(frozen=True)
class Trial:
    """Settings that were run, over all of their blocks."""

    settings: LoaderSettings
    status: str = "ok"
    """`ok`, `failed` or `oom`."""
    error: str | None = None
    """Why they failed; `None` where they did not."""
    samples_per_s: float | None = None
    """Samples/s: the baseline's rate times the paired ratio, so that drift of the machine is out of it; with the
    beginnings of epochs, where an epoch's length is known. `None`: not measured."""
    low: float | None = None
    """Lower end of its 95 % interval; `None`: not known."""
    high: float | None = None
    """Upper end; `None` with a `low`: without end."""
    predicted: float | None = None
    """Samples/s by the replay of the recording; `None`: not predicted."""
    seconds: float = 0.0
    """Seconds spent on them, warming up and starting workers included."""
    blocks: int = 0
    """Blocks that were measured."""
    dropped: str | None = None
    """Why they were not tried further; `None` where they were."""
    cost: WorkersCost | None = None
    """What the loader's workers cost; `None`: there are none, or nothing of it was measured."""

    @property
    def rate(self) -> Estimate | None:
        """Samples/s with their interval; `None`: not measured."""
        return None if self.samples_per_s is None else _estimate(self.samples_per_s, self.low, self.high)


@dataclass(frozen=True)
class BatchAdvice:
    """Two answers to how large a batch should be, in samples. `None`: not known, `notes` say why."""

    b_max: int | None = None
    """The largest that fits with a margin; every size up to it that was run is in `memory_bytes`."""
    b_95: int | None = None
    """The smallest whose throughput is within 5 % of the best measured."""
    b_star: None = None
    """No longer estimated: always `None`."""
    samples_per_s: dict[int, float] = field(default_factory=dict)
    """Samples/s that were measured, by batch size."""
    intervals: dict[int, tuple[float, float | None]] = field(default_factory=dict)
    """Their 95 % intervals, where known; `None`: without end."""
    memory_bytes: dict[int, int] = field(default_factory=dict)
    """Most memory in use, by batch size."""
    failed: dict[int, str] = field(default_factory=dict)
    """Sizes that do not fit, and what they ended with."""
    loader_bound: bool = False
    """Whether the loader sets the pace, so that rates do not tell sizes apart."""
    alone: dict[int, float] = field(default_factory=dict)
    """Samples/s with cached batches, by batch size: what a loader would have to deliver. Measured where the loader
    sets the pace."""
    notes: tuple[str, ...] = ()

    @property
    def rates(self) -> dict[int, Estimate]:
        """Samples/s with their intervals, by batch size."""
        ends = {size: self.intervals.get(size, (None, None)) for size in self.samples_per_s}
        return {size: _estimate(rate, *ends[size]) for size, rate in self.samples_per_s.items()}


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """A tuning as a whole: what was tuned, what it came to, and what that took."""

    what: str = ""
    """The command in a line, or the scenario and its net."""
    scenario: str | None = None
    """Name of the scenario; `None` for a program of the user's."""
    device: dict[str, Any] = field(default_factory=dict)
    """The device as the recording describes it."""
    batch_size: int | None = None
    """Samples in a batch, as the program makes them; `None`: not known."""
    baseline: Trial
    """The program's own settings."""
    best: Trial
    """The cheapest settings that none is clearly faster than; the baseline itself where nothing is to gain."""
    speedup: float = 1.0
    """Rate of the best over the baseline's, from paired blocks."""
    speedup_low: float | None = None
    """Lower end of its 95 % interval; `None`: not known."""
    speedup_high: float | None = None
    """Upper end; `None` with a lower one: without end."""
    headroom: float | None = None
    """Gain with a loader that takes no time, as a share of the baseline's rate: 0.25 is a quarter. `None`: not
    measured."""
    ended: str
    """Why the search ended: a value of `SearchEnd`."""
    because: str
    """The same in one sentence, with its figures."""
    wall_s: float = 0.0
    """Seconds that the tuning took."""
    steps: int = 0
    """Steps that the training did for it, all of them thrown away. In the JSON under `cost`, as `starts`."""
    starts: int = 1
    """Number of times that the training was started."""
    noise: float | None = None
    """Standard deviation of the log rate between blocks of one setting, drift removed: 0.05 is 5 %. `None`: not
    measured."""
    trials: tuple[Trial, ...] = ()
    """Everything that was run, the baseline first."""
    batch: BatchAdvice | None = None
    """Batch sizes; `None`: not examined."""
    binding_constraint: str | None = None
    """What sets the pace at the best settings: a key of `BINDS`. `None`: not known."""
    not_tested: tuple[str, ...] = ()
    """What else could matter, and why it was not tried."""
    notes: tuple[str, ...] = ()
    """Remarks, a sentence each."""
    patch: Patch | None = None
    """The change of the program's source; `None` where nothing is to be changed, and for a scenario."""

    @property
    def gain(self) -> Estimate:
        """The speed-up with its interval."""
        return _estimate(self.speedup, self.speedup_low, self.speedup_high)

    @property
    def ceiling(self) -> float | None:
        """Samples/s of a loader that takes no time, as measured, which the fastest setting cannot beat but by noise;
        `None` where it was not measured, or was nothing more."""
        now = self.baseline.samples_per_s
        if now is None or not self.headroom or self.headroom <= 0:
            return None
        return max(now * (1 + self.headroom), *(trial.samples_per_s or 0.0 for trial in self.trials))

    @property
    def changed(self) -> bool:
        """Whether there is something to change."""
        return self.best.settings != self.baseline.settings


def keep(folder: Path, asked: dict[str, Any], began: str, result: dict[str, Any] | None = None) -> None:
    """Write `tune.json` into a tuning's folder.

    Args:
        asked: what is tuned, as the command was given it.
        result: as `tune --json` writes it; `None` until there is one.

    Raises:
        RecordError: the folder cannot be written.
    """
    content = {"format": FORMAT, "version": VERSION, "asked": asked, "began": began, "result": result}
    try:
        write_json(folder / TUNE_JSON, content)
    except OSError as error:
        raise RecordError(f"cannot write {folder}: {error.strerror}. Choose another folder with --out.") from error


def kept(folder: Path) -> tuple[dict[str, Any], str, dict[str, Any] | None]:
    """Read `tune.json`: what was asked, when it began, and the result, `None` until there is one.

    Raises:
        RecordError: not readable, or of an unknown version.
    """
    path = folder / TUNE_JSON
    try:
        content = read_json(path)
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise ValueError(f"another format than version {VERSION}")
        return dict(content["asked"]), str(content["began"]), content.get("result")
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is not a readable tuning: {error}.") from error
