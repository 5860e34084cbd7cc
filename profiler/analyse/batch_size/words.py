"""The figures of a comparison of two batch sizes, in words."""

from __future__ import annotations

import math

from . import terms
from .compared import LEAST_CHANGE, Compared
from .result import TOTAL

LONGER_GAPS = 1.3
"""Times as long a device stands still at a time, from which a utilisation trace looks worse."""


def total_in_words(compared: Compared) -> str:
    """What became of the time per sample, and how sure that is."""
    before, after = compared.times(TOTAL)
    change = compared.change(TOTAL)
    percent = f"{round(100 * change.mean / before, 1) + 0.0:+.1f} ± {100 * compared.reach:.1f} %"
    if compared.unsure:
        return f"time per sample went from {duration(before)} to {duration(after)} ({percent}), which proves nothing"
    if change.low <= 0 <= change.high:
        return f"time per sample stays at {duration(after)} ({percent})"
    verb = "rises" if change.mean > 0 else "falls"
    return f"time per sample {verb} from {duration(before)} to {duration(after)} ({percent})"


def enough_runs(compared: Compared) -> int:
    """How many of a size would tell a change of `LEAST_CHANGE`, if they differ by as much as these."""
    runs = min(len(compared.before), len(compared.after))
    return math.ceil(runs * (compared.reach / LEAST_CHANGE) ** 2)


def growth_in_words(compared: Compared) -> str:
    """The part that grew."""
    assert compared.grew is not None
    before, after = compared.times(compared.grew)
    return (
        f"{compared.grew} from {duration(before)} a sample at batch {compared.smaller} to {duration(after)} at batch "
        f"{compared.larger}"
    )


def longer_gaps(compared: Compared) -> str:
    """The same idle share in fewer, longer stretches: what a utilisation trace shows as a swing to 0."""
    gaps = compared.values(terms.usual_gap_ms)
    if gaps is None or gaps[1] < LONGER_GAPS * gaps[0]:
        return ""
    return (
        f". The device stands still for longer at a time, {gaps[0]:.0f} ms at batch {compared.smaller} and "
        f"{gaps[1]:.0f} ms at batch {compared.larger} (median), because a larger batch takes longer to make: its "
        "utilisation looks worse, its throughput is the same"
    )


def duration(us: float) -> str:
    """A time per sample, in the unit that suits it."""
    return f"{us:.0f} µs" if abs(us) < 999.5 else f"{us / 1e3:.2f} ms"
