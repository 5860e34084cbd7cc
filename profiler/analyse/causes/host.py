"""The device waits for the training's own process: synchronising calls, garbage collection, other threads, its loop.

The device idles inside the steps' computation: the host launches kernels more slowly than the device runs them.
"""

from __future__ import annotations

import math

import numpy as np

from ...record.reader import measured
from ..predict.advice import VanishedWork
from ..run.host_gaps import BEFORE_COMPUTING, words_of
from ..where import selection
from ..where.remedies import MAKING
from ..where.selection import WORTH_A_LINE, Lines
from .claim import DONE_NO_MORE, Claim, Piece, as_next, by_replay, cause
from .finding import Evidence, Finding, Next
from .input_batches import left_early
from .pieces import DEVICE, behind_the_host, computing


@cause("host.launch", Piece.LAUNCHES, lines=Lines(selection.launching, mended=False))
def launch(claim: Claim) -> Finding | None:
    """The host launches kernels more slowly than the device runs them; step time hardly depends on the batch size.

    Told from the driver's utilisation where it is far below what the steps span, with the thread busy all the time.
    """
    facts, spans = claim.facts, 100 * claim.facts.parts.share("compute")
    running = None if facts.running is None else 100 * facts.running
    kernels = "Kernels running, by the driver's utilisation"
    thread = "Training thread on a CPU, share of its own time"
    return claim.found(
        f"The device seems to idle {claim.percent()} of the time inside the steps, while "
        "the training's thread is busy all the time: kernels are launched too slowly.",
        0.5,
        (
            Evidence("First to last kernel of the steps, share of the time", spans, "%"),
            Evidence(kernels, facts.sampled.utilisation_pct, "%", f"about {spans:.0f} %"),
            Evidence(thread, running, "%", f"below {100 * DEVICE.running:.0f} %"),
        ),
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
    )


@cause("host.sync", Piece.SYNC, lines=Lines(selection.syncing))
def sync(claim: Claim) -> Finding:
    """Synchronising calls (`.item()`, `.cpu()`, printing tensors) keep the host from queuing work."""
    calls = claim.facts.syncs
    return claim.found(
        f"The device idles {claim.percent()} of the time behind synchronising calls"
        f"{'' if calls is None else f', {calls.words}'}.",
        0.7,
        (
            Evidence("Exposed time in synchronising calls", claim.pct(), "%", "near 0 %"),
            Evidence("Synchronising calls per step", None if calls is None else calls.per_step, "", "0 in most steps"),
            Evidence("Steps with such a call", None if calls is None else f"{calls.steps} of {calls.of}", "", "few"),
            Evidence("Longest idle time behind one", None if calls is None else calls.longest_ns / 1e6, "ms"),
        ),
        claim.removing(
            "Keep losses and metrics on the device (`total += loss.detach()`) and read them every 50th step: each "
            "`.item()`, `.cpu()`, `.tolist()`, `float(tensor)` or print of a tensor waits for all queued work",
            "less_often",
            least=0.3,
            likely=0.9,
        ),
        claim.removing(
            "Copy what has to be read with `.to('cpu', non_blocking=True)` into pinned memory, and read it a step "
            "later",
            likely=0.8,
        ),
    )


@cause("host.gc", Piece.GARBAGE, lines=Lines(selection.collecting))
def garbage(claim: Claim) -> Finding:
    """Python's garbage collector stops the training to go through all its objects."""
    gone = claim.in_the_loop
    return claim.found(
        f"{_loses(claim)} Python's garbage collection.",
        0.85,
        (
            Evidence("Exposed garbage collection", claim.pct(), "%", "0 %"),
            Evidence("Garbage collection per step", claim.ms_a_step, "ms", "near 0 ms"),
        ),
        claim.removing(
            "Call `gc.collect()` less often, or not at all, if the loop or a library it uses calls it",
            "less_often",
            gone=gone,
            likely=0.98,
        ),
        claim.removing(
            "Call `gc.collect(); gc.freeze()` after set-up, so what lives from then on is not scanned again",
            gone=gone,
            likely=0.6,
        ),
        claim.removing(
            "Call `gc.disable()`, and `gc.collect()` every few hundred steps, if collections come by themselves",
            gone=gone,
            likely=0.95,
        ),
    )


