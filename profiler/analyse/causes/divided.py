"""How the causes of one part of the wall time divide it: all they explain together is never more than the part.

What is known of single steps comes first, then what is measured by itself, then estimates of the rest.
"""

from __future__ import annotations

from ..run.device_state import ForeignKernels, PcieLink, foreign_kernels_of
from ..run.facts import Facts
from ..run.stall_breakdown import UNTOLD
from ..run.trends import growing
from .claim import Piece

UTILISATION_BELOW = 0.15
"""Share of the time by which the driver's utilisation has to be below what the steps' computation spans for a cause to
be claimed: less may be how coarse it is."""
UTILISATION_FAR_BELOW = 0.30
"""Share of the time that takes the place of `UTILISATION_BELOW` where not every step is looked at, so that what the
steps span is an estimate."""
RUNNING = 0.8
"""Share of its own time, 0..1, that a thread runs which does nothing but launch kernels, at least."""
MOST_SYNC = 0.02
"""Share of the time in synchronising calls, up to which launching is what keeps the host."""
HOLDING = 0.3
"""CPUs that other Python threads of the training keep busy, from which they are what holds the lock."""
LEAST_LINK_LOSS = 0.05
"""Share of the bandwidth that device and slot are capable of which a link has to lack to be degraded."""
LEAST_IN_USE = 0.5
"""Share of the time that a device computes or waits for copies, from which its link must have shown its full speed:
idle ones turn it down."""


def pieces_of(facts: Facts) -> dict[Piece, float]:
    """Each piece of the wall time but those of the wait for data, of which there is only what grew, in ns; the pieces
    of a part are never more than it."""
    link, parts = lost_to_link(facts), facts.parts
    pieces: dict[Piece, float] = {Piece.LINK: link, Piece.GROWING: grown_ns(facts, "input")}
    for piece, part, ns in (
        (Piece.COPYING, "copy", parts.copy_ns - link),
        (Piece.SYNC, "sync", float(parts.sync_ns)),
        (Piece.BOUNDARY, "boundary", float(parts.boundary_ns)),
    ):
        grown, pieces[piece] = _take(ns, grown_ns(facts, part))
        pieces[Piece.GROWING] += grown
    for piece, ns in (*computing(facts).items(), *behind_the_host(facts).items()):
        pieces[piece] = pieces.get(piece, 0.0) + ns
    return pieces


def grown_ns(facts: Facts, part: str) -> float:
    """What a part takes beyond its level at the beginning of the run, where it grows by itself, ns."""
    found = growing(facts.trends).get(part)
    return 0.0 if found is None else found.value


def computing(facts: Facts) -> dict[Piece, float]:
    """Pieces of the computing time, ns."""
    shapes, memory, foreign = facts.shape_churn, facts.memory_pressure, foreign_kernels(facts)
    held = None if facts.device_state is None else facts.device_state.throttled
    pieces, left = {}, float(facts.parts.compute_ns)
    pieces[Piece.SHAPES], left = _take(left, 0.0 if shapes is None else shapes.compute_ns)
    pieces[Piece.MEMORY], left = _take(left, 0.0 if memory is None else memory.compute_ns)
    pieces[Piece.GROWING], left = _take(left, grown_ns(facts, "compute") + grown_ns(facts, UNTOLD))
    pieces[Piece.LAUNCHES], left = _take(left, (launch_share(facts) or 0.0) * facts.parts.wall_ns)
    pieces[Piece.GIL], left = _take(left, _held_within(facts) * facts.parts.wall_ns)
    pieces[Piece.CONTENDED], left = _take(left, 0.0 if foreign is None else left * foreign.density)
    pieces[Piece.THROTTLED], left = _take(left, left * (0.0 if held is None else held.lost))
    return pieces


def behind_the_host(facts: Facts) -> dict[Piece, float]:
    """Pieces of the time behind the host, ns; they sum to it."""
    shapes, memory = facts.shape_churn, facts.memory_pressure
    pieces, left = {}, float(facts.parts.host_ns)
    pieces[Piece.SHAPES], left = _take(left, 0.0 if shapes is None else shapes.host_ns)
    pieces[Piece.MEMORY], left = _take(left, 0.0 if memory is None else memory.host_ns)
    pieces[Piece.GARBAGE], left = _take(left, facts.parts.garbage_ns)
    pieces[Piece.GIL], left = _take(left, facts.parts.gil_ns)
    pieces[Piece.STAGE], left = _take(left, 0.0 if facts.staging is None else facts.staging.ns)
    pieces[Piece.GROWING], left = _take(left, grown_ns(facts, "host"))
    return pieces | {Piece.LOOP: left}


def degraded_link(facts: Facts) -> PcieLink | None:
    """The link between host and device where it runs well below what both are capable of."""
    found = None if facts.device_state is None else facts.device_state.link
    if found is None or 1 - found.share < LEAST_LINK_LOSS:
        return None
    in_use = facts.parts.share("compute") + facts.parts.share("copy")
    return found if found.loaded or in_use >= LEAST_IN_USE else None


def lost_to_link(facts: Facts) -> float:
    """What of the copies' time a link at its full speed would save, ns."""
    found = degraded_link(facts)
    return 0.0 if found is None or facts.pinned is None else facts.parts.copy_ns * (1 - found.share)


def foreign_kernels(facts: Facts) -> ForeignKernels | None:
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
    return foreign_kernels_of(facts.window, facts.parts, state.utilisation)


def launch_share(facts: Facts) -> float | None:
    """Idling inside the computation because the next kernel is not launched yet, of the wall time.

    From the driver's utilisation, where nothing else keeps the host or the device.
    """
    below, running = _idle_within(facts), facts.running
    if running is None or running < RUNNING or facts.parts.share("sync") > MOST_SYNC:
        return None
    return below


def _held_within(facts: Facts) -> float:
    """Idling inside the computation because other Python threads held the lock between two launches, as a share of the
    wall time: at most what those threads ran."""
    below, gil = _idle_within(facts), facts.gil
    if below is None or gil is None or gil.others_busy < HOLDING or launch_share(facts) is not None:
        return 0.0
    return min(below, gil.others_busy)


def _idle_within(facts: Facts) -> float | None:
    """Idling within the steps' computation by the driver's utilisation, of the wall time; `None` where that is not
    known, or too little to be told from how coarse it is."""
    utilisation = facts.sampled.utilisation_pct
    if facts.device_kind == "cpu" or utilisation is None or foreign_kernels(facts) is not None:
        return None
    below = facts.parts.share("compute") - utilisation / 100
    coarse = UTILISATION_BELOW if facts.window.looked_at == 1 else UTILISATION_FAR_BELOW
    return below if below >= coarse else None


def _take(left: float, claim: float) -> tuple[float, float]:
    taken = min(left, max(0.0, claim))
    return taken, left - taken
