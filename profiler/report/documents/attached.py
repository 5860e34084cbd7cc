"""A recording from outside in words: verdict, what to change, evidence, and what cannot be known from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isnan, nan

from ...analyse.attached.attached import UNKNOWN, Attached
from ...analyse.attached.trainers import Cpu, Trainer, Workers
from ...analyse.causes.finding import Finding
from ...analyse.statistics import Estimate
from ..document import (
    LEFT,
    MOST_BRIEF,
    RIGHT,
    Block,
    Document,
    Heading,
    Length,
    Paragraph,
    Space,
    Title,
    Words,
    brief_actions,
    brief_quality,
    finding_sections,
    line,
    quality_section,
    section,
    table,
    toned,
    verdict_blocks,
)
from ..words.code import command_line
from ..words.figures import NOT_MEASURED, counted, percent, share

LEAST_SHOWN = 0.005
BAR = 20
MOST_OTHERS = 8
MOST_PLACES = 5

_WAITING = {
    "data wait": "waiting for the loader's next batch",
    "data making": "preparing batches itself",
    "validation wait": "waiting for the validation loader's next batch",
    "validation making": "preparing validation batches itself",
    "ranks": "waiting for other ranks",
    "optimizer": "optimizer",
    "compiling": "compiling the model",
    "importing": "importing modules",
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


def attached_document(seen: Attached, verdict: Finding, findings: tuple[Finding, ...]) -> Document:
    """All of it."""
    return Document(tuple(_blocks(seen, verdict, findings)), tuple(_brief(seen, verdict, findings)))


def headline(seen: Attached) -> str:
    """What was observed, for how long."""
    command = command_line(seen.info.get("command"))
    pid = seen.info["attach"].get("pid")
    return f"process {pid} ({command}), observed from outside for {seen.seconds:.0f} s"


def _head(seen: Attached, verdict: Finding) -> Iterator[Block]:
    yield from (Title(headline(seen)), Space(), *verdict_blocks(verdict))


def _brief(seen: Attached, verdict: Finding, findings: tuple[Finding, ...]) -> Iterator[Block]:
    """One screen."""
    yield from _head(seen, verdict)
    trainer = seen.leading
    if trainer is not None and trainer.shares:
        shown = sorted(told_shares(seen, trainer), key=lambda each: -each[1].value)
        parts = (f"{name} {share(part.value, 0)} ({_bounds(part)})" for name, part, _ in shown)
        yield Paragraph(f"{' · '.join(parts)}   ({counted(trainer.looks, 'stack sample')})", 1)
    yield Space()
    if not verdict.where and trainer is not None and (top := top_places(trainer)):
        places = ((share(part, 0), at, name) for part, at, name in top[:MOST_BRIEF])
        yield from section("Most of the time at", table(places, RIGHT, LEFT, LEFT, indent=1))
    yield from brief_actions(verdict, findings, None)
    said = "`whyidle run` also measures time per step and which waits the device notices"
    yield from brief_quality([said], seen.notes, show=verdict.cause is None)


def _blocks(seen: Attached, verdict: Finding, findings: tuple[Finding, ...]) -> Iterator[Block]:
    yield from (*_head(seen, verdict), Space())
    for trainer in seen.trainers:
        if trainer.shares:
            yield from _why(seen, trainer)
    yield from further(seen, verdict, findings)


def further(seen: Attached, verdict: Finding, findings: tuple[Finding, ...]) -> Iterator[Block]:
    """What stands below the verdict and the shares of the time."""
    others = [found for found in findings if found is not verdict]
    # Shares are counts of looks: whole percents.
    evidence = (
        replace(item, value=round(item.value)) if isinstance(item.value, float) and item.unit == "%" else item
        for item in verdict.evidence
        if item.value is not None
    )
    yield from finding_sections(replace(verdict, evidence=tuple(evidence)), others, None)
    yield from _processes(seen)
    yield from _device(seen)
    yield Heading("What cannot be known from outside")
    yield from (Paragraph(f"- {what}", 1) for what in UNKNOWN)
    yield Paragraph("`whyidle run -- python train.py` measures these.", 1)
    if seen.notes:
        yield from (Space(), *quality_section(seen.notes))


def who(trainer: Trainer) -> str:
    """Name a process, by its rank where it has one."""
    return f"process {trainer.pid}" if trainer.rank is None else f"rank {trainer.rank}"


def why(seen: Attached, trainer: Trainer) -> str:
    """Say whose the shares of a process's time are."""
    pid = "" if trainer.rank is None else f" (process {trainer.pid})"
    thread = "its main thread" if trainer.main_thread else f"its thread {trainer.thread}"
    about = len(seen.trainers) > 1 and trainer is seen.leading
    return f"What {who(trainer)}{pid} did in {thread}{', which the verdict is about' * about}"


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


