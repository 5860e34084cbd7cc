"""The device waits for batches that are copied to it: why do they take so long?"""

from __future__ import annotations

from ..run.facts import Facts
from .claim import Claim
from .divided import degraded_link
from .finding import Evidence, Finding, Next


def link(claim: Claim) -> Finding | None:
    """The link between host and device runs below what both are capable of."""
    facts = claim.facts
    seen = degraded_link(facts)
    if seen is None:
        return None
    now, most = f"PCIe {seen.generation} x{seen.width}", f"PCIe {seen.most_generation} x{seen.most_width}"
    return claim.found(
        f"The device waits {claim.percent(facts.parts.copy_ns)} of the time for copies. Their link runs at {now} "
        f"instead of {most}, which costs {claim.percent()} of the time.",
        0.8,
        (
            Evidence("PCIe link, best while sampled", now, "", most),
            Evidence("Bandwidth, share of what device and slot can do", 100 * seen.share, "%", "100 %"),
            claim.evidence("mean_batch_bytes"),
            _exposed(claim.facts),
        ),
        (
            claim.removing(
                "Reseat the card, or move it to a slot with all lanes; check the BIOS's PCIe speed, risers, and what "
                "else shares the lanes (`nvidia-smi -q -d PCIE` shows current and maximum under load)",
                least=0.5,
            ),
            claim.removing(
                "Copy fewer bytes: uint8 images, normalised on the device (a quarter of float32)",
                min(claim.ns, 0.75 * facts.parts.copy_ns),
                likely=0.9,
            ),
        ),
    )


def pageable(claim: Claim) -> Finding | None:
    """Batches are copied from ordinary memory, so the host waits for the device and the device for the copy."""
    facts = claim.facts
    if facts.pinned is not False:
        return None
    change = "Set `pin_memory=True` in the DataLoader, and copy with `batch.to(device, non_blocking=True)`"
    if facts.pin_memory:
        change = (
            "Add a `pin_memory()` method to the batch's class (`pin_memory=True` is set, but did not pin these "
            "batches), and copy with `batch.to(device, non_blocking=True)`"
        )
    return claim.found(
        f"The device waits {claim.percent()} of the time for copies from pageable memory.",
        0.9,
        (
            Evidence("Batches copied from pinned memory", 0.0, "%", "100 %"),
            claim.evidence("mean_batch_bytes"),
            _exposed(claim.facts),
        ),
        (
            claim.removing(change, least=0.3, likely=0.6),
            _smaller(claim),
        ),
    )


def serial_copy(claim: Claim) -> Finding | None:
    """Pinned copies run on the computing stream, between the computations."""
    facts = claim.facts
    if facts.pinned is not True or facts.copied_ahead:
        return None
    return claim.found(
        f"The device waits {claim.percent()} of the time for copies that could run during its computations.",
        0.8,
        (
            Evidence("Copies ahead on a side stream", "no", "", "yes"),
            claim.evidence("mean_batch_bytes"),
            _exposed(claim.facts),
        ),
        (
            claim.removing(
                "Copy the next batch while this one computes, on a side stream: "
                "`with torch.cuda.stream(side): batch.to(device, non_blocking=True)`, and "
                "`torch.cuda.current_stream().wait_stream(side)` before it is used",
                least=0.5,
                likely=0.9,
            ),
            _smaller(claim),
        ),
    )


def _smaller(claim: Claim) -> Next:
    return claim.removing(
        "Copy fewer bytes: uint8 images, normalised on the device (a quarter of float32)", 0.75 * claim.ns
    )


def _exposed(facts: Facts) -> Evidence:
    each = facts.parts.copy_ns / facts.window.count / 1e6
    return Evidence("Wait for copies per step", each, "ms", "near 0 ms")
