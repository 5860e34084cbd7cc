"""What the steps themselves leave in doubt, a sentence each: left out, without stamps, or contradicted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...record.schema import StepFlag
from .facts import Facts
from .unsampled_steps import disagreeing

LEAST_DISAGREEMENT_PCT = 20
"""Points of the wall time between the driver's utilisation and the span of the steps' computation from which they are
said to disagree. More than `UTILISATION_BELOW`, from which a cause is claimed: that is claimed only where nothing else
may be the reason, and this is said whatever the reason is."""
MOST_UNCERTAIN_NS = 100_000
"""How far the device's clock may be off the host's before that is said."""
MOST_UNMARKED = 0.1
"""Waits for the device that have no stamps of its own, a step, from which that is said."""
MOST_DISAGREEING = 0.01
"""Share of the steps whose stamps may contradict the device before that is said: the scheduler can come between two
questions to it."""
LEAST_DOUBTFUL = 0.05
"""Share of the steps of which a part of the time is not known, from which that is said."""


def warnings_of(facts: Facts) -> Iterator[str]:
    """What a reader must know before trusting the parts."""
    window, parts = facts.window, facts.parts
    if (after := window.after) is not None:
        passes = "a pass" if after.passes == 1 else f"{after.passes} passes"
        yield (
            f"After the training {passes} over data that it did not evaluate on took "
            f"{(after.end_ns - after.begin_ns) / 1e9:.2f} s: that is in none of these figures."
        )
    if window.looked_at < 1:
        typical = float(np.median(window.steps["step_end_ns"] - window.steps["fetch_begin_ns"]))
        yield (
            f"Steps take about {typical / 1e6:.2f} ms, so the hooks looked at {len(window.steps)} of {window.count} "
            "steps only, to stay cheap; the others are counted, and taken to be alike."
        )
    if facts.doubtful is not None:
        yield facts.doubtful.sentence
    ahead = float(np.mean((window.steps["flags"] & StepFlag.FORWARD_AFTER) != 0))
    if ahead > LEAST_DOUBTFUL:
        yield (
            f"In {100 * ahead:.0f} % of the steps the forward pass runs between the optimizer and the next fetch: all "
            "time between these counts as computing, other work of the loop too."
        )
    if facts.input_known and facts.unfed_share > LEAST_DOUBTFUL:
        yield (
            f"Of {100 * facts.unfed_share:.0f} % of the steps no fetch was seen: what they waited for data is not in "
            "the input."
        )
    dropped = int(((window.steps["flags"] & StepFlag.MARKS_DROPPED) != 0).sum())
    if dropped:
        yield (
            f"{dropped} steps got no device stamps, because the device was many steps behind: "
            "it is taken to have computed meanwhile."
        )
    if parts.unresolved_steps:
        yield (
            f"{parts.unresolved_steps} steps lack device stamps; their time is shared out as that of the other steps."
        )
    if facts.cut_steps:
        yield (
            f"The device had not finished the last {facts.cut_steps} steps when the recording ended; they are left out."
        )
    if parts.unmarked_waits > MOST_UNMARKED * len(window.steps):
        yield (
            f"{parts.unmarked_waits} waits for the device have no device stamps, because there were very many in a "
            "step or they were on another stream; what the device idled in them may count as computing."
        )
    if facts.other_processes:
        yield (
            f"{facts.other_processes + 1} training processes recorded into this folder; these are the figures of "
            "the one that ran most steps."
        )
    uncertainty = facts.clock_uncertainty_ns
    if uncertainty is not None and uncertainty > MOST_UNCERTAIN_NS:
        yield (
            f"The device's clock is known to {uncertainty / 1e3:.0f} µs only against the host's: what each step waited "
            "for may be off by as much."
        )
    contradicted = disagreeing(window)
    if contradicted > max(1, MOST_DISAGREEING * len(window.steps)):
        yield (
            f"For {contradicted} of {len(window.steps)} steps the device's clock and its own word about being done "
            "are more than a millisecond apart: shares of idle time may be off by as much for each step."
        )
    yield from _against_the_driver(facts)


def _against_the_driver(facts: Facts) -> Iterator[str]:
    utilisation, span = facts.sampled.utilisation_pct, 100 * facts.parts.stepping_share
    if facts.device_kind != "cuda" or utilisation is None or not facts.told_apart:
        return
    if utilisation < span - LEAST_DISAGREEMENT_PCT:
        yield (
            f"The driver saw kernels {utilisation:.0f} % of the time, the steps span {span:.0f} %: the device idles "
            "inside the steps, which events at their ends cannot see."
        )
    elif utilisation > span + LEAST_DISAGREEMENT_PCT:
        yield (
            f"The driver saw kernels {utilisation:.0f} % of the time, but the steps span {span:.0f} % only: other "
            "kernels run between them, those of a loader that works on the device or of another program. They do "
            "not count as computing here."
        )
