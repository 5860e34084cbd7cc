"""The JSON of `whyidle diff`. Intervals (`Estimate`) are of 95 %; changes are B less A, µs per `unit`.

What has the same name in the analysis is taken from there: `Faster`, `Changed`, `Setting`, `MovedFigure`, `Because` and
`MovedLine` say what their keys mean; the rest stands in docs/commands/diff.md.
"""

from __future__ import annotations

from ...analyse.diff.difference import Difference
from ...analyse.diff.sides import Side
from ...analyse.run.stall_breakdown import PARTS, TOTAL
from .encode import Json, cause, next_of


def difference(found: Difference) -> Json:
    """Tell a difference, as `whyidle-diff` version 1; without `lines` where a run has no stack samples."""
    terms, changed, promise = found.times.terms, found.findings, found.promise
    return {
        "format": "whyidle-diff",
        "version": 1,
        "a": _side(found.a),
        "b": _side(found.b),
        "emulated": found.emulated,
        "unit": found.times.unit,
        "speedup": found.times.speedup,
        "total": terms[TOTAL],
        "parts": [{"part": part} | vars(terms[part]) for part in PARTS if part in terms],
        "settings": found.settings,
        "environment": found.environment,
        "figures": found.figures,
        "findings": {
            "appeared": [cause(each) for each in changed.appeared],
            "vanished": [cause(each) for each in changed.vanished],
            "stayed": [{"cause": b.cause, "a": cause(a), "b": cause(b)} for a, b in changed.stayed],
        },
        "because": found.because,
        "notes": found.notes,
        "promise": None if promise is None else vars(promise) | {"advice": next_of(promise.advice)},
        **({} if found.lines is None else {"lines": found.lines}),
    }


def _side(side: Side) -> Json:
    """Runs of one setting; but for `runs`, `steps` and `samples_per_s` keys describe the typical run."""
    info, device, rates = side.info, side.info.get("device") or {}, side.rates
    return {
        "runs": side.folders,
        **{name: info.get(name) for name in ("id", "command", "started_at")},
        "device": {"kind": side.facts.device_kind, "name": device.get("title") or device.get("name")},
        "stand_in": (info.get("dataset") or {}).get("stand_in"),
        "batch_size": side.facts.batch_size,
        "ranks": side.typical.ranks,
        "steps": side.steps,
        "samples_per_s": sum(rates) / len(rates) if rates else None,
        "verdict": side.typical.analysis.verdict.cause,
    }
