"""The device waits for the training's own process, or for copies; or it computes for longer than necessary.

The process keeps it waiting by synchronising calls, garbage collection, other threads, its loop, slow
launches; it computes longer at new shapes, without memory, at slow clocks, beside other processes.
"""

from __future__ import annotations

import math

import numpy as np

from ...record.reader import measured
from ..predict.predict import VanishedWork
from ..run.device_state import OutlierSteps
from ..run.host_gaps import BEFORE_COMPUTING
from ..run.window import measured_or
from ..shares import MOSTLY
from ..where import selection
from ..where.remedies import MAKING
from ..where.selection import WORTH_A_LINE, Lines, work_of_the_loop
from .claim import DONE_NO_MORE, Claim, Piece, as_next, by_replay, cause
from .finding import Evidence, Next
from .input_batches import left_early
from .pieces import DEVICE, degraded_link, foreign_kernels

# Copies.

FEWER_BYTES = "Copy fewer bytes: uint8 images, normalised on the device (a quarter of float32)"


@cause("copy.link", Piece.LINK, lines=Lines(selection.copying))
def link(claim: Claim) -> None:
    """The PCIe link between host and device runs below what both can do: an older generation, or fewer lanes.

    It is judged at its best while the device works, since an idle link turns itself down.
    """
    facts, seen = claim.facts, degraded_link(claim.facts)
    if seen is None:
        return
    now, most = f"PCIe {seen.generation} x{seen.width}", f"PCIe {seen.most_generation} x{seen.most_width}"
    claim.says(
        f"The device waits {claim.percent(facts.parts.copy_ns)} of the time for copies. Their link runs at {now} "
        f"instead of {most}, which costs {claim.percent()} of the time.",
        0.8,
    )
    claim.shows(
        Evidence("PCIe link, best while sampled", now, "", most),
        Evidence("Bandwidth, share of what device and slot can do", 100 * seen.share, "%", "100 %"),
        *_copies(claim),
    )
    claim.advise(
        "Reseat the card, or move it to a slot with all lanes; check the BIOS's PCIe speed, risers, and what "
        "else shares the lanes (`nvidia-smi -q -d PCIE` shows current and maximum under load)",
        least=0.5,
    )
    claim.advise(FEWER_BYTES, ns=min(claim.ns, 0.75 * facts.parts.copy_ns), likely=0.9)


@cause("copy.pageable", Piece.COPYING, lines=Lines(selection.copying))
def pageable(claim: Claim) -> None:
    """Batches are copied from pageable memory, so the host waits for the device and the device for the copy."""
    if claim.facts.pinned is not False:
        return
    claim.says(f"The device waits {claim.percent()} of the time for copies from pageable memory.", 0.9)
    claim.shows(Evidence("Batches copied from pinned memory", 0.0, "%", "100 %"), *_copies(claim))
    set_it = "Set `pin_memory=True` in the DataLoader"
    if claim.facts.pin_memory:
        set_it = "Add a `pin_memory()` method to the batch's class (`pin_memory=True` is set, but did not pin these "
        set_it += "batches)"
    change = f"{set_it}, and copy with `batch.to(device, non_blocking=True)`"
    claim.advise(change, least=0.3, likely=0.6)
    claim.advise(FEWER_BYTES, ns=0.75 * claim.ns)


@cause("copy.serial", Piece.COPYING, lines=Lines(selection.copying))
def serial_copy(claim: Claim) -> None:
    """Pinned copies run on the computing stream, between the computations instead of during them."""
    if claim.facts.pinned is not True or claim.facts.copied_ahead:
        return
    could = "for copies that could run during its computations"
    claim.says(f"The device waits {claim.percent()} of the time {could}.", 0.8)
    claim.shows(Evidence("Copies ahead on a side stream", "no", "", "yes"), *_copies(claim))
    claim.advise(
        "Copy the next batch while this one computes, on a side stream: "
        "`with torch.cuda.stream(side): batch.to(device, non_blocking=True)`, and "
        "`torch.cuda.current_stream().wait_stream(side)` before it is used",
        least=0.5,
        likely=0.9,
    )
    claim.advise(FEWER_BYTES, ns=0.75 * claim.ns)


def _copies(claim: Claim) -> tuple[str, Evidence]:
    each_ms = claim.facts.parts.copy_ns / claim.facts.window.count / 1e6
    return "mean_batch_bytes", Evidence("Wait for copies per step", each_ms, "ms", "near 0 ms")


