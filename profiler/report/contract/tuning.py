"""The JSON of the contract: `tune --json`, written and read back. `null` means not measured."""

from __future__ import annotations

from math import inf, isnan, nan
from typing import Any

from ...analyse.statistics import Estimate
from ...errors import RecordError
from ...record.tuning import LoaderSettings
from ...tune.search.result import BatchAdvice, Trial, Tuned
from ...tune.search.tuning import Tuning, prediction_error

VERSION = 1


def tuning(result: Tuning) -> dict[str, Any]:
    """A tuning, as `whyidle-tune` version 1."""
    tuned = result.tuned
    error = prediction_error(tuned.trials)
    return {
        "format": "whyidle-tune",
        "version": VERSION,
        "what": result.what,
        "scenario": result.scenario,
        "device": result.device,
        "batch_size": result.batch_size,
        "baseline": {
            "settings": _settings(result, tuned.baseline.settings),
            **_rate(tuned.baseline.rate),
        },
        "best": {
            "settings": _settings(result, tuned.best.settings),
            **_rate(tuned.best.rate),
        },
        "speedup": tuned.speedup.value,
        "speedup_low": tuned.speedup.low,
        "speedup_high": tuned.speedup.high,
        "headroom": tuned.headroom,
        "ended": tuned.ended,
        "because": tuned.because,
        "promising": tuned.promising,
        "wall_s": tuned.wall_s,
        "cost": {
            "seconds": tuned.wall_s,
            "steps": result.steps,
            "starts": result.starts,
            "sittings": result.sittings,
        },
        "noise": tuned.noise,
        "prediction": None
        if error is None
        else dict(zip(("median_error", "max_error", "settings"), error, strict=True)),
        "trials": [_trial(result, trial) for trial in tuned.trials],
        "batch": _batch(tuned.batch),
        "binding_constraint": tuned.binding,
        "not_tested": list(tuned.not_tested),
        "notes": list(result.notes),
    }


def _settings(result: Tuning, settings: LoaderSettings) -> dict[str, Any]:
    return result.settings(settings).to_json()


def _trial(result: Tuning, trial: Trial) -> dict[str, Any]:
    return {
        "settings": _settings(result, trial.settings),
        "status": trial.status,
        "error": trial.error,
        **_rate(trial.rate),
        "steady_samples_per_s": trial.steady_samples_per_s,
        "predicted": trial.predicted,
        "seconds": trial.seconds,
        "blocks": trial.blocks,
        "dropped": trial.dropped,
    }


def _rate(rate: Estimate | None) -> dict[str, float | None]:
    if rate is None:
        return {"samples_per_s": None, "low": None, "high": None}
    return {"samples_per_s": rate.value, "low": rate.low, "high": rate.high}


def _batch(advice: BatchAdvice | None) -> dict[str, Any]:
    """All null where it was not looked at. `b_star` and `noise_samples` are of version 1: nothing is estimated of
    gradients any more."""
    if advice is None:
        return {"b_max": None, "b_95": None, "b_star": None, "notes": []}
    return {
        "b_max": advice.b_max,
        "b_95": advice.b_95,
        "b_star": None,
        "samples_per_s": {str(size): rate.value for size, rate in advice.rates.items()},
        "intervals": {str(size): [rate.low, rate.high] for size, rate in advice.rates.items() if not isnan(rate.low)},
        "memory_bytes": {str(size): used for size, used in advice.memory_bytes.items()},
        "failed": {str(size): why for size, why in advice.failed.items()},
        "alpha_ns": advice.alpha_ns,
        "beta_ns": advice.beta_ns,
        "off_line": list(advice.off_line),
        "noise_samples": None,
        "micro_batch": advice.micro_batch,
        "accumulate": advice.accumulate,
        "settings": None if advice.settings is None else advice.settings.to_json(),
        "loader_bound": advice.loader_bound,
        "notes": list(advice.notes),
    }


def read(content: dict[str, Any]) -> Tuning:
    """The tuning that `content` tells of.

    Raises:
        RecordError: it is no result of a tuning, or of another version.
    """
    try:
        if (content["format"], content["version"]) != ("whyidle-tune", VERSION):
            raise RecordError(f"a result of version {content['version']}; this whyidle reads version {VERSION}.")
        return _tuning(content)
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise RecordError(f"no readable result of a tuning ({type(error).__name__}: {error}).") from error


def _tuning(content: dict[str, Any]) -> Tuning:
    trials = tuple(_read_trial(each) for each in content["trials"])
    cost = content["cost"]
    tuned = Tuned(
        baseline=_found(content["baseline"], trials),
        best=_found(content["best"], trials),
        trials=trials,
        speedup=_read_estimate(content["speedup"], content["speedup_low"], content["speedup_high"]),
        headroom=content["headroom"],
        ended=str(content["ended"]),
        because=str(content["because"]),
        binding=content["binding_constraint"],
        not_tested=tuple(map(str, content["not_tested"])),
        noise=content["noise"],
        wall_s=float(content["wall_s"]),
        batch=_read_batch(content["batch"]),
        promising=content.get("promising"),
    )
    return Tuning(
        what=str(content["what"]),
        device=dict(content["device"]),
        tuned=tuned,
        scenario=content["scenario"],
        batch_size=content.get("batch_size"),
        steps=int(cost["steps"]),
        starts=int(cost["starts"]),
        sittings=int(cost["sittings"]),
        notes=tuple(map(str, content["notes"])),
    )


def _found(told: dict[str, Any], trials: tuple[Trial, ...]) -> Trial:
    """The trial of these settings: all that was returned was run."""
    settings = LoaderSettings.from_json(told["settings"])
    return next(trial for trial in trials if trial.settings == settings)


def _read_trial(told: dict[str, Any]) -> Trial:
    rate, low, high = (told[name] for name in ("samples_per_s", "low", "high"))
    rest = {name: value for name, value in told.items() if name not in ("samples_per_s", "low", "high", "settings")}
    found = None if rate is None else _read_estimate(rate, low, high)
    return Trial(settings=LoaderSettings.from_json(told["settings"]), rate=found, **rest)


def _read_batch(told: dict[str, Any]) -> BatchAdvice | None:
    if "samples_per_s" not in told:
        return None
    by_size = {
        name: {int(size): value for size, value in told[name].items()}
        for name in ("samples_per_s", "intervals", "memory_bytes", "failed")
    }
    intervals = by_size.pop("intervals")
    rates = by_size.pop("samples_per_s")
    settings = told["settings"]
    return BatchAdvice(
        b_max=told["b_max"],
        b_95=told["b_95"],
        rates={size: _read_estimate(rate, *intervals.get(size, (None, None))) for size, rate in rates.items()},
        **by_size,
        alpha_ns=told["alpha_ns"],
        beta_ns=told["beta_ns"],
        off_line=tuple(told["off_line"]),
        micro_batch=told["micro_batch"],
        accumulate=told["accumulate"],
        settings=None if settings is None else LoaderSettings.from_json(settings),
        notes=tuple(map(str, told["notes"])),
        loader_bound=bool(told.get("loader_bound", False)),
    )


def _read_estimate(value: float, low: float | None, high: float | None) -> Estimate:
    """JSON has neither NaN, an interval that is not known, nor infinity, one without an end."""
    if low is None:
        return Estimate(float(value), nan, nan)
    return Estimate(float(value), float(low), inf if high is None else float(high))
