"""Workers that exclude each other: together they make no more than one of them would.

What it costs to have batches made elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from ....record.schema import ThreadState
from ...predict.advice import VanishedWork
from ...predict.predict import Assumed
from ...run.facts import Facts
from ...run.loader_stats import Exclusion, HandedOver, LoaderStats, SeenWaiting, TimeGrowth
from ..finding import Evidence, Finding, Next
from .wait import HANDOVER_MS, NEARLY_AS_LONG, Wait

TINY_SAMPLE_MS = 0.2
"""Time of preparing a sample up to which it is not worth another process."""
LARGE_BATCH_BYTES = 1_000_000
"""Bytes of a batch from which moving them is what costs."""
WORTH_MAKING_HERE = 0.7
"""Time that making a batch would take in the training over what waiting for it costs now, up to which it is worth
it."""
LEAST_PICKLED_BYTES = 100_000
"""Bytes of a batch from which it matters whether it is pickled, and how many they are."""
PICKLED = 0.5
"""Bytes sent through the pipe for each byte of a batch, from which it is pickled and not handed over in shared
memory."""


MANY_TENSORS = 32
"""Tensors of a batch from which it is their number that costs: each is opened and mapped by itself."""
SMALL_TENSOR_BYTES = 65_536
"""Bytes of one up to which moving it costs no more than that."""
MANY_OBJECTS = 1000
"""Python objects of a batch from which it is their number that costs: each is pickled and made anew."""


def is_pickled(loader: LoaderStats) -> bool:
    """Whether batches go through the pipe, and are no small matter."""
    sent, nbytes = loader.sent_bytes_per_batch, loader.mean_batch_bytes
    return sent is not None and nbytes is not None and sent >= PICKLED * nbytes and nbytes >= LEAST_PICKLED_BYTES


def overkill(wait: Wait) -> Finding | None:
    """Tiny samples: in the training process they would be made faster than they are handed over."""
    loader, facts = wait.loader, wait.facts
    sample_ms, work_ms, nbytes = loader.make_ms_per_sample, loader.work_ms_per_batch, loader.mean_batch_bytes
    if not facts.set_workers or sample_ms is None or work_ms is None or sample_ms > TINY_SAMPLE_MS or wait.starved:
        return None
    waited_ms = wait.ns / facts.window.count / 1e6
    here_ms = work_ms * (100 - (loader.run_queue_pct or 0.0)) / 100
    if here_ms > HANDOVER_MS and facts.handed is not None and _in_pieces(facts.handed):
        # Handed over in one piece they are worth a worker.
        return None
    if here_ms > WORTH_MAKING_HERE * waited_ms or (nbytes is not None and nbytes > LARGE_BATCH_BYTES):
        return None
    saved = round((waited_ms - here_ms) * 1e6 * facts.window.count)
    return wait.found(
        f"{wait.begins}: a worker prepares a batch in {here_ms:.2f} ms, but waiting for it costs {waited_ms:.2f} ms "
        "per step.",
        0.8,
        (
            Evidence("Preparing one sample", 1e3 * sample_ms, "µs", f"above {1e3 * TINY_SAMPLE_MS:.0f} µs"),
            Evidence("Preparing a batch", here_ms, "ms"),
            Evidence("Waiting for a batch", waited_ms, "ms per step", "less than preparing it"),
            wait.evidence("handoff_pct", ""),
            wait.evidence("mean_batch_bytes"),
        ),
        (
            _none(wait, saved),
            wait.overlapping(
                "Index a whole batch at once: use a dataset with `__getitems__`, or a sampler of index lists with "
                "`batch_size=None`"
            ).of("cheaper"),
        ),
        # The batches still have to be made.
        saved / (facts.parts.wall_ns - saved),
    )


def handoff(wait: Wait) -> Finding | None:
    """The wait comes after the batch was finished: it is lost on the way to the training."""
    facts, loader, held = wait.facts, wait.loader, wait.facts.handed
    how, changes = _on_its_way(facts, is_pickled(loader))
    if not facts.pin_memory and facts.device_kind == "cuda":
        changes = (*changes, ("Set `pin_memory=True`: a thread of its own then unpacks batches", "settings"))
    consists = () if held is None else _consists(held)
    return wait.found(
        f"{wait.begins}: batches are finished, but their hand-over to the training takes long{how}.",
        0.85 if how else 0.7,
        (
            wait.evidence("handoff_pct"),
            wait.evidence("mean_batch_bytes"),
            *consists,
            Evidence("Bytes sent through the pipe for a batch", loader.sent_bytes_per_batch, "bytes", "less than 1 kB"),
            Evidence("Page faults while preparing a batch", loader.minor_faults_per_batch),
        ),
        tuple(_handed_cheaper(wait, change, kind) for change, kind in changes),
    )


def _none(wait: Wait, saved_ns: float) -> Next:
    """No workers: as the replay has it, else what preparing batches there is cheaper than waiting for them."""
    change, settings = "Set `num_workers=0` to prepare samples in the training process", {"num_workers": 0}
    said = wait.predicted(lambda each: each.num_workers == 0)
    if said is None:
        return replace(wait.removing(change, saved_ns, likely=0.9, kind="fewer_workers"), settings=settings)
    return wait.as_predicted(change, said).of("fewer_workers")


def _handed_cheaper(wait: Wait, change: str, kind: str) -> Next:
    """What a batch costs on its way becomes what it costs in one piece; fewer bytes leave the rest as it is."""
    advice = wait.facts.advice
    if kind != "fewer_objects" or advice is None:
        return wait.removing(change, least=0.0 if kind == "cheaper" else None, likely=0.6, kind=kind)
    load = advice.workload
    taking = max(0.0, load.handoff_ns - Assumed.handoff_ns(None) - Assumed.TOUCH_NS_PER_BYTE * (load.batch_bytes or 0))
    return wait.lighter(change, VanishedWork(taking_ns=taking, sending=1.0), likely=0.9, kind=kind)


def _in_pieces(held: HandedOver) -> bool:
    """Whether it is the number of things that costs, not their bytes."""
    return held.tensors >= MANY_TENSORS or held.objects >= MANY_OBJECTS


def _on_its_way(facts: Facts, pickled: bool) -> tuple[str, tuple[tuple[str, str], ...]]:
    """How a batch is handed over, to end a sentence, where that is known; and (what to change, the kind of change), by
    what it consists of."""
    held = facts.handed
    if held is not None and held.objects >= MANY_OBJECTS:
        tensors = "Return a few tensors instead of many Python objects, each of which is pickled and rebuilt"
        return f", as {held.objects:,.0f} Python objects", ((tensors, "fewer_objects"),)
    fewer_bytes = f"Hand over fewer bytes: uint8 images, normalised {_device(facts)}", "cheaper"
    if pickled:
        tensors = "Return torch tensors instead of NumPy arrays or lists: they go through shared memory, not the pipe"
        return ", pickled through a pipe", ((tensors, "fewer_objects"), fewer_bytes)
    nbytes, work_ms = facts.loader.mean_batch_bytes, facts.loader.work_ms_per_batch or 0.0
    about_as_long = work_ms * 1e6 < NEARLY_AS_LONG * Assumed.handoff_ns(held)
    if nbytes is not None and nbytes < LEAST_PICKLED_BYTES and about_as_long and (held is None or not _in_pieces(held)):
        at_once = (
            "Index whole batches at once in the training process (`__getitems__`, or tensors that the loop slices "
            f"itself): a worker prepares one in {work_ms:.1f} ms, and its hand-over takes about as long"
        )
        return f", for only {nbytes:,.0f} bytes", ((at_once, "cheaper"),)
    fewer = "Use fewer, larger tensors in a batch: each is opened and mapped by itself", "fewer_objects"
    if held is None:
        return "", (fewer_bytes, fewer)
    if held.tensors < MANY_TENSORS:
        return "", (fewer_bytes,)
    how = f", as {held.tensors:,.0f} tensors of {held.bytes_of_tensor:,.0f} bytes"
    # Of small ones the bytes are not what costs.
    return how, (fewer,) if held.bytes_of_tensor <= SMALL_TENSOR_BYTES else (fewer, fewer_bytes)


def _device(facts: Facts) -> str:
    return "in the training step" if facts.device_kind == "cpu" else "on the device"


def _consists(held: HandedOver) -> tuple[Evidence, ...]:
    return (
        Evidence("Tensors in a batch", held.tensors, "", f"below {MANY_TENSORS}"),
        Evidence("Bytes of a tensor", held.bytes_of_tensor if held.tensors else None, "bytes"),
        Evidence("Other Python objects in a batch", held.objects, "", f"below {MANY_OBJECTS}"),
    )


SURE, LIKELY, BOTH = 0.85, 0.7, 0.95
"""Confidence from looks at a lock, from batches that take longer the more workers are at work, and from both."""
_DOING = {
    ThreadState.RUNS: "computes",
    ThreadState.FILE: "reads or writes a file",
    ThreadState.SOCKET: "waits at a socket",
    ThreadState.PIPE: "waits at a pipe",
    ThreadState.SLEEP: "sleeps",
}
"""What whoever holds the lock does meanwhile."""
_REMOTE = (ThreadState.SOCKET, ThreadState.POLL, ThreadState.PIPE)


def exclusive(wait: Wait) -> Finding | None:
    """Workers wait for a lock that one of them holds, or take the longer for a batch the more of them are at work."""
    told = wait.facts.exclusion
    if told is None or wait.facts.made_in_training or wait.cpu_used:
        return None
    if told.waiting is not None and told.waits_for_lock:
        return _by_lock(wait, told, told.waiting)
    if told.growth is not None and told.grows and wait.behind and _waits(wait, told.waiting):
        return _by_growth(wait, told, told.growth)
    return None


def _waits(wait: Wait, seen: SeenWaiting | None) -> bool:
    """Whether workers mostly wait, for no file: reads that take longer side by side are the storage's affair. Counters
    take what comes through a socket for a read, looks do not."""
    return wait.waits_mostly or (seen is not None and seen.elsewhere in (*_REMOTE, ThreadState.SLEEP))


def _by_lock(wait: Wait, told: Exclusion, waiting: SeenWaiting) -> Finding:
    lock = "the lock of a file" if waiting.of_file else "a lock that they share"
    doing = _DOING.get(waiting.elsewhere or 0)
    others = f"{told.together * waiting.lock.value:.1f} of {told.together:.1f} busy ones wait for {lock}{_at(waiting)}"
    return wait.found(
        f"{wait.begins}: workers exclude each other. On average {others}{f', while one {doing}' if doing else ''}.",
        BOTH if told.grows else SURE,
        (
            Evidence(
                f"Waiting for {lock}, share of {waiting.looks} stack samples of active workers",
                100 * waiting.lock.value,
                "%",
                "near 0 %",
            ),
            *_evidence(wait, told),
        ),
        (
            _freed(
                wait,
                told,
                "Give each worker its own file to lock, or use one lock per guarded thing instead of one for all "
                "(more workers bring nothing)"
                if waiting.of_file
                else "Give each worker its own connection, handle or reader, opened in the worker; or do less while "
                "the lock is held (more workers bring nothing)",
            ),
        ),
    )


def _by_growth(wait: Wait, told: Exclusion, growth: TimeGrowth) -> Finding:
    seen = None if told.waiting is None else told.waiting.elsewhere
    remote = seen in _REMOTE
    what = "one connection or the bandwidth of a remote store" if remote else "a rate limit or a connection"
    change = (
        "Give each worker its own connection; where the remote end is the limit, fetch fewer bytes: use a local "
        "copy or smaller files"
        if remote
        else "Give each worker its own limit, connection or handle"
    )
    return wait.found(
        f"{wait.begins}: workers hold each other up, since they share {what}. A batch takes {growth.usual_ms:.0f} ms, "
        f"but {growth.fewer_ms:.0f} ms when fewer workers are active: together they deliver what one would.",
        LIKELY,
        (*_evidence(wait, told), *wait.waiting_evidence),
        (_freed(wait, told, f"{change} (more workers bring nothing)", shared_beyond=True),),
    )


def _evidence(wait: Wait, told: Exclusion) -> tuple[Evidence, ...]:
    growth = told.growth
    grown = (
        ()
        if growth is None
        else (
            Evidence(
                "Growth of a batch's time with the active workers (0: none, 1: in proportion)",
                growth.exponent.value,
                "",
                "near 0",
            ),
            Evidence("Preparing a batch with fewer active workers", growth.fewer_ms, "ms", f"{growth.usual_ms:.0f} ms"),
        )
    )
    return (
        Evidence("Workers active at a time", told.together),
        *grown,
        wait.evidence("cpu_pct", "near 100 %"),
        *wait.cpu_evidence,
    )


def _freed(wait: Wait, told: Exclusion, change: str, *, shared_beyond: bool = False) -> Next:
    """What is gained if workers wait for each other no more, so that a batch takes as long as one alone takes, on these
    CPUs. `shared_beyond`: what they share may be none of theirs, so that nothing need be gained."""
    alone, freed = told.alone, 1 - told.alone.value
    # What is computed is not waited for.
    freed = min(freed, 1 - (wait.loader.cpu_pct or 0.0) / 100)
    if freed <= 0:
        return wait.overlapping(change).of("own_handle")
    least = 0.0 if shared_beyond else max(0.0, 1 - alone.high) / freed
    return wait.lighter(change, VanishedWork(queueing=freed), least=least, likely=1.0, kind="own_handle")


def _at(waiting: SeenWaiting) -> str:
    return f" ({waiting.at})" if waiting.at else ""
