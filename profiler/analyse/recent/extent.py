"""How far back a look goes."""

from __future__ import annotations

from ...record.reader import Records
from ..causes.diagnosis import LEAST_STEPS

RECENT_NS = 10_000_000_000
"""Length of the stretch that a live view's shares, rates and throughput are of; longer where it holds fewer steps than
a verdict needs."""
MOST_STEPS = 2000
"""Steps of that stretch that are judged, at most."""
STEPS_BEFORE = 128
"""Steps before the stretch that are read for what of them reaches into it: more than a device can be behind."""
MOST_LOOKED_AT = MOST_STEPS + 2 * STEPS_BEFORE
"""Steps that a look reads at most: those judged, those before them, and as many that the device has still to do."""
HISTORY_S = 240
"""Seconds that a series of the host or of a device goes back, a value a second."""
MAKERS_S = 60
"""Seconds that the series of a maker of batches goes back, a value a second."""


def last_steps(steps: Records) -> Records:
    """No more than is judged: the recent ones, those before them, and as many that the device has still to do."""
    steps = steps[-MOST_LOOKED_AT:]
    late = int((steps["fetch_begin_ns"] >= steps["step_end_ns"][-1:] - RECENT_NS).sum()) if len(steps) else 0
    return steps[-max(late, LEAST_STEPS) - 2 * STEPS_BEFORE :]
