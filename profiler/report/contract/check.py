"""The JSON of `whyidle check`: `whyidle-check` version 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...analyse.diff.limits import LimitCheck

VERSION = 1


def checks(run: str, found: Sequence[LimitCheck]) -> dict[str, Any]:
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
