"""A recording from outside in words: Verdict, Why, Next, Evidence, and what cannot be known from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyse.attached.attached import UNKNOWN, Attached, Cpu, Trainer, Workers
from ...analyse.causes.finding import Evidence, Finding
from ...analyse.statistics import Estimate
from ...record.files import plain
from ..render import bars
from ..words.command import command_line

NOT_MEASURED = "n/a"
LEAST_SHOWN = 0.005
BAR = 20
MOST_OTHERS = 8
MOST_PLACES = 5

_SEVERITY = {"none": "green", "minor": "yellow", "major": "dark_orange", "critical": "bold red"}
_WAITING = {
    "data wait": "waiting for the loader's next batch",
    "data making": "making batches itself",
    "ranks": "waiting for other ranks",
    "optimizer": "optimizer",
    "compiling": "compiling the model",
    "checkpoint": "writing checkpoints",
    "logging": "logging, progress, metrics",
    "python": "other Python code",
}
_ON_CPU = {
    "copy": "lines that move tensors (on a CPU also to another type)",
    "sync": "lines of the loop that read values out of tensors, with what they compute",
    "forward": "computing the forward pass and the loss",
    "backward": "computing the backward pass",
    "optimizer": "computing the optimizer's step",
}
_ON_GPU = {
    "copy": "copying to the device",
    "sync": "waiting for the device: .item(), .cpu(), synchronize()",
    "forward": "launching the forward pass and the loss",
    "backward": "launching the backward pass",
    "optimizer": "launching the optimizer's step",
}


def render(seen: Attached, verdict: Finding, findings: tuple[Finding, ...], console: Console) -> None:
    """Print the report."""
    console.print(Group(*_sections(seen, verdict, findings, bars.is_ascii(console))))


def headline(seen: Attached) -> str:
    """What was observed, for how long."""
    command = command_line(seen.info.get("command"))
    pid = seen.info["attach"].get("pid")
    return _plain(f"process {pid} ({command}), observed from outside for {seen.seconds:.0f} s")


def _sections(
    seen: Attached, verdict: Finding, findings: tuple[Finding, ...], ascii_only: bool
) -> Iterator[RenderableType]:
    yield Text(headline(seen), style="bold")
    yield Text()
    yield from _verdict(verdict)
    for trainer in seen.trainers:
        if trainer.shares:
            yield from _why(seen, trainer, ascii_only)
    yield from further(seen, verdict, findings)


def further(seen: Attached, verdict: Finding, findings: tuple[Finding, ...]) -> Iterator[RenderableType]:
    """What stands below the verdict and the shares of the time."""
    yield from _next(verdict)
    yield from _evidence(verdict)
    others = [f for f in findings if f is not verdict]
    if others:
        yield _heading("Also")
        yield from (_indent(Text(_plain(f"{f.cause}: {f.title}"))) for f in others)
        yield Text()
    yield from _processes(seen)
    yield from _device(seen)
    yield _heading("What cannot be known from outside")
    yield from (_indent(Text(f"- {what}")) for what in UNKNOWN)
    yield _indent(Text("`whyidle run -- python train.py` measures these."))
    if seen.notes:
        yield Text()
        yield _heading("Quality of this measurement")
        yield from (_indent(Text(_plain(f"note: {note}"))) for note in seen.notes)


def _verdict(verdict: Finding) -> Iterator[RenderableType]:
    head = Text("Verdict  ", style="bold")
    head.append(verdict.cause or "none possible", style=_SEVERITY[verdict.severity])
    said = [verdict.severity] if verdict.severity != "none" else []
    if verdict.cause is not None:
        said.append(f"confidence {verdict.confidence:.1f}")
    if said:
        head.append(f"  ({', '.join(said)})")
    yield head
    yield _indent(Text(_plain(verdict.title)))
    yield Text()


def why(seen: Attached, trainer: Trainer) -> str:
    """Of the shares of a process's time: whose they are."""
    who = f"process {trainer.pid}" if trainer.rank is None else f"rank {trainer.rank} (process {trainer.pid})"
    thread = "its main thread" if trainer.main_thread else f"its thread {trainer.thread}"
    about = len(seen.trainers) > 1 and trainer is seen.leading
    return f"Why: what {who} did in {_plain(thread)}{', which the verdict is about' * about}"