# The device's own time.


@cause("device.shape_churn", Piece.SHAPES, lines=Lines(selection.compiling))
def shape_churn(claim: Claim) -> None:
    """New input shapes are tuned for, or compiled: such steps take longer than their size explains."""
    seen = claim.facts.shape_churn
    if seen is None:
        return
    compiles = seen.compiling_ns >= MOSTLY * seen.total_ns
    how = f"at {seen.hit} of {seen.of} steps, the longest {seen.longest_ns / 1e6:.0f} ms"
    title = f"New input shapes cost {claim.percent()} of the time, {how}: libraries tune for each new shape."
    if compiles:
        title = f"Torch's compiler takes {claim.percent()} of the time: it recompiles {how}."
        claim.advise(
            "Use `torch.compile(model, dynamic=True)`, or `torch._dynamo.mark_dynamic(tensor, dim)` for what "
            "varies (`TORCH_LOGS=recompiles` tells why)",
            least=0.3,
            likely=0.8,
        )
    claim.says(title, 0.85 if compiles or (seen.times or 0) >= 3 else 0.7)
    claim.shows(
        Evidence("Steps with new shapes or compilation", f"{seen.hit} of {seen.of}", "", "few"),
        Evidence("Time of such a step over another's", seen.times, "", "1"),
        _usual(seen),
        Evidence("Runs of torch's compiler", seen.count, "", "none after the first steps"),
        Evidence("Time in torch's compiler", claim.pct(seen.compiling_ns), "%", "0 %"),
    )
    claim.advise(
        "Use few shapes instead of many: pad to a multiple (such as 64), or sort samples into buckets of similar "
        "size; set `drop_last=True`, so no last batch is smaller",
        least=0.3,
        likely=0.85,
    )
    if not compiles and not claim.on_cpu:
        claim.advise("Set `torch.backends.cudnn.benchmark = False` while shapes vary", likely=0.7)


@cause("device.memory_pressure", Piece.MEMORY)
def memory_pressure(claim: Claim) -> None:
    """The allocator runs into the limit of the device's memory, frees what it kept, and tries again."""
    seen = claim.facts.memory_pressure
    if seen is None:
        return
    times = f"{seen.count} time{'s' if seen.count != 1 else ''}"
    claim.says(
        f"Device memory runs out, which costs {claim.percent()} of the time: the allocator freed its caches and "
        f"tried again {times}. The longest such step took {seen.longest_ns / 1e6:.0f} ms.",
        0.5 if seen.usual_ns is None else 0.85,
    )
    claim.shows(
        Evidence("Allocator retries", seen.count, "", "0"),
        Evidence("Steps with a retry", f"at most {seen.hit} of {seen.of}", "", "0"),
        _usual(seen),
        "memory_peak_bytes",
    )
    segments = "Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` to lose less memory to fragmentation"
    claim.advise(segments, likely=0.6)
    claim.advise(
        "Use a smaller batch with gradient accumulation, or activation checkpointing "
        "(`torch.utils.checkpoint.checkpoint`)",
        least=0.5,
        likely=0.9,
    )


def _usual(seen: OutlierSteps) -> Evidence:
    return Evidence("Computing time of another step", None if seen.usual_ns is None else seen.usual_ns / 1e6, "ms")


@cause("device.contended", Piece.CONTENDED)
def contended(claim: Claim) -> None:
    """Other processes use the device: their kernels run in time that this training leaves it idle."""
    seen, foreign = claim.facts.sampled, foreign_kernels(claim.facts)
    if foreign is None:
        return
    costs = f"which costs this training about {claim.percent()} of the time"
    claim.says(f"Other processes use the device, {costs}.", 0.6)
    claim.shows(
        Evidence("Processes on the device", seen.gpu_processes, "", "1"),
        Evidence("Utilisation windows of the driver within the steps", foreign.windows),
        Evidence("Kernels running in these windows", 100 * foreign.busy, "%", f"{100 * foreign.own:.0f} %"),
        Evidence("This training computing in these windows", 100 * foreign.own, "%"),
        Evidence("Other processes' kernels in the time it leaves", 100 * foreign.density, "%", "0 %"),
        Evidence("Device memory that other processes hold, at least", seen.others_least_bytes, "bytes"),
    )
    claim.advise(
        "Use a device of its own: end or move the other processes (`nvidia-smi` lists them), "
        "or set `CUDA_VISIBLE_DEVICES` to one that nobody uses",
        least=0.3,
        likely=0.9,
    )


