"""From facts to a verdict: the causes that explain idle time, ranked by what fixing them would gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .causes import activity, device_path, input
from .facts import Facts
from .finding import LEAST_GAIN, Evidence, Finding, Next

LEAST_STEPS = 30
"""Fewer steps support no verdict."""

MOST_UNRESOLVED = 0.05
"""With more steps than this lacking the device's stamps, idling cannot be told from computing."""

Rule = Callable[[Facts], Finding | None]

_TELL_APART = Next(
    "put `stallscope.watch(iterable)` around what the training iterates over, or "
    '`with stallscope.phase("data"):` around where it gets a batch',
    None,
    None,
    None,
)

_RULES: dict[str, Sequence[Rule]] = {
    "compute": activity.RULES,
    "input": input.RULES,
    "copy": device_path.COPY_RULES,
    "sync": device_path.SYNC_RULES,
    "host": device_path.HOST_RULES,
    "boundary": device_path.BOUNDARY_RULES,
}


def findings_of(facts: Facts) -> tuple[Finding, ...]:
    """For each part of the idle time the most specific cause that has evidence; the largest gain first."""
    found = []
    for part, rules in _RULES.items():
        if facts.parts.share(part) <= 0:
            continue
        finding = next((f for f in (rule(facts) for rule in rules) if f is not None), None)
        if finding is not None and finding.severity != "none":
            found.append(finding)
    found.sort(key=lambda f: f.gain, reverse=True)
    if found and not facts.told_apart:
        found[0] = replace(found[0], next=(*found[0].next, _TELL_APART))
    return tuple(found)


def verdict_of(facts: Facts, findings: Sequence[Finding]) -> Finding:
    """The finding to act on first; `none` when nothing is worth changing; no cause on too few steps."""
    steps = len(facts.window.steps)
    if facts.parts.unresolved_steps > MOST_UNRESOLVED * steps:
        return Finding(
            None,
            f"No verdict: the device's stamps of {facts.parts.unresolved_steps} of {steps} steps are missing.",
            0.0,
            0.0,
        )
    if steps < LEAST_STEPS:
        return Finding(
            None,
            f"No verdict: {steps} {'step was' if steps == 1 else 'steps were'} recorded after the warm-up, at least "
            f"{LEAST_STEPS} are needed: "
            "train longer.",
            0.0,
            0.0,
        )
    if findings:
        return findings[0]
    if not facts.input_known:
        unknown = (
            "how much of the time the training waits for data is not known"
            if facts.told_apart
            else "computing, waiting for data and evaluating are not told apart"
        )
        return Finding(
            None, f"No verdict: {unknown}, because no fetch of a batch was seen.", 0.0, 0.0, next=(_TELL_APART,)
        )
    idle = 1 - facts.parts.share("compute")
    return Finding(
        "none",
        f"Nothing worth changing: the {facts.waiter} computes {100 * (1 - idle):.0f} % of the time, "
        f"and no single cause would give {100 * LEAST_GAIN:.0f} % more.",
        0.0,
        0.9,
        (
            Evidence(f"{facts.waiter} computing", 100 * facts.parts.share("compute"), "%"),
            Evidence(f"{facts.waiter} waiting for data", 100 * facts.parts.share("input"), "%", "below 5"),
        ),
    )
