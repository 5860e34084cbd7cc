"""Batches come late one by one: at the beginnings of epochs, on their way, unevenly, or made for nothing."""

from __future__ import annotations

from dataclasses import replace

from ...record.schema import MemoryLimitOf
from ..predict.predict import Assumed, VanishedWork
from ..run.exposed_data_wait import Spread
from ..run.facts import Facts
from ..run.loader_stats import BUSY, HandedOver
from ..run.window import measured_or
from ..shares import MOSTLY
from ..statistics import Speedup
from ..where import selection
from ..where.remedies import MAKING
from ..where.selection import NOT_MENDED, PREPARING, Lines
from .claim import (
    LEAST_OF_GAIN,
    SUPPLY,
    Piece,
    Vanishing,
    as_next,
    by_parts,
    by_replay,
    cause,
)
from .finding import Evidence, Next
from .pieces import restarts
from .wait import INPUT, Wait, is_pickled, prefetching

PERSISTENT = {"persistent_workers": True}
KEEP_WORKERS = "Set `persistent_workers=True` in a DataLoader that is created once, before the loop over epochs"


def _drawing(facts: Facts, each_ns: float) -> VanishedWork | None:
    """`Lines.spared` of the sampler; where epochs begin there is none, since a replay of their middle has not that."""
    if facts.sampling is not None and facts.sampling.of_epochs(each_ns * facts.window.count):
        return None
    return VanishedWork(drawing_ns=each_ns)


@cause("input.sampler", Piece.SAMPLING, lines=Lines(selection.sampling, MAKING, spared=_drawing))
def sampler(wait: Wait) -> None:
    """The sampler or batch sampler takes the time: the training's own process draws the indices, and waits.

    It does so within the fetches, however many workers there are; where they are busy all the time it holds nothing up.
    """
    facts, sampling, waits, workers = wait.facts, wait.facts.sampling, wait.facts.waits, wait.facts.set_workers
    if sampling is None or sampling.ns <= 0:
        return
    of_epochs = sampling.of_epochs(wait.ns)
    epoch_ms = sampling.first_ns / max(1, waits.epochs) / 1e6
    # First batches of epochs are drawn among much else.
    step_ms = (sampling.ns - sampling.first_ns) / max(1, facts.window.count - waits.epochs) / 1e6
    if of_epochs:
        what = f"takes {epoch_ms:.0f} ms to begin each epoch"
        wait.advise(
            "Keep what the sampler reads or computes in `__iter__` (lengths, labels, weights, groups) in NumPy arrays, "
            "made once in `__init__` or read from a file; draw one batch at a time instead of a list of all batches "
            "before the first",
            "once",
            likely=0.9,
        )
        longer = "Use longer epochs: several passes over the data as one, in a sampler that repeats"
        wait.advise(longer, "once", likely=0.5)
    else:
        what = f"takes {step_ms:.2g} ms per step to draw the indices of a batch"
        arrays = (
            "Keep what the sampler sorts or searches by (lengths, labels, weights) in NumPy arrays that are made once, "
            "and draw many batches at a time with array functions (`argsort`, `searchsorted`, `permutation`)"
        )
        ahead = (
            "Choose the batches of an epoch beforehand and yield them from a list; where each depends on the one "
            "before, draw them in a thread or process ahead of the training"
        )
        # Behind the device it takes time, too, which is in its way once the device no longer waits.
        gone, limit, most = VanishedWork(drawing_ns=sampling.each_ns), wait.loader.samples_per_s_limit, None
        if workers and limit == limit and facts.samples_known:
            most = limit / facts.samples_per_s
        wait.advise(arrays, "once", gone=gone, likely=0.95, most=most)
        wait.advise(ahead, "once", gone=gone, likely=0.8, most=most)
    however = ", however many workers there are" if workers else ""
    runs = f"It runs in the training process{however}"
    wait.says(f"{wait.begins}: the dataset sampler {what}. {runs}.", 0.95)
    a_step = f"Wait for the sampler {'at other steps' if of_epochs else 'per step'}"
    wait.shows(Evidence(a_step, step_ms, "ms", "near 0 ms"))
    if waits.epochs:
        wait.shows(Evidence("Wait for the sampler at the start of an epoch", epoch_ms, "ms", "near 0 ms"), "epochs")
    wait.shows(
        Evidence("Drawing the indices of a batch", sampling.draw_ms, "ms", "below 0.1 ms"),
        Evidence("Indices drawn at a time", sampling.drawn),
        Evidence("num_workers", workers),
        *wait.pace,
    )


