"""The JSON of `whyidle check` and of `whyidle doctor`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ...analyse.diff.check import LimitCheck
from ...record.check import Check


class LimitsJson(Struct, kw_only=True):
    """A run and its limits."""

    format: str = "whyidle-check"
    version: int = 1
    run: str
    """Its folder."""
    passed: bool
    """What the exit code says."""
    checks: Sequence[LimitCheck]
    emulated: bool
    """Whether the device was."""


class MachineJson(Struct, kw_only=True):
    """What can be measured on a machine."""

    format: str = "whyidle-doctor"
    version: int = 1
    checks: Sequence[Check]


def of_run(run: str, found: Sequence[LimitCheck], emulated: bool) -> LimitsJson:
    return LimitsJson(run=run, passed=all(each.holds for each in found), checks=found, emulated=emulated)


def of_machine(found: Sequence[Check]) -> MachineJson:
    return MachineJson(checks=found)
