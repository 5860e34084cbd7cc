"""The loader waits for reads: of what kind they are."""

from __future__ import annotations

from ...predict.what_if import VanishedWork
from ...run.exposed_data_wait import MOSTLY_READING
from ..finding import Evidence, Finding, Next
from .wait import Wait

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
        f"{wait.begins}, and the loader waits for storage{says}.",
        0.85,
        (
            wait.evidence("read_pct"),
            wait.evidence("cpu_pct", "near 100"),
            Evidence("read from storage and not from the cache", None if cold is None else 100 * cold, "%", "near 0"),
            Evidence("read for a sample", read, "bytes"),
            Evidence("bytes read for each byte of a batch", amplified, "", f"below {AMPLIFIED:.0f}"),
            Evidence("read in a second of waiting", rate, "bytes", f"above {SLOW_BYTES_PER_S / 1e6:.0f} MB"),
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
    return wait.so_many(f"{change}: num_workers={wanted.workers}{wanted.besides}", wanted)


def _kind(
    cold: float | None, rate: float | None, amplified: float | None, read: float | None
) -> tuple[str, tuple[str, ...]]:
    """What kind of waiting it is, and what helps against it."""
    more = "more workers hide waiting that is no work"
    if amplified is not None and amplified >= AMPLIFIED:
        return f", which reads {amplified:.0f} bytes for each that it uses", (
            "read less for each sample: chunks of the size that is used, no archive that is unpacked for one sample",
            more,
        )
    if cold is not None and cold >= COLD:
        return ": the files are not in the page cache", (
            "a copy on a local disk, or in memory if it fits; shards that are read from begin to end",
            more,
        )
    if rate is not None and rate < SLOW_BYTES_PER_S and read is not None and read < SMALL_READ_BYTES:
        return ": many small reads, each of which takes long", (
            "pack the files into shards (tar, LMDB, records) that are read in large pieces",
            more,
        )
    if rate is not None and rate < SLOW_BYTES_PER_S:
        return ", which is slow", ("read from faster storage, or copy the data there before the training", more)
    return "", ("read from faster storage, pack the files into shards, or cache them in memory", more)


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
