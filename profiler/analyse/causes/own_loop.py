"""A loop that draws batches and evaluates in functions of its own: what its stack samples show.

A stage behind the loader: the training's own process works on each batch before it calls its model.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..predict.advice import VanishedWork
from ..run.facts import Facts
from ..run.host_gaps import words_of
from ..run.stall_breakdown import UNTOLD
from ..statistics import Estimate
from ..where.own_loop import EVALUATING, MAKING, OwnLoop
from .claim import Claim, Piece
from .divided import grown_ns
from .finding import Evidence, Finding, Next
from .input.epochs import left_early
from .speedup import DONE_NO_MORE, as_next, by_replay


def main_process(claim: Claim) -> Finding | None:
    """Packing, tokenising, augmenting, collating by hand, in the loop or in a generator around the loader."""
    facts, staging = claim.facts, claim.facts.staging
    if staging is None or left_early(facts):
        # Between the first batch and its computation the iterator before is taken down.
        return None
    on_cpu, workers, parts = facts.device_kind == "cpu", facts.set_workers, facts.parts
    spends = "training spends" if on_cpu else "device idles"
    movable = facts.own_workers is None
    without_ms = (parts.wall_ns - claim.ns) / facts.window.count / 1e6
    return claim.found(
        f"The {spends} {claim.percent()} of the time {'working' if on_cpu else 'behind work'} on batches before their "
        f"forward pass, {words_of(staging.shape)}. It takes {claim.ms_a_step:.2g} ms per step in "
        "the training process.",
        0.8,
        (
            Evidence("From a batch's arrival to its forward pass, per step", claim.ms_a_step, "ms", "near 0 ms"),
            *(Evidence(f"Part of it: {what}", 100 * share, "%") for what, share in staging.named),
            Evidence("Step without it", without_ms, "ms"),
            Evidence("num_workers", workers, "", "1 or more" if workers == 0 and movable else ""),
            *((claim.evidence("worker_busy_pct"),) if workers else ()),
            claim.evidence("cpus_used"),
            claim.evidence("cpu_budget"),
        ),
        (
            *((_moved(claim, _into_workers(workers, on_cpu)),) if movable else ()),
            claim.sparing(
                "Make that work cheaper: whole batches in NumPy or torch instead of a Python loop over samples, or "
                "once and kept instead of in every epoch" + ("" if on_cpu else "; or on the device, after the copy"),
                likely=0.6,
                kind="cheaper",
            ),
        ),
    )


def _into_workers(workers: int | None, on_cpu: bool) -> str:
    do_it, beside = "Do it in the dataset's `__getitem__` or in `collate_fn`", "training" if on_cpu else "device"
    who = {None: " of a DataLoader with workers", 0: ", with `num_workers=1` or more", 1: ", in the worker"}
    return f"{do_it}{who.get(workers, f', in the {workers} workers')}, while the {beside} computes"


def _moved(claim: Claim, change: str) -> Next:
    """What is gained if workers do it, one where there are none: as the replay has it, else as many as there are CPUs,
    at the pace of the training's thread."""
    facts = claim.facts
    gone = VanishedWork(loop_ns=claim.ns / facts.window.count, moved=True)
    settings = None
    if facts.advice is not None and not facts.set_workers:
        settings = facts.advice.workload.settings.with_workers(1)
    speedup = by_replay(facts, gone, DONE_NO_MORE, settings)
    if speedup is None:
        return claim.overlapping(change, _supply(claim)).of("in_workers")
    return as_next(facts, change, speedup, "in_workers")


def _supply(claim: Claim) -> float | None:
    """What as many workers could deliver if they did it as well, over today's rate, each at the pace of the training's
    thread and no more of them at a time than there are CPUs; `None` where that is not known."""
    facts = claim.facts
    budget, size = facts.sampled.cpu_budget, facts.batch_size
    if not size or budget is None:
        return None
    workers = min(facts.set_workers or 1, max(1, math.floor(budget)))
    a_batch_ms = claim.ms_a_step + (facts.loader.work_ms_per_batch or 0.0)
    supply = workers * size * 1e3 / a_batch_ms * facts.parts.wall_ns / 1e9 / facts.samples
    return supply if facts.cpu_limit is None else min(supply, facts.cpu_limit)


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
    """The loop prepares its batches itself."""
    change = claim.removing(
        "Prepare batches ahead, while the model computes: use a DataLoader with workers around what draws them, or a "
        "thread that draws the next one",
        likely=0.8,
        kind="workers",
    )
    return _found(claim, MAKING, "on preparing batches in a function of its own", change)


def evaluated_by_hand(claim: Claim) -> Finding | None:
    """The loop evaluates the model itself."""
    change = claim.removing("Evaluate less often, or on fewer batches", likely=0.8, kind="less_often")
    return _found(claim, EVALUATING, "on evaluating the model", change)


def _found(claim: Claim, kind: str, what: str, change: Next) -> Finding | None:
    if (loop := claim.facts.own_loop) is None:
        return None
    found = claim.found(
        f"The training spends about {claim.percent()} of the time ({_range(loop.shares[kind])}) {what}. Stack samples "
        "show this, since no fetch of a batch was seen.",
        0.6,
        shares_seen(loop),
        (change,),
    )
    return replace(found, where=loop.lines.get(kind, ()), stages=loop.stages if kind == MAKING else None)


def shares_seen(loop: OwnLoop) -> tuple[Evidence, ...]:
    """Return how stack samples divide the loop's time."""
    shares = {f"Stack samples of the training in {name}": share for name, share in loop.shares.items()}
    told = (Evidence(what, f"{100 * share.value:.0f} % ({_range(share)})") for what, share in shares.items())
    return (*told, Evidence("Stack samples", loop.looks))


def _range(share: Estimate) -> str:
    return f"{100 * share.low:.0f} to {100 * share.high:.0f}"