# The beginnings of epochs.


PERSISTENCE = {True: "on", False: "off", None: None}
"""Whether workers outlive an epoch, as it is set → in a word; `None`: not known."""


def left_early(facts: Facts) -> bool:
    """Return whether the loop goes on to another iterator after so few batches that most of what
    was made ahead is lost."""
    waits = facts.waits
    return waits.batches_per_epoch < 2 * (facts.set_workers or 0) and waits.left_early >= MOSTLY


def _leaving(wait: Wait) -> tuple[str, tuple[Evidence, ...]]:
    """Return (the rest of a sentence about epochs, evidence), and advise what is to be done first, where the loop
    leaves its iterators early; nothing where it does not."""
    facts, waits, staging = wait.facts, wait.facts.waits, wait.facts.staging
    batches = waits.batches_per_epoch
    if not left_early(facts):
        return "", ()
    # Each iterator that is left is also waited for: its workers end before the loop goes on.
    removed_ns = waits.starting_ns + waits.filling_ns + (staging.ns if staging is not None else 0)
    wait.advise(
        "Keep one iterator: call `batches = iter(loader)` before the loop and `next(batches)` in it, and renew it when "
        "it is used up; or write `for batch in loader:`",
        "once",
        max(removed_ns, round(wait.ns)),
        least=0.8,
        likely=0.95,
    )
    only = f"only {batches:.2g} batch{'es' * (round(batches) != 1)}"
    left = Evidence("Iterators left while workers prepared more batches", 100 * waits.left_early, "%", "near 0 %")
    return f"; the loop takes {only} of each and starts over", (left,)


@cause("input.worker_restart", Piece.STARTING, lines=Lines(selection.starting_workers, mended=False))
def worker_restart(wait: Wait) -> None:
    """Workers are started anew for each epoch (fork, or a new Python that imports and unpickles), and waited for."""
    facts, waits, advice = wait.facts, wait.facts.waits, wait.facts.advice
    if not restarts(facts):
        return
    each_ms, (leaving, left) = wait.ns / waits.epochs / 1e6, _leaving(wait)
    who = "a worker" if facts.set_workers == 1 else f"{facts.set_workers} workers"
    costs = f"which costs {each_ms:.0f} ms per epoch{leaving}"
    anew = "as a new Python, which imports the program and unpickles the dataset"
    wait.says(f"{wait.begins}: each epoch starts {who} anew, {costs}.", 0.9 if waits.starting_ns else 0.6)
    wait.shows(
        Evidence("Start of an epoch until a worker begins a batch", each_ms, "ms", "near 0 ms"),
        "epochs",
        Evidence("Iterators of the loader in these epochs", waits.iterators, "", "1"),
        *(*left, Evidence("persistent_workers", PERSISTENCE[facts.persistent_workers], "", "on")),
        Evidence("How workers start", {None: None, True: anew, False: "as a fork"}[facts.starts_python]),
    )
    # Workers that live on make the first batches of an epoch all the same.
    now = None if advice is None else advice.workload.settings
    said = wait.predicted(
        lambda settings: settings.persistent_workers and replace(settings, persistent_workers=False) == now,
        persistent=True,
    )
    change = KEEP_WORKERS
    if facts.persistent_workers:
        said = None
        change = "Create the DataLoader once, before the loop over epochs, since its `persistent_workers` end with it"
    wait.advice.append(wait.setting(change, "settings", said, least=0.4, likely=0.75, settings=PERSISTENT))
    if facts.starts_python:
        wait.advise(
            'Set `multiprocessing_context="fork"`, where nothing in the program forbids it; or use a smaller dataset '
            "object, and imports within functions"
        )


