"""The device waits for copies, or computes for longer than necessary: shapes, memory, slow clocks, other processes."""

from __future__ import annotations

from ..run.outlier_steps import OutlierSteps
from ..shares import MOSTLY
from ..where.selection import Lines, compiling, copying
from .claim import Claim, Piece, cause
from .finding import Evidence, Finding, Next
from .pieces import degraded_link, foreign_kernels

FEWER_BYTES = "Copy fewer bytes: uint8 images, normalised on the device (a quarter of float32)"


@cause("copy.link", Piece.LINK, lines=Lines(copying))
def link(claim: Claim) -> Finding | None:
    """The PCIe link between host and device runs below what both can do: an older generation, or fewer lanes.

    It is judged at its best while the device works, since an idle link turns itself down.
    """
    facts, seen = claim.facts, degraded_link(claim.facts)
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
            *("mean_batch_bytes", _exposed(claim)),
        ),
        claim.removing(
            "Reseat the card, or move it to a slot with all lanes; check the BIOS's PCIe speed, risers, and what "
            "else shares the lanes (`nvidia-smi -q -d PCIE` shows current and maximum under load)",
            least=0.5,
        ),
        claim.removing(FEWER_BYTES, ns=min(claim.ns, 0.75 * facts.parts.copy_ns), likely=0.9),
    )


@cause("copy.pageable", Piece.COPYING, lines=Lines(copying))
def pageable(claim: Claim) -> Finding | None:
    """Batches are copied from pageable memory, so the host waits for the device and the device for the copy."""
    if claim.facts.pinned is not False:
        return None
    change = "Set `pin_memory=True` in the DataLoader, and copy with `batch.to(device, non_blocking=True)`"
    if claim.facts.pin_memory:
        change = (
            "Add a `pin_memory()` method to the batch's class (`pin_memory=True` is set, but did not pin these "
            "batches), and copy with `batch.to(device, non_blocking=True)`"
        )
    return claim.found(
        f"The device waits {claim.percent()} of the time for copies from pageable memory.",
        0.9,
        (Evidence("Batches copied from pinned memory", 0.0, "%", "100 %"), "mean_batch_bytes", _exposed(claim)),
        claim.removing(change, least=0.3, likely=0.6),
        claim.removing(FEWER_BYTES, ns=0.75 * claim.ns),
    )


@cause("copy.serial", Piece.COPYING, lines=Lines(copying))
def serial_copy(claim: Claim) -> Finding | None:
    """Pinned copies run on the computing stream, between the computations instead of during them."""
    if claim.facts.pinned is not True or claim.facts.copied_ahead:
        return None
    return claim.found(
        f"The device waits {claim.percent()} of the time for copies that could run during its computations.",
        0.8,
        (Evidence("Copies ahead on a side stream", "no", "", "yes"), "mean_batch_bytes", _exposed(claim)),
        claim.removing(
            "Copy the next batch while this one computes, on a side stream: "
            "`with torch.cuda.stream(side): batch.to(device, non_blocking=True)`, and "
            "`torch.cuda.current_stream().wait_stream(side)` before it is used",
            least=0.5,
            likely=0.9,
        ),
        claim.removing(FEWER_BYTES, ns=0.75 * claim.ns),
    )


def _exposed(claim: Claim) -> Evidence:
    each_ms = claim.facts.parts.copy_ns / claim.facts.window.count / 1e6
    return Evidence("Wait for copies per step", each_ms, "ms", "near 0 ms")


@cause("device.shape_churn", Piece.SHAPES, lines=Lines(compiling))
def shape_churn(claim: Claim) -> Finding | None:
    """New input shapes are tuned for, or compiled: such steps take longer than their size explains."""
    seen = claim.facts.shape_churn
    if seen is None:
        return None
    compiles = seen.compiling_ns >= MOSTLY * seen.total_ns
    how = f"at {seen.hit} of {seen.of} steps, the longest {seen.longest_ns / 1e6:.0f} ms"
    few_shapes = claim.removing(
        "Use few shapes instead of many: pad to a multiple (such as 64), or sort samples into buckets of similar "
        "size; set `drop_last=True`, so no last batch is smaller",
        least=0.3,
        likely=0.85,
    )
    changes: tuple[Next, ...] = (few_shapes,)
    if compiles:
        title = f"Torch's compiler takes {claim.percent()} of the time: it recompiles {how}."
        dynamic = (
            "Use `torch.compile(model, dynamic=True)`, or `torch._dynamo.mark_dynamic(tensor, dim)` for what "
            "varies (`TORCH_LOGS=recompiles` tells why)"
        )
        changes = (claim.removing(dynamic, least=0.3, likely=0.8), few_shapes)
    else:
        title = f"New input shapes cost {claim.percent()} of the time, {how}: libraries tune for each new shape."
        if not claim.on_cpu:
            tuning = claim.removing("Set `torch.backends.cudnn.benchmark = False` while shapes vary", likely=0.7)
            changes = (few_shapes, tuning)
    return claim.found(
        title,
        0.85 if compiles or (seen.times or 0) >= 3 else 0.7,
        (
            Evidence("Steps with new shapes or compilation", f"{seen.hit} of {seen.of}", "", "few"),
            Evidence("Time of such a step over another's", seen.times, "", "1"),
            _usual(seen),
            Evidence("Runs of torch's compiler", seen.count, "", "none after the first steps"),
            Evidence("Time in torch's compiler", claim.pct(seen.compiling_ns), "%", "0 %"),
        ),
        *changes,
    )


