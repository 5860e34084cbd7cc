"""From what was seen from outside to a verdict.

The wait for data of the training, and of its validation, is judged by the rules of recorded runs, as a window of which
no steps are known (`run/facts.py`). Stacks say what the training's thread waited for. Whether the device idled
meanwhile they do not: where there is a GPU its utilisation bounds that, and where that is not known either the verdict
says so and is less sure of itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..causes.claim import of_validation
from ..causes.diagnosis import cause_of_wait, waits_explained
from ..causes.finding import LEAST_GAIN, MOST_UNNAMED, Evidence, Finding, Next, no_verdict, without_name
from ..run.facts import Facts, window_facts
from ..run.loader_stats import BUSY
from ..run.window import or_none
from ..shares import MOSTLY
from ..statistics import Z95, Estimate
from ..where.stages import Stages, StageShare
from .attached import Attached
from .stacks import TRAINING, VALIDATION
from .trainers import MAKING, OWN, Trainer, Workers

LEAST_LOOKS = 30
ANEW = 3
"""Different workers, as a multiple of those at a time, from which idle ones are waited for because they are started
anew."""
_RECORD = "Record it with `whyidle run`"
WELL_USED = 0.9
"""A GPU that runs kernels this much of the time is not held up."""
LAUNCH_BOUND = 0.7
LEAST_LATE = 0.2
"""A rank that loses this much more of its time than the others holds them up."""
LEAST_LOOKS_OF_WAIT = 20
"""Fewer looks at a wait do not tell its kinds apart, nor do fewer at workers what these do."""
UNEXPOSED = 0.5
"""What is left of the confidence where nothing says whether the device idled."""
_BY_THREAD = ("input.serial", "input.worker_restart", "input.pipeline_fill", "input.handoff")
"""Causes of waits that show on the training's lines, not on those of its workers."""


def findings_of(seen: Attached) -> tuple[Finding, ...]:
    """What costs the training time, the largest share first."""
    trainer = seen.leading
    if trainer is None or not (trainer.shares and seen.training_seen and trainer.looks >= LEAST_LOOKS):
        return ()
    own = [*_input(seen, trainer), *_validation(seen, trainer), *_loop(seen, trainer)]
    found = [each for each in (*own, *_ranks(seen, trainer, own)) if each.severity != "none"]
    # A rank that holds the others up comes before what holds it up.
    return tuple(sorted(found, key=lambda f: (f.share, f.cause == "rank.straggler"), reverse=True))


def verdict_of(seen: Attached, findings: tuple[Finding, ...]) -> Finding:
    """The finding to act on first; `none` where nothing is worth changing; no cause where too little is known."""
    trainer = seen.leading
    if trainer is None:
        return no_verdict("no Python process was seen")
    if not trainer.shares:
        return _without_stacks(seen, trainer)
    if not seen.training_seen:
        return no_verdict(_not_training(trainer))
    if trainer.looks < LEAST_LOOKS:
        return no_verdict(
            f"only {trainer.looks} stack samples of the training were taken; {LEAST_LOOKS} are needed. Record longer"
        )
    if findings:
        return findings[0]
    evidence = _shares(trainer, *trainer.shares)
    if _exposed(seen, wait := trainer.share("data wait")) > LEAST_GAIN:
        why = f"the training waits {_pct(wait)} of the time for data, but its workers do not show why"
        return replace(no_verdict(why), evidence=evidence, next=(Next(_RECORD),))
    used = _used(seen)
    device = () if seen.device_kind == "cpu" else ("sync", "copy")
    computing = trainer.share(*TRAINING, *device) if used is None else used
    if 1 - computing > MOST_UNNAMED:
        rest = (each for each in trainer.shares if each not in TRAINING)
        return without_name(1 - computing, trainer.tally.lines("the time that has no name", *rest), evidence)
    if seen.device_kind == "cpu":
        title = f"Nothing worth changing was seen: the training computes {_pct(computing)} of the time."
        return Finding("none", title, 0.0, 0.8, evidence)
    if used is None:
        title = "No stall was seen in the training's thread. Whether the device keeps up with it is not known."
        return Finding("none", title, 0.0, 0.4, evidence)
    title = f"Nothing worth changing was seen: the GPU runs kernels {_pct(used)} of the time"
    title += "." if used >= WELL_USED else ", and no single wait of the training's thread explains the rest."
    return Finding("none", title, 0.0, 0.7 if used >= WELL_USED else 0.4, (_utilisation(used), *evidence))


def _not_training(trainer: Trainer) -> str:
    top = max(((share, place) for places in trainer.top.values() for place, share in places), default=(0.0, ""))
    if not top[1]:
        return "no training was seen"
    doing = top[1] if top[1].startswith("importing ") else f"in {top[1]}"
    return f"no training was seen; its thread was mostly {doing} ({_pct(top[0])} of {trainer.looks} stack samples)"


