"""The report's section on how batches are made."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..analyse.facts import Facts
from ..analyse.loader import Loader

MOST_SHOWN = 5
SLOW_FACTOR = 3
"""Samples are listed as slow from so many times the time of an average one on."""


def section(facts: Facts) -> Iterator[RenderableType]:
    """Nothing where the loader said nothing."""
    loader = facts.loader
    if loader.workers == 0:
        return
    yield Text("Workers", style="bold")
    yield _indent(Text(_who(facts)))
    table = Table.grid(padding=(0, 2))
    for name, share in loader.stages.items():
        if share is not None:
            table.add_row(name, _percent(share), _MEANING.get(name, ""))
    yield _indent(table)
    use = _use(loader)
    if use:
        yield _indent(Text(use))
    reads = _reads(loader)
    if reads:
        yield _indent(Text(reads))
    yield from _transforms(loader)
    yield from _slow(loader)
    yield Text()


_MEANING = {
    "reading": "waiting for reads of files, of the time spent making batches",
    "preparing samples": "decoding, transforming and whatever else making a sample takes",
    "decoding": "of the time spent making batches",
    "transforming": "of the time spent making batches",
    "collating": "putting samples together",
}


def _who(facts: Facts) -> str:
    loader = facts.loader
    if facts.made_in_training:
        text = "batches are made in the training process"
    else:
        what = "1 worker" if loader.workers == 1 else f"{loader.workers} workers"
        busy = "" if loader.worker_busy_pct is None else f", busy {loader.worker_busy_pct:.0f} % of the time"
        text = f"{what}{busy}"
    if loader.queue_ready_mean is not None and loader.queue_capacity:
        text += f"; {loader.queue_ready_mean:.1f} of {loader.queue_capacity} batches ready when asked for"
    if loader.make_ms_per_sample is not None:
        text += f"; a sample takes {_ms(loader.make_ms_per_sample)}"
    if facts.blocked_pct is not None and facts.blocked_pct >= 1:
        text += f"; {facts.blocked_pct:.0f} % of the wait with a later batch finished"
    return text


def _use(loader: Loader) -> str:
    """Computing or waiting, and for what."""
    parts = [
        ("on a CPU", loader.cpu_pct),
        ("waiting for a CPU", loader.run_queue_pct),
        ("waiting otherwise (locks, sleeps, network)", loader.waiting_pct),
    ]
    return ", ".join(f"{name} {share:.0f} %" for name, share in parts if share is not None)


def _reads(loader: Loader) -> str:
    """What a sample reads, and the page faults of a batch."""
    parts = []
    if loader.read_bytes_per_sample is not None:
        text = f"{loader.read_bytes_per_sample / 1e3:.1f} kB read for a sample"
        if loader.storage_bytes_per_sample is not None:
            text += f", {loader.storage_bytes_per_sample / 1e3:.1f} of them from storage"
        parts.append(text)
    if loader.minor_faults_per_batch is not None:
        parts.append(f"{loader.minor_faults_per_batch:.0f} page faults a batch")
    if loader.major_faults:
        parts.append(f"{loader.major_faults} with I/O in all")
    return "; ".join(parts)


def _transforms(loader: Loader) -> Iterator[RenderableType]:
    costly = sorted(loader.transforms, key=lambda t: -t.ms_per_call)[:MOST_SHOWN]
    if not costly:
        return
    table = Table.grid(padding=(0, 2))
    for cost in costly:
        whole = loader.make_ms_per_sample
        share = Text("") if not whole else _percent(100 * cost.ms_per_call / whole)
        table.add_row(Text(cost.name), Text(_ms(cost.ms_per_call), justify="right"), share, f"{cost.calls} calls timed")
    yield _indent(Text("Transforms, a call each:"))
    yield _indent(_indent(table))


def _slow(loader: Loader) -> Iterator[RenderableType]:
    least = SLOW_FACTOR * (loader.make_ms_per_sample or 0.0)
    slow = [sample for sample in loader.slowest if sample.ms >= least][:MOST_SHOWN]
    if not slow or not least:
        return
    table = Table.grid(padding=(0, 2))
    for sample in slow:
        index = "" if sample.index is None else f"index {sample.index}"
        table.add_row(Text(_ms(sample.ms), justify="right"), index, Text(sample.file or ""))
    yield _indent(Text("Slow samples:"))
    yield _indent(_indent(table))


def _ms(ms: float) -> str:
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.2g} ms"


def _percent(value: float) -> Text:
    return Text(f"{value:.1f} %", justify="right")


def _indent(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, 2))
