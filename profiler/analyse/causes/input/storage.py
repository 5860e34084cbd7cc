"""The loader waits for reads: of what kind they are.

The sampler takes the time: it works in the training's own process, however many workers there are.
"""

from __future__ import annotations

from ...predict.advice import VanishedWork
from ...run.loader_stats import MOSTLY_READING
from ..finding import Evidence, Finding, Next
from ..speedup import as_next, by_parts, by_replay, vanishing
from .wait import Wait

_A_STEP = "Wait for the sampler per step"


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
    what = f"takes {epoch_ms:.0f} ms to begin each epoch"
    if not of_epochs:
        what = f"takes {step_ms:.2g} ms per step to draw the indices of a batch"
    beginning = Evidence("Wait for the sampler at the start of an epoch", epoch_ms, "ms", "near 0 ms")
    return wait.found(
        f"{wait.begins}: the dataset sampler {what}. It runs in the training process"
        f"{', however many workers there are' if workers else ''}.",
        0.95,
        (
            Evidence("Wait for the sampler at other steps" if of_epochs else _A_STEP, step_ms, "ms", "near 0 ms"),
            *((beginning, wait.evidence("epochs")) if waits.epochs else ()),
            Evidence("Drawing the indices of a batch", sampling.draw_ms, "ms", "below 0.1 ms"),
            Evidence("Indices drawn at a time", sampling.drawn),
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
            "Keep what the sampler reads or computes in `__iter__` (lengths, labels, weights, groups) in NumPy arrays, "
            "made once in `__init__` or read from a file; draw one batch at a time instead of a list of all "
            "batches before the first",
        )
    ]
    facts = wait.facts
    if facts.set_workers and facts.persistent_workers is False and iterators >= 2 * facts.waits.epochs > 0:
        changes.append(
            _begun(
                wait,
                "Set `persistent_workers=True`: torch iterates over the sampler twice an epoch if workers restart",
                likely=0.5,
            )
        )
    return tuple(changes)


def _longer(wait: Wait) -> Next:
    return _begun(wait, "Use longer epochs: several passes over the data as one, in a sampler that repeats", likely=0.5)


def _cheaper(wait: Wait) -> tuple[Next, ...]:
    """What makes drawing the indices of a batch cheaper."""
    return (
        _freed(
            wait,
            "Keep what the sampler sorts or searches by (lengths, labels, weights) in NumPy arrays that are made once, "
            "and draw many batches at a time with array functions (`argsort`, `searchsorted`, `permutation`)",
        ),
        _freed(
            wait,
            "Choose the batches of an epoch beforehand and yield them from a list; where each depends on the one "
            "before, draw them in a thread or process ahead of the training",
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


COLD = 0.5
"""Share of the bytes read that come from storage, from which the cache is cold."""
SMALL_READ_BYTES = 256 * 1024
"""Bytes read for a sample below which it is a small read."""
SLOW_BYTES_PER_S = 50e6
"""Bytes that a worker reads in a second of waiting for them, below which it reads from something slow."""
AMPLIFIED = 4.0
"""Bytes read for each byte of a batch, from which most are read for nothing; compressed data reads less than one."""


def mostly_reads(wait: Wait) -> Finding | None:
    """Where the batches of the steps are not known one by one: reads are most of what making them takes."""
    read = wait.loader.read_pct
    return None if read is None or read < 100 * MOSTLY_READING else storage(wait)


def storage(wait: Wait) -> Finding | None:
    """Workers spend most of their time waiting for reads."""
    loader = wait.loader
    read, stored = loader.read_chars_bytes_per_sample, loader.storage_bytes_per_sample
    cold = None if not read or stored is None else stored / read
    rate = _bytes_per_s(wait)
    useful = _sample_bytes(wait)
    amplified = None if read is None or not useful else read / useful
    says, changes = _kind(cold, rate, amplified, read)
    return wait.found(
        f"{wait.begins}: the loader waits for storage{says}.",
        0.85,
        (
            wait.evidence("read_pct"),
            wait.evidence("cpu_pct", "near 100 %"),
            Evidence("Reads from storage, not from the cache", None if cold is None else 100 * cold, "%", "near 0 %"),
            Evidence("Bytes read for a sample", read, "bytes"),
            Evidence("Bytes read for each byte of a batch", amplified, "", f"below {AMPLIFIED:.0f}"),
            Evidence("Bytes read per second of waiting", rate, "bytes", f"above {SLOW_BYTES_PER_S / 1e6:.0f} MB"),
        ),
        (_fewer_reads(wait, changes[0]), _more_hands(wait, changes[1])),
    )


def _fewer_reads(wait: Wait, change: str) -> Next:
    """Reading takes most of the time no more."""
    reading = (wait.loader.read_pct or 0.0) / 100
    return wait.lighter(change, VanishedWork(making=reading), least=0.5, likely=0.8, kind="order")


def _more_hands(wait: Wait, change: str) -> Next:
    wanted = wait.wanted
    if wanted.said is None:
        return wait.overlapping(change).of("workers")
    return wait.so_many(f"{change}: `num_workers={wanted.workers}{wanted.besides}`", wanted)


def _kind(
    cold: float | None, rate: float | None, amplified: float | None, read: float | None
) -> tuple[str, tuple[str, ...]]:
    """What kind of waiting it is, and what helps against it."""
    more = "Use more workers to hide the waiting"
    if amplified is not None and amplified >= AMPLIFIED:
        return f", and reads {amplified:.0f} bytes for each byte that it uses", (
            "Read less per sample: use chunks of the size that is used, and unpack no archive for one sample",
            more,
        )
    if cold is not None and cold >= COLD:
        return ", because the files are not in the page cache", (
            "Copy the data to a local disk, or to memory if it fits; or read shards from start to end",
            more,
        )
    if rate is not None and rate < SLOW_BYTES_PER_S and read is not None and read < SMALL_READ_BYTES:
        return ", in many small reads that each take long", (
            "Pack the files into shards (tar, LMDB, records) that are read in large pieces",
            more,
        )
    if rate is not None and rate < SLOW_BYTES_PER_S:
        return ", which is slow", ("Read from faster storage, or copy the data there before the training", more)
    return "", ("Read from faster storage, pack the files into shards, or cache them in memory", more)


def _bytes_per_s(wait: Wait) -> float | None:
    """Bytes that a worker reads in a second of waiting for them; `None` where that is not known."""
    loader = wait.loader
    read, ms = loader.read_chars_bytes_per_sample, loader.make_ms_per_sample
    if not read or not ms or not loader.read_pct:
        return None
    return read / (ms * loader.read_pct / 100 / 1e3)


def _sample_bytes(wait: Wait) -> float | None:
    """Bytes of a finished sample; `None` where they are not known."""
    nbytes, size = wait.loader.mean_batch_bytes, wait.facts.batch_size
    return None if nbytes is None or not size else nbytes / size
