"""From what was seen from outside to a verdict, in the words of the contract where the evidence carries them.

Stacks say what the training's thread waited for. Whether the device idled meanwhile they do not: where there is a GPU
its utilisation bounds that, and where that is not known either the verdict says so and is less sure of itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..causes.claim import enough_workers
from ..causes.finding import LEAST_GAIN, MOST_UNNAMED, Evidence, Finding, Next, no_verdict, shown, without_name
from ..predict.advice import MOST_WORKERS
from ..run.loader_stats import BUSY
from ..run.resource_usage import BUDGET_USED
from ..run.window import or_none
from ..statistics import Z95, Estimate
from ..where.places import Where
from ..where.stages import CHEAPER, STAGES
from .attached import Attached
from .stacks import TRAINING, VALIDATION, main_stage
from .trainers import OWN, Trainer, Workers

Figures = tuple[Evidence, ...]
Lines = tuple[Where, ...]
LEAST_LOOKS = 30
MOSTLY = 0.5
QUEUED = 0.25
"""Workers that wait this much of their time for a CPU have too few of them."""
THROTTLED = 0.1
ANEW = 3
"""Different workers, as a multiple of those at a time, from which they are started anew."""
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


def findings_of(seen: Attached) -> tuple[Finding, ...]:
    """What costs the training time, the largest share first."""
    trainer = seen.leading
    if trainer is None or not _enough(seen, trainer):
        return ()
    found = [f for f in _findings(seen, trainer) if f.severity != "none"]
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
    evidence = tuple(_evidence(c, trainer.shares[c]) for c in trainer.shares)
    if _exposed(seen, wait := trainer.share("data wait")) > LEAST_GAIN:
        why = f"the training waits {_pct(wait)} of the time for data, but its workers do not show why"
        return replace(no_verdict(why), evidence=evidence, next=(Next(_RECORD),))
    used = _used(seen)
    device = () if seen.device_kind == "cpu" else ("sync", "copy")
    computing = trainer.share(*TRAINING, *device) if used is None else used
    if 1 - computing > MOST_UNNAMED:
        rest = (each for each in trainer.stacks if each not in TRAINING)
        return without_name(1 - computing, trainer.lines("the time that has no name", *rest), evidence)
    if seen.device_kind == "cpu":
        title = f"Nothing worth changing was seen: the training computes {_pct(computing)} of the time."
        return Finding("none", title, 0.0, 0.8, evidence)
    if used is None:
        title = "No stall was seen in the training's thread. Whether the device keeps up with it is not known."
        return Finding("none", title, 0.0, 0.4, evidence)
    title = f"Nothing worth changing was seen: the GPU runs kernels {_pct(used)} of the time"
    title += "." if used >= WELL_USED else ", and no single wait of the training's thread explains the rest."
    return Finding("none", title, 0.0, 0.7 if used >= WELL_USED else 0.4, (_utilisation(used), *evidence))


def _enough(seen: Attached, trainer: Trainer) -> bool:
    return bool(trainer.shares) and seen.training_seen and trainer.looks >= LEAST_LOOKS


def _not_training(trainer: Trainer) -> str:
    top = max(((share, place) for places in trainer.top.values() for place, share in places), default=(0.0, ""))
    if not top[1]:
        return "no training was seen"
    doing = top[1] if top[1].startswith("importing ") else f"in {top[1]}"
    return f"no training was seen; its thread was mostly {doing} ({_pct(top[0])} of {trainer.looks} stack samples)"


def _findings(seen: Attached, trainer: Trainer) -> Iterator[Finding]:
    own = [*_input(seen, trainer), *_validation(seen, trainer), *_device_path(seen, trainer), *_host(seen, trainer)]
    yield from own
    yield from _ranks(seen, trainer, own)


def _used(seen: Attached) -> float | None:
    """Share of time in which the GPU ran any kernel; `None` on a CPU and where it was not measured."""
    if seen.device_kind == "cpu" or seen.sampled is None:
        return None
    return or_none(seen.sampled.utilisation_pct / 100)


def _exposed(seen: Attached, share: float) -> float:
    """What the device can have lost by it at most."""
    used = _used(seen)
    return share if used is None else min(share, max(0.0, 1 - used))


def _sure(seen: Attached, confidence: float, trainer: Trainer, share: float) -> float:
    """Less sure where the device's idling is not known, and where the share may be below what is worth a change."""
    if seen.device_kind != "cpu" and _used(seen) is None:
        confidence *= UNEXPOSED
    least = LEAST_GAIN / (1 + LEAST_GAIN)
    half = Z95 * math.sqrt(max(0.0, share * (1 - share)) / max(1, trainer.looks))
    return confidence if share - half >= least else confidence * UNEXPOSED