@cause("device.throttled", Piece.THROTTLED)
def throttled(claim: Claim) -> None:
    """Temperature, the hardware's protection or a power cap hold the clocks down.

    A power cap counts only where it takes the clock below 80 % of the highest, or comes and goes.
    """
    state = claim.facts.device_state
    held = None if state is None else state.throttled
    if held is None:
        return
    claim.says(
        f"The device computes at {held.clock_mhz:.0f} instead of {held.full_mhz:.0f} MHz for {100 * held.share:.0f} % "
        f"of the time because of {held.by}, which costs {claim.percent()} of the time.",
        0.75,
    )
    claim.shows(
        Evidence("Clock while held down", held.clock_mhz, "MHz", f"{held.full_mhz:.0f} MHz"),
        Evidence("Samples with clocks held down", 100 * held.share, "%", "0 %"),
        Evidence("Held down by", held.by, "", "nothing"),
    )
    change = (
        "Raise the power limit if the card allows it (`nvidia-smi -q -d POWER`, `nvidia-smi -pl WATTS`)"
        if held.by == "the power cap"
        else "Improve the cooling (fans, airflow, dust, fewer cards side by side); `nvidia-smi -q -d "
        "PERFORMANCE,TEMPERATURE` tells what holds the clocks down"
    )
    claim.advise(change, likely=0.7)


# The training's own process.


@cause("host.launch", Piece.LAUNCHES, lines=Lines(selection.launching, mended=False))
def launch(claim: Claim) -> None:
    """The host launches kernels more slowly than the device runs them; step time hardly depends on the batch size.

    Told from the driver's utilisation where it is far below what the steps span, with the thread busy all the time.
    """
    facts, spans = claim.facts, 100 * claim.facts.parts.share("compute")
    claim.says(
        f"The device seems to idle {claim.percent()} of the time inside the steps, while "
        "the training's thread is busy all the time: kernels are launched too slowly.",
        0.5,
    )
    used, about, below = facts.sampled.utilisation_pct, f"about {spans:.0f} %", f"below {100 * DEVICE.running:.0f} %"
    claim.shows(
        Evidence("First to last kernel of the steps, share of the time", spans, "%"),
        Evidence("Kernels running, by the driver's utilisation", used, "%", about),
        Evidence("Training thread on a CPU, share of its own time", 100 * facts.running, "%", below),
    )
    graphs = 'Use `torch.compile(model, mode="reduce-overhead")` or CUDA graphs to launch many kernels at once'
    claim.advise(graphs, least=0.2, likely=0.7)
    claim.advise("Use a larger batch: the same number of launches then does more work", likely=0.5)
    fewer = "Launch fewer small kernels: fused optimizer (`fused=True`), `channels_last`, no loops over tensors"
    claim.advise(fewer, likely=0.3)


@cause("host.sync", Piece.SYNC, lines=Lines(selection.syncing))
def sync(claim: Claim) -> None:
    """Synchronising calls (`.item()`, `.cpu()`, printing tensors) keep the host from queuing work."""
    facts, calls = claim.facts, claim.facts.syncs
    if calls is None:
        return
    idles, hit = (
        f"The device idles {claim.percent()} of the time behind",
        f"{calls.calling_steps} of {len(facts.window.steps)}",
    )
    claim.says(f"{idles} synchronising calls, {calls.words}.", 0.7)
    claim.shows(
        Evidence("Exposed time in synchronising calls", claim.pct(), "%", "near 0 %"),
        Evidence("Synchronising calls per step", calls.calls_per_step, "", "0 in most steps"),
        Evidence("Steps with such a call", hit, "", "few"),
        Evidence("Longest idle time behind one", calls.longest_ns / 1e6, "ms"),
    )
    claim.advise(
        "Keep losses and metrics on the device (`total += loss.detach()`) and read them every 50th step: each "
        "`.item()`, `.cpu()`, `.tolist()`, `float(tensor)` or print of a tensor waits for all queued work",
        "less_often",
        least=0.3,
        likely=0.9,
    )
    later = "into pinned memory, and read it a step later"
    claim.advise(f"Copy what has to be read with `.to('cpu', non_blocking=True)` {later}", likely=0.8)


