"""The report's section on how batches are prepared."""

from __future__ import annotations

from collections.abc import Iterator

from ...analyse.run.facts import Facts
from ...analyse.run.loader_stats import WAITING, WAITING_FOR_CPU, LoaderStats
from ..document import LEFT, RIGHT, Block, Heading, Paragraph, Space, table
from ..words.figures import percent

MOST_SHOWN = 5
SLOW_FACTOR = 3
"""Samples are listed as slow from so many times the time of an average one on."""
LEAST_SLOW_MS = 1.0
"""Shorter ones are not worth a word."""
LEAST_INPUT = 0.05
"""Where the device waits less for data, how batches are made is told in few words."""
LEAST_SAMPLE_MS = 0.1
"""Where a sample takes less, too."""
LEAST_REST_PCT = 0.5
LEAST_READ_BYTES = 100
MANY_FAULTS = 100
"""Page faults of a batch, at some 0.1 to 1 µs each."""


def workers_blocks(facts: Facts, title: str = "Workers") -> Iterator[Block]:
    """Of the loader that the training steps get their batches from. Nothing where it said nothing."""
    loader = facts.loader
    if loader.workers == 0:
        return
    yield Heading(title)
    yield table(_who(facts), indent=1)
    sample_ms = loader.make_ms_per_sample
    if facts.parts.share("input") >= LEAST_INPUT and (sample_ms is None or sample_ms >= LEAST_SAMPLE_MS):
        yield Paragraph("Preparing batches, by what it waits for or does:", 1)
        yield table(_stages(facts), LEFT, RIGHT, LEFT, indent=2)
        if reads := list(_reads(loader)):
            yield table(reads, indent=1)
        yield from _transforms(loader)
        yield from _slow(loader)
    yield Space()


_MEANING = {
    "reading": "waiting for reads of files",
    "preparing samples": "decoding, transforming and the rest of a sample's work",
    "collating": "stacking samples into a batch",
    WAITING_FOR_CPU: "ready to run while other threads run",
    WAITING: "locks, sleeps, the network, other threads",
}


def _who(facts: Facts) -> Iterator[tuple[str, str]]:
    loader = facts.loader
    if facts.made_in_training:
        yield "batches prepared", "in the training process"
    else:
        busy = "" if loader.worker_busy_pct is None else f", busy {loader.worker_busy_pct:.0f} % of the time"
        yield "workers", f"{loader.workers}{busy}"
    if loader.queue_ready_mean is not None and loader.queue_capacity:
        yield "batches ready", f"{loader.queue_ready_mean:.1f} of {loader.queue_capacity} when the training asks"
    if loader.make_ms_per_sample is not None:
        yield "a sample takes", _ms(loader.make_ms_per_sample)
    if facts.blocked_pct is not None and facts.blocked_pct >= 1 and facts.parts.share("input") >= LEAST_INPUT:
        yield "slow batches", f"{facts.blocked_pct:.0f} % of the wait is for one batch while a later one is finished"


def _stages(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Rows that sum to 100 %."""
    loader, read = facts.loader, _MEANING["reading"] if facts.own_workers is None else "waiting for its own workers"
    known = {name: share for name, share in loader.stages.items() if share is not None}
    for name, share in known.items():
        yield name, percent(share), read if name == "reading" else _MEANING.get(name, "")
    rest = 100.0 - sum(known.values())
    if rest >= LEAST_REST_PCT:
        yield "the rest", percent(rest), "not divided further"
    if loader.unsplit_pct is None and loader.cpu_pct is not None:
        yield "of all this", percent(min(100.0, loader.cpu_pct)), "on a CPU"


def _reads(loader: LoaderStats) -> Iterator[tuple[str, str]]:
    """What a sample reads, and the page faults of a batch."""
    if loader.read_chars_bytes_per_sample is not None and loader.read_chars_bytes_per_sample >= LEAST_READ_BYTES:
        text = f"{loader.read_chars_bytes_per_sample / 1e3:.1f} kB"
        if loader.storage_bytes_per_sample is not None:
            text += f", of which {loader.storage_bytes_per_sample / 1e3:.1f} kB from storage"
        yield "a sample reads", text
    if loader.minor_faults_per_batch is not None and (loader.major_faults or _many_faults(loader)):
        text = f"{loader.minor_faults_per_batch:.0f} a batch"
        yield "page faults", f"{text}, {loader.major_faults} with I/O in all" if loader.major_faults else text


def _many_faults(loader: LoaderStats) -> bool:
    return (loader.minor_faults_per_batch or 0) >= MANY_FAULTS


def _transforms(loader: LoaderStats) -> Iterator[Block]:
    costly = sorted(loader.transforms, key=lambda t: -t.ms)
    if not costly:
        return
    rows = []
    for cost in costly[:MOST_SHOWN]:
        part = "" if loader.timed is None else _share(cost.ms / loader.timed.samples, loader)
        rows.append((cost.name, _ms(cost.ms_per_call), part, f"{cost.calls} calls timed"))
    more = costly[MOST_SHOWN:]
    if more and loader.timed is not None:
        name = "1 other" if len(more) == 1 else f"{len(more)} others"
        rows.append((name, "", _share(sum(cost.ms for cost in more) / loader.timed.samples, loader), ""))
    timed, what = loader.timed, "Transforms, per call:"
    if timed is not None:
        what = f"Transforms, per call, and their shares of preparing a sample ({_ms(timed.ms_per_sample)} while timed):"
        rest = max(0.0, timed.ms_per_sample - timed.transforms_ms_per_sample)
        rows.append(("all else", _ms(rest), _share(rest, loader), "loading, decoding, collating"))
    yield Paragraph(what, 1)
    yield table(rows, LEFT, RIGHT, RIGHT, LEFT, indent=2)


def _share(ms_per_sample: float, loader: LoaderStats) -> str:
    timed = loader.timed
    return "" if timed is None or not timed.ms_per_sample else percent(100 * ms_per_sample / timed.ms_per_sample)


def _slow(loader: LoaderStats) -> Iterator[Block]:
    if loader.make_ms_per_sample is None:
        return
    least = max(LEAST_SLOW_MS, SLOW_FACTOR * loader.make_ms_per_sample)
    slow = [sample for sample in loader.slowest if sample.ms > least][:MOST_SHOWN]
    if not slow:
        return
    yield Paragraph("Straggler samples:", 1)
    rows = (
        (_ms(sample.ms), "" if sample.index is None else f"index {sample.index}", sample.file or "") for sample in slow
    )
    yield table(rows, RIGHT, LEFT, LEFT, indent=2)


def _ms(ms: float) -> str:
    if ms < LEAST_SAMPLE_MS:
        return f"{1e3 * ms:.2g} µs"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms"