@cause("input.pipeline_fill", Piece.FILLING, lines=NOT_MENDED)
def pipeline_fill(wait: Wait) -> None:
    """Each epoch waits for its first batch while it is made, however many workers there are; or it
    has fewer batches than workers."""
    facts, batches, workers = wait.facts, wait.facts.waits.batches_per_epoch, wait.facts.set_workers
    each_ms, (leaving, left) = wait.ns / max(1, facts.waits.epochs) / 1e6, _leaving(wait)
    few = workers is not None and batches < workers and not left_early(facts)
    fewer = ", and an epoch has fewer batches than there are workers" if few else ""
    wait.says(f"{wait.begins}: the first batch of each epoch costs {each_ms:.0f} ms extra{leaving}{fewer}.", 0.8)
    wait.shows(
        Evidence("Extra cost of an epoch's first batch", each_ms, "ms", "near 0 ms"),
        Evidence("Preparing a batch", wait.loader.work_ms_per_batch, "ms"),
        Evidence("Batches in an epoch", batches, "", "many times the workers"),
        Evidence("Workers", workers),
        "epochs",
        *(*left, Evidence("persistent_workers", PERSISTENCE[facts.persistent_workers])),
    )
    took = f"{each_ms:.0f} ms" if each_ms >= 1 else f"{each_ms:.1f} ms"
    longer = "longer epochs (a sampler that repeats several passes as one), or smaller batches, which are ready sooner"
    changes = [f"Use {longer}"]
    if not workers:
        changes = [f"Use longer epochs, or open the data before they begin (each first batch costs {took} more)"]
    else:
        if few:
            each = f"so each of the {workers} workers has one (fewer workers wait as long)"
            changes.insert(0, f"Use smaller batches, {each}")
        if not facts.persistent_workers:
            keep = f"Set `persistent_workers=True` to keep workers from epoch to epoch ({took})"
            wait.advise(keep, "settings", least=0.2, likely=0.8, settings=PERSISTENT)
    for change in changes:
        wait.advise(change, "settings", least=0.2, likely=0.8)


# Batches that differ.


@cause("input.straggler", Piece.SLOW, lines=PREPARING)
def straggler(wait: Wait) -> None:
    """Single slow samples hold up later batches that are finished, in a loader that has time to spare."""
    facts, loader, workers = wait.facts, wait.loader, wait.facts.set_workers
    if facts.out_of_order:
        return
    slowest = loader.slowest[0] if loader.slowest else None
    index = None if slowest is None or slowest.index is None else f"index {slowest.index}"
    wait.says(f"{wait.begins}: straggler samples hold up later, finished batches.", 0.85)
    wait.shows(
        Evidence("Wait while a later batch was finished", facts.blocked_pct, "% of the exposed wait", "near 0 %"),
        "slow_times",
        wait.figure("worker_busy_pct", ""),
        Evidence("Slowest sample", slowest.ms if slowest else None, "ms"),
        Evidence("Preparing one sample", loader.make_ms_per_sample, "ms"),
        Evidence("File or index of the slowest sample", None if slowest is None else slowest.file or index),
    )
    any_order = "Set `in_order=False` (torch 2.6 or later) to hand over batches as they come"
    said = wait.predicted(lambda settings: settings.num_workers == workers, in_order=False)
    wait.advice.append(wait.setting(any_order, "settings", said, likely=0.8, settings={"in_order": False}))
    wait.advise("Make the slow samples cheaper, or prepare them once and keep the result", "cheaper")


