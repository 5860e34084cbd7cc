"""The figures of a comparison of two batch sizes, in words."""

from __future__ import annotations

from ...run.facts import MACHINE_FULL_PCT
from ...run.stall_breakdown import PARTS, TOTAL
from . import terms
from .compared import CONSIDERABLE_CHANGE, Compared
from .fit import MOST_RUNS

HINDERING_CPUS = 0.5
"""CPUs that other programs use on a full machine, from which what was measured there is not taken for the cell's own.
More than `LEAST_FOREIGN_CPUS`, from which such programs are mentioned: here a verdict is withheld for them."""
LONGER_GAPS = 1.3
"""Median length of the device's gaps at the larger size over that at the smaller, from which it is said that a trace of
the utilisation looks worse though nothing is slower."""


def total_in_words(compared: Compared) -> str:
    """What became of the time per sample, and how sure that is."""
    before, after = compared.times(TOTAL)
    change = compared.change(TOTAL)
    percent = f"{round(100 * change.value / before, 1) + 0.0:+.1f} ± {100 * compared.reach:.1f} %"
    if compared.unsure:
        return f"time per sample went from {duration(before)} to {duration(after)} ({percent}), which proves nothing"
    if change.low <= 0 <= change.high:
        return f"time per sample stays at {duration(after)} ({percent})"
    verb = "rises" if change.value > 0 else "falls"
    little = "" if compared.slower or compared.faster else ", too little to count"
    return f"time per sample {verb} from {duration(before)} to {duration(after)} ({percent}){little}"


def more_runs(compared: Compared) -> str:
    """What would tell, where these runs do not."""
    enough = compared.fit.runs_for(CONSIDERABLE_CHANGE)
    would = f"More than {MOST_RUNS} of each" if enough is None else f"About {enough} of each"
    if len(compared.before) == len(compared.after) == 1:
        return f"one run of each size cannot tell. {would} would"
    return f"runs of a size differ by too much. {would} would tell"


def growth_in_words(compared: Compared) -> str:
    """The part that grew, and what else did."""
    first, *others = (_grown(compared, part) for part in compared.risen)
    return first if not others else f"{first} ({' and '.join(others)} as well)"


def _grown(compared: Compared, part: str) -> str:
    before, after = compared.times(part)
    return (
        f"{part} grew from {duration(before)} a sample at batch {compared.smaller} to {duration(after)} at batch "
        f"{compared.larger}"
    )


def idle_in_words(compared: Compared) -> str:
    """The part that keeps the device idle most: work that no batch makes less."""
    part = max((part for part in PARTS if part != "compute"), key=lambda part: compared.times(part)[1])
    before, after = compared.times(part)
    return (
        f". The {compared.waiter} waits most for {part}, {duration(before)} a sample at batch {compared.smaller} and "
        f"{duration(after)} at batch {compared.larger}"
    )


def foreign_in_words(compared: Compared) -> str:
    """That other programs may be why one size took longer: they took the CPUs of its runs more than of the others', or
    of a single run, which has no second one to tell what they did to it; else empty."""
    others = compared.values(lambda run: run.foreign_cpus)
    full = compared.values(lambda run: run.sampled.machine_busy_pct)
    sizes = (compared.smaller, compared.larger)
    longer = 1 if compared.slower else 0
    if others is None or full is None or full[longer] < MACHINE_FULL_PCT or others[longer] < HINDERING_CPUS:
        return ""
    if others[longer] - others[1 - longer] >= HINDERING_CPUS:
        return (
            f"other programs used {others[longer]:.1f} CPUs while batch {sizes[longer]} ran, and "
            f"{others[1 - longer]:.1f} while batch {sizes[1 - longer]} did"
        )
    if min(len(compared.before), len(compared.after)) > 1:
        return ""
    return f"from one run of a size that cannot be told while other programs use {others[longer]:.1f} CPUs"


def longer_gaps(compared: Compared) -> str:
    """That the device stands still as much, in fewer and longer stretches, which a utilisation trace shows as swings to
    0; else empty."""
    gaps = compared.values(terms.usual_gap_ms)
    if gaps is None or gaps[1] < LONGER_GAPS * gaps[0]:
        return ""
    return (
        f". The {compared.waiter} stands still for longer at a time, {gaps[0]:.0f} ms at batch {compared.smaller} and "
        f"{gaps[1]:.0f} ms at batch {compared.larger} (median), because a larger batch takes longer to make: "
        "utilisation swings more, throughput is the same"
    )


def duration(us: float) -> str:
    """A time per sample, in the unit that suits it."""
    return f"{us:.0f} µs" if abs(us) < 999.5 else f"{us / 1e3:.2f} ms"
