"""The device waits for the training's own process: synchronising calls, garbage collection, other threads, its loop.

The device idles inside the steps' computation: the host launches kernels more slowly than the device runs them.
"""

from __future__ import annotations

import numpy as np

from ...record.reader import measured
from ..run.facts import Facts
from ..run.host_gaps import BEFORE_COMPUTING
from .claim import Claim, Piece
from .divided import RUNNING, behind_the_host, computing
from .finding import Evidence, Finding


def launch(claim: Claim) -> Finding | None:
    """The driver saw far fewer kernels than the computation spans."""
    facts = claim.facts
    return claim.found(
        f"The device seems to idle {claim.percent()} of the time inside the steps, while "
        "the training's thread is busy all the time: kernels are launched too slowly.",
        0.5,
        (
            Evidence("First to last kernel of the steps, share of the time", 100 * facts.parts.share("compute"), "%"),
            Evidence(
                "Kernels running, by the driver's utilisation",
                facts.sampled.utilisation_pct,
                "%",
                f"about {100 * facts.parts.share('compute'):.0f} %",
            ),
            Evidence(
                "Training thread on a CPU, share of its own time",
                None if facts.running is None else 100 * facts.running,
                "%",
                f"below {100 * RUNNING:.0f} %",
            ),
        ),
        (
            claim.removing(
                'Use `torch.compile(model, mode="reduce-overhead")` or CUDA graphs to launch many kernels at once',
                least=0.2,
                likely=0.7,
            ),
            claim.removing("Use a larger batch: the same number of launches then does more work", likely=0.5),
            claim.removing(
                "Launch fewer small kernels: fused optimizer (`fused=True`), `channels_last`, no loops over tensors",
                likely=0.3,
            ),
        ),
    )


def sync(claim: Claim) -> Finding:
    """Synchronising calls kept the host from queuing work."""
    calls = claim.facts.syncs
    where = "" if calls is None else f", {calls.words}"
    each = None if calls is None else calls.per_step
    hit = None if calls is None else f"{calls.steps} of {calls.of}"
    longest = None if calls is None else calls.longest_ns / 1e6
    return claim.found(
        f"The device idles {claim.percent()} of the time behind synchronising calls{where}.",
        0.7,
        (
            Evidence("Exposed time in synchronising calls", claim.pct(), "%", "near 0 %"),
            Evidence("Synchronising calls per step", each, "", "0 in most steps"),
            Evidence("Steps with such a call", hit, "", "few"),
            Evidence("Longest idle time behind one", longest, "ms"),
        ),
        (
            claim.removing(
                "Keep losses and metrics on the device (`total += loss.detach()`) and read them every 50th step: each "
                "`.item()`, `.cpu()`, `.tolist()`, `float(tensor)` or print of a tensor waits for all queued work",
                least=0.3,
                likely=0.9,
                kind="less_often",
            ),
            claim.removing(
                "Copy what has to be read with `.to('cpu', non_blocking=True)` into pinned memory, and read it a step "
                "later",
                likely=0.8,
            ),
        ),
    )


def garbage(claim: Claim) -> Finding:
    """Python's garbage collection stops the training."""
    return claim.found(
        f"{_loses(claim)} Python's garbage collection.",
        0.85,
        (
            Evidence("Exposed garbage collection", claim.pct(), "%", "0 %"),
            Evidence("Garbage collection per step", claim.ms_a_step, "ms", "near 0 ms"),
        ),
        (
            claim.sparing(
                "Call `gc.collect()` less often, or not at all, if the loop or a library it uses calls it",
                likely=0.98,
                kind="less_often",
            ),
            claim.sparing(
                "Call `gc.collect(); gc.freeze()` after set-up, so what lives from then on is not scanned again",
                likely=0.6,
            ),
            claim.sparing(
                "Call `gc.disable()`, and `gc.collect()` every few hundred steps, if collections come by themselves",
                likely=0.95,
            ),
        ),
    )


