"""The JSON of a tuning: `tune --json`, written and read back."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan, nan
from typing import Any

from msgspec import UNSET, Struct, UnsetType, ValidationError, convert, to_builtins

from ...analyse.statistics import Estimate
from ...errors import RecordError
from ...record.tuning import LoaderSettings
from ...tune.patch import Patch
from ...tune.search.result import BatchAdvice, Trial, Tuned
from ...tune.search.tuning import Tuning, prediction_error

FORMAT, VERSION = "whyidle-tune", 1


class SettledJson(Struct):
    """Settings of a loader and the samples/s they came to, with an interval of 95 %."""

    settings: LoaderSettings
    samples_per_s: float | None
    low: float | None
    high: float | None


class TrialJson(Struct, kw_only=True):
    """Settings that were run, and the samples/s they came to, with an interval of 95 %."""

    settings: LoaderSettings
    status: str
    """`ok`, `failed` or `oom`."""
    error: str | None = None
    samples_per_s: float | None
    low: float | None
    high: float | None
    steady_samples_per_s: float | None = None
    """Within epochs, without their beginnings."""
    predicted: float | None = None
    """Samples/s, by the model before these settings were first run."""
    seconds: float = 0.0
    """Spent on them."""
    blocks: int = 0
    """Measured, with as many of the baseline."""
    dropped: str | None = None
    """Why they were not tried further; `null` where they were."""


class TuningCostJson(Struct):
    """Cost of the tuning."""

    seconds: float
    steps: int
    """Training steps, all discarded."""
    starts: int
    """Of the training."""


class PredictionJson(Struct):
    """Errors of predictions, as shares of what was measured."""

    median_error: float | None
    max_error: float | None
    settings: int
    """Of how many settings."""


class BatchJson(Struct, kw_only=True):
    """The largest and the best batch size. Where that was not examined, `b_max`, `b_95`, `b_star` and `notes` are
    the only keys."""

    b_max: int | None
    """The largest that fits with a margin."""
    b_95: int | None
    """The smallest whose throughput is within 5 % of the best."""
    b_star: Any = None
    """No longer estimated; only older tunings may have it."""
    samples_per_s: dict[int, float] | UnsetType = UNSET
    """By batch size, as all that follows."""
    intervals: dict[int, tuple[float, float | None]] | UnsetType = UNSET
    """Of 95 %, those of `samples_per_s` that are known; `null`: without end."""
    memory_bytes: dict[int, int] | UnsetType = UNSET
    """Most in use."""
    failed: dict[int, str] | UnsetType = UNSET
    """Sizes that do not fit, and what they ended with."""
    alpha_ns: float | UnsetType | None = UNSET
    """A step takes alpha and, for each sample, beta."""
    beta_ns: float | UnsetType | None = UNSET
    off_line: tuple[int, ...] | UnsetType = UNSET
    """Sizes more than 5 % off that."""
    noise_samples: Any = UNSET
    """As `b_star`."""
    micro_batch: int | UnsetType | None = UNSET
    """A smaller batch that is clearly faster."""
    accumulate: int | UnsetType | None = UNSET
    """How many of those make one of the program's."""
    settings: LoaderSettings | UnsetType | None = UNSET
    """The loader's, at `micro_batch`."""
    loader_bound: bool | UnsetType = UNSET
    """Whether the loader sets the pace, so rates do not distinguish sizes."""
    alone: dict[int, float] | UnsetType = UNSET
    """Samples/s with cached batches, where the loader sets the pace."""
    notes: tuple[str, ...]


class TuningJson(Struct, kw_only=True):
    format: str = FORMAT
    version: int = VERSION
    what: str
    """The command, or the scenario and its net."""
    scenario: str | None
    device: dict[str, Any]
    """As the recording describes it."""
    batch_size: int | None = None
    """As the program makes them."""
    baseline: SettledJson
    """The program's own."""
    best: SettledJson
    speedup: float
    """Best against baseline, with an interval of 95 %."""
    speedup_low: float | None
    speedup_high: float | None
    """`null` with a `speedup_low`: without end."""
    headroom: float | None
    """Gain with an infinitely fast loader, as a share of the baseline's rate."""
    ended: str
    """A value of `tune.search.result.SearchEnd`."""
    because: str
    """The same in a sentence."""
    promising: str | None = None
    """Setting that was faster in its only block."""
    wall_s: float
    cost: TuningCostJson
    noise: float | None
    """Standard deviation of the log rate between blocks of the same settings."""
    prediction: PredictionJson | None = None
    trials: list[TrialJson]
    """Everything that was run, the baseline first."""
    batch: BatchJson
    binding_constraint: str | None
    """What sets the pace at the best settings."""
    not_tested: tuple[str, ...]
    """What else could matter, and why it was not tried."""
    notes: tuple[str, ...]
    """Remarks, a sentence each."""
    patch: Patch | None = None
    """The change of the program's source: `diff` for `patch -p1` in `folder`, the `command` to run where a value is an
    option of its command line, and what is left to be done `by_hand`; `null` where nothing is to be changed."""


