"""How far back a look goes."""

from __future__ import annotations

from ...record.reader import Records
from ..causes.diagnosis import LEAST_STEPS

RECENT_NS = 10_000_000_000
"""Shares and throughput are of the last ten seconds, or of as many steps as a verdict needs."""
MOST_STEPS = 2000
STEPS_BEFORE = 128
"""Steps before these that are looked at for what of them reaches into it: more than a device can be behind."""
MOST_LOOKED_AT = MOST_STEPS + 2 * STEPS_BEFORE
HISTORY_S = 240
"""Values of a series: one a second."""
MAKERS_S = 60
"""The same of a maker of batches."""


def last_steps(steps: Records) -> Records:
    """No more than is judged: the recent ones, those before them, and as many that the device has still to do."""
    steps = steps[-MOST_LOOKED_AT:]
    late = int((steps["fetch_begin_ns"] >= steps["step_end_ns"][-1:] - RECENT_NS).sum()) if len(steps) else 0
    return steps[-max(late, LEAST_STEPS) - 2 * STEPS_BEFORE :]
