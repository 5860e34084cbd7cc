"""Computing takes longer than it need: other shapes, memory near its limit, others on the device, slow clocks."""

from __future__ import annotations

from ..run.outlier_steps import OutlierSteps
from ..shares import MOSTLY
from .claim import Claim
from .divided import foreign_kernels
from .finding import Evidence, Finding


def shape_churn(claim: Claim) -> Finding | None:
    """Steps with new input shapes take longer: something is tuned or compiled anew."""
    facts = claim.facts
    seen = facts.shape_churn
    if seen is None:
        return None
    compiles = seen.compiling_ns >= MOSTLY * seen.total_ns
    how = f"at {seen.hit} of {seen.of} steps, the longest {seen.longest_ns / 1e6:.0f} ms"
    if compiles:
        title = f"torch's compiler takes {claim.percent()} of the time: it compiles anew {how}."
    else:
        title = f"New input shapes cost {claim.percent()} of the time, {how}: something is tuned for each of them."
    changes = [
        claim.removing(
            "few shapes instead of many: pad to a multiple (of 64, say) or sort samples into buckets of like size; "
            "drop_last=True, so that no last batch is smaller",
            least=0.3,
            likely=0.85,
        )
    ]
    if compiles:
        changes.insert(
            0,
            claim.removing(
                "torch.compile(model, dynamic=True), or torch._dynamo.mark_dynamic(tensor, dim) for what varies "
                "(TORCH_LOGS=recompiles tells why)",
                least=0.3,
                likely=0.8,
            ),
        )
    elif facts.device_kind != "cpu":
        changes.append(claim.removing("torch.backends.cudnn.benchmark = False while shapes vary", likely=0.7))
    return claim.found(
        title,
        0.85 if compiles or (seen.times or 0) >= 3 else 0.7,
        (
            Evidence("steps with new shapes, or in which was compiled", f"{seen.hit} of {seen.of}", "", "few"),
            Evidence("such a step computes, times as long as another", seen.times, "", "1"),
            _usual(seen),
            Evidence("stretches in which torch's compiler was at work", seen.count, "", "none after the first steps"),
            Evidence("torch's compiler at work", claim.pct(seen.compiling_ns), "%", "0"),
        ),
        tuple(changes),
    )


def memory_pressure(claim: Claim) -> Finding | None:
    """The allocator runs into the limit of the device's memory, frees what it kept, and tries again."""
    seen = claim.facts.memory_pressure
    if seen is None:
        return None
    return claim.found(
        f"Device memory runs out, which costs {claim.percent()} of the time: the allocator freed its caches and "
        f"tried again {seen.count} time{'s' if seen.count != 1 else ''}, the longest such step took "
        f"{seen.longest_ns / 1e6:.0f} ms.",
        0.5 if seen.usual_ns is None else 0.85,
        (
            Evidence("retries of the allocator", seen.count, "", "0"),
            Evidence("steps in which it tried again", f"at most {seen.hit} of {seen.of}", "", "0"),
            _usual(seen),
            claim.evidence("memory_peak_bytes"),
        ),
        (
            claim.removing(
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: less memory is lost to holes",
                likely=0.6,
            ),
            claim.removing(
                "a smaller batch with gradient accumulation, or activation checkpointing "
                "(torch.utils.checkpoint.checkpoint)",
                least=0.5,
                likely=0.9,
            ),
        ),
    )


def contended(claim: Claim) -> Finding | None:
    """Other processes' kernels run on the device."""
    seen, foreign = claim.facts.sampled, foreign_kernels(claim.facts)
    if foreign is None:
        return None
    return claim.found(
        f"Other processes use the device: computing takes about {claim.percent()} of the time longer than alone.",
        0.6,
        (
            Evidence("processes on the device", seen.gpu_processes, "", "1"),
            Evidence("windows of the driver's utilisation within the steps", foreign.windows),
            Evidence("of these, some kernel ran", 100 * foreign.busy, "%", f"{100 * foreign.own:.0f}"),
            Evidence("of these, this training's steps computed", 100 * foreign.own, "%"),
            Evidence("of the time it leaves, others' kernels run", 100 * foreign.density, "%", "0"),
            Evidence("device memory that others hold at least", seen.others_least_bytes, "bytes"),
        ),
        (
            claim.removing(
                "a device of its own: end or move the other processes (`nvidia-smi` lists them), or "
                "CUDA_VISIBLE_DEVICES of one that nobody uses",
                least=0.3,
                likely=0.9,
            ),
        ),
    )


def throttled(claim: Claim) -> Finding | None:
    """Temperature, power or the hardware's protection hold the clocks down."""
    state = claim.facts.device_state
    held = None if state is None else state.throttled
    if held is None:
        return None
    change = (
        "raise the power limit if the card allows it (`nvidia-smi -q -d POWER`, `nvidia-smi -pl WATTS`)"
        if held.by == "the power cap"
        else "cooling: fans, airflow, dust, fewer cards side by side; `nvidia-smi -q -d PERFORMANCE,TEMPERATURE` tells "
        "what holds the clocks down"
    )
    return claim.found(
        f"The device computes at {held.clock_mhz:.0f} instead of {held.full_mhz:.0f} MHz for {100 * held.share:.0f} % "
        f"of the time, held down by {held.by}: that costs {claim.percent()} of the time.",
        0.75,
        (
            Evidence("clock while held down", held.clock_mhz, "MHz", f"{held.full_mhz:.0f}"),
            Evidence("looks at which clocks were held down", 100 * held.share, "%", "0"),
            Evidence("held down by", held.by, "", "nothing"),
        ),
        (claim.removing(change, likely=0.7),),
    )


def _usual(seen: OutlierSteps) -> Evidence:
    return Evidence("another step computes", None if seen.usual_ns is None else seen.usual_ns / 1e6, "ms")
