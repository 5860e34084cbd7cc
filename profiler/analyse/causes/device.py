"""Computing takes longer than necessary: other shapes, memory near its limit, others on the device, slow clocks."""

from __future__ import annotations

from ..run.device_state import OutlierSteps
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
        title = f"Torch's compiler takes {claim.percent()} of the time: it recompiles {how}."
    else:
        title = f"New input shapes cost {claim.percent()} of the time, {how}: libraries tune for each new shape."
    changes = [
        claim.removing(
            "Use few shapes instead of many: pad to a multiple (such as 64), or sort samples into buckets of similar "
            "size; set `drop_last=True`, so no last batch is smaller",
            least=0.3,
            likely=0.85,
        )
    ]
    if compiles:
        changes.insert(
            0,
            claim.removing(
                "Use `torch.compile(model, dynamic=True)`, or `torch._dynamo.mark_dynamic(tensor, dim)` for what "
                "varies (`TORCH_LOGS=recompiles` tells why)",
                least=0.3,
                likely=0.8,
            ),
        )
    elif facts.device_kind != "cpu":
        changes.append(claim.removing("Set `torch.backends.cudnn.benchmark = False` while shapes vary", likely=0.7))
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
        tuple(changes),
    )


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
            _usual(seen),
            claim.evidence("memory_peak_bytes"),
        ),
        (
            claim.removing(
                "Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` to lose less memory to fragmentation",
                likely=0.6,
            ),
            claim.removing(
                "Use a smaller batch with gradient accumulation, or activation checkpointing "
                "(`torch.utils.checkpoint.checkpoint`)",
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
        (
            claim.removing(
                "Use a device of its own: end or move the other processes (`nvidia-smi` lists them), "
                "or set `CUDA_VISIBLE_DEVICES` to one that nobody uses",
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
        (claim.removing(change, likely=0.7),),
    )


def _usual(seen: OutlierSteps) -> Evidence:
    return Evidence("Computing time of another step", None if seen.usual_ns is None else seen.usual_ns / 1e6, "ms")
