"""Which planted faults and controls are given to every tool, and why the others are given to none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from whyidle_bench.cases.case import CONTROL, Case, Data, Loader, Plan, PlannedStep
from whyidle_bench.cases.machine import unmet
from whyidle_bench.cases.registry import cases

SEVERITY = "middle"
STRONGER = {"input.cpu_quota": "severe", "input.oversubscribed": "severe"}
"""Causes whose middle severity costs too little where the computing leaves the CPU alone."""
QUICK_CASES = ("input.serial-middle", "control.compute")
SOME_CONTROLS = tuple(
    f"control.{name}"
    for name in (
        "compute",
        "in-memory",
        "cold-first-epoch",
        "light-validation",
        "small-steps",
        "noisy-neighbour",
        "varied-lengths",
    )
)
"""Each healthy in another way."""
LEAST_SHARE = 0.10
"""A fault that cost less than this share of a run's time is not there to be named, by anybody; a control is none where
more than this is lost."""

NEEDS_A_GPU: Mapping[str, str] = {
    "copy": "copies to a device",
    "device.throttled": "a device's clocks",
    "device.contended": "others on a device",
    "device.memory_pressure": "a device's memory",
    "host.sync": "calls that wait for a device which computes meanwhile",
    "host.launch": "launches that take longer than their kernels",
}
"""Causes that a machine without a GPU cannot show to tools that know no emulated device, by prefix."""

SECONDS_OF_STEPS = 2.5
COST_STEPS_MS = (1.0, 10.0)


@dataclass(frozen=True)
class Selection:
    """What is run, and what is not."""

    cases: Sequence[Case]
    skipped: Mapping[str, str]
    """By case, why this machine cannot show it."""


def chosen(names: Sequence[str], everything: bool) -> Selection:
    """The cases with these names or causes; without names one for each cause, and some controls.

    Args:
        everything: also the other ways to plant the same cause, and all controls.
    """
    found = cases(names, ("fault", "control"))
    if not names:
        found = [case for case in found if case.severity in (_severity(case), CONTROL)]
        if not everything:
            found = [case for case in found if _is_first(case)]
    else:
        found = [case for case in found if case.severity in (_severity(case), CONTROL) or case.name in names]
    skipped, kept = {}, []
    for case in found:
        reason = _not_shown(case) or unmet(case.needs)
        if reason:
            skipped[case.name] = reason
        else:
            kept.append(case)
    return Selection(kept, skipped)


def cost_case(step_ms: float) -> Case:
    """A plain training of short steps that the processor computes, with samples in memory."""
    plan = Plan(
        Data(),
        Loader(workers=0, batch=8),
        PlannedStep(compute_ms=step_ms),
        batches=round(SECONDS_OF_STEPS * 1e3 / step_ms),
        device="cpu",
    )
    return Case(f"cost-{step_ms:g}ms", (), CONTROL, plan, note=f"steps of {step_ms:g} ms")


def as_shuffled(case: Case) -> Case:
    """The case for a tool that draws the samples in an order of its own: which batch is slow is not known then."""
    return replace(case, hit="every") if case.part == "fetch" else case


def _is_first(case: Case) -> bool:
    return case.name == f"{case.causes[0]}-{case.severity}" if case.causes else case.name in SOME_CONTROLS


def _severity(case: Case) -> str:
    return next((STRONGER[cause] for cause in case.causes if cause in STRONGER), SEVERITY)


def _not_shown(case: Case) -> str | None:
    needs = next((why for cause in case.causes for start, why in NEEDS_A_GPU.items() if cause.startswith(start)), None)
    return f"needs a GPU ({needs})" if needs else None
