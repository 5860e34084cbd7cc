"""The device idles inside the steps' computation: the host launches kernels more slowly than the device runs them."""

from __future__ import annotations

from .claim import Claim
from .divided import RUNNING
from .finding import Evidence, Finding, Next

SURE_STEPS = 8
"""Steps seen kernel by kernel, from which they are typical: those of two activity windows of the default length."""


def launch(claim: Claim) -> Finding | None:
    """Seen kernel by kernel in activity windows."""
    activity = claim.facts.activity
    if activity is None:
        return None
    kernel_ns = activity.median_kernel_ns
    return claim.found(
        f"The device idles {claim.percent()} of the time inside the steps, because the "
        "next kernel is not launched yet.",
        0.8 if activity.steps >= SURE_STEPS else 0.6,
        (
            Evidence("waiting for launches, of the computation", 100 * activity.launch_share, "%", "near 0"),
            Evidence("kernels in a step", activity.kernels_per_step, "", "fewer, longer ones"),
            Evidence(
                "median length of a kernel", None if kernel_ns is None else kernel_ns / 1e3, "µs", "well above 10"
            ),
            Evidence("steps recorded kernel by kernel", float(activity.steps), "", f"at least {SURE_STEPS}"),
        ),
        _changes(claim),
    )


def launch_by_utilisation(claim: Claim) -> Finding | None:
    """Without activity windows: the driver saw far fewer kernels than the computation spans."""
    facts = claim.facts
    if facts.activity is not None:
        return None
    return claim.found(
        f"The device seems to idle {claim.percent()} of the time inside the steps, while "
        "the training's thread is busy all the time: kernels are launched too slowly.",
        0.5,
        (
            Evidence("time from the first to the last kernel of the steps", 100 * facts.parts.share("compute"), "%"),
            Evidence(
                "of all time, some kernel ran (the driver's utilisation)",
                facts.sampled.utilisation_pct,
                "%",
                f"about {100 * facts.parts.share('compute'):.0f}",
            ),
            Evidence(
                "training's thread on a CPU, of its own time",
                None if facts.running is None else 100 * facts.running,
                "%",
                f"below {100 * RUNNING:.0f}",
            ),
            Evidence("steps recorded kernel by kernel", 0.0, "", "`whyidle run --activity-windows` makes this sure"),
        ),
        _changes(claim),
    )


def _changes(claim: Claim) -> tuple[Next, ...]:
    return (
        claim.removing(
            'torch.compile(model, mode="reduce-overhead"), or CUDA graphs: one launch for many kernels',
            least=0.2,
            likely=0.7,
        ),
        claim.removing("a larger batch: the same number of launches for more work", likely=0.5),
        claim.removing(
            "fewer small kernels: fused optimizer (fused=True), channels_last, no loops over tensors",
            likely=0.3,
        ),
    )
