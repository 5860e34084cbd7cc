"""Waits at the beginning of epochs."""

from __future__ import annotations

from dataclasses import replace

from ...run.facts import Facts
from ...shares import MOSTLY
from ..finding import Evidence, Finding, Next
from .wait import Wait

PERSISTENT = {"persistent_workers": True}


def restarts(facts: Facts) -> bool:
    """Whether each epoch starts its workers anew: their loader has another iterator each time."""
    waits = facts.waits
    if not facts.set_workers or waits.epochs < 2:
        return False
    return facts.persistent_workers is False if waits.iterators is None else waits.iterators > 1


def persistence(facts: Facts) -> Evidence:
    """Whether workers outlive an epoch, as it is set."""
    setting = facts.persistent_workers
    return Evidence("persistent_workers", None if setting is None else "on" if setting else "off", "", "on")


def left_early(facts: Facts) -> bool:
    """Whether the loop goes on to another iterator after so few batches that most of what was made ahead is lost."""
    waits = facts.waits
    few = waits.batches_per_epoch is not None and waits.batches_per_epoch < 2 * (facts.set_workers or 0)
    return few and waits.left_early is not None and waits.left_early >= MOSTLY


def _one_iterator(wait: Wait) -> tuple[Next, ...]:
    """What is to be done first where the loop leaves its iterators early."""
    if not left_early(wait.facts):
        return ()
    change = (
        "Keep one iterator: call `batches = iter(loader)` before the loop and `next(batches)` in it, and renew it when "
        "it is used up; or write `for batch in loader:`"
    )
    # Each iterator that is left is also waited for: its workers end before the loop goes on.
    waits, staging = wait.facts.waits, wait.facts.staging
    removed_ns = waits.starting_ns + waits.filling_ns + (staging.ns if staging is not None else 0)
    return (wait.removing(change, max(removed_ns, round(wait.ns)), least=0.8, likely=0.95, kind="once"),)


def _left(facts: Facts) -> tuple[Evidence, ...]:
    left = facts.waits.left_early
    if left is None or not left_early(facts):
        return ()
    return (Evidence("Iterators left while workers prepared more batches", 100 * left, "%", "near 0 %"),)


def _leaving(facts: Facts) -> str:
    """The rest of a sentence about epochs."""
    batches = facts.waits.batches_per_epoch
    if batches is None or not left_early(facts):
        return ""
    return f"; the loop takes only {batches:.2g} batch{'es' * (round(batches) != 1)} of each and starts over"


def _persistent(wait: Wait, change: str) -> Next:
    """Workers that live on make the first batches of an epoch all the same."""
    advice = wait.facts.advice
    now = None if advice is None else advice.workload.settings
    said = wait.predicted(
        lambda settings: settings.persistent_workers and replace(settings, persistent_workers=False) == now,
        persistent=True,
    )
    if said is None or wait.facts.persistent_workers:
        return replace(wait.removing(change, least=0.4, likely=0.75, kind="settings"), settings=PERSISTENT)
    return wait.as_predicted(change, said).of("settings")


def worker_restart(wait: Wait) -> Finding | None:
    """Workers are started anew for each epoch: the time until one of them takes up the first batch."""
    facts = wait.facts
    if not restarts(facts):
        return None
    each_ms = wait.ns / facts.waits.epochs / 1e6
    how = "as a new Python, which imports the program and unpickles the dataset" if facts.starts_python else "as a fork"
    if facts.persistent_workers:
        change = "Create the DataLoader once, before the loop over epochs, since its `persistent_workers` end with it"
    else:
        change = "Set `persistent_workers=True` in a DataLoader that is created once, before the loop over epochs"
    also = (
        ()
        if not facts.starts_python
        else (
            wait.removing(
                'Set `multiprocessing_context="fork"`, where nothing in the program forbids it; or use a smaller '
                "dataset object, and imports within functions"
            ),
        )
    )
    return wait.found(
        f"{wait.begins}: each epoch starts {'a worker' if facts.set_workers == 1 else f'{facts.set_workers} workers'} "
        f"anew, which costs {each_ms:.0f} ms per epoch{_leaving(facts)}.",
        0.9 if facts.waits.starting_ns else 0.6,
        (
            Evidence("Start of an epoch until a worker begins a batch", each_ms, "ms", "near 0 ms"),
            wait.evidence("epochs"),
            Evidence("Iterators of the loader in these epochs", facts.waits.iterators, "", "1"),
            *_left(facts),
            persistence(facts),
            Evidence("How workers start", how if facts.starts_python is not None else None),
        ),
        (*_one_iterator(wait), _persistent(wait, change), *also),
    )


def pipeline_fill(wait: Wait) -> Finding | None:
    """The first batch of an epoch is waited for while it is made, however many workers there are."""
    facts, loader = wait.facts, wait.loader
    epochs = max(1, facts.waits.epochs)
    each_ms, batches = wait.ns / epochs / 1e6, facts.waits.batches_per_epoch
    few = facts.set_workers is not None and batches is not None and batches < facts.set_workers
    few = few and not left_early(facts)
    title = f"{wait.begins}: the first batch of each epoch costs {each_ms:.0f} ms extra{_leaving(facts)}"
    return wait.found(
        f"{title}, and an epoch has fewer batches than there are workers." if few else f"{title}.",
        0.8,
        (
            Evidence("Extra cost of an epoch's first batch", each_ms, "ms", "near 0 ms"),
            Evidence("Preparing a batch", loader.work_ms_per_batch, "ms"),
            Evidence("Batches in an epoch", batches, "", "many times the workers"),
            Evidence("Workers", facts.set_workers),
            wait.evidence("epochs"),
            *_left(facts),
            Evidence("persistent_workers", persistence(facts).value),
        ),
        (
            *_one_iterator(wait),
            *(
                replace(
                    wait.removing(change, least=0.2, likely=0.8, kind="settings"),
                    settings=PERSISTENT if change.startswith("Set `persistent_workers") else {},
                )
                for change in _shorter(wait, each_ms, few)
            ),
        ),
    )


def _shorter(wait: Wait, each_ms: float, few: bool) -> tuple[str, ...]:
    """What shortens the first fetches, given how the loader is set."""
    facts = wait.facts
    took = f"{each_ms:.0f} ms" if each_ms >= 1 else f"{each_ms:.1f} ms"
    if not facts.set_workers:
        return (f"Use longer epochs, or open the data before they begin (each first batch costs {took} more)",)
    changes = []
    if not facts.persistent_workers:
        changes.append(f"Set `persistent_workers=True` to keep workers from epoch to epoch ({took})")
    if few:
        changes.append(
            f"Use smaller batches, so each of the {facts.set_workers} workers has one (fewer workers wait as long)"
        )
    too_many = facts.set_workers > (facts.sampled.cpu_budget or facts.set_workers) or not wait.workers_busy
    if wait.queues and too_many and facts.set_workers > 1 and facts.persistent_workers:
        changes.append(
            f"Use fewer than {facts.set_workers} workers, which wait for CPUs while they prepare the first batches "
            f"({took} per epoch)"
        )
    changes.append(
        "Use longer epochs (a sampler that repeats several passes as one), or smaller batches, which are ready sooner"
    )
    return tuple(changes)