def _finding(
    seen: Attached,
    trainer: Trainer,
    cause: str,
    share: float,
    confidence: float,
    title: str,
    evidence: Figures,
    *changes: str,
    where: Lines = (),
) -> Finding:
    used = _used(seen)
    if used is not None:
        evidence = (*evidence, _utilisation(used))
        title += f" The GPU ran no kernel {_pct(1 - used)} of the time."
    elif seen.device_kind != "cpu":
        title += " Whether the device idled meanwhile is not known."
    exposed = _exposed(seen, share)
    sure = _sure(seen, confidence, trainer, share)
    return Finding(cause, title, exposed, sure, evidence, tuple(Next(change) for change in changes), where=where)


@dataclass(frozen=True)
class _Waiting:
    """Why a thread waits for data: a cause of `input.*` with what shows it, and what to change."""

    cause: str
    confidence: float
    why: str
    evidence: Figures
    change: str
    where: Lines = ()
    more: str = ""
    """A second change; empty where there is none."""


def _input(seen: Attached, trainer: Trainer) -> Iterator[Finding]:
    classes = ("data wait", "data making")
    waiting = _waiting(seen, trainer, trainer.waits, *classes)
    if waiting is not None:
        share = trainer.share(*classes)
        shown = tuple(_evidence(c, trainer.shares[c]) for c in classes if c in trainer.shares)
        title = f"The training spends {_pct(share)} of the time on data: {waiting.why}."
        where = waiting.where or trainer.lines("the time the training spends on data", *classes)
        changes = filter(None, (waiting.change, waiting.more))
        evidence = (*shown, *waiting.evidence)
        yield _finding(seen, trainer, waiting.cause, share, waiting.confidence, title, evidence, *changes, where=where)


def _validation(seen: Attached, trainer: Trainer) -> Iterator[Finding]:
    """Waits for the data of an evaluation: the boundary's, with the loader's own cause in the evidence."""
    classes = tuple(VALIDATION.values())
    if not (share := trainer.share(*classes)):
        return
    title = f"The training spends {_pct(share)} of the time on data for validation"
    evidence = tuple(_evidence(c, trainer.shares[c]) for c in classes if c in trainer.shares)
    where = trainer.lines("the time it spends on data for validation", *classes)
    changes: tuple[str, ...] = ("Validate less often, or on a part of the data",)
    waiting = _waiting(seen, trainer, trainer.validation_waits, *classes)
    if waiting is not None:
        title += f": {waiting.why}"
        evidence = (*evidence, Evidence("Cause of the validation's wait", waiting.cause), *waiting.evidence)
        own = f"For the validation loader: {waiting.change[0].lower()}{waiting.change[1:]}"
        changes, where = (own, *changes), waiting.where or where
    sure = 0.6 if waiting is None else waiting.confidence
    yield _finding(seen, trainer, "host.boundary", share, sure, f"{title}.", evidence, *changes, where=where)


