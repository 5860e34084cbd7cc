"""The JSON of `whyidle check` and of `whyidle doctor`: `whyidle-check` and `whyidle-doctor`, version 1 both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...analyse.diff.limits import LimitCheck
from ...record.check import Check

VERSION = 1


def of_run(run: str, found: Sequence[LimitCheck]) -> dict[str, Any]:
    """`passed` says what the exit code does; `measured` is `null` where nothing was measured."""
    return {
        "format": "whyidle-check",
        "version": VERSION,
        "run": run,
        "passed": all(each.holds for each in found),
        "checks": [
            {
                "name": each.name,
                "what": each.what,
                "status": each.status,
                "allowed": each.allowed,
                "measured": each.measured,
                "limit": each.limit,
                "at_most": each.at_most,
                "unit": each.unit,
                "note": each.note,
            }
            for each in found
        ],
    }


def of_machine(found: Sequence[Check]) -> dict[str, Any]:
    """What can be measured on a machine."""
    return {"format": "whyidle-doctor", "version": VERSION, "checks": [asdict(check) for check in found]}
