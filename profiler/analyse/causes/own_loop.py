"""A loop that draws batches and evaluates by functions of its own: what looks at its stack say of it."""

from __future__ import annotations

from dataclasses import replace

from ..run.facts import Facts
from ..run.stall_breakdown import UNTOLD
from ..statistics import Estimate
from ..where.own_loop import EVALUATING, MAKING, OwnLoop
from .claim import Claim, Piece
from .divided import grown_ns
from .finding import Evidence, Finding, Next

KINDS = {Piece.OWN_MAKING: MAKING, Piece.OWN_EVALUATING: EVALUATING}


def own_pieces(facts: Facts) -> dict[Piece, float]:
    """What of the time that no clock tells apart goes to making batches, and to evaluating, ns, but for what grew as
    the run went on; none where stacks do not tell."""
    loop = facts.own_loop
    if loop is None:
        return {}
    grown = grown_ns(facts, UNTOLD)
    return {
        piece: max(0.0, own_ns(facts, loop, kind) - (grown if kind == loop.grows else 0.0))
        for piece, kind in KINDS.items()
    }


def own_ns(facts: Facts, loop: OwnLoop, kind: str) -> float:
    """What a kind of work takes of the time that no clock tells apart, ns."""
    return loop.shares[kind].value * facts.untold_share * facts.parts.wall_ns


def made_by_hand(claim: Claim) -> Finding | None:
    """The loop makes its batches itself."""
    change = claim.removing(
        "make batches ahead, beside the computation: a DataLoader with workers around what draws them, or a thread "
        "that draws the next one while the model computes",
        likely=0.8,
        kind="workers",
    )
    return _found(claim, MAKING, "making its batches, by a function of its own", change)


def evaluated_by_hand(claim: Claim) -> Finding | None:
    """The loop evaluates the model itself."""
    change = claim.removing("evaluate less often, or on fewer batches", likely=0.8, kind="less_often")
    return _found(claim, EVALUATING, "evaluating the model", change)


def _found(claim: Claim, kind: str, what: str, change: Next) -> Finding | None:
    if (loop := claim.facts.own_loop) is None:
        return None
    found = claim.found(
        f"The training spends about {claim.percent()} of the time ({_range(loop.shares[kind])}) on {what}: so its "
        "stack says, as no fetch of a batch is seen.",
        0.6,
        shares_seen(loop),
        (change,),
    )
    return replace(found, where=loop.lines.get(kind, ()), stages=loop.stages if kind == MAKING else None)


def shares_seen(loop: OwnLoop) -> tuple[Evidence, ...]:
    """What looks at the loop's stack say of its time."""
    shares = {f"looks at the training that stand in {name}": share for name, share in loop.shares.items()}
    told = (Evidence(what, f"{100 * share.value:.0f} % ({_range(share)})") for what, share in shares.items())
    return (*told, Evidence("looks", loop.looks))


def _range(share: Estimate) -> str:
    return f"{100 * share.low:.0f} to {100 * share.high:.0f}"
