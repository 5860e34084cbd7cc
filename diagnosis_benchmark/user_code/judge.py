"""Whether a report is right about a program: pure functions of the report's JSON and of what is true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .cases import UserProgram

LEAST_COST = 0.1
"""Of the broken form's time, lost to the fault in that very run: the machine and its load decide it, and where it is
less there is nothing to be named. As for planted faults under other tools."""
ABOVE_MINOR = ("major", "critical")


@dataclass(frozen=True)
class Answer:
    """How a report of the broken form does, and one of the fixed form. `None`: there is no such report."""

    cause: str | None
    """That the report names first."""
    cause_first: bool | None
    cause_named: bool | None
    """Whether any finding has it."""
    line: str
    """That the report names first, as `file:line code`; empty where it names none."""
    line_first: bool | None
    line_named: bool | None
    """Whether it is among the lines of the first finding."""
    remedy: str
    """The kind of the first advice."""
    remedy_first: bool | None
    quiet: bool | None
    """Whether no finding about the fixed form above `minor` has the cause, as healthy trainings are judged: a loader
    without workers still makes batches in the training's process when they have become cheap."""
    fixed_cause: str | None = None
    cost: float | None = None
    """Of the broken form's time, what the fixed form did without in the same round, 0..1, by their own clocks; `None`:
    not known."""


def costs_nothing(cost: float | None) -> bool:
    """Whether there was nothing to be named in a run, by its `Answer.cost`."""
    return cost is not None and cost < LEAST_COST


def judged(
    program: UserProgram, broken: dict[str, Any] | None, fixed: dict[str, Any] | None, cost: float | None = None
) -> Answer:
    """Of the reports of both forms; the broken one is not judged where its fault cost nothing in that run."""
    loud = [] if fixed is None else [each for each in findings(fixed) if each["severity"] in ABOVE_MINOR]
    quiet = None if fixed is None else all(each["cause"] not in program.causes for each in loud)
    fixed_cause = None if fixed is None else fixed["verdict"]["cause"]
    if broken is None or costs_nothing(cost):
        return Answer(None, None, None, "", None, None, "", None, quiet, fixed_cause, cost)
    verdict = broken["verdict"]
    lines = verdict.get("where") or []
    changes = verdict["next"]
    remedy = changes[0].get("kind", "") if changes else ""
    right = [is_right(program, line) for line in lines]
    return Answer(
        verdict["cause"],
        verdict["cause"] in program.causes,
        any(each["cause"] in program.causes for each in findings(broken)),
        f"{lines[0]['file'].rsplit('/', 1)[-1]}:{lines[0]['line']} {lines[0]['code']}" if lines else "",
        bool(right) and right[0],
        any(right),
        remedy,
        remedy in program.remedies,
        quiet,
        fixed_cause,
        cost,
    )


def findings(report: dict[str, Any]) -> list[dict[str, Any]]:
    """All that a report found, the verdict first."""
    verdict = report["verdict"]
    return [verdict, *(each for each in report["findings"] if each != verdict)]


def is_right(program: UserProgram, line: dict[str, Any]) -> bool:
    """Whether a line of a report is one of those at fault."""
    in_program = line["file"].endswith(f"/{program.name}/broken.py")
    return in_program and line["line"] in program.numbers