@cause("host.gc", Piece.GARBAGE, lines=Lines(selection.collecting))
def garbage(claim: Claim) -> None:
    """Python's garbage collector stops the training to go through all its objects."""
    gone = claim.in_the_loop
    claim.says(f"{_loses(claim)} Python's garbage collection.", 0.85)
    claim.shows(
        Evidence("Exposed garbage collection", claim.pct(), "%", "0 %"),
        Evidence("Garbage collection per step", claim.ms_a_step, "ms", "near 0 ms"),
    )
    less = "Call `gc.collect()` less often, or not at all, if the loop or a library it uses calls it"
    claim.advise(less, "less_often", gone=gone, likely=0.98)
    freeze = "Call `gc.collect(); gc.freeze()` after set-up, so what lives from then on is not scanned again"
    claim.advise(freeze, gone=gone, likely=0.6)
    by_hand = "Call `gc.disable()`, and `gc.collect()` every few hundred steps, if collections come by themselves"
    claim.advise(by_hand, gone=gone, likely=0.95)


@cause("host.gil", Piece.GIL, lines=Lines(selection.threads))
def gil(claim: Claim) -> None:
    """Other Python threads of the same process hold the global lock (GIL) that the training's thread needs.

    Told where that thread is off the CPU and does not queue for one while the others run.
    """
    facts, seen = claim.facts, claim.facts.gil
    if seen is None:
        return
    claim.says(
        f"The {facts.waiter} {'stands still' if claim.on_cpu else 'idles'} {claim.percent()} of the time while the "
        f"training's thread waits for Python's global lock (GIL), which other Python threads of the same process hold.",
        0.7 if seen.queue_known else 0.55,
    )
    without = ", without its waits for a CPU" if seen.queue_known else ""
    off_cpu = f"Training thread not running, share of its own time{without}"
    claim.shows(
        Evidence("Other Python threads on a CPU, share of one CPU", 100 * seen.others_busy, "%", "near 0 %"),
        Evidence(off_cpu, 100 * seen.off_cpu_share, "%", "near 0 %"),
        Evidence("Waiting for the lock, per step", claim.ms_a_step, "ms", "0 ms"),
    )
    # All time vanishes with the other threads in which the training's thread did not run and nothing else is known
    # that it waited for: they take the CPU from its computing, too.
    ran, beside_ns = measured(facts.window.steps["cpu_ns"]), claim.ns
    if claim.on_cpu and not np.isnan(ran).all():
        waited = 0.0 if facts.made_in_training else float(facts.parts.input_ns)
        stepping = facts.parts.wall_ns - facts.parts.boundary_ns
        beside_ns = max(beside_ns, stepping - waited - float(np.nanmean(ran)) * facts.window.count)
    claim.advise(
        "Move what those threads do (logging, metrics, loading in threads) to another process: "
        "`multiprocessing` instead of `threading`, DataLoader workers instead of threads",
        "not_beside",
        beside_ns,
    )
    switch = "so a thread that runs Python gives up the lock after 0.5 ms"
    claim.advise(f"Call `sys.setswitchinterval(0.0005)`, {switch}", likely=0.4)


@cause("input.main_process", Piece.STAGE, lines=Lines(selection.staging, MAKING, spared=work_of_the_loop))
def main_process(claim: Claim) -> None:
    """A stage behind the loader works in the training's process: packing, tokenising, augmenting, collating by hand.

    It is the time between a batch's arrival and the model's call, in the loop or in a generator around the loader.
    """
    facts, staging = claim.facts, claim.facts.staging
    if staging is None or left_early(facts):
        # Between the first batch and its computation the iterator before is taken down.
        return
    workers, movable = facts.set_workers, facts.own_workers is None
    begins = f"The device idles {claim.percent()} of the time behind work"
    if claim.on_cpu:
        begins = f"The training spends {claim.percent()} of the time working"
    takes = f"It takes {claim.ms_a_step:.2g} ms per step in the training process"
    claim.says(f"{begins} on batches before their forward pass, {staging.words}. {takes}.", 0.8)
    claim.shows(
        Evidence("From a batch's arrival to its forward pass, per step", claim.ms_a_step, "ms", "near 0 ms"),
        *(Evidence(f"Part of it: {what}", 100 * share, "%") for what, share in staging.named),
        Evidence("Step without it", (facts.parts.wall_ns - claim.ns) / facts.window.count / 1e6, "ms"),
        Evidence("num_workers", workers, "", "1 or more" if workers == 0 and movable else ""),
        *(("worker_busy_pct",) if workers else ()),
        *("cpus_used", "cpu_budget"),
    )
    if movable:
        claim.advice.append(_moved(claim))
    cheaper = "whole batches in NumPy or torch instead of a Python loop over samples, or once and kept"
    device = "" if claim.on_cpu else "; or on the device, after the copy"
    change = f"Make that work cheaper: {cheaper} instead of in every epoch{device}"
    claim.advise(change, "cheaper", gone=claim.in_the_loop, likely=0.6)


