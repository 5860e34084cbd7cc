"""A stage behind the loader: the training's own process works on each batch before it calls its model."""

from __future__ import annotations

import math

from ..predict.what_if import VanishedWork
from ..run.host_gaps import words_of
from .claim import Claim
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
        f"The {spends} {claim.percent()} of the time {'on' if on_cpu else 'behind'} work with batches that the loader "
        f"has handed over, before their forward pass, {words_of(staging.shape)}: {claim.ms_a_step:.2g} ms a step, in "
        "the training's own process.",
        0.8,
        (
            Evidence("between a batch's arrival and the forward pass, of a step", claim.ms_a_step, "ms", "near 0"),
            *(Evidence(f"of it, {what}, of the wall time", 100 * share, "%") for what, share in staging.named),
            Evidence("a step without it takes", without_ms, "ms"),
            Evidence("num_workers", workers, "", "1 or more" if workers == 0 and movable else ""),
            *((claim.evidence("worker_busy_pct"),) if workers else ()),
            claim.evidence("cpus_used"),
            claim.evidence("cpu_budget"),
        ),
        (
            *((_moved(claim, _into_workers(workers, on_cpu)),) if movable else ()),
            claim.sparing(
                "cheaper work there: whole batches by NumPy or torch instead of a Python loop over samples, once and "
                "kept instead of in every epoch" + ("" if on_cpu else "; or on the device, once the batch was copied"),
                likely=0.6,
                kind="cheaper",
            ),
        ),
    )


def _into_workers(workers: int | None, on_cpu: bool) -> str:
    do_it, beside = "do it in the dataset's `__getitem__` or in `collate_fn`", "training" if on_cpu else "device"
    who = {None: " of a DataLoader with workers", 0: ", with num_workers=1 or more", 1: ", in the worker"}
    return f"{do_it}{who.get(workers, f', in the {workers} workers')}: it is done while the {beside} computes"


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