@cause("input.prefetch_depth", *SUPPLY, lines=PREPARING)
def uneven(wait: Wait) -> None:
    """The loader keeps up on average, and yet is waited for: batches differ more than what lies ready makes up for."""
    loader, facts, workers, ahead = wait.loader, wait.facts, wait.facts.set_workers, wait.facts.set_prefetch
    varied = wait["slow_times"] >= INPUT.varied_times and not wait.workers_busy and loader.workers > 0
    spread = facts.waits.shape.spread in (Spread.SINGLE, Spread.IRREGULAR, Spread.PERIODIC)
    # The workers deliver, on average, what the training takes without waiting.
    supplies = wait["samples_per_s_limit"] >= facts.samples_per_s_without(facts.parts.input_ns)
    half_busy = wait.without_steps and 100 * MOSTLY <= wait["worker_busy_pct"] < 100 * BUSY
    if not wait.keeps_up and not (varied and spread and supplies) and not half_busy:
        return
    says = f"{wait.begins}, although the loader keeps up on average: batches come unevenly."
    wait.says(says, 0.6 if varied else 0.4)
    wait.shows(
        wait.figure("queue_ready_mean", f"1 or more of {loader.queue_capacity}"),
        wait.figure("worker_busy_pct", ""),
        wait.figure("slow_times", ""),
        wait.figure("handoff_pct", ""),
        "samples_per_s_limit",
        wait.figure("run_queue_pct", ""),
    )
    if ahead is None:
        wait.advice.append(wait.overlapping("Prefetch more batches", "settings"))
        return
    said = wait.predicted(lambda s: s.num_workers == workers and (s.prefetch_factor or 0) > ahead)
    deeper = 2 * ahead if said is None else said.settings.prefetch_factor
    change = prefetching(deeper, ahead)
    wait.advice.append(
        wait.overlapping(change, "settings", settings={"prefetch_factor": deeper})
        if said is None
        else wait.as_predicted(change, "settings", said)
    )


# Hand-over.


@cause("input.overkill", *SUPPLY, Piece.HANDED, lines=Lines(selection.handing, mended=False))
def overkill(wait: Wait) -> None:
    """Workers cost more than they save: tiny samples would be made faster in the training than they are handed over."""
    loader, facts, held = wait.loader, wait.facts, wait.facts.handed
    sample_ms, work_ms, nbytes = loader.make_ms_per_sample, loader.work_ms_per_batch, loader.mean_batch_bytes
    if not facts.set_workers or wait.starved or not sample_ms <= INPUT.tiny_sample_ms or not work_ms >= 0:
        return
    waited_ms, here_ms = wait.ms_a_step, work_ms * (100 - measured_or(loader.run_queue_pct)) / 100
    # Handed over in one piece they are worth a worker.
    pieces = here_ms > INPUT.handover_ms and held is not None and _in_pieces(held)
    if pieces or nbytes > INPUT.large_batch_bytes:
        return
    if here_ms > INPUT.worth_making_here * waited_ms:
        return
    saved = round((waited_ms - here_ms) * 1e6 * facts.window.count)
    costs = f"a worker prepares a batch in {here_ms:.2f} ms, but waiting for it costs {waited_ms:.2f} ms per step"
    # The batches still have to be made.
    wait.says(f"{wait.begins}: {costs}.", 0.8, most_gain=saved / (facts.parts.wall_ns - saved))
    wait.shows(
        Evidence("Preparing one sample", 1e3 * sample_ms, "µs", f"above {1e3 * INPUT.tiny_sample_ms:.0f} µs"),
        Evidence("Preparing a batch", here_ms, "ms"),
        Evidence("Waiting for a batch", waited_ms, "ms per step", "less than preparing it"),
        wait.figure("handoff_pct", ""),
        "mean_batch_bytes",
    )
    none, said = {"num_workers": 0}, wait.predicted(lambda each: each.num_workers == 0)
    change = "Set `num_workers=0` to prepare samples in the training process"
    wait.advice.append(wait.setting(change, "fewer_workers", said, ns=saved, likely=0.9, settings=none))
    whole = "use a dataset with `__getitems__`, or a sampler of index lists with `batch_size=None`"
    wait.advice.append(wait.overlapping(f"Index a whole batch at once: {whole}", "cheaper"))