def _used(seen: Attached) -> float | None:
    """Share of time in which the GPU ran any kernel; `None` on a CPU and where it was not measured."""
    if seen.device_kind == "cpu" or seen.sampled is None:
        return None
    return or_none(seen.sampled.utilisation_pct / 100)


def _exposed(seen: Attached, share: float) -> float:
    """What the device can have lost by it at most."""
    used = _used(seen)
    return share if used is None else min(share, max(0.0, 1 - used))


def _as_seen(seen: Attached, trainer: Trainer, found: Finding) -> Finding:
    """Return a finding with what is known of the device: it costs no more than the time in which that ran nothing.

    It is less sure where the device's idling is not known, and where the share may be below what is worth a change.
    """
    used, device, evidence, sure, share = _used(seen), "", found.evidence, found.confidence, found.share
    if used is not None:
        evidence, device = (*evidence, _utilisation(used)), f" The GPU ran no kernel {_pct(1 - used)} of the time."
    elif seen.device_kind != "cpu":
        sure, device = sure * UNEXPOSED, " Whether the device idled meanwhile is not known."
    half = Z95 * math.sqrt(max(0.0, share * (1 - share)) / max(1, trainer.looks))
    sure = sure if share - half >= LEAST_GAIN / (1 + LEAST_GAIN) else sure * UNEXPOSED
    exposed = _exposed(seen, share)
    return replace(found, title=found.title + device, share=exposed, confidence=sure, evidence=evidence)


def _input(seen: Attached, trainer: Trainer) -> Iterator[Finding]:
    classes = ("data wait", "data making")
    shares = _shares(trainer, *classes)
    window = _window(seen, trainer, trainer.share("data wait"), trainer.share("data making"), trainer.waits)
    for found in waits_explained(window):
        where = trainer.tally.lines("the time the training spends on data", *classes)
        if trainer.workers is not None and found.cause not in _BY_THREAD:
            where = trainer.workers.tally.lines("the time in which workers prepare batches", MAKING) or where
        changes = tuple(Next(each.change, kind=each.kind) for each in found.next)
        told = replace(found, evidence=(*shares, *_told(found)), next=changes, where=where)
        yield _as_seen(seen, trainer, told)


def _validation(seen: Attached, trainer: Trainer) -> Iterator[Finding]:
    """Waits for the data of an evaluation: the boundary's, with the loader's own cause in the evidence."""
    wait, making = (trainer.share(each) for each in VALIDATION.values())
    if not (share := wait + making):
        return
    title, sure = f"The training spends {_pct(share)} of the time on data for validation", 0.6
    evidence: tuple[Evidence, ...] = _shares(trainer, *VALIDATION.values())
    changes: tuple[Next, ...] = (Next("Validate less often, or on a part of the data"),)
    where = trainer.tally.lines("the time it spends on data for validation", *VALIDATION.values())
    found = cause_of_wait(_window(seen, trainer, wait, making, trainer.validation_waits))
    if found is not None:
        title += f": {found.title.partition(': ')[2].rstrip('.')}"
        evidence = (*evidence, Evidence("Cause of the validation's wait", found.cause), *_told(found))
        changes, sure = (Next(of_validation(found)), *changes), found.confidence
    told = Finding("host.boundary", f"{title}.", share, sure, evidence, changes, where=where)
    yield _as_seen(seen, trainer, told)


def _window(seen: Attached, trainer: Trainer, wait: float, making: float, kinds: Mapping[str, float]) -> Facts:
    """Return what was seen of a wait for data as facts of a window.

    `wait`, `making`: shares of the time in which the thread waits for batches, or makes them; `kinds`: of the waiting.
    """
    wall_ns, workers = 1e9 * max(1.0, seen.seconds), trainer.workers
    waits: dict[str, Any] = {"making_ns": (wait + making) * wall_ns}
    loader: dict[str, Any] = {}
    cpus = (seen.info.get("host") or {}).get("cpus")
    facts: dict[str, Any] = {"made_in_fetch_pct": 0.0, "machine_cpus": cpus if isinstance(cpus, int) else None}
    facts |= {} if seen.sampled is None else {"sampled": seen.sampled}
    if making > 0 and making >= wait:
        facts |= {"set_workers": 0, "made_in_fetch_pct": 100.0, "stages": _stages(trainer.stages, trainer.looks)}
        loader = _making(trainer, making * wall_ns, making)
    elif workers is not None:
        busy, number = _busy(workers), max(1, round(workers.count))
        generations = max(1, round(workers.seen / number))
        facts |= {"set_workers": number, "stages": _stages(workers.stages, workers.looks)}
        loader = {"workers": number, "worker_busy_pct": None if busy is None else 100 * busy}
        loader |= _making(workers, workers.count * busy * wall_ns, busy) if busy else {}
        kinds = kinds if wait * trainer.looks >= LEAST_LOOKS_OF_WAIT else {}
        starting = kinds.get("starting workers", 0.0) + kinds.get("ending workers", 0.0)
        if busy is not None and busy < BUSY and generations >= ANEW:
            starting = 1.0
        handed = min(1 - starting, kinds.get("unpacking", 0.0))
        pieces = {"starting_ns": starting * wait, "handed_ns": handed * wait}
        pieces["making_ns"] = wait + making - sum(pieces.values())
        waits = {name: share * wall_ns for name, share in pieces.items()}
        waits |= {"epochs": generations, "iterators": generations}
    return window_facts(wall_ns, waits, loader, **facts)