@cause("device.memory_pressure", Piece.MEMORY)
def memory_pressure(claim: Claim) -> Finding | None:
    """The allocator runs into the limit of the device's memory, frees what it kept, and tries again."""
    seen = claim.facts.memory_pressure
    if seen is None:
        return None
    return claim.found(
        f"Device memory runs out, which costs {claim.percent()} of the time: the allocator freed its caches and "
        f"tried again {seen.count} time{'s' if seen.count != 1 else ''}. The longest such step took "
        f"{seen.longest_ns / 1e6:.0f} ms.",
        0.5 if seen.usual_ns is None else 0.85,
        (
            Evidence("Allocator retries", seen.count, "", "0"),
            Evidence("Steps with a retry", f"at most {seen.hit} of {seen.of}", "", "0"),
            *(_usual(seen), "memory_peak_bytes"),
        ),
        claim.removing(
            "Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` to lose less memory to fragmentation", likely=0.6
        ),
        claim.removing(
            "Use a smaller batch with gradient accumulation, or activation checkpointing "
            "(`torch.utils.checkpoint.checkpoint`)",
            least=0.5,
            likely=0.9,
        ),
    )


@cause("device.contended", Piece.CONTENDED)
def contended(claim: Claim) -> Finding | None:
    """Other processes use the device: their kernels run in time that this training leaves it idle."""
    seen, foreign = claim.facts.sampled, foreign_kernels(claim.facts)
    if foreign is None:
        return None
    return claim.found(
        f"Other processes use the device, which costs this training about {claim.percent()} of the time.",
        0.6,
        (
            Evidence("Processes on the device", seen.gpu_processes, "", "1"),
            Evidence("Utilisation windows of the driver within the steps", foreign.windows),
            Evidence("Kernels running in these windows", 100 * foreign.busy, "%", f"{100 * foreign.own:.0f} %"),
            Evidence("This training computing in these windows", 100 * foreign.own, "%"),
            Evidence("Other processes' kernels in the time it leaves", 100 * foreign.density, "%", "0 %"),
            Evidence("Device memory that other processes hold, at least", seen.others_least_bytes, "bytes"),
        ),
        claim.removing(
            "Use a device of its own: end or move the other processes (`nvidia-smi` lists them), "
            "or set `CUDA_VISIBLE_DEVICES` to one that nobody uses",
            least=0.3,
            likely=0.9,
        ),
    )


@cause("device.throttled", Piece.THROTTLED)
def throttled(claim: Claim) -> Finding | None:
    """Temperature, the hardware's protection or a power cap hold the clocks down.

    A power cap counts only where it takes the clock below 80 % of the highest, or comes and goes.
    """
    state = claim.facts.device_state
    held = None if state is None else state.throttled
    if held is None:
        return None
    change = (
        "Raise the power limit if the card allows it (`nvidia-smi -q -d POWER`, `nvidia-smi -pl WATTS`)"
        if held.by == "the power cap"
        else "Improve the cooling (fans, airflow, dust, fewer cards side by side); `nvidia-smi -q -d "
        "PERFORMANCE,TEMPERATURE` tells what holds the clocks down"
    )
    return claim.found(
        f"The device computes at {held.clock_mhz:.0f} instead of {held.full_mhz:.0f} MHz for {100 * held.share:.0f} % "
        f"of the time because of {held.by}, which costs {claim.percent()} of the time.",
        0.75,
        (
            Evidence("Clock while held down", held.clock_mhz, "MHz", f"{held.full_mhz:.0f} MHz"),
            Evidence("Samples with clocks held down", 100 * held.share, "%", "0 %"),
            Evidence("Held down by", held.by, "", "nothing"),
        ),
        claim.removing(change, likely=0.7),
    )


def _usual(seen: OutlierSteps) -> Evidence:
    return Evidence("Computing time of another step", None if seen.usual_ns is None else seen.usual_ns / 1e6, "ms")