@cause("host.gil", Piece.GIL, lines=Lines(selection.threads))
def gil(claim: Claim) -> Finding | None:
    """Other Python threads of the same process hold the global lock (GIL) that the training's thread needs.

    Told where that thread is off the CPU and does not queue for one while the others run.
    """
    facts, seen = claim.facts, claim.facts.gil
    if seen is None:
        return None
    behind, within = behind_the_host(facts)[Piece.GIL], computing(facts)[Piece.GIL]
    pieces = {
        f"{'in' if claim.on_cpu else 'behind'} the loop's own work": behind,
        "between launches within the steps": within,
        # What the claim has beyond its own pieces.
        "for batches that were finished": round(claim.ns - behind - within),
    }
    told = {where: ns for where, ns in pieces.items() if ns > 0}
    told = told if len(told) > 1 else {}
    where = f" ({', '.join(f'{claim.percent(ns)} {where}' for where, ns in told.items())})" if told else ""
    off_cpu = "Training thread not running, share of its own time"
    off_cpu += ", without its waits for a CPU" if seen.queue_known else ""
    # All time vanishes with the other threads in which the training's thread did not run and nothing else is known
    # that it waited for: they take the CPU from its computing, too.
    ran, beside_ns = measured(facts.window.steps["cpu_ns"]), claim.ns
    if claim.on_cpu and not np.isnan(ran).all():
        waited = 0.0 if facts.made_in_training else float(facts.parts.input_ns)
        stepping = facts.parts.wall_ns - facts.parts.boundary_ns
        beside_ns = max(beside_ns, stepping - waited - float(np.nanmean(ran)) * facts.window.count)
    return claim.found(
        f"The {facts.waiter} {'stands still' if claim.on_cpu else 'idles'} {claim.percent()} of the time while the "
        f"training's thread waits for Python's global lock (GIL), which other Python threads of the same process hold"
        f"{where}.",
        0.7 if seen.queue_known else 0.55,
        (
            Evidence("Other Python threads on a CPU, share of one CPU", 100 * seen.others_busy, "%", "near 0 %"),
            Evidence(off_cpu, 100 * seen.off_cpu_share, "%", "near 0 %"),
            Evidence("Waiting for the lock, per step", claim.ms_a_step, "ms", "0 ms"),
            *(
                Evidence(f"Waiting for the lock {where}, share of the time", claim.pct(ns), "%", "0 %")
                for where, ns in told.items()
            ),
        ),
        claim.removing(
            "Move what those threads do (logging, metrics, loading in threads) to another process: "
            "`multiprocessing` instead of `threading`, DataLoader workers instead of threads",
            "not_beside",
            beside_ns,
        ),
        claim.removing(
            "Call `sys.setswitchinterval(0.0005)`, so a thread that runs Python gives up the lock after 0.5 ms",
            likely=0.4,
        ),
    )


@cause(
    "input.main_process",
    Piece.STAGE,
    lines=Lines(selection.staging, MAKING, spared=selection.work_of_the_loop),
)
def main_process(claim: Claim) -> Finding | None:
    """A stage behind the loader works in the training's process: packing, tokenising, augmenting, collating by hand.

    It is the time between a batch's arrival and the model's call, in the loop or in a generator around the loader.
    """
    facts, staging = claim.facts, claim.facts.staging
    if staging is None or left_early(facts):
        # Between the first batch and its computation the iterator before is taken down.
        return None
    workers, movable = facts.set_workers, facts.own_workers is None
    without_ms = (facts.parts.wall_ns - claim.ns) / facts.window.count / 1e6
    begins = (
        f"The training spends {claim.percent()} of the time working"
        if claim.on_cpu
        else f"The device idles {claim.percent()} of the time behind work"
    )
    return claim.found(
        f"{begins} on batches before their forward pass, {words_of(staging.shape)}. It takes {claim.ms_a_step:.2g} ms "
        "per step in the training process.",
        0.8,
        (
            Evidence("From a batch's arrival to its forward pass, per step", claim.ms_a_step, "ms", "near 0 ms"),
            *(Evidence(f"Part of it: {what}", 100 * share, "%") for what, share in staging.named),
            Evidence("Step without it", without_ms, "ms"),
            Evidence("num_workers", workers, "", "1 or more" if workers == 0 and movable else ""),
            *(("worker_busy_pct",) if workers else ()),
            *("cpus_used", "cpu_budget"),
        ),
        *((_moved(claim),) if movable else ()),
        claim.removing(
            "Make that work cheaper: whole batches in NumPy or torch instead of a Python loop over samples, or once "
            f"and kept instead of in every epoch{'' if claim.on_cpu else '; or on the device, after the copy'}",
            "cheaper",
            gone=claim.in_the_loop,
            likely=0.6,
        ),
    )


