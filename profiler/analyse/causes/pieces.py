"""How the wall time divides into the pieces that causes explain: all of a part's pieces are never more than the part.

What is known of single steps comes first, then what is measured by itself, then estimates of the
rest. The exposed wait for data divides by when it happens; what comes neither from the beginning of
epochs, nor from single slow batches, the hand-over or reads is a matter of supply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..run.device_state import ForeignKernels, PcieLink, foreign_kernels_of
from ..run.facts import Facts
from ..run.loader_stats import BUSY, HEAVILY_QUEUED_PCT
from ..run.stall_breakdown import PARTS, UNTOLD
from ..run.trends import growing
from ..shares import MOSTLY, NEARLY_ALL
from ..where.own_loop import EVALUATING, MAKING, OwnLoop
from .claim import Piece
from .wait import INPUT, is_pickled


@dataclass(frozen=True)
class DeviceThresholds:
    """Thresholds of what is told from the device and its link: shares, 0..1."""

    utilisation_below: float = 0.15
    """Time by which the driver's utilisation is below what the steps span, for a cause: less may be its coarseness."""
    utilisation_far_below: float = 0.30
    """The same where not every step is timed, so that it is an estimate."""
    running: float = 0.8
    """Share of its own time that a thread runs which only launches kernels, at least."""
    sync: float = 0.02
    """Share of the time in synchronising calls up to which launching keeps the host."""
    holding: float = 0.3
    """CPUs that other Python threads keep busy, from which they hold the lock."""
    link_loss: float = 0.05
    """Share of the bandwidth that a degraded link lacks, at least."""


DEVICE = DeviceThresholds()


def pieces_of(facts: Facts) -> dict[Piece, float]:
    """Return each piece of the wall time but those of the wait for data, of which there is only what grew, in ns; and
    of the time before it."""
    parts, wall, startup, loop = facts.parts, facts.parts.wall_ns, facts.startup, facts.own_loop
    shapes, memory, foreign = facts.shape_churn, facts.memory_pressure, foreign_kernels(facts)
    held = None if facts.device_state is None else facts.device_state.throttled
    # What grew as the run went on, of each part.
    computed, fetched, copied, synced, host, outside = (grown_ns(facts, part) for part in PARTS)
    untold = grown_ns(facts, UNTOLD)
    # A link at its full speed would save a part of the copies.
    slow = degraded_link(facts)
    link = 0.0 if slow is None or facts.pinned is None else parts.copy_ns * (1 - slow.share)
    # The device idles within the steps' computation by the driver's utilisation, which is coarse.
    idle, others = 0.0, 0.0 if facts.gil is None else facts.gil.others_busy
    coarse = DEVICE.utilisation_below if facts.window.looked_at == 1 else DEVICE.utilisation_far_below
    below = parts.share("compute") - facts.sampled.utilisation_pct / 100
    if facts.device_kind != "cpu" and foreign is None and below >= coarse:
        idle = below
    launching = facts.running >= DEVICE.running and parts.share("sync") <= DEVICE.sync
    # Between two launches other threads hold the lock for at most what they ran.
    holding = not launching and others >= DEVICE.holding
    # What is claimed of each part, one after the other: ns, and a share of what those before left.
    claims: dict[str, tuple[tuple[Piece, float, float], ...]] = {
        "copy": ((Piece.LINK, link, 0), (Piece.GROWING, copied, 0), (Piece.COPYING, 0, 1)),
        "sync": ((Piece.GROWING, synced, 0), (Piece.SYNC, 0, 1)),
        "boundary": ((Piece.GROWING, outside, 0), (Piece.BOUNDARY, 0, 1)),
        "compute": (
            (Piece.SHAPES, 0.0 if shapes is None else shapes.compute_ns, 0),
            (Piece.MEMORY, 0.0 if memory is None else memory.compute_ns, 0),
            (Piece.GROWING, computed + untold, 0),
            (Piece.LAUNCHES, idle * wall if launching else 0.0, 0),
            (Piece.GIL, min(idle, others) * wall if holding else 0.0, 0),
            (Piece.CONTENDED, 0, 0.0 if foreign is None else foreign.density),
            (Piece.THROTTLED, 0, 0.0 if held is None else held.lost),
        ),
        "host": (
            (Piece.SHAPES, 0.0 if shapes is None else shapes.host_ns, 0),
            (Piece.MEMORY, 0.0 if memory is None else memory.host_ns, 0),
            (Piece.GARBAGE, parts.garbage_ns, 0),
            (Piece.GIL, parts.gil_ns, 0),
            (Piece.STAGE, 0.0 if facts.staging is None else facts.staging.ns, 0),
            (Piece.GROWING, host, 0),
            (Piece.LOOP, 0, 1),
        ),
    }
    pieces = {} if startup is None else {Piece.BEFORE: float(sum(startup.own_ns.values()))}
    pieces[Piece.GROWING] = fetched
    for part, claimed in claims.items():
        left = float(getattr(parts, f"{part}_ns"))
        for piece, ns, share in claimed:
            taken = min(left, max(0.0, ns + share * left))
            pieces[piece], left = pieces.get(piece, 0.0) + taken, left - taken
    # Of the time that no clock tells apart, as stacks tell.
    for piece, kind in ((Piece.OWN_MAKING, MAKING), (Piece.OWN_EVALUATING, EVALUATING)):
        if loop is not None:
            pieces[piece] = max(0.0, own_ns(facts, loop, kind) - (untold if kind == loop.grows else 0.0))
    return pieces


def grown_ns(facts: Facts, part: str) -> float:
    """Return what a part takes beyond its level at the beginning of the run, where it grows by itself, ns."""
    found = growing(facts.trends).get(part)
    return 0.0 if found is None else found.value