@cause("input.handoff", Piece.HANDED, lines=Lines(selection.handing, first=selection.handed_over))
def handoff(wait: Wait) -> None:
    """Finished batches are lost on the way to the training: pickled, in many pieces, or many bytes.

    Told where the hand-over is most of the wait, and workers have time to spare or batches are large.
    """
    facts, loader, held = wait.facts, wait.loader, wait.facts.handed
    how, changes = _on_its_way(wait)
    if not facts.pin_memory and facts.device_kind == "cuda":
        changes = (*changes, ("Set `pin_memory=True`: a thread of its own then unpacks batches", "settings"))
    takes = f"batches are finished, but their hand-over to the training takes long{how}"
    wait.says(f"{wait.begins}: {takes}.", 0.85 if how else 0.7)
    wait.shows("handoff_pct", "mean_batch_bytes")
    if held is not None:
        wait.shows(
            Evidence("Tensors in a batch", held.tensors, "", f"below {INPUT.many_tensors}"),
            Evidence("Bytes of a tensor", held.bytes_of_tensor if held.tensors else None, "bytes"),
            Evidence("Other Python objects in a batch", held.objects, "", f"below {INPUT.many_objects}"),
        )
    wait.shows(
        Evidence("Bytes sent through the pipe for a batch", loader.sent_bytes_per_batch, "bytes", "less than 1 kB"),
        Evidence("Page faults while preparing a batch", loader.minor_faults_per_batch),
    )
    # A batch costs on its way what it costs in one piece; fewer bytes leave the rest as it is.
    for change, kind in changes:
        if kind == "fewer_objects" and (advice := facts.advice) is not None:
            one_piece = Assumed.handoff_ns(None) + Assumed.TOUCH_NS_PER_BYTE * (advice.workload.batch_bytes or 0)
            gone = VanishedWork(taking_ns=max(0.0, advice.workload.handoff_ns - one_piece), sending=1.0)
            wait.advise(change, kind, gone=gone, likely=0.9)
        else:
            wait.advise(change, kind, least=0.0 if kind == "cheaper" else None, likely=0.6)


def _in_pieces(held: HandedOver) -> bool:
    """Return whether it is the number of things that costs, not their bytes."""
    return held.tensors >= INPUT.many_tensors or held.objects >= INPUT.many_objects


