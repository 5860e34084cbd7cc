"""When the device did, or waited for, what: the partition of the wall time, not summed up."""

from __future__ import annotations

from functools import reduce

from ..intervals import Intervals, complement, union_of
from ..run.facts import Facts
from ..run.stall_breakdown import UNTOLD


def part_spans(facts: Facts) -> dict[str, Intervals]:
    """By part, the stretches of the window that are blamed on it; they overlap nowhere.

    Steps that nobody looked at are in none of them: of them only sums are known. Where computing is not told from
    waiting for data, what is neither copy, sync nor boundary is `UNTOLD`.
    """
    parts = facts.parts
    known = {"copy": parts.copying, "sync": parts.syncing, "boundary": parts.outside}
    if facts.told_apart:
        known = {"compute": parts.computing, "input": parts.loading, **known, "host": parts.hosting}
        return {part: spans for part, spans in known.items() if part != "input" or facts.input_known}
    told = reduce(union_of, known.values())
    return known | {UNTOLD: complement(told, facts.window.begin_ns, facts.window.end_ns)}