def _making(maker: Trainer | Workers, ns: float, busy: float) -> dict[str, float | None]:
    """Return what preparing batches takes: `ns` in all, of each maker such a share of its time, `busy`."""
    cpu = maker.cpu
    main = cpu.running if cpu.main is None else cpu.main
    on_cpu, queued, io, all_threads = (
        None if each is None else 100 * each / busy for each in (main, cpu.queued, cpu.io, cpu.running)
    )
    # What its stacks saw reading is that only as far as it was on no CPU, and waited for none.
    seen_reading = 100 * (maker.stages.get("read", 0.0) + maker.stages.get("open", 0.0))
    reading = max(io or 0.0, min(seen_reading, 100 - (on_cpu or 0.0) - (queued or 0.0)))
    return {
        "work_ms_per_batch": ns / 1e6,
        "cpu_pct": None if on_cpu is None else min(100.0, on_cpu),
        "process_cpu_pct": None if cpu.main is None else all_threads,
        "run_queue_pct": None if queued is None else min(100.0, queued),
        "read_pct": min(100.0, reading),
        "unsplit_pct": max(0.0, 100 - reading),
    }


def _stages(shares: Mapping[str, float], looks: int) -> Stages | None:
    parts = (StageShare(name, "", Estimate(of, of, of), round(of * looks)) for name, of in shares.items())
    return Stages("the time in which batches are prepared", looks, tuple(parts)) if shares else None


def _told(found: Finding) -> tuple[Evidence, ...]:
    """Return the evidence of a window; nothing of steps, batches and samples, which are not seen from outside."""
    return tuple(each for each in found.evidence if each.value is not None and not each.unit.startswith("ms"))


def _busy(workers: Workers) -> float | None:
    """By their stacks, else by their CPU and disk time."""
    if workers.busy is not None and workers.looks >= LEAST_LOOKS_OF_WAIT:
        return workers.busy
    cpu = workers.cpu
    return None if cpu.running is None else min(1.0, cpu.running + (cpu.queued or 0.0) + (cpu.io or 0.0))


def _ranks(seen: Attached, trainer: Trainer, own: list[Finding]) -> Iterator[Finding]:
    others = [t.own for t in seen.trainers if t is not trainer and t.shares]
    late = trainer.own - sum(others) / len(others) if others else 0.0
    if late >= LEAST_LATE:
        who = f"process {trainer.pid}" if trainer.rank is None else f"rank {trainer.rank}"
        title = (
            f"The other ranks wait for {who}. It spends {_pct(trainer.own)} of its time on data, logging and other "
            f"work beside computing, the others spend {_pct(sum(others) / len(others))}."
        )
        same = Evidence("The same on the other ranks", 100 * sum(others) / len(others), "%")
        evidence = (*_shares(trainer, *OWN), same)
        because = max(own, key=lambda f: f.share, default=None)
        changes: tuple[Next, ...] = (Next(f"Look at what {who} does that the others do not"),)
        if because is not None:
            changes = tuple(Next(f"On {who} ({because.cause}): {change.change}") for change in because.next)
            known = {item.what for item in evidence}
            evidence = (*evidence, *(item for item in because.evidence if item.what not in known))
        where = () if because is None else because.where
        found = Finding("rank.straggler", title, trainer.own, 0.6, evidence, changes, where=where)
        yield _as_seen(seen, trainer, found)
        return
    share = trainer.share("ranks")
    if share <= 0:
        return
    title = f"The training waits {_pct(share)} of the time for other ranks or for its network."
    change = (Next("Look at the rank that the others wait for; ranks on other machines are not seen from here"),)
    where = trainer.tally.lines("the time it waits for other ranks", "ranks")
    found = Finding("rank.straggler", title, share, 0.4, _shares(trainer, "ranks"), change, where=where)
    yield _as_seen(seen, trainer, found)