def own_ns(facts: Facts, loop: OwnLoop, kind: str) -> float:
    """Return what a kind of work takes of the time that no clock tells apart, ns."""
    return loop.shares[kind].value * facts.untold_share * facts.parts.wall_ns


def degraded_link(facts: Facts) -> PcieLink | None:
    """Return the link between host and device where it runs well below what both are capable of."""
    found = None if facts.device_state is None else facts.device_state.link
    if found is None or 1 - found.share < DEVICE.link_loss:
        return None
    # Idle devices turn their link down; those mostly in use must have shown its full speed.
    in_use = facts.parts.share("compute") + facts.parts.share("copy")
    return found if found.loaded or in_use >= MOSTLY else None


def foreign_kernels(facts: Facts) -> ForeignKernels | None:
    """Return other processes on the device whose kernels show; `None` where they cannot be told from this job's own.

    Loaders that are not torch's may run kernels in the training's process, and workers that are no
    forks may hold the device themselves.
    """
    state = facts.device_state
    if state is None or (facts.device_kind == "cuda" and facts.set_workers is None):
        return None
    own = 1 + facts.other_processes + ((facts.set_workers or 0) if facts.starts_python else 0)
    if not facts.sampled.gpu_processes > own:
        return None
    return foreign_kernels_of(facts.window, facts.parts, state.utilisation)


# The exposed wait for data.


def waits_of(facts: Facts) -> Sequence[tuple[Piece, int]]:
    """Divide the exposed wait for data by when it happened, ns, what grew as the run went on left out."""
    waits = facts.waits
    grown = grown_ns(facts, "input")
    if facts.made_in_training:
        making_ns = facts.parts.input_ns - round(grown) - waits.sampling_ns - held_ns(facts)
        return [(Piece.SAMPLING, waits.sampling_ns), (Piece.IN_TRAINING, making_ns)]
    limit = facts.loader.worker_busy_pct >= 100 * BUSY
    # What the sampler took while the workers were at work all the time: they would not have been done sooner. Before
    # the first batch of an epoch they have nothing to do.
    drawn_ns = facts.sampling.ns - facts.sampling.first_ns if facts.sampling is not None and limit else 0
    handed_ns = waits.handed_ns if is_handed(facts) else 0
    making_ns = waits.making_ns + waits.handed_ns - handed_ns + drawn_ns
    known = [(Piece.READING, waits.reading_ns), (Piece.SLOW, waits.slow_ns)]
    known += [(Piece.HANDED, handed_ns), (Piece.MAKING, making_ns)]
    whole = sum(ns for _, ns in known)
    stays = 1 - min(1.0, grown / whole) if whole else 1.0
    # The beginnings of epochs: starting workers, and filling the pipeline. When the first batch was taken up is not
    # always known: then only that workers were started each time.
    starting, filling = waits.starting_ns, waits.filling_ns
    if not restarts(facts):
        starting, filling = 0, starting + filling
    elif (not starting and waits.told == 0) or not counts(facts, filling):
        starting, filling = starting + filling, 0
    elif not counts(facts, starting):
        starting, filling = 0, starting + filling
    begins = [(Piece.SAMPLING, waits.sampling_ns - drawn_ns), (Piece.STARTING, starting), (Piece.FILLING, filling)]
    return [*begins, *((piece, round(stays * ns)) for piece, ns in known)]


def counts(facts: Facts, ns: int) -> bool:
    """Return whether a piece of the wait is large enough to be told by itself."""
    return ns >= INPUT.piece * facts.parts.wall_ns


def held_ns(facts: Facts) -> int:
    """Return what the training's thread waits in its fetches for other Python threads, which hold the GIL.

    Where it makes its batches itself: what goes beyond making them. Else: for finished batches that are
    cheap to hand over. The thread that pins is a Python thread too, whose work is the hand-over.
    """
    waits, work_ms = facts.waits, facts.loader.work_ms_per_batch
    if facts.gil is None or facts.gil.others_busy < DEVICE.holding or facts.pin_memory:
        return 0
    if facts.made_in_training:
        if not (work_ms >= 0 and waits.told > 0):
            return 0
        return max(0, facts.parts.input_ns - waits.sampling_ns - round(work_ms * 1e6 * facts.window.count))
    return waits.handed_ns if is_handed(facts) and not is_pickled(facts.loader) else 0


def restarts(facts: Facts) -> bool:
    """Return whether each epoch starts its workers anew: their loader has another iterator each time."""
    waits = facts.waits
    if not facts.set_workers or waits.epochs < 2:
        return False
    return facts.persistent_workers is False if waits.iterators is None else waits.iterators > 1


def is_handed(facts: Facts) -> bool:
    """Return whether batches on their way are a matter of their own, and not the end of each wait for supply.

    Where the workers are busy all the time, more batches do not come however fast they are handed over; where they
    queue for CPUs, so do the threads that send. Unless batches are large: then what looks busy may be the sending.
    """
    waits, loader = facts.waits, facts.loader
    if facts.making_seen >= INPUT.at_work:
        # Whatever is on its way is sent by a thread that shares the interpreter with the making.
        return False
    limit = loader.worker_busy_pct >= 100 * BUSY or loader.run_queue_pct >= HEAVILY_QUEUED_PCT
    handed = waits.handed_ns / max(1, waits.handed_ns + waits.making_ns + waits.slow_ns + waits.reading_ns)
    large = loader.mean_batch_bytes >= INPUT.large_batch_bytes and handed >= NEARLY_ALL
    queues = loader.queue_capacity >= 0 or bool(facts.set_workers)
    return (large or not limit) and queues and handed >= MOSTLY