def told_shares(seen: Attached, trainer: Trainer) -> list[tuple[str, Estimate, str]]:
    """What its time went into, how much of it, and what that means."""
    meaning = _WAITING | (_ON_CPU if seen.device_kind == "cpu" else _ON_GPU)
    if len(seen.trainers) > 1:
        meaning["backward"] += ", and waiting for the other ranks' gradients"
    kinds = {"data wait": trainer.waits, "data making": trainer.stages}
    return [
        (name, share, meaning[name] + _kinds(kinds.get(name, {})))
        for name, share in trainer.shares.items()
        if share.value >= LEAST_SHOWN
    ]


def top_places(trainer: Trainer) -> list[tuple[float, str, str]]:
    """(share, function and place, what it is) of where it was met most."""
    return sorted(((share, at, name) for name, places in trainer.top.items() for at, share in places), reverse=True)[
        :MOST_PLACES
    ]


def _why(seen: Attached, trainer: Trainer, ascii_only: bool) -> Iterator[RenderableType]:
    yield _heading(why(seen, trainer))
    table = Table.grid(padding=(0, 2))
    for name, share, meaning in told_shares(seen, trainer):
        table.add_row(name, _percent(share.value), Text(_bounds(share), style="dim"), _bar(share.value, ascii_only))
        table.columns[1].justify = "right"
        table.add_row("", "", "", Text(meaning, style="dim"))
    yield _indent(table)
    yield _indent(Text(f"{trainer.looks} looks at its stacks; in brackets the range of 95 % confidence"))
    if top := top_places(trainer):
        yield _indent(Text("mostly at:"))
        lines = Table.grid(padding=(0, 2))
        for part, at, name in top:
            lines.add_row(_percent(part), Text(_plain(at)), Text(name, style="dim"))
        yield _indent(_indent(lines))
    yield Text()


def _kinds(kinds: Mapping[str, float]) -> str:
    shown = [f"{name} {100 * part:.0f} %" for name, part in kinds.items() if part >= 0.05]
    return (
        f": {', '.join(shown)}" if len(shown) > 1 or (shown and next(iter(kinds)) not in ("waiting", "sample")) else ""
    )


def _next(verdict: Finding) -> Iterator[RenderableType]:
    if verdict.next:
        yield _heading("Next")
        yield from (_indent(Text(_plain(change.change))) for change in verdict.next)
        yield Text()


def _evidence(verdict: Finding) -> Iterator[RenderableType]:
    rows = [item for item in verdict.evidence if item.value is not None]
    if not rows:
        return
    yield _heading("Evidence")
    table = Table.grid(padding=(0, 2))
    for item in rows:
        expected = f"(should be {item.expected})" if item.expected else ""
        table.add_row(Text(_plain(item.what)), _value(item), expected)
    yield _indent(table)
    yield Text()


