"""From results, as structures and mappings, to what `json` takes; here alone NaN turns into null.
And what several kinds of result tell alike: a cause with what to change.

A structure of the analysis is its own JSON where the names are the same (`Evidence`); where they differ, or a key may
be absent, a mapping is made here. The meaning of each key: docs/commands/report.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from ...analyse.causes.finding import Finding, Next
from ...analyse.statistics import Speedup

Json = dict[str, Any]
"""An object of keys and values that `builtins` writes."""
Content = Mapping[str, Any]
"""What is written as a JSON object."""


def builtins(content: Content) -> Json:
    """Write objects, lists and values of JSON, which has neither NaN nor infinity: they are `null`."""
    told: Json = _finite(to_builtins(content, str_keys=True, enc_hook=_number))
    return told


def _number(value: object) -> float:
    """numpy's floats are floats."""
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{value!r} ({type(value).__name__}) cannot be written as JSON")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and value - value != 0 else value


def present(keys: Mapping[str, Any]) -> Json:
    """Leave out what is `None` or empty: keys that exist only where there is something to say."""
    return {key: value for key, value in keys.items() if value not in (None, "", False, [], {})}


def picked(structure: Any, *names: str) -> Json:
    """Take these fields of a structure under their own names; all are `None` where there is none."""
    return {name: getattr(structure, name, None) for name in names}


def cause(found: Finding) -> Json:
    """Tell a cause and its share of the wall time; `cause` is `null` where there is no verdict, for
    the reason that is the title."""
    return picked(found, "cause", "title") | {"share_pct": 100 * found.share, "severity": found.severity}


def finding(found: Finding, of_none: float | None = None) -> Json:
    """Tell a cause with its evidence and what to change. `of_none`: share and confidence where there is no verdict."""
    told = cause(found) | {"confidence": found.confidence}
    if found.cause is None:
        told |= {"share_pct": of_none, "confidence": of_none}
    told |= {"evidence": found.evidence, "next": [next_of(each) for each in found.next]}
    if found.where:
        told["where"] = [
            picked(line, "file", "line", "function", "code")
            | {"share_pct": None if line.share is None else 100 * line.share}
            | picked(line, "samples", "calls")
            | {"of": line.time, **present({"without": interval(line.without)})}
            for line in found.where
        ]
    if (stages := found.stages) is not None:
        told["stages"] = [
            picked(part, "stage", "name")
            | {"share_pct": 100 * part.share.value, "low_pct": 100 * part.share.low, "high_pct": 100 * part.share.high}
            | {"samples": part.looks, "calls": part.calls, **picked(part.at, "file", "line", "function")}
            | {"code": None if part.at is None else part.at.text, "of": stages.time}
            for part in stages.parts
        ]
    return told


def next_of(change: Next) -> Json:
    """Tell a change to make, and the samples/s that it may bring; without a most, today's rate
    alone is no range, so `low` is `null` wherever `high` is."""
    speedup = change.speedup
    return {
        "change": change.change,
        "predicted_samples_per_s": change.predicted_samples_per_s,
        "low": None if change.high is None else change.low,
        "high": change.high,
    } | present(
        {
            "kind": change.kind,
            "speedup": interval(speedup),
            "to_try": speedup is not None and speedup.to_try,
            "settings": dict(change.settings),
        }
    )


def interval(times: Speedup | None) -> Json | None:
    """Tell the rate of a training over what it is, with an interval of 90 %; `null` where nothing is expected."""
    return None if times is None else picked(times, "value", "low", "high")
