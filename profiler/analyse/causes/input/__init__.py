"""The device waits for batches: why?

The exposed wait is taken apart first (`waits.py`): what comes from the beginning of epochs, from single slow batches,
from the hand-over and from reads, is told by when it happens. What is left is a matter of supply, for which the rules
are asked from the specific to the general.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...run.facts import Facts
from ...run.loader_stats import Loader
from ..divided import HOLDING
from ..finding import Finding
from .cpus import (
    OVERSUBSCRIBED_PCT,
    affinity,
    cpu_exhausted,
    delayed,
    foreign_load,
    held_back,
    oversubscribed,
    quota,
    worker_threads,
)
from .epochs import pipeline_fill, restarts, worker_restart
from .handoff import LARGE_BATCH_BYTES, MOSTLY_HANDOFF_PCT, NEARLY_ALL_PCT, handoff, is_pickled, overkill
from .order import straggler, uneven
from .storage import mostly_reads, storage
from .wait import BUSY_PCT, Wait
from .workers import general, in_its_own_thread, latency, serial, sharding, too_few_workers

Rule = Callable[[Wait], Finding | None]
Piece = tuple[int, Sequence[Rule]]
"""So many ns of the wait, and the rules that may explain them: the first that finds something does."""

SUPPLY: Sequence[Rule] = (
    quota,
    affinity,
    held_back,
    worker_threads,
    sharding,
    overkill,
    mostly_reads,
    foreign_load,
    oversubscribed,
    cpu_exhausted,
    in_its_own_thread,
    uneven,
    latency,
    too_few_workers,
    general,
)
"""Asked in this order; the first that has evidence explains what it is given."""

LEAST_PIECE = 0.03
"""Of the wall time: a smaller piece of the wait is told together with the largest one."""


def causes(facts: Facts) -> list[Finding]:
    """What explains the exposed wait for data; together they explain all of it."""
    input_ns = facts.parts.input_ns
    if input_ns <= 0:
        return []
    if facts.made_in_training:
        found = serial(Wait(facts, input_ns - held_ns(facts), facts.loader))
        return [] if found is None else [found]
    pieces = _pieces(facts)
    small = sum(ns for ns, _ in pieces if not _counts(facts, ns))
    pieces = [(ns, rules) for ns, rules in pieces if _counts(facts, ns)]
    if not pieces:
        # Nothing in it is large: what is most of it speaks for all.
        largest = max(_pieces(facts), key=lambda piece: piece[0])
        pieces, small = [(input_ns, largest[1])], 0
    largest_at = max(range(len(pieces)), key=lambda at: pieces[at][0])
    pieces[largest_at] = pieces[largest_at][0] + small, pieces[largest_at][1]
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
        return max(0, facts.parts.input_ns - round((work_ms or 0.0) * 1e6 * facts.window.count)) if known else 0
    return waits.handed_ns if _is_handed(facts) and not is_pickled(facts.loader) else 0


def _pieces(facts: Facts) -> list[Piece]:
    """The exposed wait by when it happened, each with the rules that may explain it."""
    waits = facts.waits
    epochs = _epochs(facts)
    by_kind: list[Piece] = [(waits.reading_ns, [storage]), (waits.slow_ns, [straggler, *SUPPLY])]
    if _is_handed(facts):
        return [*epochs, *by_kind, (waits.handed_ns, [overkill, delayed, handoff]), (waits.making_ns, SUPPLY)]
    return [*epochs, *by_kind, (waits.making_ns + waits.handed_ns, SUPPLY)]


def _epochs(facts: Facts) -> list[Piece]:
    """What the beginnings of epochs cost: starting workers, and filling the pipeline."""
    waits = facts.waits
    starting, filling = waits.starting_ns, waits.filling_ns
    if not restarts(facts):
        return [(starting + filling, [pipeline_fill])]
    if not starting and waits.told == 0:
        # When the first batch was taken up is not known, only that workers were started each time.
        return [(filling, [worker_restart])]
    if not _counts(facts, filling):
        return [(starting + filling, [worker_restart])]
    if not _counts(facts, starting):
        return [(starting + filling, [pipeline_fill])]
    return [(starting, [worker_restart]), (filling, [pipeline_fill])]


def _is_handed(facts: Facts) -> bool:
    """Whether batches on their way are a matter of their own, and not the end of each wait for supply.

    Where the workers are busy all the time, more batches do not come however fast they are handed over; where they
    queue for CPUs, so do the threads that send. Unless batches are large: then what looks busy may be the sending.
    """
    waits, busy = facts.waits, facts.loader.worker_busy_pct
    limit = (busy is not None and busy >= BUSY_PCT) or (facts.loader.run_queue_pct or 0.0) >= OVERSUBSCRIBED_PCT
    ordinary = waits.handed_ns + waits.making_ns + waits.slow_ns + waits.reading_ns
    handed_pct = 100 * waits.handed_ns / max(1, ordinary)
    large = (facts.loader.mean_batch_bytes or 0.0) >= LARGE_BATCH_BYTES and handed_pct >= NEARLY_ALL_PCT
    if limit and not large:
        return False
    return facts.loader.queue_capacity is not None and handed_pct >= MOSTLY_HANDOFF_PCT


def _counts(facts: Facts, ns: int) -> bool:
    return ns >= LEAST_PIECE * facts.parts.wall_ns


def _explained(facts: Facts, pieces: Sequence[Piece]) -> Iterator[Finding]:
    both = facts.loader_unread is not None and any(rules == [storage] for _, rules in pieces)
    found: dict[str | None, tuple[Wait, Sequence[Rule]]] = {}
    for ns, rules in sorted(pieces, key=lambda piece: -piece[0]):
        loader: Loader = facts.loader
        if both and rules is SUPPLY and facts.loader_unread is not None:
            loader = replace(
                facts.loader_unread, slowest=facts.loader.slowest, worker_busy_pct=facts.loader.worker_busy_pct
            )
        wait = Wait(facts, ns, loader, whole=len(pieces) == 1)
        told = _first(rules, wait)
        if told is not None and told.cause in found:
            # The cause of a larger piece is that of this one too.
            larger, rules = found[told.cause]
            wait = replace(larger, ns=larger.ns + ns, whole=len(pieces) == 2)
        if told is not None:
            found[told.cause] = wait, rules
    for wait, rules in found.values():
        told = _first(rules, wait)
        if told is not None:
            yield told


def _first(rules: Sequence[Rule], wait: Wait) -> Finding | None:
    return next((found for found in (rule(wait) for rule in rules) if found is not None), None)
