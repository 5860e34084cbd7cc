"""The JSON of `whyidle diff`: `whyidle-diff` version 1. `null` means not measured."""

from __future__ import annotations

from typing import Any

from ...analyse.causes.finding import Finding
from ...analyse.diff.difference import Difference
from ...analyse.diff.settings import Setting, rates
from ...analyse.diff.sides import Side
from ...analyse.diff.times import Changed
from ...analyse.run.stall_breakdown import PARTS, TOTAL
from ...analyse.statistics import Estimate

VERSION = 1


def difference(found: Difference) -> dict[str, Any]:
    """Times are µs per `unit`, with intervals of 95 %; changes are B less A."""
    times = found.times
    within = times.within
    return {
        "format": "whyidle-diff",
        "version": VERSION,
        "a": _side(found.a),
        "b": _side(found.b),
        "emulated": found.emulated,
        "unit": times.unit,
        "speedup": _interval(times.speedup, "value")
        | {"significant": times.significant, "of_these_runs": _interval(within, "value")},
        "total": _changed(times.terms[TOTAL]),
        "parts": [{"part": part} | _changed(times.terms[part]) for part in PARTS if part in times.terms],
        "settings": [_setting(each) for each in found.settings if each.told],
        "environment": [_setting(each) for each in found.environment if each.told],
        "figures": [
            {"name": f.name, "unit": f.unit, "a": f.a, "b": f.b, "part": f.part, "moved": f.moved}
            for f in found.figures
        ],
        "findings": {
            "appeared": [_finding(each) for each in found.findings.appeared],
            "vanished": [_finding(each) for each in found.findings.vanished],
            "stayed": [{"cause": b.cause, "a": _finding(a), "b": _finding(b)} for a, b in found.findings.stayed],
        },
        "because": {
            "kind": found.because.kind,
            "part": found.because.part,
            "by": [_setting(each) for each in found.because.by],
            "look_at": list(found.because.look_at),
        },
        "notes": list(found.notes),
    }


def _side(side: Side) -> dict[str, Any]:
    info, device = side.info, side.info.get("device") or {}
    of_runs = rates(side)
    return {
        "runs": side.folders,
        "id": info.get("id"),
        "command": info.get("command"),
        "started_at": info.get("started_at"),
        "device": {"kind": side.typical.device_kind, "name": device.get("title") or device.get("name")},
        "stand_in": (info.get("dataset") or {}).get("stand_in"),
        "batch_size": side.facts.batch_size,
        "ranks": side.typical.ranks,
        "steps": side.steps,
        "samples_per_s": sum(of_runs) / len(of_runs) if of_runs else None,
        "verdict": side.typical.analysis.verdict.cause,
    }


def _changed(term: Changed) -> dict[str, Any]:
    return {
        "a": _interval(term.a),
        "b": _interval(term.b),
        "change": _interval(term.change),
        "significant": term.significant,
    }


def _interval(found: Estimate, name: str = "value") -> dict[str, float | None]:
    return {name: found.value, "low": found.low, "high": found.high}


def _setting(each: Setting) -> dict[str, Any]:
    return {"name": each.name, "a": each.a, "b": each.b, "explains": list(each.explains)}


def _finding(found: Finding) -> dict[str, Any]:
    return {"cause": found.cause, "title": found.title, "share_pct": 100 * found.share, "severity": found.severity}
