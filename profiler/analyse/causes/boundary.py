"""Time outside the steps: validation and what it waits for, checkpoints, hooks of the epoch."""

from __future__ import annotations

import math
from dataclasses import replace

from ..predict.advice import MOST_WORKERS
from ..run.facts import Facts
from ..run.host_gaps import Evaluation, Outside
from ..run.loader_stats import BUSY
from ..shares import MOSTLY
from .claim import Claim
from .finding import Evidence, Finding, Next
from .input.epochs import PERSISTENT, persistence, restarts
from .input.wait import MOSTLY_WAITING_PCT

_LACKS = {
    "input.serial": "its loader has no workers",
    "input.worker_restart": "each pass starts its workers anew",
    "input.pipeline_fill": "mostly for the first batch of each pass",
    "input.too_few_workers": "its loader has too few workers",
}
_STARTED_ONCE = "mostly for the one start of its workers"
SURE = 0.9
"""Share of a wait that more workers could end which is expected to go: batches differ."""
LEAST_NAMED = 0.2
"""Share of the time outside the steps that something has to take for a change to it to be named."""
LEAST_ENDING = 0.01
"""Share of the wall time from which ending workers is told: to keep them is a setting, and costs nothing to try."""
LONGEST_ENDING_NS = 1_000_000_000
"""Mean length of an epoch's end up to which ending its workers explains it: they are told to exit and are joined, in
tenths of a second. What takes longer is something of the program's own."""


def boundary(claim: Claim) -> Finding:
    """Time outside the steps."""
    outside = claim.facts.outside
    parts = {} if outside is None else _parts(claim.facts, outside)
    largest = max(parts, key=lambda name: parts[name], default="rest")
    most = largest if parts.get(largest, 0) >= MOSTLY * claim.ns else "rest"
    return claim.found(
        f"{claim.percent()} of the time is spent outside the steps{_mostly(outside, most)}.",
        0.9,
        (
            Evidence("Time outside the steps", claim.pct(), "%"),
            *(_evidence(claim, outside, parts) if outside is not None else ()),
        ),
        _changes(claim, outside, parts, largest),
    )


def _parts(facts: Facts, outside: Outside) -> dict[str, float]:
    """ns of the time outside the steps, each once."""
    whole = float(facts.parts.boundary_ns)
    evaluation = outside.evaluation
    waiting = 0.0 if evaluation is None else min(whole, evaluation.waited_ns)
    evaluating = 0.0 if evaluation is None else min(whole - waiting, evaluation.ns - evaluation.waited_ns)
    saving = min(whole - waiting - evaluating, float(outside.saving_ns))
    left = whole - waiting - evaluating - saving
    ending = min(left, float(outside.epochs_ending_ns)) if _ends_workers(facts, outside) else 0.0
    ending *= ending >= LEAST_ENDING * facts.parts.wall_ns
    return {
        "waiting": waiting,
        "evaluating": evaluating,
        "saving": saving,
        "ending": ending,
        "rest": left - ending,
    }


def _ends_workers(facts: Facts, outside: Outside) -> bool:
    """Whether what nothing else explains at the ends of epochs is the joining of workers that live for one epoch. It
    happens in the fetch that finds the epoch at its end, which belongs to no step."""
    if not restarts(facts) or facts.persistent_workers is not False or not outside.epochs_ended:
        return False
    return outside.epochs_ending_ns <= LONGEST_ENDING_NS * outside.epochs_ended


def _mostly(outside: Outside | None, most: str) -> str:
    evaluation = None if outside is None else outside.evaluation
    if most == "waiting" and evaluation is not None:
        why = _STARTED_ONCE if evaluation.started_once else _LACKS.get(evaluation.cause or "")
        return ", most of it on validation that waits for data" + (f": {why}" if why else "")
    if most == "evaluating":
        return ", most of it on validation that computes"
    if most == "saving":
        return ", most of it on saving checkpoints"
    if most == "ending":
        return ", most of it at the ends of epochs, where workers that live for one epoch are stopped"
    if outside is not None and outside.named and outside.evaluation is None and not outside.saves:
        return f", part of it in {outside.named[0][0]}"
    return ": validation, checkpoints, hooks"


def _evidence(claim: Claim, outside: Outside, parts: dict[str, float]) -> tuple[Evidence, ...]:
    facts = claim.facts
    found = [Evidence("Stretches outside the steps", outside.stretches)]
    found.append(Evidence("Longest of these stretches", outside.longest_ns / 1e9, "s"))
    evaluation = outside.evaluation
    if evaluation is not None:
        found.append(Evidence("Validation that waits for data", claim.pct(parts["waiting"]), "%", "near 0 %"))
        found.append(Evidence("Validation that computes", claim.pct(parts["evaluating"]), "%"))
        found.append(Evidence("Validation passes", evaluation.passes))
        found.append(Evidence("Workers of the validation loader", evaluation.workers, "", "as many as the training's"))
        if evaluation.waits and evaluation.cause is not None:
            found.append(Evidence("Cause of the validation's wait", evaluation.cause))
        if evaluation.busy is not None:
            found.append(Evidence("Validation workers busy", 100 * evaluation.busy, "%", f"below {100 * BUSY:.0f} %"))
    if outside.saves:
        found.append(Evidence("Saving checkpoints", claim.pct(parts["saving"]), "%"))
        found.append(Evidence("Checkpoints saved", outside.saves))
    if parts["ending"]:
        share = claim.pct(parts["ending"])
        found.append(Evidence("Ends of epochs explained by stopping workers", share, "%", "near 0 %"))
        found.append(Evidence("Ends of epochs", outside.epochs_ended))
        found.append(Evidence("Workers stopped at each end", facts.set_workers))
        found.append(persistence(facts))
    found += [Evidence(f"Part of it: {what}", 100 * share, "%") for what, share in _phases(outside)]
    return tuple(found)