def _moved(claim: Claim) -> Next:
    """Predict that workers do it, one where there are none: as the replay has it, else as many as
    there are CPUs, at the pace of the training's thread."""
    facts, workers = claim.facts, claim.facts.set_workers
    who = {None: " of a DataLoader with workers", 0: ", with `num_workers=1` or more", 1: ", in the worker"}
    here = f"in the dataset's `__getitem__` or in `collate_fn`{who.get(workers, f', in the {workers} workers')}"
    change = f"Do it {here}, while the {facts.waiter} computes"
    gone, settings = VanishedWork(loop_ns=claim.ns / facts.window.count, moved=True), None
    if facts.advice is not None and not workers:
        settings = facts.advice.workload.settings.with_workers(1)
    speedup = by_replay(facts, gone, DONE_NO_MORE, settings)
    if speedup is not None:
        return as_next(facts, change, speedup, "in_workers")
    supply, budget = None, facts.sampled.cpu_budget
    if facts.batch_size and budget == budget:
        making_ms = claim.ms_a_step + measured_or(facts.loader.work_ms_per_batch)
        at_work = min(workers or 1, max(1, math.floor(budget)))
        supply = at_work * facts.batch_size * 1e3 / making_ms * facts.parts.wall_ns / 1e9 / facts.samples
        supply = min(supply, facts.cpu_limit)
    return claim.overlapping(change, "in_workers", supply)


_GAPS = Lines(selection.hosting, worth=WORTH_A_LINE, spared=work_of_the_loop, part="host")


@cause("host.step_gap", Piece.LOOP, lines=_GAPS)
def step_gap(claim: Claim) -> None:
    """Logging, callbacks or other user code of the loop takes time between the steps: what other causes leave over.

    A stop of more than a second in one step is told as a pause or breakpoint.
    """
    facts, gaps = claim.facts, claim.facts.gaps
    if not facts.told_apart:
        return
    places, named = ((), ()) if gaps is None else (gaps.places, gaps.named)
    hosts = [Evidence(f"Host time {where}", 100 * share, "%", "near 0 %") for where, share in places]
    parts = [Evidence(f"Part of it: {what}", 100 * share, "%") for what, share in named]
    if gaps is not None and gaps.is_a_stop:
        at, longest = "" if gaps.longest_step is None else f" in step {gaps.longest_step}", gaps.longest_ns / 1e9
        stop = f"for {longest:.1f} s{at}: a breakpoint, or a pause of the program"
        claim.says(f"The training stood still once, {stop}.", 0.6)
        longest_of_all = Evidence("Longest stretch of the host's own work", longest, "s", "well below 1 s")
        claim.shows(longest_of_all, *parts, *hosts)
        claim.advise("Ignore it if somebody stopped it; otherwise look at what the loop did in that step")
        return
    beside = " and computing" if claim.on_cpu else ", copies and synchronising calls"
    words = "" if gaps is None else f", {gaps.words}"
    claim.says(f"{_loses(claim)} work of the training loop outside fetching{beside}{words}.", 0.6)
    longest_ms = None if gaps is None else gaps.longest_ns / 1e6
    claim.shows(*hosts, *parts, Evidence("Longest stretch", longest_ms, "ms", "near 0 ms"))
    where = max(places, key=lambda place: place[1])[0] if places else "there"
    change = (
        f"Look at what the loop does {where} (logging, metrics, callbacks, progress bars, freeing batches): every 50th "
        'step is often enough; `with whyidle.phase("name"):` around a part of it measures that part'
    )
    if named:
        change = f"Spend less time on {named[0][0]}: do it less often, or in another process"
    elif where == BEFORE_COMPUTING:
        change = (
            "Move the loop's work on a batch before the model's call (packing, tokenising, augmenting) into the "
            "dataset or its `collate_fn`, where workers do it beside the computation"
        )
    claim.advise(change, "less_often", gone=claim.in_the_loop, likely=0.93)


def _loses(claim: Claim) -> str:
    if claim.on_cpu:
        return f"The training spends {claim.percent()} of the time on"
    return f"The device idles {claim.percent()} of the time behind"