def _on_its_way(wait: Wait) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return how a batch is handed over, to end a sentence, where that is known; and (what to
    change, the kind of change), by what it consists of."""
    held, loader = wait.facts.handed, wait.loader
    if held is not None and held.objects >= INPUT.many_objects:
        tensors = "Return a few tensors instead of many Python objects, each of which is pickled and rebuilt"
        return f", as {held.objects:,.0f} Python objects", ((tensors, "fewer_objects"),)
    where = "in the training step" if wait.on_cpu else "on the device"
    fewer_bytes = f"Hand over fewer bytes: uint8 images, normalised {where}", "cheaper"
    if is_pickled(loader):
        tensors = "Return torch tensors instead of NumPy arrays or lists: they go through shared memory, not the pipe"
        return ", pickled through a pipe", ((tensors, "fewer_objects"), fewer_bytes)
    nbytes, work_ms = loader.mean_batch_bytes, measured_or(loader.work_ms_per_batch)
    few = nbytes < INPUT.pickled_bytes and not (held is not None and _in_pieces(held))
    if few and work_ms * 1e6 < INPUT.nearly_as_long * Assumed.handoff_ns(held):
        at_once = (
            "Index whole batches at once in the training process (`__getitems__`, or tensors that the loop slices "
            f"itself): a worker prepares one in {work_ms:.1f} ms, and its hand-over takes about as long"
        )
        return f", for only {nbytes:,.0f} bytes", ((at_once, "cheaper"),)
    fewer = "Use fewer, larger tensors in a batch: each is opened and mapped by itself", "fewer_objects"
    if held is None or held.tensors < INPUT.many_tensors:
        return "", (fewer_bytes, fewer) if held is None else (fewer_bytes,)
    how = f", as {held.tensors:,.0f} tensors of {held.bytes_of_tensor:,.0f} bytes"
    # The bytes of small ones are not what costs.
    return how, (fewer,) if held.bytes_of_tensor <= INPUT.small_tensor_bytes else (fewer, fewer_bytes)


# Made for nothing.


@cause(
    "input.wasted",
    *(Piece.IN_TRAINING, Piece.FILLING, Piece.READING, *SUPPLY, Piece.HANDED),
    lines=Lines(selection.making, mended=False, first=selection.samples_left_out),
)
def wasted(wait: Wait) -> None:
    """Samples are prepared and thrown away: by `collate_fn`, by workers that make the same, or by the loop."""
    facts, found = wait.facts, wait.facts.wasted
    if found is None or found.share < INPUT.wasted:
        return
    if wait.piece is Piece.HANDED and not wait["cpu_budget"] - wait["cpus_used"] < 1:
        # What is made for nothing delays what is handed over only where it takes the CPUs from it.
        return
    share, dropped, repeated, passed = (
        100 * each for each in (found.share, found.dropped, found.repeated, found.passed_over)
    )
    ways = (
        (
            dropped,
            f"samples are dropped after they were prepared ({dropped:.0f} %)",
            "Leave samples out before preparing them: choose the indices once, or check a label, "
            "length or header before decoding; in a stream, let each worker prepare only its part",
        ),
        (
            repeated,
            f"workers prepare the same batches ({repeated:.0f} % are duplicates)",
            "Divide the data in `__iter__` by `torch.utils.data.get_worker_info()`: each worker prepares its part",
        ),
        (
            passed,
            f"the training computes nothing with {passed:.0f} % of the batches it fetches",
            "Filter in the dataset or its sampler, before samples are prepared, instead of in the loop",
        ),
    )
    told = [way for way in sorted(ways, reverse=True) if way[0] >= 100 * INPUT.waste_named]
    wasting = "; ".join(how for _, how, _ in told)
    wait.says(f"{wait.begins}, and {share:.0f} % of the preparation of samples is wasted: {wasting}.", 0.9)
    wait.shows(
        Evidence("Preparation of samples that is wasted", share, "%", f"below {100 * INPUT.wasted:.0f} %"),
        Evidence("Samples dropped after they were prepared", dropped, "%", "near 0 %"),
        Evidence("Batches that another worker prepared too", repeated, "%", "0 %"),
        Evidence("Batches fetched and not computed with", passed, "%", "near 0 %"),
        *("make_ms_per_sample", "worker_busy_pct"),
    )
    # The same steps with so much less making, and each sample of an epoch once.
    once, less = 1 / (1 - found.repeated), 1 - (1 - found.dropped) * (1 - found.passed_over)
    making = wait.ns if facts.made_in_training else facts.parts.wall_ns - facts.parts.boundary_ns
    less_made = Vanishing(LEAST_OF_GAIN, 1.0)
    made = by_replay(facts, VanishedWork(making=less), less_made)
    made = made or by_parts(facts, min(wait.ns, less * making), less_made)
    low = 1 + (made.low * once - 1) * (LEAST_OF_GAIN if once > 1 else 1.0)
    speedup = Speedup(made.value * once, low, made.high * once, made.to_try)
    wait.advice += [as_next(facts, change, speedup, "slice") for _, _, change in told]


# Memory.

RAISED_BY = {
    MemoryLimitOf.CONTAINER: "`docker run --memory`, in Kubernetes `resources.limits.memory`",
    MemoryLimitOf.JOB: "`--mem` of `sbatch` or `srun`",
    MemoryLimitOf.SLICE: "`MemoryMax=` and `MemoryHigh=` of its unit (`systemctl set-property`)",
    MemoryLimitOf.GROUP: "its `memory.max` and `memory.high`",
}
"""Where each limit is set."""


@cause("input.memory", Piece.FILLING, Piece.READING, *SUPPLY, Piece.HANDED, lines=NOT_MENDED)
def memory(wait: Wait) -> None:
    """The workers' memory grows, or its pages are copied, until the machine swaps or kills.

    Also told while it costs no time yet, where none will be left before ten times as long as was recorded.
    """
    growth = wait.facts.memory
    if growth is None:
        return
    limit, left, left_s, stalled = growth.limit, growth.available_bytes, growth.full_in_s, growth.stalled_share
    owner, of_limit = "the machine", ""
    if limit is not None:
        size, unit = (1 << 30, "GiB") if limit.bytes >= 1 << 30 else (1 << 20, "MiB")
        owner, of_limit = limit.owner, f" of {limit.owner}'s {limit.bytes / size:.1f} {unit}"
    how = "through copies of pages shared with the training" if growth.copied else "through data kept between samples"
    many = "the worker's memory grows" if growth.workers == 1 else f"the {growth.workers} workers' memory grows"
    grows = f"{many} by {growth.bytes_per_s * 60 / 1e6:.0f} MB per minute, {how}"
    if wait.ns > 0 and ((stalled or 0.0) >= INPUT.stalled or growth.full_share >= INPUT.full):
        wait.says(f"{wait.begins}, and {owner} has no memory left: {grows}.", 0.8)
    elif wait.ns <= 0 and left_s is not None and left_s <= INPUT.lasts_times * growth.elapsed_s:
        if growth.elapsed_s < INPUT.growing_s:
            return
        then = ""
        duration = f"{left_s / 60:.0f} min" if left_s < 7200 else f"{left_s / 3600:.0f} h"
        duration = f"{left_s:.0f} s" if left_s < 120 else duration
        if limit is not None and limit.slows:
            then = ", and the kernel slows it down"
        elif limit is not None and limit.swap_bytes == 0:
            then = ", and the kernel kills one of its processes"
        text = f"{grows}. At this pace, none{of_limit} is left in {duration}{then}."
        wait.says(text[:1].upper() + text[1:], 0.7, least_severity="major")
    else:
        return
    wait.shows(
        Evidence("Memory growth of the workers", growth.bytes_per_s * 60 / 1e6, "MB per minute", "levels off"),
        Evidence("Copies of shared pages in that growth", "most" if growth.copied else "little", "", "little"),
        Evidence(f"Memory left at the end{of_limit and ','}{of_limit}", None if left is None else left / 1e6, "MB"),
        Evidence("Time until none is left, at this pace", None if left_s is None else left_s / 60, "min"),
        Evidence("Time without memory left", 100 * growth.full_share, "%", "0 %"),
        Evidence("Time in which tasks wait for memory", None if stalled is None else 100 * stalled, "%", "0 %"),
        Evidence("Written to swap", growth.swapped_bytes / 1e6, "MB", "0 MB"),
    )
    if growth.kills is not None:
        wait.shows(Evidence("Processes killed for lack of memory", growth.kills, "", "0"))
    less = (
        "Keep what workers only read in arrays or tensors instead of lists and dicts of Python objects (paths as one "
        "NumPy array of strings, records in a table): reading an object changes its reference count, which copies "
        "its page"
        if growth.copied
        else "Let workers keep nothing from sample to sample, or bound it (`functools.lru_cache` has a `maxsize`); put "
        "what all of them need into one array before they start"
    )
    fewer = f"Use fewer workers than {growth.workers}, or set `persistent_workers=False`, which frees memory each epoch"
    stepping_ns = wait.facts.parts.wall_ns - wait.facts.parts.boundary_ns
    lost = wait.ns if stalled is None else min(wait.ns, max(0.2 * wait.ns, stalled * stepping_ns))
    # Fewer workers are expected to gain half of what those gain that take no more memory.
    for change, kind, likely in ((less, "fewer_objects", 1.0), (fewer, "fewer_workers", 0.5)):
        if wait.ns > 0:
            wait.advise(change, kind, lost, likely=likely)
        else:
            wait.advice.append(Next(change, kind=kind))
    if limit is not None:
        where = RAISED_BY.get(limit.whose, RAISED_BY[MemoryLimitOf.GROUP])
        wait.advice.append(Next(f"Give {owner} more memory: {where}"))