def _changes(claim: Claim, outside: Outside | None, parts: dict[str, float], largest: str) -> tuple[Next, ...]:
    if outside is None:
        return (claim.removing("Validate and save less often, or beside the training", kind="less_often"),)
    made = {
        "waiting": _wait(claim, outside, parts["waiting"]),
        "evaluating": _evaluate(claim, parts["waiting"] + parts["evaluating"]),
        "saving": _save(claim, parts["saving"]),
        "ending": _end(claim, parts["ending"]),
        "rest": _rest(claim, parts["rest"]),
    }
    least = {"ending": 1.0, largest: 0.0}
    named = (name for name in parts if parts[name] >= least.get(name, LEAST_NAMED * claim.ns))
    names = sorted(named, key=lambda name: -parts[name])
    if parts["ending"] and "waiting" in names:
        # Smaller batches, say, are worth less than workers that are there.
        names.sort(key=lambda name: name == "waiting")
    if largest == "waiting" and "evaluating" not in names:
        names.append("evaluating")
    if "waiting" in names and made["waiting"].kind == made["evaluating"].kind:
        names.remove("waiting")
    return tuple(made[name] for name in names)


def _wait(claim: Claim, outside: Outside, waiting_ns: float) -> Next:
    evaluation = outside.evaluation
    likely = 0.6
    if evaluation is not None and evaluation.started_once:
        return Next("Record more passes of validation: the one start of its workers then weighs less")
    if evaluation is None or evaluation.cause is None:
        if _as_the_trainings(claim.facts, evaluation):
            return _evaluate(claim, waiting_ns)
        change = "Give the validation loader what the training's has: workers, prefetching, pinned memory"
    elif evaluation.cause in ("input.serial", "input.too_few_workers"):
        now, want = evaluation.workers or 0, _workers(claim.facts, evaluation)
        if want > now:
            change = f"Set `num_workers={want}` for the validation loader, now {now}"
            waiting_ns *= _gone(evaluation, want)
            likely = SURE
        else:
            change = "Make validation samples cheaper (fewer transforms, smaller images), or use a part of the data"
    elif evaluation.cause == "input.worker_restart":
        change = "Set `persistent_workers=True` for the validation loader, and create it only once"
        waiting_ns = min(waiting_ns, evaluation.starting_ns or 0)
        likely = 0.9
    else:
        change = "Use smaller batches for validation, since it waits for each pass's first batch in full"
    return claim.removing(change, waiting_ns, likely=likely, kind="workers")


def _as_the_trainings(facts: Facts, evaluation: Evaluation | None) -> bool:
    """Whether its loader has no fewer workers than the training's, so that there is nothing to give it."""
    if evaluation is None or not evaluation.workers or facts.set_workers is None:
        return False
    return evaluation.workers >= facts.set_workers


def _workers(facts: Facts, evaluation: Evaluation) -> int:
    """Workers to propose: as many as batches have to be under way at a time, busy no more than `BUSY`. No more than
    the CPUs, unless they mostly wait, nor than batches in a pass, nor than are ever proposed."""
    budget, cpu = facts.sampled.cpu_budget, evaluation.cpu_share
    most = MOST_WORKERS
    if budget is not None and (cpu is None or facts.crowded or 100 * (1 - cpu) < MOSTLY_WAITING_PCT):
        most = min(most, math.floor(budget))
    if evaluation.batches is not None:
        most = min(most, math.floor(evaluation.batches))
    making, using = evaluation.making_ns, evaluation.using_ns
    enough = math.ceil(making / using / BUSY) if making is not None and using else most
    return max(1, min(most, max((evaluation.workers or 0) + 1, enough)))


def _gone(evaluation: Evaluation, workers: int) -> float:
    """Share of the waiting that ends when so many workers share the making evenly."""
    making, now, using = evaluation.making_ns, evaluation.workers or 0, evaluation.using_ns
    if not making:
        return 1 - max(1, now) / workers
    left = max(0.0, making / workers - using)
    # Without workers nothing is made beside the validation.
    return 1 - min(1.0, left / max(1.0, making / now - using if now else making))


def _evaluate(claim: Claim, ns: float) -> Next:
    return claim.removing("Validate less often, or on a part of the data", ns, likely=0.8, kind="less_often")


def _save(claim: Claim, ns: float) -> Next:
    return claim.removing(
        "Save less often, or beside the training: use `torch.distributed.checkpoint.async_save`, or copy the state to "
        "host memory and write it in another process",
        ns,
        likely=0.8,
        kind="less_often",
    )


def _end(claim: Claim, ns: float) -> Next:
    change = claim.removing(
        "Set `persistent_workers=True` in a DataLoader that is created once, before the loop over epochs; what remains "
        "of this time is the program's own",
        ns,
        likely=0.7,
        kind="settings",
    )
    return replace(change, settings=PERSISTENT)


def _rest(claim: Claim, ns: float) -> Next:
    return claim.removing(
        "Look at what runs between the steps and at the end of an epoch; "
        '`with whyidle.phase("name"):` around a part of it measures that part',
        ns,
        kind="less_often",
    )


def _phases(outside: Outside) -> tuple[tuple[str, float], ...]:
    return tuple((what, share) for what, share in outside.named if not outside.saves or "phase" in what)
