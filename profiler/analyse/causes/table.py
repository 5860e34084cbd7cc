"""Which cause wins: all rules in the order in which they are asked.

For each piece of the time the first rule that holds explains it, so what is specific comes before
what is general. All that lists causes (the diagnosis, what `check` can forbid, the pages of
docs/causes, the benchmark of diagnosis) is held to these codes.
"""

from __future__ import annotations

from dataclasses import replace

from . import host_and_device as host
from . import input_batches as batches
from . import input_supply as supply
from . import run
from .claim import Claim, Piece, Rule
from .finding import Finding

_MADE_FOR_NOTHING = batches.memory, batches.wasted
_BY_WHEN_IT_HAPPENS = (
    *(batches.sampler, supply.serial, batches.worker_restart, supply.exclusive, batches.pipeline_fill),
    *(supply.storage, batches.straggler),
)
_CONFINED = supply.quota, supply.affinity, supply.held_back, supply.worker_threads, supply.sharding
_HANDED_OVER = batches.overkill, supply.delayed_by_others, supply.delayed, batches.handoff
_CPUS = supply.mostly_reads, supply.foreign_load, supply.oversubscribed, supply.cpu_exhausted, supply.in_its_own_thread
_HANDS = batches.uneven, supply.latency, supply.too_few_workers, supply.general, run.made_by_hand
_COPIES = host.link, host.pageable, host.serial_copy, host.sync
_COMPUTING = host.shape_churn, host.memory_pressure, host.contended, host.throttled, host.launch
_LOOP = host.garbage, host.gil, host.main_process, host.step_gap
_RUN = run.boundary, run.evaluated_by_hand, run.starting_up, run.slowing
_RANKS = (
    Rule("rank.straggler", (Piece.RANKS,), None, "The other ranks wait for one rank in their collectives."),
    Rule(
        "rank.exchange",
        (Piece.RANKS,),
        None,
        "The ranks spend their time exchanging gradients: the interconnect is slow for so many bytes.",
    ),
)

ORDER: tuple[Rule, ...] = (
    *(_MADE_FOR_NOTHING + _BY_WHEN_IT_HAPPENS + _CONFINED + _HANDED_OVER + _CPUS + _HANDS),
    *(_COPIES + _COMPUTING + _LOOP + _RUN + _RANKS),
)
"""A cause that is told in several ways has several rules."""

CODES = tuple(dict.fromkeys(rule.code for rule in ORDER))
FAMILIES = tuple(dict.fromkeys(code.split(".")[0] for code in CODES))
LINES = {rule.code: rule.lines for rule in ORDER if rule.lines is not None}
"""By code, how lines show the cause; without one no line is to blame."""


def explained(piece: Piece, claim: Claim) -> Finding | None:
    """Return what the first rule says of a piece that may claim it and holds; `None` where none
    does, or the claim is empty."""
    if claim.ns <= 0:
        return None
    claim = replace(claim, piece=piece)
    asked = (rule(claim) for rule in ORDER if piece in rule.claims)
    return next((found for found in asked if found is not None), None)