def _moved(claim: Claim) -> Next:
    """Predict that workers do it, one where there are none: as the replay has it, else as many as there are CPUs, at
    the pace of the training's thread."""
    facts, workers = claim.facts, claim.facts.set_workers
    who = {None: " of a DataLoader with workers", 0: ", with `num_workers=1` or more", 1: ", in the worker"}
    change = (
        f"Do it in the dataset's `__getitem__` or in `collate_fn`{who.get(workers, f', in the {workers} workers')}, "
        f"while the {facts.waiter} computes"
    )
    gone, settings = VanishedWork(loop_ns=claim.ns / facts.window.count, moved=True), None
    if facts.advice is not None and not workers:
        settings = facts.advice.workload.settings.with_workers(1)
    speedup = by_replay(facts, gone, DONE_NO_MORE, settings)
    if speedup is not None:
        return as_next(facts, change, speedup, "in_workers")
    supply, budget = None, facts.sampled.cpu_budget
    if facts.batch_size and budget is not None:
        making_ms = claim.ms_a_step + (facts.loader.work_ms_per_batch or 0.0)
        at_work = min(workers or 1, max(1, math.floor(budget)))
        supply = at_work * facts.batch_size * 1e3 / making_ms * facts.parts.wall_ns / 1e9 / facts.samples
        supply = supply if facts.cpu_limit is None else min(supply, facts.cpu_limit)
    return claim.overlapping(change, "in_workers", supply)


@cause(
    "host.step_gap",
    Piece.LOOP,
    lines=Lines(selection.hosting, worth=WORTH_A_LINE, spared=selection.work_of_the_loop, part="host"),
)
def step_gap(claim: Claim) -> Finding | None:
    """Logging, callbacks or other user code of the loop takes time between the steps: what other causes leave over.

    A stop of more than a second in one step is told as a pause or breakpoint.
    """
    facts, gaps = claim.facts, claim.facts.gaps
    if not facts.told_apart:
        return None
    places = () if gaps is None else gaps.places
    hosts = tuple(Evidence(f"Host time {where}", 100 * part, "%", "near 0 %") for where, part in places)
    named = () if gaps is None else gaps.named
    parts = tuple(Evidence(f"Part of it: {what}", 100 * share, "%") for what, share in named)
    if gaps is not None and gaps.is_a_stop:
        at, longest = "" if gaps.longest_step is None else f" in step {gaps.longest_step}", gaps.longest_ns / 1e9
        return claim.found(
            f"The training stood still once, for {longest:.1f} s{at}: a breakpoint, or a pause of the program.",
            0.6,
            (Evidence("Longest stretch of the host's own work", longest, "s", "well below 1 s"), *parts, *hosts),
            claim.removing("Ignore it if somebody stopped it; otherwise look at what the loop did in that step"),
        )
    where = max(places, key=lambda place: place[1])[0] if places else "there"
    if named:
        change = f"Spend less time on {named[0][0]}: do it less often, or in another process"
    elif where == BEFORE_COMPUTING:
        change = (
            "Move the loop's work on a batch before the model's call (packing, tokenising, augmenting) into the "
            "dataset or its `collate_fn`, where workers do it beside the computation"
        )
    else:
        change = (
            f"Look at what the loop does {where} (logging, metrics, callbacks, progress bars, freeing batches): every "
            '50th step is often enough; `with whyidle.phase("name"):` around a part of it measures that part'
        )
    longest_ms = None if gaps is None else gaps.longest_ns / 1e6
    return claim.found(
        f"{_loses(claim)} work of the training loop outside fetching"
        f"{' and computing' if claim.on_cpu else ', copies and synchronising calls'}"
        f"{'' if gaps is None else f', {gaps.words}'}.",
        0.6,
        (*hosts, *parts, Evidence("Longest stretch", longest_ms, "ms", "near 0 ms")),
        claim.removing(change, "less_often", gone=claim.in_the_loop, likely=0.93),
    )


def _loses(claim: Claim) -> str:
    if claim.on_cpu:
        return f"The training spends {claim.percent()} of the time on"
    return f"The device idles {claim.percent()} of the time behind"
