"""The JSON of the contract: `tune --json`. `null` means not measured."""

from __future__ import annotations

from typing import Any

from ..record.tuning import LoaderSettings
from ..tune.result import BatchAdvice, Trial
from ..tune.tuning import Tuning, prediction_error

VERSION = 1


def tuning(result: Tuning) -> dict[str, Any]:
    """A tuning, as `stallscope-tune` version 1."""
    tuned = result.tuned
    error = prediction_error(tuned.trials)
    return {
        "format": "stallscope-tune",
        "version": VERSION,
        "what": result.what,
        "scenario": result.scenario,
        "device": result.device,
        "baseline": {
            "settings": _settings(result, tuned.baseline.settings),
            "samples_per_s": tuned.baseline.samples_per_s,
            "low": tuned.baseline.low,
            "high": tuned.baseline.high,
        },
        "best": {
            "settings": _settings(result, tuned.best.settings),
            "samples_per_s": tuned.best.samples_per_s,
            "low": tuned.best.low,
            "high": tuned.best.high,
        },
        "speedup": tuned.speedup,
        "speedup_low": tuned.low,
        "speedup_high": tuned.high,
        "headroom": tuned.headroom,
        "ended": tuned.ended,
        "because": tuned.because,
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
        "samples_per_s": trial.samples_per_s,
        "low": trial.low,
        "high": trial.high,
        "steady_samples_per_s": trial.steady_samples_per_s,
        "predicted": trial.predicted,
        "seconds": trial.seconds,
        "blocks": trial.blocks,
        "dropped": trial.dropped,
    }


def _batch(advice: BatchAdvice | None) -> dict[str, Any]:
    """All null where it was not looked at."""
    if advice is None:
        return {"b_max": None, "b_95": None, "b_star": None, "notes": []}
    return {
        "b_max": advice.b_max,
        "b_95": advice.b_95,
        "b_star": None if advice.b_star is None else list(advice.b_star),
        "samples_per_s": {str(size): rate for size, rate in advice.samples_per_s.items()},
        "intervals": {str(size): list(interval) for size, interval in advice.intervals.items()},
        "memory_bytes": {str(size): used for size, used in advice.memory_bytes.items()},
        "failed": {str(size): why for size, why in advice.failed.items()},
        "alpha_ns": advice.alpha_ns,
        "beta_ns": advice.beta_ns,
        "off_line": list(advice.off_line),
        "noise_samples": None if advice.noise_samples is None else list(advice.noise_samples),
        "micro_batch": advice.micro_batch,
        "accumulate": advice.accumulate,
        "settings": None if advice.settings is None else advice.settings.to_json(),
        "notes": list(advice.notes),
    }
