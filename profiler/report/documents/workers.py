"""The report's section on how batches are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyse.run.facts import Facts
from ...analyse.run.loader_stats import WAITING, WAITING_FOR_CPU, Loader

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


def section(facts: Facts, title: str = "Workers") -> Iterator[RenderableType]:
    """Of the loader that the training steps get their batches from. Nothing where it said nothing."""
    loader = facts.loader
    if loader.workers == 0:
        return
    yield Text(title, style="bold")
    yield _indent(_table(_who(facts)))
    sample_ms = loader.make_ms_per_sample
    if facts.parts.share("input") >= LEAST_INPUT and (sample_ms is None or sample_ms >= LEAST_SAMPLE_MS):
        yield _indent(Text("Making batches, of the time spent on it:"))
        yield _indent(_indent(_stages(loader)))
        reads = list(_reads(loader))
        if reads:
            yield _indent(_table(reads))
        yield from _transforms(loader)
        yield from _slow(loader)
    yield Text()


_MEANING = {
    "reading": "waiting for reads of files",
    "preparing samples": "decoding, transforming and whatever else making a sample takes",
    "collating": "putting samples together",
    WAITING_FOR_CPU: "ready to run, but others run",
    WAITING: "locks, sleeps, the network, other threads",
}


def _who(facts: Facts) -> Iterator[tuple[str, str]]:
    loader = facts.loader
    if facts.made_in_training:
        yield "made", "in the training process"
    else:
        busy = "" if loader.worker_busy_pct is None else f", busy {loader.worker_busy_pct:.0f} % of the time"
        yield "workers", f"{loader.workers}{busy}"
    if loader.queue_ready_mean is not None and loader.queue_capacity:
        yield "batches ready", f"{loader.queue_ready_mean:.1f} of {loader.queue_capacity} when asked for"
    if loader.make_ms_per_sample is not None:
        yield "a sample takes", _ms(loader.make_ms_per_sample)
    if facts.blocked_pct is not None and facts.blocked_pct >= 1 and facts.parts.share("input") >= LEAST_INPUT:
        yield "slow batches", f"{facts.blocked_pct:.0f} % of the wait is for one while a later batch is finished"


def _stages(loader: Loader) -> Table:
    """Rows that sum to 100 %."""
    table = Table.grid(padding=(0, 2))
    known = {name: share for name, share in loader.stages.items() if share is not None}
    for name, share in known.items():
        table.add_row(name, _percent(share), _MEANING.get(name, ""))
    rest = 100.0 - sum(known.values())
    if rest >= LEAST_REST_PCT:
        table.add_row("the rest", _percent(rest), "not told apart")
    if loader.unsplit_pct is None and loader.cpu_pct is not None:
        table.add_row("of all that", _percent(min(100.0, loader.cpu_pct)), "on a CPU")
    return table


def _reads(loader: Loader) -> Iterator[tuple[str, str]]:
    """What a sample reads, and the page faults of a batch."""
    if loader.read_bytes_per_sample is not None and loader.read_bytes_per_sample >= LEAST_READ_BYTES:
        text = f"{loader.read_bytes_per_sample / 1e3:.1f} kB"
        if loader.storage_bytes_per_sample is not None:
            text += f", {loader.storage_bytes_per_sample / 1e3:.1f} kB of them from storage"
        yield "a sample reads", text
    if loader.minor_faults_per_batch is not None and (loader.major_faults or _many_faults(loader)):
        text = f"{loader.minor_faults_per_batch:.0f} a batch"
        yield "page faults", f"{text}, {loader.major_faults} with I/O in all" if loader.major_faults else text


def _many_faults(loader: Loader) -> bool:
    return (loader.minor_faults_per_batch or 0) >= MANY_FAULTS


def _transforms(loader: Loader) -> Iterator[RenderableType]:
    costly = sorted(loader.transforms, key=lambda t: -t.ms)
    if not costly:
        return
    table = Table.grid(padding=(0, 2))
    for cost in costly[:MOST_SHOWN]:
        share = "" if loader.timed is None else _share(cost.ms / loader.timed.samples, loader)
        table.add_row(Text(cost.name), Text(_ms(cost.ms_per_call), justify="right"), share, f"{cost.calls} calls timed")
    more = costly[MOST_SHOWN:]
    if more and loader.timed is not None:
        name = "1 other" if len(more) == 1 else f"{len(more)} others"
        table.add_row(name, "", _share(sum(cost.ms for cost in more) / loader.timed.samples, loader), "")
    timed, what = loader.timed, "Transforms, a call each:"
    if timed is not None:
        what = f"Transforms, a call each, and their shares of making a sample ({_ms(timed.ms_per_sample)} while timed):"
        rest = max(0.0, timed.ms_per_sample - timed.transforms_ms_per_sample)
        table.add_row(
            "all else", Text(_ms(rest), justify="right"), _share(rest, loader), "loading, decoding, collating"
        )
    yield _indent(Text(what))
    yield _indent(_indent(table))


def _share(ms_per_sample: float, loader: Loader) -> Text:
    timed = loader.timed
    return Text("") if timed is None or not timed.ms_per_sample else _percent(100 * ms_per_sample / timed.ms_per_sample)


def _slow(loader: Loader) -> Iterator[RenderableType]:
    if loader.make_ms_per_sample is None:
        return
    least = max(LEAST_SLOW_MS, SLOW_FACTOR * loader.make_ms_per_sample)
    slow = [sample for sample in loader.slowest if sample.ms > least][:MOST_SHOWN]
    if not slow:
        return
    table = Table.grid(padding=(0, 2))
    for sample in slow:
        index = "" if sample.index is None else f"index {sample.index}"
        table.add_row(Text(_ms(sample.ms), justify="right"), index, Text(sample.file or ""))
    yield _indent(Text("Slow samples:"))
    yield _indent(_indent(table))


def _table(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for row in rows:
        table.add_row(*row)
    return table


def _ms(ms: float) -> str:
    if ms < LEAST_SAMPLE_MS:
        return f"{1e3 * ms:.2g} µs"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms"


def _percent(value: float) -> Text:
    return Text(f"{value:.1f} %", justify="right")


def _indent(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, 2))
