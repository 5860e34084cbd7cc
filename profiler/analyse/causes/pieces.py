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
from ..run.stall_breakdown import UNTOLD
from ..run.trends import growing
from ..shares import MOSTLY, NEARLY_ALL
from ..where.own_loop import EVALUATING, MAKING
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
    in_use: float = 0.5
    """Share of the time that a device is in use, from which its link must have shown its full speed."""


DEVICE = DeviceThresholds()


def pieces_of(facts: Facts) -> dict[Piece, float]:
    """Return each piece of the wall time but those of the wait for data, of which there is only what grew, in ns."""
    # A link at its full speed would save a part of the copies.
    slow, parts = degraded_link(facts), facts.parts
    link = 0.0 if slow is None or facts.pinned is None else parts.copy_ns * (1 - slow.share)
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
    """Return what a part takes beyond its level at the beginning of the run, where it grows by itself, ns."""
    found = growing(facts.trends).get(part)
    return 0.0 if found is None else found.value


def computing(facts: Facts) -> dict[Piece, float]:
    """Divide the computing time, ns."""
    shapes, memory, foreign = facts.shape_churn, facts.memory_pressure, foreign_kernels(facts)
    held = None if facts.device_state is None else facts.device_state.throttled
    pieces, left, wall = {}, float(facts.parts.compute_ns), facts.parts.wall_ns
    pieces[Piece.SHAPES], left = _take(left, 0.0 if shapes is None else shapes.compute_ns)
    pieces[Piece.MEMORY], left = _take(left, 0.0 if memory is None else memory.compute_ns)
    pieces[Piece.GROWING], left = _take(left, grown_ns(facts, "compute") + grown_ns(facts, UNTOLD))
    idle, others = _idle_within(facts), 0.0 if facts.gil is None else facts.gil.others_busy
    launching = facts.running >= DEVICE.running and facts.parts.share("sync") <= DEVICE.sync
    pieces[Piece.LAUNCHES], left = _take(left, idle * wall if launching else 0.0)
    # Between two launches other threads hold the lock for at most what they ran.
    holding = not launching and others >= DEVICE.holding
    pieces[Piece.GIL], left = _take(left, min(idle, others) * wall if holding else 0.0)
    pieces[Piece.CONTENDED], left = _take(left, 0.0 if foreign is None else left * foreign.density)
    pieces[Piece.THROTTLED], left = _take(left, left * (0.0 if held is None else held.lost))
    return pieces


def behind_the_host(facts: Facts) -> dict[Piece, float]:
    """Divide the time behind the host, ns; the pieces sum to it."""
    shapes, memory = facts.shape_churn, facts.memory_pressure
    pieces, left = {}, float(facts.parts.host_ns)
    for piece, ns in (
        (Piece.SHAPES, 0.0 if shapes is None else shapes.host_ns),
        (Piece.MEMORY, 0.0 if memory is None else memory.host_ns),
        (Piece.GARBAGE, facts.parts.garbage_ns),
        (Piece.GIL, facts.parts.gil_ns),
        (Piece.STAGE, 0.0 if facts.staging is None else facts.staging.ns),
        (Piece.GROWING, grown_ns(facts, "host")),
    ):
        pieces[piece], left = _take(left, ns)
    return pieces | {Piece.LOOP: left}


def own_pieces(facts: Facts) -> dict[Piece, float]:
    """Return what of the time that no clock tells apart goes to making batches, and to evaluating, ns, but for what
    grew as the run went on; nothing where stacks do not tell."""
    if facts.own_loop is None:
        return {}
    left = max(0.0, facts.untold_share * facts.parts.wall_ns - grown_ns(facts, UNTOLD))
    kinds = {Piece.OWN_MAKING: MAKING, Piece.OWN_EVALUATING: EVALUATING}
    return {piece: facts.own_loop.shares[kind].value * left for piece, kind in kinds.items()}


def degraded_link(facts: Facts) -> PcieLink | None:
    """Return the link between host and device where it runs well below what both are capable of."""
    found = None if facts.device_state is None else facts.device_state.link
    if found is None or 1 - found.share < DEVICE.link_loss:
        return None
    # Idle devices turn their link down.
    in_use = facts.parts.share("compute") + facts.parts.share("copy")
    return found if found.loaded or in_use >= DEVICE.in_use else None


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


def _idle_within(facts: Facts) -> float:
    """Return idling within the steps' computation by the driver's utilisation, of the wall time; 0
    where that is not known, or too little to be told from how coarse it is."""
    if facts.device_kind == "cpu" or foreign_kernels(facts) is not None:
        return 0.0
    below = facts.parts.share("compute") - facts.sampled.utilisation_pct / 100
    coarse = DEVICE.utilisation_below if facts.window.looked_at == 1 else DEVICE.utilisation_far_below
    return below if below >= coarse else 0.0


def _take(left: float, claim: float) -> tuple[float, float]:
    taken = min(left, max(0.0, claim))
    return taken, left - taken


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
    sampling = Piece.SAMPLING, waits.sampling_ns - drawn_ns
    return [sampling, *_epochs(facts), *((piece, round(stays * ns)) for piece, ns in known)]


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


def _epochs(facts: Facts) -> list[tuple[Piece, int]]:
    """Return what the beginnings of epochs cost: starting workers, and filling the pipeline."""
    starting, filling = facts.waits.starting_ns, facts.waits.filling_ns
    if not restarts(facts):
        return [(Piece.FILLING, starting + filling)]
    # When the first batch was taken up is not always known: then only that workers were started each time.
    if (not starting and facts.waits.told == 0) or not counts(facts, filling):
        return [(Piece.STARTING, starting + filling)]
    if not counts(facts, starting):
        return [(Piece.FILLING, starting + filling)]
    return [(Piece.STARTING, starting), (Piece.FILLING, filling)]


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