def _why(seen: Attached, trainer: Trainer) -> Iterator[Block]:
    rows: list[tuple[Words, ...]] = [
        (
            *(name, share(part.value, 0), toned(f"[{_bounds(part)}]", "dim")),
            line(Length(max(1, round(part.value * BAR))), (f"\n{meaning}", "dim")),
        )
        for name, part, meaning in told_shares(seen, trainer)
    ]
    yield from (Heading(why(seen, trainer)), table(rows, LEFT, RIGHT, LEFT, LEFT, indent=1))
    yield Paragraph(f"{counted(trainer.looks, 'stack sample')}; in brackets 95 % confidence intervals", 1)
    if top := top_places(trainer):
        yield Paragraph("Most of the time at:", 1)
        places = ((share(part, 0), at, toned(name, "dim")) for part, at, name in top)
        yield table(places, RIGHT, LEFT, LEFT, indent=2)
    yield Space()


def _kinds(kinds: Mapping[str, float]) -> str:
    shown = [f"{name} {100 * part:.0f} %" for name, part in kinds.items() if part >= 0.05]
    tells = len(shown) > 1 or (shown and next(iter(kinds)) not in ("waiting", "sample"))
    return f": {', '.join(shown)}" if tells else ""


def _processes(seen: Attached) -> Iterator[Block]:
    if not seen.trainers and not seen.others:
        return
    yield Heading("Processes, by the kernel's counters")
    rows: list[tuple[str, ...]] = [
        ("", "on a CPU", "waits for a CPU", "disk", "idle", "all threads", "prepares batches")
    ]

    def states(cpu: Cpu) -> list[str]:
        return [share(value, 0) for value in (cpu.main, cpu.queued, cpu.io, cpu.idle, cpu.running)]

    for trainer in seen.trainers:
        rows.append((who(trainer), *states(trainer.cpu), ""))
        if (workers := trainer.workers) is not None:
            number = f"{workers.count:.0f} worker{'' if round(workers.count) == 1 else 's'}, each"
            rows.append((number, *states(workers.cpu), share(workers.busy, 0)))
    yield table(rows, LEFT, *[RIGHT] * 6, indent=1)
    yield Paragraph(toned('main thread; "all threads" sums their time on CPUs', "dim"), 1)
    for trainer in seen.trainers:
        if trainer.workers is not None:
            yield from _workers(trainer.workers, f" of process {trainer.pid}" if len(seen.trainers) > 1 else "")
    if seen.others:
        commands = ((each.pid, each.command or each.name) for each in seen.others[:MOST_OTHERS])
        names = [f"{pid} ({said if len(said) <= 40 else f'{said[:39]}…'})" for pid, said in commands]
        more = f" and {len(seen.others) - MOST_OTHERS} more" if len(seen.others) > MOST_OTHERS else ""
        yield Paragraph(f"other processes: {', '.join(names)}{more}", 1)
    yield Space()


def _workers(workers: Workers, whose: str) -> Iterator[Block]:
    if workers.stages:
        stages = ", ".join(f"{name} {100 * part:.0f} %" for name, part in workers.stages.items())
        yield Paragraph(f"Preparing batches{whose}: {stages}   (sample: the dataset's own code)", 1)
        for place, part in workers.top[:3]:
            yield Paragraph(f"  {100 * part:3.0f} %  {place}", 1)
    if workers.seen > 1.5 * workers.count:
        yield Paragraph(f"{workers.seen} different workers{whose}: they are restarted", 1)
    rates = ((workers.read_bytes_per_s, "storage"), (workers.read_chars_per_s, "storage or cache"))
    if read := [f"{rate / 1e6:.1f} MB/s from {where}" for rate, where in rates if rate is not None]:
        yield Paragraph(f"workers{whose} read {', '.join(read)}", 1)


def _device(seen: Attached) -> Iterator[Block]:
    host = seen.sampled
    name = (seen.info.get("device") or {}).get("title") or "unknown: no permission to read the process's open files"
    rows = [("trains on", str(name))]
    if seen.device_kind != "cpu":
        used, active = (nan, nan) if host is None else (host.utilisation_pct, host.sm_active_pct)
        what = (("utilisation (NVML)", used, "any kernel of any program"), ("SM active", active, "the multiprocessors"))
        rows += [(name, NOT_MEASURED if isnan(of) else f"{percent(of, 0)}, {whose}") for name, of, whose in what]
    if host is not None and host.tree_cpus >= 0 and host.cpu_budget >= 0:
        rows.append(("CPUs in use", f"{host.tree_cpus:.1f} of the {host.cpu_budget:g} that this job may use"))
    yield from section("Device and host", table(rows, indent=1))


def _bounds(share: Estimate) -> str:
    return f"{100 * share.low:.0f}–{100 * share.high:.0f}"
