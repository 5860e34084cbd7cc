"""What it costs to have batches made elsewhere."""

from __future__ import annotations

from dataclasses import replace

from ...predict.assumed import Assumed
from ...predict.what_if import VanishedWork
from ...run.facts import Facts
from ...run.loader_stats import LoaderStats
from ...run.worker_records import HandedOver
from ..finding import Evidence, Finding, Next
from .wait import HANDOVER_MS, NEARLY_AS_LONG, Wait

TINY_SAMPLE_MS = 0.2
"""Time of making a sample up to which it is not worth another process."""
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
        f"{wait.begins}: making a batch takes a worker {here_ms:.2f} ms, and waiting for it costs {waited_ms:.2f} ms a "
        "step.",
        0.8,
        (
            Evidence("making one sample takes", 1e3 * sample_ms, "µs", f"above {1e3 * TINY_SAMPLE_MS:.0f}"),
            Evidence("making a batch takes", here_ms, "ms"),
            Evidence("waiting for it costs", waited_ms, "ms a step", "less than making it"),
            wait.evidence("handoff_pct", ""),
            wait.evidence("mean_batch_bytes"),
        ),
        (
            _none(wait, saved),
            wait.overlapping(
                "index a whole batch at once: a dataset with __getitems__, or a sampler of index lists with "
                "batch_size=None"
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
        changes = (*changes, ("pin_memory=True: a thread of its own unpacks batches", "settings"))
    consists = () if held is None else _consists(held)
    return wait.found(
        f"{wait.begins}: the batch is finished by then, and on its way from worker to training{how}.",
        0.85 if how else 0.7,
        (
            wait.evidence("handoff_pct"),
            wait.evidence("mean_batch_bytes"),
            *consists,
            Evidence("bytes sent through the pipe for a batch", loader.sent_bytes_per_batch, "bytes", "less than 1 kB"),
            Evidence("page faults in making a batch", loader.minor_faults_per_batch),
        ),
        tuple(_handed_cheaper(wait, change, kind) for change, kind in changes),
    )


def _none(wait: Wait, saved_ns: float) -> Next:
    """No workers: as the replay has it, else what making batches there is cheaper than waiting for them."""
    change, settings = "num_workers=0: samples are made in the training process", {"num_workers": 0}
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
        tensors = "return a few tensors instead of many Python objects, each of which is pickled and made anew"
        return f", as {held.objects:,.0f} Python objects", ((tensors, "fewer_objects"),)
    fewer_bytes = f"hand over fewer bytes: uint8 images, normalised {_device(facts)}", "cheaper"
    if pickled:
        tensors = "return torch tensors instead of numpy arrays or lists: they go through shared memory, not the pipe"
        return ", pickled, through a pipe", ((tensors, "fewer_objects"), fewer_bytes)
    nbytes, work_ms = facts.loader.mean_batch_bytes, facts.loader.work_ms_per_batch or 0.0
    about_as_long = work_ms * 1e6 < NEARLY_AS_LONG * Assumed.handoff_ns(held)
    if nbytes is not None and nbytes < LEAST_PICKLED_BYTES and about_as_long and (held is None or not _in_pieces(held)):
        at_once = (
            "index whole batches at once in the training process (__getitems__, or tensors that the loop slices "
            f"itself): a worker makes one in {work_ms:.1f} ms, and handing it over takes about as long"
        )
        return f", all of {nbytes:,.0f} bytes", ((at_once, "cheaper"),)
    fewer = "fewer, larger tensors in a batch: each is opened and mapped by itself", "fewer_objects"
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
        Evidence("tensors in a batch", held.tensors, "", f"below {MANY_TENSORS}"),
        Evidence("bytes of a tensor", held.bytes_of_tensor if held.tensors else None, "bytes"),
        Evidence("other Python objects in a batch", held.objects, "", f"below {MANY_OBJECTS}"),
    )