def _waiting(
    seen: Attached, trainer: Trainer, waits: Mapping[str, float], waits_class: str, making_class: str
) -> _Waiting | None:
    """Why its thread waits for data, of the training or of an evaluation; `None` where it does not, or its workers do
    not tell. `waits`: kinds of that waiting."""
    wait, making = trainer.share(waits_class), trainer.share(making_class)
    if wait + making <= 0:
        return None
    budget = or_none(seen.sampled.cpu_budget) if seen.sampled else None
    if making >= wait:
        stage = main_stage(trainer.stages)
        why = f"it prepares batches itself, one after the other{f', mostly {STAGES[stage]}' if stage else ''}"
        most = tuple(Evidence(place, 100 * part, "%") for place, part in trainer.top.get(making_class, ())[:2])
        wanted = _enough_workers(trainer, budget, making, wait)
        return _Waiting("input.serial", 0.9, why, most, f"Set `num_workers={wanted}` to prepare batches meanwhile")
    telling = wait * trainer.looks >= LEAST_LOOKS_OF_WAIT
    restart = waits.get("starting workers", 0.0) + waits.get("ending workers", 0.0)
    mostly, workers = telling and restart >= MOSTLY, trainer.workers
    busy = None if workers is None else _busy(workers)
    if mostly or (workers and busy is not None and busy < BUSY and workers.seen >= ANEW * workers.count):
        more: Figures = (Evidence("Starting and ending workers, share of the wait", 100 * restart, "%", "near 0 %"),)
        more += (Evidence("Different workers", workers.seen, "", f"{workers.count:.0f}"),) if workers else ()
        why = "mostly for starting and ending the loader's workers" if mostly else "its workers are restarted, and idle"
        advice = "Set `persistent_workers=True`, or use longer epochs"
        return _Waiting("input.worker_restart", 0.8 if mostly else 0.4, why, more, advice)
    unpacking = waits.get("unpacking", 0.0)
    if telling and unpacking >= MOSTLY:
        more = (Evidence("Unpacking finished batches, share of the wait", 100 * unpacking, "%", "near 0 %"),)
        advice = "Hand over fewer and larger tensors, and fewer bytes (uint8)"
        return _Waiting("input.handoff", 0.7, "mostly for unpacking finished batches", more, advice)
    if workers is None:
        why = "it waits for a loader that has no worker processes, and whose threads are not told apart"
        return _Waiting("input.too_few_workers", 0.3, why, (), "Use more loader threads or workers, or prefetch more")
    told = _by_workers(seen, workers)
    return told and replace(told, where=workers.lines("the time in which workers prepare batches"))


def _enough_workers(trainer: Trainer, budget: float | None, making: float, wait: float) -> int:
    """Return as many as keep up, no more than the CPUs can run: by shares of the thread's time in place of times of
    batches."""
    most = float(MOST_WORKERS)
    if budget is not None:
        cpu, queued = trainer.cpu, trainer.cpu.queued or 0.0
        running = cpu.running if cpu.main is None else cpu.main
        # At most so much of the making can have been on a CPU, or waited for one.
        of_one = 1.0 if running is None else min(1.0, max(0.01, (running + queued) / making))
        most = min(most, max(1.0, math.floor(budget / of_one)))
    return enough_workers(making, 1 - making - wait, most)