Row = tuple[tuple[str, ...], str, float, str, str]
"""What else a training's thread spends its time on: classes of its stacks, the cause, how sure that is, in words, and
what to change."""
_SYNC, _COPY, _LAUNCHING = ("sync",), ("copy",), ("forward", "backward", "optimizer")

_OF_LOOP: tuple[Row, ...] = (
    (("checkpoint",), "host.boundary", 0.8, "on writing checkpoints", "Write checkpoints less often or asynchronously"),
    (("logging",), "host.step_gap", 0.7, "on logging", "Log less often"),
    (("compiling",), "device.shape_churn", 0.4, "on compiling", "Pad to few shapes; compiling at the start ends"),
    (("python",), "host.step_gap", 0.5, "in other Python code of its loop", "Look at the lines of code above"),
)
_READING = "on lines that read values out of tensors (logging, metrics), with what they compute"
_READS: Row = _SYNC, "host.step_gap", 0.5, _READING, "Read and log values less often; see Evidence"
_RARELY = "Read values from the device only every few steps, after the next step was launched"
_SYNCS: Row = _SYNC, "host.sync", 0.5, "in calls that wait for the device", _RARELY
_PINNED: Row = _COPY, "copy.serial", 0.35, "in copies to the device", "Copy ahead on a side stream"
_PIN = "Set `pin_memory=True`, `non_blocking=True`"
_PAGEABLE: Row = _COPY, "copy.pageable", 0.35, "in copies to the device", _PIN
_TOO_SLOWLY = "on launching work, and the GPU does not stay busy"
_LAUNCHES: Row = _LAUNCHING, "host.launch", 0.45, _TOO_SLOWLY, "Use larger batches, `torch.compile`, or CUDA graphs"


def _loop(seen: Attached, trainer: Trainer) -> Iterator[Finding]:
    used, rows = _used(seen), list(_OF_LOOP)
    if seen.device_kind == "cpu":
        rows.append(_READS)
    else:
        # What only matters where there is a device with a queue.
        rows.append(_PINNED if trainer.pin_thread else _PAGEABLE)
        rows += [_SYNCS] if used is not None and used < WELL_USED else []
        launches = used is not None and used < LAUNCH_BOUND and trainer.share(*_LAUNCHING) >= MOSTLY
        rows += [_LAUNCHES] if launches else []
    for classes, cause, sure, spent, change in rows:
        if not (share := trainer.share(*classes)):
            continue
        title = f"The training's thread spends {_pct(share)} of the time {spent}."
        if classes == _COPY:
            title = f"{title[:-1]}; {'a' if trainer.pin_thread else 'no'} thread that pins batches was seen."
        most = (Evidence(place, 100 * part, "%") for place, part in trainer.top.get(classes[0], ())[:3])
        evidence = (*_shares(trainer, *classes), *(most if len(classes) == 1 else ()))
        where = trainer.tally.lines(f"the time {spent}", *classes)
        yield _as_seen(seen, trainer, Finding(cause, title, share, sure, evidence, (Next(change),), where=where))


def _without_stacks(seen: Attached, trainer: Trainer) -> Finding:
    """Return what `/proc` alone can tell: little, and only where it is plain."""
    running, workers = trainer.cpu.running, trainer.workers
    busy = None if workers is None else _busy(workers)
    figures = (("Training process on a CPU", running), ("Its workers busy", busy))
    evidence = tuple(Evidence(what, None if of is None else 100 * of, "%") for what, of in figures)
    idle = running is not None and running < MOSTLY and (seen.device_kind == "cpu" or (_used(seen) or 1.0) < MOSTLY)
    if running is not None and idle and busy is not None and busy >= BUSY:
        for found in waits_explained(_window(seen, trainer, 1 - running, 0.0, {})):
            title = f"The training process is idle {_pct(1 - running)} of the time while its workers are busy."
            told = (*evidence, *_told(found))
            return Finding(
                found.cause, title, _exposed(seen, 1 - running), 0.4, told, (Next("Read the stacks: see notes"),)
            )
    return replace(no_verdict("the training's stacks were not read"), evidence=evidence)


def _shares(trainer: Trainer, *classes: str) -> tuple[Evidence, ...]:
    """Return how much of the time its thread was seen doing this."""
    told = ((each, trainer.shares[each]) for each in classes if each in trainer.shares)
    return tuple(
        Evidence(f"Share of {name} (95 %: {100 * of.low:.0f} to {100 * of.high:.0f})", 100 * of.value, "%")
        for name, of in told
    )


def _utilisation(used: float) -> Evidence:
    return Evidence("GPU utilisation (NVML)", 100 * used, "%", "above 90 %")


def _pct(value: float) -> str:
    return f"{100 * value:.0f} %"
