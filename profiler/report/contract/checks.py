"""The JSON of `whyidle check` and of `whyidle doctor`: a check says as its fields what its keys mean."""

from __future__ import annotations

from collections.abc import Sequence

from ...analyse.diff.check import LimitCheck
from ...record.check import Check
from .encode import Json


def of_run(run: str, found: Sequence[LimitCheck], emulated: bool) -> Json:
    """Tell a run (`run`: its folder) and its limits, as `whyidle-check` version 1. `emulated`: whether its device was;
    `passed` is what the exit code says."""
    passed = all(each.holds for each in found)
    head = {"format": "whyidle-check", "version": 1, "run": run, "passed": passed}
    return {**head, "checks": found, "emulated": emulated}


def of_machine(found: Sequence[Check]) -> Json:
    """Tell what can be measured on a machine, as `whyidle-doctor` version 1."""
    return {"format": "whyidle-doctor", "version": 1, "checks": found}
