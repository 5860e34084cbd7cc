"""The exposed wait for data in pieces, by when it happens, and what explains each of them.

What comes from the beginning of epochs, from single slow batches, from the hand-over and from reads is told by when it
happens. What is left is a matter of supply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...run.facts import Facts
from ...run.loader_stats import BUSY, HEAVILY_QUEUED_PCT
from ...shares import MOSTLY, NEARLY_ALL
from ..claim import Piece
from ..divided import HOLDING, grown_ns
from ..finding import Finding
from ..table import explained
from .epochs import restarts
from .exclusive import LARGE_BATCH_BYTES, is_pickled
from .wait import Wait

Pieces = Sequence[tuple[Piece, int]]
"""Each with so many ns of the wait."""

AT_WORK = 0.6
"""Of looks at workers while the training waits, the share in which they run and make a batch, from which the making is
what it waits for."""
LEAST_PIECE = 0.03
"""Share of the wall time below which a piece of the wait is told together with the largest one."""


def findings_of(facts: Facts) -> list[Finding]:
    """What explains the exposed wait for data; together they explain all of it but what grew as the run went on."""
    input_ns = facts.parts.input_ns - round(grown_ns(facts, "input"))
    if input_ns <= 0:
        return []
    every = _pieces(facts)
    pieces = [(piece, ns) for piece, ns in every if _counts(facts, ns)]
    if not pieces:
        # Nothing in it is large: what is most of it speaks for all.
        largest, _ = max(every, key=lambda each: each[1])
        return list(_explained(facts, [(largest, sum(ns for _, ns in every))]))
    small = sum(ns for _, ns in every if not _counts(facts, ns))
    at = max(range(len(pieces)), key=lambda at: pieces[at][1])
    pieces[at] = pieces[at][0], pieces[at][1] + small
    return list(_explained(facts, pieces))


def held_ns(facts: Facts) -> int:
    """What the training's thread waits in its fetches for other Python threads, which hold the GIL.

    Where it makes its batches itself: what goes beyond making them. Else: for finished batches that are cheap to hand
    over. The thread that pins is a Python thread too, whose work is the hand-over.
    """
    waits, work_ms = facts.waits, facts.loader.work_ms_per_batch
    if facts.gil is None or facts.gil.others_busy < HOLDING or facts.pin_memory:
        return 0
    if facts.made_in_training:
        known = work_ms is not None and waits.told > 0
        making_ns = waits.sampling_ns + round((work_ms or 0.0) * 1e6 * facts.window.count)
        return max(0, facts.parts.input_ns - making_ns) if known else 0
    return waits.handed_ns if _is_handed(facts) and not is_pickled(facts.loader) else 0


def _pieces(facts: Facts) -> Pieces:
    """The exposed wait by when it happened."""
    waits = facts.waits
    grown = grown_ns(facts, "input")
    if facts.made_in_training:
        making_ns = facts.parts.input_ns - round(grown) - waits.sampling_ns - held_ns(facts)
        return [(Piece.SAMPLING, waits.sampling_ns), (Piece.IN_TRAINING, making_ns)]
    drawn_ns = _drawn_meanwhile(facts)
    sampling = Piece.SAMPLING, waits.sampling_ns - drawn_ns
    known = [(Piece.READING, waits.reading_ns), (Piece.SLOW, waits.slow_ns)]
    if _is_handed(facts):
        known += [(Piece.HANDED, waits.handed_ns), (Piece.MAKING, waits.making_ns + drawn_ns)]
    else:
        known.append((Piece.MAKING, waits.making_ns + waits.handed_ns + drawn_ns))
    whole = sum(ns for _, ns in known)
    stays = 1 - min(1.0, grown / whole) if whole else 1.0
    return [sampling, *_epochs(facts), *((piece, round(stays * ns)) for piece, ns in known)]


def _drawn_meanwhile(facts: Facts) -> int:
    """What the sampler took while the workers were at work all the time: they would not have been done sooner. Before
    the first batch of an epoch they have nothing to do."""
    if facts.sampling is None or not _workers_are_the_limit(facts):
        return 0
    return facts.sampling.ns - facts.sampling.first_ns


def _epochs(facts: Facts) -> Pieces:
    """What the beginnings of epochs cost: starting workers, and filling the pipeline."""
    waits = facts.waits
    starting, filling = waits.starting_ns, waits.filling_ns
    if not restarts(facts):
        return [(Piece.FILLING, starting + filling)]
    if not starting and waits.told == 0:
        # When the first batch was taken up is not known, only that workers were started each time.
        return [(Piece.STARTING, filling)]
    if not _counts(facts, filling):
        return [(Piece.STARTING, starting + filling)]
    if not _counts(facts, starting):
        return [(Piece.FILLING, starting + filling)]
    return [(Piece.STARTING, starting), (Piece.FILLING, filling)]


def _is_handed(facts: Facts) -> bool:
    """Whether batches on their way are a matter of their own, and not the end of each wait for supply.

    Where the workers are busy all the time, more batches do not come however fast they are handed over; where they
    queue for CPUs, so do the threads that send. Unless batches are large: then what looks busy may be the sending.
    """
    waits = facts.waits
    if facts.making_seen is not None and facts.making_seen >= AT_WORK:
        # Whatever is on its way is sent by a thread that shares the interpreter with the making.
        return False
    limit = _workers_are_the_limit(facts) or (facts.loader.run_queue_pct or 0.0) >= HEAVILY_QUEUED_PCT
    ordinary = waits.handed_ns + waits.making_ns + waits.slow_ns + waits.reading_ns
    handed = waits.handed_ns / max(1, ordinary)
    large = (facts.loader.mean_batch_bytes or 0.0) >= LARGE_BATCH_BYTES and handed >= NEARLY_ALL
    if limit and not large:
        return False
    return facts.loader.queue_capacity is not None and handed >= MOSTLY


def _workers_are_the_limit(facts: Facts) -> bool:
    """Whether they prepare batches all the time."""
    busy = facts.loader.worker_busy_pct
    return busy is not None and busy >= 100 * BUSY


def _counts(facts: Facts, ns: int) -> bool:
    """Whether a piece of the wait is large enough to be told by itself."""
    return ns >= LEAST_PIECE * facts.parts.wall_ns


def _explained(facts: Facts, pieces: Pieces) -> Iterator[Finding]:
    """One finding a cause, of all the pieces that it explains."""
    # By the largest piece that each cause explains.
    waits: dict[Piece, Wait] = {}
    told: dict[Piece, Finding | None] = {}
    causes: dict[str | None, Piece] = {}
    for piece, ns in sorted(pieces, key=lambda each: -each[1]):
        wait = Wait(_without_reads(facts, pieces) if piece is Piece.MAKING else facts, ns, whole=len(pieces) == 1)
        found = explained(piece, wait)
        if found is None:
            continue
        larger = causes.setdefault(found.cause, piece)
        if larger is not piece:
            # The cause of a larger piece is that of this one too.
            wait = replace(waits[larger], ns=waits[larger].ns + ns, whole=len(pieces) == 2)
            found = explained(larger, wait)
        waits[larger], told[larger] = wait, found
    yield from (found for found in told.values() if found is not None)


def _without_reads(facts: Facts, pieces: Pieces) -> Facts:
    """Where reads are a piece of their own, what is known of the batches that are not read."""
    unread = facts.loader_unread
    if unread is None or all(piece is not Piece.READING for piece, _ in pieces):
        return facts
    whole = facts.loader
    return replace(facts, loader=replace(unread, slowest=whole.slowest, worker_busy_pct=whole.worker_busy_pct))