def _by_workers(seen: Attached, workers: Workers) -> _Waiting | None:
    host = seen.sampled
    cpu, budget = workers.cpu, or_none(host.cpu_budget) if host else None
    used = or_none(host.tree_cpus) if host else None
    busy = _busy(workers)
    running, queued, io = cpu.running or 0.0, cpu.queued or 0.0, cpu.io or 0.0
    stage = main_stage(workers.stages)
    measured: Figures = (
        Evidence("Workers at a time", workers.count),
        Evidence("Workers preparing batches", _hundred(workers.busy), "%", f"below {100 * BUSY:.0f} %"),
        Evidence("A worker on a CPU", _hundred(cpu.running), "%"),
        Evidence("A worker waiting for a CPU", _hundred(cpu.queued), "%", "near 0 %"),
        Evidence("A worker waiting for a disk", _hundred(cpu.io), "%", "near 0 %"),
        shown("cpus_used", used),
        shown("cpu_budget", budget),
    )
    number = f"{workers.count:.0f} {'worker is' if round(workers.count) == 1 else 'workers are'}"
    if busy is None:
        return _Waiting("input.too_few_workers", 0.3, "its workers were not measured", measured, "Use more workers")
    reading = workers.stages.get("read", 0.0) + workers.stages.get("open", 0.0)
    if busy >= MOSTLY and (io >= MOSTLY * busy or (reading >= MOSTLY and running + queued < MOSTLY * busy)):
        why = "its workers wait for reads"
        advice = "Read from faster storage, pack the files into shards, or cache them in memory"
        confidence = 0.8 if io >= MOSTLY * busy else 0.7
        more = (*measured, Evidence("Reading, share of preparing batches", 100 * reading, "%", "below 50 %"))
        return _Waiting("input.storage", confidence, why, more, advice)
    if busy < BUSY:  # more of them would have still less to do
        why = f"its workers prepare batches only {_pct(busy)} of the time, so batches come unevenly"
        advice = "Prefetch more batches (raise `prefetch_factor`)"
        return _Waiting("input.prefetch_depth", 0.35, why, measured, advice, more=_RECORD) if busy >= MOSTLY else None
    throttled = None if host is None else host.throttled_s
    if throttled is not None and seen.seconds and throttled >= THROTTLED * seen.seconds:
        more = (*measured, Evidence("Stopped by the CPU quota, summed over CPUs", throttled, "s", "0 s"))
        return _Waiting("input.cpu_quota", 0.7, "a CPU quota stops its workers", more, "Raise the CPU quota")
    full = used is not None and budget is not None and used >= BUDGET_USED * budget
    foreign = seen.foreign_cpus
    if queued >= QUEUED and foreign is not None and used is not None and foreign > used:
        more = (*measured, shown("foreign_cpus", foreign, "fewer than this job uses"))
        advice = "Run it where nothing else runs, or give it CPUs of its own"
        return _Waiting("input.foreign_load", 0.6, "other programs use the CPUs that its workers need", more, advice)
    if full and queued >= QUEUED and budget is not None and workers.count > budget:
        why = f"its {workers.count:.0f} workers take turns on {budget:g} CPUs"
        advice = f"Use at most {math.floor(budget)} workers. {CHEAPER.get(stage, ('Spend less CPU per sample',))[0]}"
        return _Waiting("input.oversubscribed", 0.6, why, measured, advice)
    if full:
        mostly = f", the workers mostly for {STAGES[stage]}" if stage else ""
        why = f"its workers and the training use up the CPUs{mostly}"
        more = tuple(Evidence(f"Preparing batches: {s}", 100 * n, "%") for s, n in workers.stages.items())
        advice = CHEAPER.get(stage, ("Spend less CPU per sample, or add CPUs",))[0]
        return _Waiting("input.cpu_exhausted", 0.75, why, (*measured, *more), advice)
    what = " all the time, mostly waiting (network, locks, sleeps)"
    why = f"{number} busy{what if running + queued + io < MOSTLY * busy else ' all the time, and CPUs are left over'}"
    confidence = 0.75 if used is not None and budget is not None else 0.5
    return _Waiting("input.too_few_workers", confidence, why, measured, f"Set `num_workers` above {workers.count:.0f}")


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
        evidence = tuple(_evidence(c, trainer.shares[c]) for c in OWN if c in trainer.shares)
        evidence = (*evidence, Evidence("The same on the other ranks", 100 * sum(others) / len(others), "%"))
        because = max(own, key=lambda f: f.share, default=None)
        if because is None:
            changes: tuple[str, ...] = (f"Look at what {who} does that the others do not",)
        else:
            changes = tuple(f"On {who} ({because.cause}): {change.change}" for change in because.next)
            known = {item.what for item in evidence}
            evidence = (*evidence, *(item for item in because.evidence if item.what not in known))
        where = () if because is None else because.where
        yield _finding(seen, trainer, "rank.straggler", trainer.own, 0.6, title, evidence, *changes, where=where)
        return
    share = trainer.share("ranks")
    if share <= 0:
        return
    title = f"The training waits {_pct(share)} of the time for other ranks or for its network."
    advice = "Look at the rank that the others wait for; ranks on other machines are not seen from here"
    evidence = (_evidence("ranks", trainer.shares["ranks"]),)
    where = trainer.lines("the time it waits for other ranks", "ranks")
    yield _finding(seen, trainer, "rank.straggler", share, 0.4, title, evidence, advice, where=where)


