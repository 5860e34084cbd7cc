"""The sampler takes the time: it works in the training's own process, however many workers there are."""

from __future__ import annotations

from ...predict.what_if import VanishedWork
from ..finding import Evidence, Finding, Next
from ..speedup import as_next, by_parts, by_replay, vanishing
from .wait import Wait

_A_STEP = "waiting for the sampler, of a step"


def sampler(wait: Wait) -> Finding | None:
    """The training waits until its sampler has drawn the indices of a batch, or has begun an epoch."""
    facts, sampling = wait.facts, wait.facts.sampling
    if sampling is None or sampling.ns <= 0:
        return None
    of_epochs = sampling.of_epochs(wait.ns)
    waits, workers = facts.waits, facts.set_workers
    epoch_ms = sampling.first_ns / max(1, waits.epochs) / 1e6
    # First batches of epochs are drawn among much else.
    step_ms = (sampling.ns - sampling.first_ns) / max(1, facts.window.count - waits.epochs) / 1e6
    what = f"gets each epoch ready: {epoch_ms:.0f} ms an epoch"
    if not of_epochs:
        what = f"draws the indices of each batch: {step_ms:.2g} ms a step"
    beginning = Evidence("waiting for the sampler, when an epoch begins", epoch_ms, "ms", "near 0")
    return wait.found(
        f"{wait.begins}, while its sampler {what}, in the training's own process"
        f"{', whatever the number of workers' if workers else ''}.",
        0.95,
        (
            Evidence("waiting for the sampler, at other steps" if of_epochs else _A_STEP, step_ms, "ms", "near 0"),
            *((beginning, wait.evidence("epochs")) if waits.epochs else ()),
            Evidence("the sampler takes for a batch", sampling.draw_ms, "ms", "below 0.1"),
            Evidence("indices that it draws at a time", sampling.drawn),
            Evidence("num_workers", workers),
            *wait.pace_evidence,
        ),
        (*_ready(wait, sampling.iterators), _longer(wait)) if of_epochs else _cheaper(wait),
    )


def _ready(wait: Wait, iterators: int) -> tuple[Next, ...]:
    """What makes beginning an epoch cheaper."""
    changes = [
        _begun(
            wait,
            "keep what the sampler reads or computes in `__iter__` (lengths, labels, weights, groups): once, in its "
            "`__init__` or a file, as NumPy arrays; and let it draw a batch at a time, instead of a list of them all "
            "before the first",
        )
    ]
    facts = wait.facts
    if facts.set_workers and facts.persistent_workers is False and iterators >= 2 * facts.waits.epochs > 0:
        changes.append(
            _begun(
                wait,
                "persistent_workers=True: where workers start anew torch iterates over the sampler twice an epoch",
                likely=0.5,
            )
        )
    return tuple(changes)


def _longer(wait: Wait) -> Next:
    return _begun(wait, "longer epochs: several passes over the data as one, in a sampler that repeats", likely=0.5)


def _cheaper(wait: Wait) -> tuple[Next, ...]:
    """What makes drawing the indices of a batch cheaper."""
    return (
        _freed(
            wait,
            "keep what the sampler sorts or searches by (lengths, labels, weights) in NumPy arrays that are made once, "
            "and draw by whole arrays (`argsort`, `searchsorted`, `permutation`), many batches at a time",
        ),
        _freed(
            wait,
            "make the batches of an epoch beforehand and yield them from a list; where each depends on the one before, "
            "draw them in a thread or process ahead of the training",
            likely=0.8,
        ),
    )


def _begun(wait: Wait, change: str, likely: float = 0.9) -> Next:
    """A change that takes so much of the claim away, of what beginning epochs takes."""
    return wait.removing(change, likely=likely, kind="once")


def _freed(wait: Wait, change: str, likely: float = 0.95) -> Next:
    """A change that takes so much of the claim away, as far as the workers could deliver more batches then."""
    less = vanishing(likely)
    # Behind the device it takes time, too, which is in its way once the device no longer waits.
    each_ns = 0.0 if wait.facts.sampling is None else wait.facts.sampling.each_ns
    found = by_replay(wait.facts, VanishedWork(drawing_ns=each_ns), less)
    if found is None:
        found, limit = by_parts(wait.facts, wait.ns, less), wait.loader.samples_per_s_limit
        if wait.facts.set_workers and limit is not None and wait.facts.samples_known:
            found = found.no_more_than(max(1.0, limit / wait.facts.samples_per_s))
    return as_next(wait.facts, change, found, "once")