def _processes(seen: Attached) -> Iterator[RenderableType]:
    if not seen.trainers and not seen.others:
        return
    yield _heading("Processes, as the kernel saw them")
    table = Table.grid(padding=(0, 2))
    table.add_row(
        "",
        *(
            Text(t, justify="right")
            for t in ("on a CPU", "waits for a CPU", "disk", "idle", "all threads", "makes batches")
        ),
    )
    for trainer in seen.trainers:
        name = f"process {trainer.pid}" if trainer.rank is None else f"rank {trainer.rank}"
        table.add_row(name, *_states(trainer.cpu), "")
        if trainer.workers is not None:
            workers = trainer.workers
            number = f"{workers.count:.0f} worker{'' if round(workers.count) == 1 else 's'}, each"
            table.add_row(number, *_states(workers.cpu), _percent(workers.busy))
    yield _indent(table)
    yield _indent(Text("of the main thread; all threads: their time on CPUs, summed", style="dim"))
    for trainer in seen.trainers:
        if trainer.workers is not None:
            yield from _workers(trainer, trainer.workers, len(seen.trainers) > 1)
    if seen.others:
        names = [f"{p.pid} ({_cut(p.command or p.name, 40)})" for p in seen.others[:MOST_OTHERS]]
        more = f" and {len(seen.others) - MOST_OTHERS} more" if len(seen.others) > MOST_OTHERS else ""
        yield _indent(Text(_plain(f"beside them: {', '.join(names)}{more}")))
    yield Text()


def _workers(trainer: Trainer, workers: Workers, several: bool) -> Iterator[RenderableType]:
    whose = f" of process {trainer.pid}" if several else ""
    if workers.stages:
        stages = ", ".join(f"{name} {100 * part:.0f} %" for name, part in workers.stages.items())
        yield _indent(Text(f"batches{whose} are made of: {stages}   (sample: the dataset's own code)"))
        for place, part in workers.top[:3]:
            yield _indent(Text(_plain(f"  {100 * part:3.0f} %  {place}")))
    if workers.seen > 1.5 * workers.count:
        yield _indent(Text(f"{workers.seen} different workers{whose}: they are started anew"))
    read = [
        f"{value / 1e6:.1f} MB/s from {where}"
        for value, where in ((workers.read_bytes_per_s, "storage"), (workers.read_chars_per_s, "storage or cache"))
        if value is not None
    ]
    if read:
        yield _indent(Text(f"workers{whose} read {', '.join(read)}"))


def _states(cpu: Cpu) -> tuple[Text, ...]:
    return tuple(_percent(value) for value in (cpu.main, cpu.queued, cpu.io, cpu.idle, cpu.running))


def _device(seen: Attached) -> Iterator[RenderableType]:
    host = seen.sampled
    yield _heading("Device and host")
    table = Table.grid(padding=(0, 2))
    name = (seen.info.get("device") or {}).get("title") or "not known: the process's open files may not be read"
    table.add_row("trains on", Text(_plain(str(name))))
    if seen.device_kind != "cpu":
        used = None if host is None else host.utilisation_pct
        table.add_row(
            "utilisation (NVML)", Text(NOT_MEASURED if used is None else f"{used:.0f} %, any kernel of any program")
        )
        active = None if host is None else host.sm_active_pct
        table.add_row("SM active", Text(NOT_MEASURED if active is None else f"{active:.0f} %, the multiprocessors"))
    if host is not None and host.tree_cpus is not None and host.cpu_budget is not None:
        table.add_row("CPUs in use", f"{host.tree_cpus:.1f} of {host.cpu_budget:g} that this job may use")
    yield _indent(table)
    yield Text()


def _value(item: Evidence) -> str:
    value = item.value
    if value is None or isinstance(value, str):
        return value or NOT_MEASURED
    return (
        f"{value:.0f} {item.unit}".rstrip() if item.unit == "%" or value == int(value) else f"{value:.1f} {item.unit}"
    )


def _percent(value: float | None) -> Text:
    return Text(NOT_MEASURED if value is None else f"{100 * value:.0f} %", justify="right")


def _bounds(share: Estimate) -> str:
    return f"[{100 * share.low:.0f} to {100 * share.high:.0f}]"


def _bar(value: float, ascii_only: bool) -> str:
    return ("#" if ascii_only else "█") * max(1, round(value * BAR))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _plain(text: str) -> str:
    """Names come from another process's memory: no control character reaches the terminal."""
    return str(plain(text)).replace("\n", "?").replace("\t", " ")


def _heading(title: str) -> Text:
    return Text(title, style="bold")


def _indent(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, 2))