def _device_path(seen: Attached, trainer: Trainer) -> Iterator[Finding]:
    """What only matters where there is a device with a queue."""
    if seen.device_kind == "cpu":
        return
    used = _used(seen)
    copy, sync = trainer.share("copy"), trainer.share("sync")
    if copy:
        cause = "copy.serial" if trainer.pin_thread else "copy.pageable"
        how = "a thread that pins batches was seen" if trainer.pin_thread else "no thread that pins batches was seen"
        advice = "Copy ahead on a side stream" if trainer.pin_thread else "Set `pin_memory=True`, `non_blocking=True`"
        title = f"The training's thread spends {_pct(copy)} of the time in copies to the device; {how}."
        evidence: tuple[Evidence, ...] = (_evidence("copy", trainer.shares["copy"]),)
        where = trainer.lines("the time it copies to the device", "copy")
        yield _finding(seen, trainer, cause, copy, 0.35, title, evidence, advice, where=where)
    if sync and used is not None and used < WELL_USED:
        title = f"The training's thread waits {_pct(sync)} of the time in calls that wait for the device."
        most = tuple(Evidence(place, 100 * part, "%") for place, part in trainer.top.get("sync", ())[:3])
        evidence = (_evidence("sync", trainer.shares["sync"]), *most)
        where = trainer.lines("the time in calls that wait for the device", "sync")
        advice = "Read values from the device only every few steps, after the next step was launched"
        yield _finding(seen, trainer, "host.sync", sync, 0.5, title, evidence, advice, where=where)
    launching = trainer.share("forward", "backward", "optimizer")
    if used is not None and used < LAUNCH_BOUND and launching >= MOSTLY:
        title = f"The training's thread launches work {_pct(launching)} of the time, and the GPU does not stay busy."
        advice = "Use larger batches, `torch.compile`, or CUDA graphs"
        evidence = (Evidence("Launching forward, backward and optimizer", 100 * launching, "%"),)
        where = trainer.lines("the time it launches work", "forward", "backward", "optimizer")
        yield _finding(seen, trainer, "host.launch", launching, 0.45, title, evidence, advice, where=where)


def _host(seen: Attached, trainer: Trainer) -> Iterator[Finding]:
    shares: tuple[tuple[str, str, float, str, str], ...] = (
        ("checkpoint", "host.boundary", 0.8, "writing checkpoints", "Write checkpoints less often, or asynchronously"),
        ("logging", "host.step_gap", 0.7, "logging", "Log less often"),
        ("compiling", "device.shape_churn", 0.4, "compiling", "Pad to few shapes; compiling at the start ends"),
        ("python", "host.step_gap", 0.5, "other Python code of its loop", "Look at the lines of code above"),
    )
    if seen.device_kind == "cpu":
        reading = "lines that read values out of tensors (logging, metrics), with what they compute"
        shares += (("sync", "host.step_gap", 0.5, reading, "Read and log values less often; see Evidence"),)
    for name, cause, confidence, what, advice in shares:
        share = trainer.share(name)
        if share:
            spent = f"{'in' if name == 'python' else 'on'} {what}"
            title = f"The training's thread spends {_pct(share)} of the time {spent}."
            most = tuple(Evidence(place, 100 * part, "%") for place, part in trainer.top.get(name, ())[:3])
            evidence = (_evidence(name, trainer.shares[name]), *most)
            where = trainer.lines(f"the time {spent}", name)
            yield _finding(seen, trainer, cause, share, confidence, title, evidence, advice, where=where)


def _without_stacks(seen: Attached, trainer: Trainer) -> Finding:
    """What `/proc` alone can tell: little, and only where it is plain."""
    running, workers = trainer.cpu.running, trainer.workers
    busy = None if workers is None else _busy(workers)
    evidence = (
        Evidence("Training process on a CPU", _hundred(running), "%"),
        Evidence("Its workers busy", _hundred(busy), "%"),
        shown("cpus_used", seen.sampled.tree_cpus if seen.sampled else None),
    )
    used = _used(seen)
    idle = running is not None and running < MOSTLY and (seen.device_kind == "cpu" or (used or 1.0) < MOSTLY)
    if idle and busy is not None and busy >= BUSY and running is not None:
        full = seen.sampled is not None and seen.sampled.tree_cpus >= BUDGET_USED * seen.sampled.cpu_budget
        title = f"The training process is idle {_pct(1 - running)} of the time while its workers are busy."
        cause = "input.cpu_exhausted" if full else "input.too_few_workers"
        return Finding(cause, title, _exposed(seen, 1 - running), 0.4, evidence, (Next("Read the stacks: see notes"),))
    return replace(no_verdict("the training's stacks were not read"), evidence=evidence)


def _evidence(name: str, share: Estimate) -> Evidence:
    return Evidence(f"Share of {name} (95 %: {100 * share.low:.0f} to {100 * share.high:.0f})", 100 * share.value, "%")


def _utilisation(used: float) -> Evidence:
    return Evidence("GPU utilisation (NVML)", 100 * used, "%", "above 90 %")


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _pct(value: float) -> str:
    return f"{100 * value:.0f} %"
