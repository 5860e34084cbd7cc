"""The JSON of `whyidle check` and of `whyidle doctor`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ...analyse.diff.limits import LimitCheck
from ...record.check import Check


class LimitCheckJson(Struct):
    """A limit that a run was checked against."""

    name: str
    """Name of the option without leading dashes; `forbid CAUSE` for a cause."""
    what: str
    """The same in words."""
    status: str
    """`passed`, `failed`, `unclear` or `not measured`."""
    allowed: bool
    """Whether the run passes whatever the status, as the user chose."""
    measured: float | str | None
    limit: float | str
    at_most: bool
    """Whether `limit` is the most that is allowed; else it is the least."""
    unit: str
    note: str


class LimitsJson(Struct, kw_only=True):
    """A run and its limits."""

    format: str = "whyidle-check"
    version: int = 1
    run: str
    """Its folder."""
    passed: bool
    """What the exit code says."""
    checks: list[LimitCheckJson]
    emulated: bool
    """Whether the device was."""


class MachineJson(Struct, kw_only=True):
    """What can be measured on a machine."""

    format: str = "whyidle-doctor"
    version: int = 1
    checks: Sequence[Check]


def of_run(run: str, found: Sequence[LimitCheck], emulated: bool) -> LimitsJson:
    passed = all(each.holds for each in found)
    return LimitsJson(run=run, passed=passed, checks=[_limit(each) for each in found], emulated=emulated)


def of_machine(found: Sequence[Check]) -> MachineJson:
    return MachineJson(checks=found)


def _limit(held: LimitCheck) -> LimitCheckJson:
    return LimitCheckJson(
        name=held.name,
        what=held.what,
        status=held.status,
        allowed=held.allowed,
        measured=held.measured,
        limit=held.limit,
        at_most=held.at_most,
        unit=held.unit,
        note=held.note,
    )