def gil(claim: Claim, handed_ns: int = 0) -> Finding | None:
    """Other Python threads of the process hold the lock that the training's thread needs.

    `handed_ns`: part of the claim in which the thread waits so for batches that are finished.
    """
    facts, seen = claim.facts, claim.facts.gil
    if seen is None:
        return None
    own = "in the loop's own work" if facts.device_kind == "cpu" else "behind the loop's own work"
    pieces = {
        own: behind_the_host(facts)[Piece.GIL],
        "between launches within the steps": computing(facts)[Piece.GIL],
        "for batches that were finished": handed_ns,
    }
    told = {where: ns for where, ns in pieces.items() if ns > 0}
    where = f" ({', '.join(f'{claim.percent(ns)} {where}' for where, ns in told.items())})" if len(told) > 1 else ""
    loses = "stands still" if facts.device_kind == "cpu" else "idles"
    return claim.found(
        f"The {facts.waiter} {loses} {claim.percent()} of the time while the training's thread waits for Python's "
        f"global lock (GIL), which other Python threads of the same process hold{where}.",
        0.7 if seen.queue_known else 0.55,
        (
            Evidence("Other Python threads on a CPU, share of one CPU", 100 * seen.others_busy, "%", "near 0 %"),
            Evidence(
                "Training thread not running, share of its own time"
                + (", without its waits for a CPU" if seen.queue_known else ""),
                100 * seen.off_cpu_share,
                "%",
                "near 0 %",
            ),
            Evidence("Waiting for the lock, per step", claim.ms_a_step, "ms", "0 ms"),
            *(
                Evidence(f"Waiting for the lock {where}, share of the time", claim.pct(ns), "%", "0 %")
                for where, ns in (told.items() if len(told) > 1 else ())
            ),
        ),
        (
            claim.removing(
                "Move what those threads do (logging, metrics, loading in threads) to another process: "
                "`multiprocessing` instead of `threading`, DataLoader workers instead of threads",
                _beside_ns(claim),
                kind="not_beside",
            ),
            claim.removing(
                "Call `sys.setswitchinterval(0.0005)`, so a thread that runs Python gives up the lock after 0.5 ms",
                likely=0.4,
            ),
        ),
    )


def _beside_ns(claim: Claim) -> float:
    """What vanishes with the other threads: all time in which the training's thread did not run and nothing else is
    known that it waited for. They take the CPU from its computing, too."""
    facts, steps = claim.facts, claim.facts.window.steps
    ran = measured(steps["cpu_ns"])
    if facts.device_kind != "cpu" or np.isnan(ran).all():
        return claim.ns
    waited = 0.0 if facts.made_in_training else float(facts.parts.input_ns)
    idle = facts.parts.wall_ns - facts.parts.boundary_ns - waited - float(np.nanmean(ran)) * facts.window.count
    return max(claim.ns, idle)


def step_gap(claim: Claim) -> Finding | None:
    """Other work of the training loop between the steps: what the causes above leave over."""
    facts = claim.facts
    if not facts.told_apart:
        return None
    gaps = facts.gaps
    if gaps is not None and gaps.is_a_stop:
        at = "" if gaps.longest_step is None else f" in step {gaps.longest_step}"
        return claim.found(
            f"The training stood still once, for {gaps.longest_ns / 1e9:.1f} s{at}: a breakpoint, or a pause of the "
            "program.",
            0.6,
            (
                Evidence("Longest stretch of the host's own work", gaps.longest_ns / 1e9, "s", "well below 1 s"),
                *_named(facts),
                *_places(facts),
            ),
            (claim.removing("Ignore it if somebody stopped it; otherwise look at what the loop did in that step"),),
        )
    where = "" if gaps is None else f", {gaps.words}"
    return claim.found(
        f"{_loses(claim)} work of the training loop outside fetching"
        f"{' and computing' if facts.device_kind == 'cpu' else ', copies and synchronising calls'}{where}.",
        0.6,
        (
            *_places(facts),
            *_named(facts),
            Evidence("Longest stretch", None if gaps is None else gaps.longest_ns / 1e6, "ms", "near 0 ms"),
        ),
        (claim.sparing(_less_work(facts), likely=0.93, kind="less_often"),),
    )


def _less_work(facts: Facts) -> str:
    gaps = facts.gaps
    if gaps is not None and gaps.named:
        return f"Spend less time on {gaps.named[0][0]}: do it less often, or in another process"
    where = "there" if gaps is None or not gaps.places else max(gaps.places, key=lambda place: place[1])[0]
    if where == BEFORE_COMPUTING:
        return (
            "Move the loop's work on a batch before the model's call (packing, tokenising, augmenting) into the "
            "dataset or its `collate_fn`, where workers do it beside the computation"
        )
    return (
        f"Look at what the loop does {where} (logging, metrics, callbacks, progress bars, freeing batches): every 50th "
        'step is often enough; `with whyidle.phase("name"):` around a part of it measures that part'
    )


def _places(facts: Facts) -> tuple[Evidence, ...]:
    places = () if facts.gaps is None else facts.gaps.places
    return tuple(Evidence(f"Host time {where}", 100 * part, "%", "near 0 %") for where, part in places)


def _named(facts: Facts) -> tuple[Evidence, ...]:
    named = () if facts.gaps is None else facts.gaps.named
    return tuple(Evidence(f"Part of it: {what}", 100 * share, "%") for what, share in named)


def _loses(claim: Claim) -> str:
    if claim.facts.device_kind == "cpu":
        return f"The training spends {claim.percent()} of the time on"
    return f"The device idles {claim.percent()} of the time behind"
