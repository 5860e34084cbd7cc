"""Batches that come late one by one: slow ones in a loader that keeps its order, and uneven ones."""

from __future__ import annotations

from dataclasses import replace

from ...run.exposed_data_wait import Spread
from ..finding import Evidence, Finding, Next
from .wait import Wait

VARIED_TIMES = 1.25
"""Time of making the batches that are waited for over that of all, from which their variance is why they are."""


def straggler(wait: Wait) -> Finding | None:
    """Single slow samples hold up later batches that are finished, in a loader that has time to spare."""
    facts, loader = wait.facts, wait.loader
    if facts.out_of_order:
        return None
    slowest = loader.slowest[0] if loader.slowest else None
    index = None if slowest is None or slowest.index is None else f"index {slowest.index}"
    return wait.found(
        f"{wait.begins}: for single slow samples, while later batches lie finished.",
        0.85,
        (
            Evidence("wait while a later batch was finished, of the exposed wait", facts.blocked_pct, "%", "near 0"),
            wait.evidence("slow_times"),
            wait.evidence("worker_busy_pct", ""),
            Evidence("the slowest sample took", slowest.ms if slowest else None, "ms"),
            Evidence("a sample takes", loader.make_ms_per_sample, "ms"),
            Evidence("the slowest sample is", None if slowest is None else slowest.file or index),
        ),
        (
            _as_they_come(wait),
            wait.removing("make the slow samples cheaper, or prepare them once and keep the result", kind="cheaper"),
        ),
    )


def uneven(wait: Wait) -> Finding | None:
    """The loader keeps up on average, and yet is waited for: batches differ more than what lies ready makes up for."""
    loader, facts = wait.loader, wait.facts
    slow = facts.waits.slow
    varied = slow is not None and slow.times >= VARIED_TIMES and not wait.workers_busy and loader.workers > 0
    spread = facts.waits.shape.spread in (Spread.SINGLE, Spread.IRREGULAR, Spread.PERIODIC)
    if not wait.keeps_up and not (varied and spread and _supplies(wait)):
        return None
    return wait.found(
        f"{wait.begins}, although the loader keeps up on average: batches come unevenly.",
        0.6 if varied else 0.4,
        (
            wait.evidence("queue_ready_mean", f"of {loader.queue_capacity}"),
            wait.evidence("worker_busy_pct", ""),
            wait.evidence("slow_times", ""),
            wait.evidence("handoff_pct", ""),
            wait.evidence("samples_per_s_limit"),
            wait.evidence("run_queue_pct", ""),
        ),
        (_deeper(wait),),
    )


def _as_they_come(wait: Wait) -> Next:
    """Finished batches are handed over, whichever it is."""
    change = "in_order=False in the DataLoader (torch 2.6 or later): batches are handed over as they come"
    workers = wait.facts.set_workers
    said = wait.predicted(lambda settings: settings.num_workers == workers, in_order=False)
    if said is None:
        return replace(wait.removing(change, likely=0.8, kind="settings"), settings={"in_order": False})
    return wait.as_predicted(change, said).of("settings")


def _deeper(wait: Wait) -> Next:
    """More batches ahead, with as many workers."""
    ahead, workers = wait.facts.set_prefetch, wait.facts.set_workers
    if ahead is None:
        return wait.overlapping("more batches ahead").of("settings")
    said = wait.predicted(lambda s: s.num_workers == workers and (s.prefetch_factor or 0) > ahead)
    deeper = 2 * ahead if said is None else said.settings.prefetch_factor
    change = f"prefetch_factor={deeper} instead of {ahead}: more batches ahead"
    if said is None:
        return replace(wait.overlapping(change), settings={"prefetch_factor": deeper}).of("settings")
    return wait.as_predicted(change, said).of("settings")


def _supplies(wait: Wait) -> bool:
    """Whether the workers would deliver, on average, what the training takes without waiting."""
    limit, facts = wait.loader.samples_per_s_limit, wait.facts
    wanted = facts.samples_per_s_without(facts.parts.input_ns)
    return limit is not None and wanted is not None and limit >= wanted