def tuning(result: Tuning) -> TuningJson:
    tuned = result.tuned
    error = prediction_error(tuned.trials)
    return TuningJson(
        what=result.what,
        scenario=result.scenario,
        device=result.device,
        batch_size=result.batch_size,
        baseline=SettledJson(result.settings(tuned.baseline.settings), **_rate(tuned.baseline)),
        best=SettledJson(result.settings(tuned.best.settings), **_rate(tuned.best)),
        speedup=tuned.speedup.value,
        speedup_low=tuned.speedup.low,
        speedup_high=tuned.speedup.high,
        headroom=tuned.headroom,
        ended=tuned.ended,
        because=tuned.because,
        promising=tuned.promising,
        wall_s=tuned.wall_s,
        cost=TuningCostJson(tuned.wall_s, result.steps, result.starts),
        noise=tuned.noise,
        prediction=None if error is None else PredictionJson(*error),
        trials=[_trial(result, trial) for trial in tuned.trials],
        batch=_batch(tuned.batch),
        binding_constraint=tuned.binding,
        not_tested=tuned.not_tested,
        notes=result.notes,
        patch=result.patch and result.patch.kept(),
    )


def _trial(result: Tuning, trial: Trial) -> TrialJson:
    return TrialJson(
        settings=result.settings(trial.settings),
        status=trial.status,
        error=trial.error,
        **_rate(trial),
        steady_samples_per_s=trial.steady_samples_per_s,
        predicted=trial.predicted,
        seconds=trial.seconds,
        blocks=trial.blocks,
        dropped=trial.dropped,
    )


def _rate(trial: Trial) -> dict[str, float | None]:
    rate = trial.rate
    value, low, high = (None, None, None) if rate is None else (rate.value, rate.low, rate.high)
    return {"samples_per_s": value, "low": low, "high": high}


def _batch(advice: BatchAdvice | None) -> BatchJson:
    if advice is None:
        return BatchJson(b_max=None, b_95=None, notes=())
    return BatchJson(
        b_max=advice.b_max,
        b_95=advice.b_95,
        samples_per_s={size: rate.value for size, rate in advice.rates.items()},
        intervals={size: (rate.low, rate.high) for size, rate in advice.rates.items() if not isnan(rate.low)},
        memory_bytes=advice.memory_bytes,
        failed=advice.failed,
        alpha_ns=advice.alpha_ns,
        beta_ns=advice.beta_ns,
        off_line=advice.off_line,
        noise_samples=None,
        micro_batch=advice.micro_batch,
        accumulate=advice.accumulate,
        settings=advice.settings,
        loader_bound=advice.loader_bound,
        alone=advice.alone,
        notes=advice.notes,
    )


def read(content: dict[str, Any]) -> Tuning:
    """The tuning that `content` tells of.

    Raises:
        RecordError: it is no result of a tuning, or of another version.
    """
    try:
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise RecordError(f"a result of version {content['version']}; this whyidle reads version {VERSION}.")
        return _tuning(convert(content, TuningJson, str_keys=True))
    except (ValidationError, KeyError, TypeError, StopIteration) as error:
        raise RecordError(f"no readable result of a tuning ({type(error).__name__}: {error}).") from error


def _tuning(told: TuningJson) -> Tuning:
    trials = tuple(_read_trial(each) for each in told.trials)
    tuned = Tuned(
        baseline=_found(told.baseline, trials),
        best=_found(told.best, trials),
        trials=trials,
        speedup=_read_estimate(told.speedup, told.speedup_low, told.speedup_high),
        headroom=told.headroom,
        ended=told.ended,
        because=told.because,
        binding=told.binding_constraint,
        not_tested=told.not_tested,
        noise=told.noise,
        wall_s=told.wall_s,
        batch=_read_batch(told.batch),
        promising=told.promising,
    )
    return Tuning(
        what=told.what,
        device=told.device,
        tuned=tuned,
        scenario=told.scenario,
        batch_size=told.batch_size,
        steps=told.cost.steps,
        starts=told.cost.starts,
        notes=told.notes,
        patch=told.patch,
    )


def _found(told: SettledJson, trials: tuple[Trial, ...]) -> Trial:
    """The trial of these settings: all that was returned was run."""
    return next(trial for trial in trials if trial.settings == told.settings)


def _read_trial(told: TrialJson) -> Trial:
    rate = None if told.samples_per_s is None else _read_estimate(told.samples_per_s, told.low, told.high)
    return replace(convert(to_builtins(told), Trial), rate=rate)


def _read_batch(told: BatchJson) -> BatchAdvice | None:
    if isinstance(told.samples_per_s, UnsetType) or isinstance(told.intervals, UnsetType):
        return None
    ends = {size: told.intervals.get(size, (None, None)) for size in told.samples_per_s}
    rates = {size: _read_estimate(rate, *ends[size]) for size, rate in told.samples_per_s.items()}
    return replace(convert(to_builtins(told), BatchAdvice), rates=rates)


def _read_estimate(value: float, low: float | None, high: float | None) -> Estimate:
    """JSON has neither NaN, an interval that is not known, nor infinity, one without an end."""
    if low is None:
        return Estimate(value, nan, nan)
    return Estimate(value, low, inf if high is None else high)
