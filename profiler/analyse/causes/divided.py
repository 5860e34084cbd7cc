"""How the causes of one part of the wall time divide it: all they explain together is never more than the part.

What is known of single steps comes first, then what is measured by itself, then estimates of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..run.device_state import Others, others_of
from ..run.facts import Facts

UTILISATION_BELOW = 0.15
"""Utilisation so much below the share of time that the steps' computation spans is more than its coarseness."""
UTILISATION_FAR_BELOW = 0.30
"""The same where not every step is looked at, so that their span is an estimate."""
RUNNING = 0.8
"""Share of its own time that a thread runs which does nothing but launch."""
MOST_SYNC = 0.02
HOLDING = 0.3
"""CPUs that other Python threads of the training keep busy, from which on they are what holds the lock."""


@dataclass(frozen=True)
class Compute:
    """Parts of the computing time, ns."""

    shapes: float
    memory: float
    launch: float
    gil: float
    contended: float
    throttled: float


@dataclass(frozen=True)
class Host:
    """Parts of the time behind the host, ns; they sum to it."""

    shapes: float
    memory: float
    garbage: float
    gil: float
    left: float


def computing(facts: Facts) -> Compute:
    left = float(facts.parts.compute_ns)
    shapes, left = _take(left, 0.0 if facts.shape_churn is None else facts.shape_churn.compute_ns)
    memory, left = _take(left, 0.0 if facts.memory_pressure is None else facts.memory_pressure.compute_ns)
    launch, left = _take(left, (launch_share(facts) or 0.0) * facts.parts.wall_ns)
    gil, left = _take(left, _held_within(facts) * facts.parts.wall_ns)
    foreign = others(facts)
    contended, left = _take(left, 0.0 if foreign is None else left * foreign.density)
    held = None if facts.device_state is None else facts.device_state.throttled
    throttled, _ = _take(left, left * (0.0 if held is None else held.lost))
    return Compute(shapes, memory, launch, gil, contended, throttled)


def behind_the_host(facts: Facts) -> Host:
    left = float(facts.parts.host_ns)
    shapes, left = _take(left, 0.0 if facts.shape_churn is None else facts.shape_churn.host_ns)
    memory, left = _take(left, 0.0 if facts.memory_pressure is None else facts.memory_pressure.host_ns)
    garbage, left = _take(left, facts.parts.garbage_ns)
    gil, left = _take(left, facts.parts.gil_ns)
    return Host(shapes, memory, garbage, gil, left)


def others(facts: Facts) -> Others | None:
    """Other processes on the device whose kernels show; `None` where they cannot be told from this job's own.

    Loaders that are not torch's may run kernels in the training's process, and workers that are no forks may hold the
    device themselves.
    """
    state, own = facts.device_state, 1
    if state is None or (facts.device_kind == "cuda" and facts.set_workers is None):
        return None
    own += facts.other_processes + ((facts.set_workers or 0) if facts.starts_python else 0)
    if (facts.sampled.gpu_processes or 0) <= own:
        return None
    return others_of(facts.window, facts.parts, state.utilisation)


def launch_share(facts: Facts) -> float | None:
    """Idling inside the computation because the next kernel is not launched yet, of the wall time.

    From activity windows; without them from the driver's utilisation, where nothing else keeps the host or the device.
    """
    activity = facts.activity
    if activity is not None:
        return activity.launch_share * facts.parts.share("compute")
    below, running = _idle_within(facts), facts.running
    if running is None or running < RUNNING or facts.parts.share("sync") > MOST_SYNC:
        return None
    return below


def _held_within(facts: Facts) -> float:
    """The same, because other Python threads held the lock between two launches: at most what those ran."""
    below, gil = _idle_within(facts), facts.gil
    if below is None or gil is None or gil.others_busy < HOLDING or launch_share(facts) is not None:
        return 0.0
    return min(below, gil.others_busy)


def _idle_within(facts: Facts) -> float | None:
    """Idling within the steps' computation by the driver's utilisation, of the wall time; `None` where that is not
    known, or too little to be told from how coarse it is."""
    utilisation = facts.sampled.utilisation_pct
    if facts.device_kind == "cpu" or utilisation is None or others(facts) is not None:
        return None
    below = facts.parts.share("compute") - utilisation / 100
    coarse = UTILISATION_BELOW if facts.window.looked_at == 1 else UTILISATION_FAR_BELOW
    return below if below >= coarse else None


def _take(left: float, claim: float) -> tuple[float, float]:
    taken = min(left, max(0.0, claim))
    return taken, left - taken
