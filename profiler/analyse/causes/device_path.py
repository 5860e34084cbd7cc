"""The device waits for something other than the loader: copies, synchronising calls, host work, boundaries."""

from __future__ import annotations

from ...record.schema import NOT_MEASURED, StepFlag
from ..facts import Facts
from ..finding import Evidence, Finding, Next


def pageable(facts: Facts) -> Finding | None:
    """Batches are copied from ordinary memory, so the host waits for the device and the device for the copy."""
    if facts.pinned is not False:
        return None
    return Finding(
        "copy.pageable",
        f"The device waits {_pct(facts, 'copy')} of the time for copies from pageable memory.",
        facts.parts.share("copy"),
        0.9,
        (
            Evidence("batches copied from page-locked memory", 0.0, "%", "100"),
            Evidence("bytes in a batch", facts.loader.mean_batch_bytes, "bytes"),
        ),
        (_next(facts, "pin_memory=True and .to(device, non_blocking=True)", "copy"),),
    )


def serial_copy(facts: Facts) -> Finding | None:
    """Pinned copies run on the computing stream, between the computations."""
    if facts.pinned is not True or facts.copied_ahead:
        return None
    return Finding(
        "copy.serial",
        f"The device waits {_pct(facts, 'copy')} of the time for copies that could run beside its computations.",
        facts.parts.share("copy"),
        0.8,
        (Evidence("copied ahead on a side stream", "no", "", "yes"),),
        (_next(facts, "copy the next batch on a side stream while this one computes", "copy"),),
    )


def sync(facts: Facts) -> Finding | None:
    """Synchronising calls kept the host from queuing work."""
    if facts.parts.sync_ns == 0:
        return None
    return Finding(
        "host.sync",
        f"The device idles {_pct(facts, 'sync')} of the time in calls that wait for it.",
        facts.parts.share("sync"),
        0.7,
        (Evidence("exposed time in synchronising calls", 100 * facts.parts.share("sync"), "%", "near 0"),),
        (_next(facts, "read losses and metrics less often (.item(), .cpu(), print)", "sync"),),
    )


def garbage(facts: Facts) -> Finding | None:
    """Garbage collection takes most of the host's exposed time."""
    gc_ns = facts.parts.garbage_ns
    if facts.parts.host_ns == 0 or gc_ns < 0.6 * facts.parts.host_ns:
        return None
    return Finding(
        "host.gc",
        f"{_loses(facts)} host work, most of it garbage collection.",
        facts.parts.share("host"),
        0.8,
        (Evidence("exposed garbage collection, of the wall time", 100 * gc_ns / facts.parts.wall_ns, "%", "near 0"),),
        (_next(facts, "gc.freeze() after set-up, or collect every few hundred steps by hand", "host"),),
    )


def step_gap(facts: Facts) -> Finding | None:
    """Other work of the training loop between the steps."""
    if facts.parts.host_ns == 0 or not facts.told_apart:
        return None
    return Finding(
        "host.step_gap",
        f"{_loses(facts)} work of the training loop outside fetch"
        f"{' and computing' if facts.device_kind == 'cpu' else ', copy and synchronising calls'}.",
        facts.parts.share("host"),
        0.6,
        tuple(
            Evidence(f"host time between {name}, of the wall time", 100 * share, "%", "near 0")
            for name, share in _host_spans(facts).items()
        ),
        (_next(facts, "look at what the loop does there (logging, metrics, callbacks, freeing batches)", "host"),),
    )


def boundary(facts: Facts) -> Finding | None:
    """Validation, checkpoints and hooks of the epoch."""
    if facts.parts.boundary_ns == 0:
        return None
    return Finding(
        "host.boundary",
        f"{_pct(facts, 'boundary')} of the time is spent outside the steps: validation, checkpoints, hooks.",
        facts.parts.share("boundary"),
        0.9,
        (Evidence("time outside the steps", 100 * facts.parts.share("boundary"), "%"),),
        (_next(facts, "validate and save less often, or beside the training", "boundary"),),
    )


COPY_RULES = (pageable, serial_copy)
SYNC_RULES = (sync,)
HOST_RULES = (garbage, step_gap)
BOUNDARY_RULES = (boundary,)


def _host_spans(facts: Facts) -> dict[str, float]:
    """Where in the step the host spends its time outside fetch and queuing, as shares of wall time."""
    steps = facts.window.steps
    spans = {
        "the copy and the forward pass": ("copy_end_ns", "forward_begin_ns"),
        "the optimizer and the next fetch": ("optimizer_end_ns", "step_end_ns"),
    }
    shares = {}
    for name, (begin, end) in spans.items():
        known = (steps[begin] != NOT_MEASURED) & (steps[end] != NOT_MEASURED)
        if begin == "optimizer_end_ns":
            known &= (steps["flags"] & StepFlag.FORWARD_AFTER) == 0
        if known.any():
            seen = float((steps[end][known] - steps[begin][known]).sum())
            shares[name] = seen / facts.window.looked_at / facts.parts.wall_ns
    return shares


def _loses(facts: Facts) -> str:
    if facts.device_kind == "cpu":
        return f"The training spends {_pct(facts, 'host')} of the time on"
    return f"The device idles {_pct(facts, 'host')} of the time behind"


def _pct(facts: Facts, part: str) -> str:
    return f"{100 * facts.parts.share(part):.0f} %"


def _next(facts: Facts, change: str, part: str) -> Next:
    return Next(change, None, facts.samples_per_s, facts.without(getattr(facts.parts, f"{part}_ns")))
