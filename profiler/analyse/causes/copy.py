"""The device waits for batches that are copied to it: why do they take so long?"""

from __future__ import annotations

from ..run.device_state import PcieLink
from ..run.facts import Facts
from .finding import Evidence, Finding, Next
from .gain import removing

LEAST_LINK_LOSS = 0.05
"""A link that carries nearly what it could is as it should be."""
LEAST_IN_USE = 0.5
"""A device that computes or waits for copies less than this may never show its full link: idle ones turn it down."""


def link(facts: Facts) -> Finding | None:
    """The link between host and device runs below what both are capable of."""
    seen = _degraded(facts)
    lost_ns = _lost_ns(facts)
    if seen is None or lost_ns <= 0:
        return None
    now, most = f"PCIe {seen.generation} x{seen.width}", f"PCIe {seen.most_generation} x{seen.most_width}"
    return Finding(
        "copy.link",
        f"The device waits {_pct(facts, facts.parts.copy_ns)} of the time for copies, over a link that runs at {now} "
        f"instead of {most}: {_pct(facts, lost_ns)} of the time is lost to that.",
        lost_ns / facts.parts.wall_ns,
        0.8,
        (
            Evidence("PCIe link, at its best while sampled", now, "", most),
            Evidence("bandwidth, of what device and slot are capable of", 100 * seen.share, "%", "100"),
            _batch_bytes(facts),
            _exposed(facts),
        ),
        (
            removing(
                facts,
                "seat the card anew or move it to a slot with all lanes; look at the BIOS's PCIe speed, at risers, and "
                "at what else shares the lanes: `nvidia-smi -q -d PCIE` shows current and maximum under load",
                lost_ns,
                least=0.5,
            ),
            removing(
                facts,
                "copy fewer bytes: uint8 images, normalised on the device (a quarter of float32)",
                min(lost_ns, 0.75 * facts.parts.copy_ns),
                likely=0.9,
            ),
        ),
    )


def pageable(facts: Facts) -> Finding | None:
    """Batches are copied from ordinary memory, so the host waits for the device and the device for the copy."""
    if facts.pinned is not False:
        return None
    copy_ns = facts.parts.copy_ns - _lost_ns(facts)
    change = "pin_memory=True in the DataLoader, and batch.to(device, non_blocking=True)"
    if facts.pin_memory:
        change = (
            "a `pin_memory()` method for the batch's class (pin_memory=True is set, and did not pin these batches), "
            "and batch.to(device, non_blocking=True)"
        )
    return Finding(
        "copy.pageable",
        f"The device waits {_pct(facts, copy_ns)} of the time for copies from pageable memory.",
        copy_ns / facts.parts.wall_ns,
        0.9,
        (
            Evidence("batches copied from page-locked memory", 0.0, "%", "100"),
            _batch_bytes(facts),
            _exposed(facts),
        ),
        (
            removing(facts, change, copy_ns, least=0.3, likely=0.6),
            _smaller(facts, copy_ns),
        ),
    )


def serial_copy(facts: Facts) -> Finding | None:
    """Pinned copies run on the computing stream, between the computations."""
    if facts.pinned is not True or facts.copied_ahead:
        return None
    copy_ns = facts.parts.copy_ns - _lost_ns(facts)
    return Finding(
        "copy.serial",
        f"The device waits {_pct(facts, copy_ns)} of the time for copies that could run beside its computations.",
        copy_ns / facts.parts.wall_ns,
        0.8,
        (
            Evidence("copied ahead on a side stream", "no", "", "yes"),
            _batch_bytes(facts),
            _exposed(facts),
        ),
        (
            removing(
                facts,
                "copy the next batch while this one computes: on a side stream, with "
                "`with torch.cuda.stream(side): batch.to(device, non_blocking=True)` and "
                "`torch.cuda.current_stream().wait_stream(side)` before it is used",
                copy_ns,
                least=0.5,
                likely=0.9,
            ),
            _smaller(facts, copy_ns),
        ),
    )


RULES = (link, pageable, serial_copy)


def _degraded(facts: Facts) -> PcieLink | None:
    found = None if facts.device_state is None else facts.device_state.link
    if found is None or 1 - found.share < LEAST_LINK_LOSS:
        return None
    in_use = facts.parts.share("compute") + facts.parts.share("copy")
    return found if found.loaded or in_use >= LEAST_IN_USE else None


def _lost_ns(facts: Facts) -> float:
    """What of the copies' time a link at its full speed would save."""
    found = _degraded(facts)
    return 0.0 if found is None or facts.pinned is None else facts.parts.copy_ns * (1 - found.share)


def _smaller(facts: Facts, copy_ns: float) -> Next:
    return removing(
        facts, "copy fewer bytes: uint8 images, normalised on the device (a quarter of float32)", 0.75 * copy_ns
    )


def _batch_bytes(facts: Facts) -> Evidence:
    return Evidence("bytes in a batch", facts.loader.mean_batch_bytes, "bytes")


def _exposed(facts: Facts) -> Evidence:
    each = facts.parts.copy_ns / facts.window.count / 1e6
    return Evidence("waiting for copies, of a step", each, "ms", "near 0")


def _pct(facts: Facts, ns: float) -> str:
    return f"{100 * ns / facts.parts.wall_ns:.0f} %"
