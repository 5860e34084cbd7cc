"""The JSON of a tuning, `tune --json`, written and read back, and that of an advice that was tried.

The fields of `tune.result.Tuning` are its keys; what it took is in `cost`, what `baseline` and `best` cost in `trials`.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import ValidationError, convert

from ...analyse.causes.finding import Finding
from ...errors import RecordError
from ...tune.prove import Proof
from ...tune.result import Tuning
from .encode import Json, builtins, finding, next_of

FORMAT, VERSION = "whyidle-tune", 1
PROOF_FORMAT, PROOF_VERSION = "whyidle-proof", 1
NOT_EXAMINED: Json = {"b_max": None, "b_95": None, "b_star": None, "notes": []}
"""`batch`, where batch sizes were not examined."""


def tuning(result: Tuning) -> Json:
    """Give the result as JSON has it."""
    kept = replace(result, patch=result.patch and result.patch.kept())
    told = builtins({"format": FORMAT, "version": VERSION, **vars(kept)})
    for name in ("baseline", "best"):
        told[name] = {key: told[name][key] for key in ("settings", "samples_per_s", "low", "high")}
    cost = {"seconds": result.wall_s, "steps": told.pop("steps"), "starts": told.pop("starts")}
    return told | {"cost": cost, "batch": told["batch"] or NOT_EXAMINED}


def read(content: Json) -> Tuning:
    """Give the tuning that `content` tells of.

    Raises:
        RecordError: it is no result of a tuning, or of another version.
    """
    try:
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise RecordError(f"a result of version {content['version']}; this whyidle reads version {VERSION}.")
        batch, cost = content["batch"], content["cost"]
        examined = "samples_per_s" in batch
        told = {**content, "steps": cost["steps"], "starts": cost["starts"], "batch": batch if examined else None}
        found = convert(told, Tuning, str_keys=True)
        run = {trial.settings: trial for trial in found.trials}
        # All that is returned was run.
        return replace(found, baseline=run[found.baseline.settings], best=run[found.best.settings])
    except (ValidationError, KeyError, TypeError) as error:
        raise RecordError(f"no readable result of a tuning ({type(error).__name__}: {error}).") from error


def proof(what: str, told: Proof, report: Finding) -> Json:
    """Give promised and measured speed as JSON has it.

    `advice` is `null` where none is a setting of the loader, `measured` (a rate over that of the training as it is,
    with an interval of 95 %) where it was not measured, for the reason in `why_not`. `kept`: whether the measured rate
    lies in the promised interval; `null` where nothing was promised or measured, or where it does not and its own
    interval reaches into that. `patch`: the change of the source, `null` where it was not measured to be faster.
    `report`: the verdict that the advice is of.
    """
    advised = told.advised
    return builtins(
        {
            "format": PROOF_FORMAT,
            "version": PROOF_VERSION,
            "what": what,
            "cause": advised and advised.cause,
            "advice": advised and next_of(advised.change),
            "first": advised is not None and advised.first,
            "baseline": told.baseline,
            "settings": advised and advised.settings,
            "measured": told.measured,
            "rounds": told.rounds,
            "kept": told.kept,
            "why_not": told.why_not,
            "patch": told.patch and told.patch.kept(),
            "report": finding(report),
        }
    )
