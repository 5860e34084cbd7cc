"""What several kinds of result tell alike in JSON: a cause with what to change, and a device.

A structure of the analysis is its own JSON where the names are the same (`Evidence`); where they differ, or a key may
be absent, a mapping is made here. The meaning of each key: docs/commands/report.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ...analyse.causes.finding import Finding, Next
from ...analyse.speedup import Speedup

Json = dict[str, Any]
"""An object of keys and values that `encode.builtins` writes."""
CauseJson = Json
FindingJson = Json
NextJson = Json
"""What `cause`, `finding` and `next_of` make."""


class DeviceJson(Struct):
    kind: str | None
    """`cuda`, `cpu` or `emulated`; `null` where that could not be read."""
    name: str | None


class PromisedJson(Struct):
    """The rate of a training over what it is, with an interval of 90 %."""

    value: float
    low: float
    high: float


def present(keys: Mapping[str, Any]) -> Json:
    """Leave out what is `None` or empty: keys that exist only where there is something to say."""
    return {key: value for key, value in keys.items() if value not in (None, "", False, [], {})}


def picked(structure: Any, *names: str) -> Json:
    """Take these fields of a structure under their own names; all are `None` where there is none."""
    return {name: getattr(structure, name, None) for name in names}


def cause(found: Finding) -> CauseJson:
    """Tell a cause and its share of the wall time; `cause` is `null` where there is no verdict, for the reason that is
    the title."""
    return picked(found, "cause", "title") | {"share_pct": 100 * found.share, "severity": found.severity}


def finding(found: Finding, of_none: float | None = None) -> FindingJson:
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
            | {"of": line.time, **present({"without": _promised(line.without)})}
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


def next_of(change: Next) -> NextJson:
    """Tell a change to make, and the samples/s that it may bring; without a most, today's rate alone is no range, so
    `low` is `null` wherever `high` is."""
    speedup = change.speedup
    return {
        "change": change.change,
        "predicted_samples_per_s": change.predicted_samples_per_s,
        "low": None if change.high is None else change.low,
        "high": change.high,
    } | present(
        {
            "kind": change.kind,
            "speedup": _promised(speedup),
            "to_try": speedup is not None and speedup.to_try,
            "settings": dict(change.settings),
        }
    )


def _promised(times: Speedup | None) -> PromisedJson | None:
    return None if times is None else PromisedJson(times.value, times.low, times.high)
