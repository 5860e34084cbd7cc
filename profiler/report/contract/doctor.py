"""The checks of a machine as `whyidle-doctor` version 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...record.check import Check

VERSION = 1


def checks(found: Sequence[Check]) -> dict[str, Any]:
    return {"format": "whyidle-doctor", "version": VERSION, "checks": [asdict(check) for check in found]}
