"""The device idles inside the steps: what only a record of each kernel can show."""

from __future__ import annotations

from ..facts import Facts
from ..finding import Evidence, Finding, Next

SURE_STEPS = 8
"""Steps from at least two windows of the default length; fewer may not be typical."""


def launch(facts: Facts) -> Finding | None:
    """The host launches kernels more slowly than the device runs them."""
    activity = facts.activity
    if activity is None or activity.launch_share <= 0:
        return None
    share = activity.launch_share * facts.parts.share("compute")
    kernel_ns = activity.median_kernel_ns
    return Finding(
        "host.launch",
        f"The device idles {100 * share:.0f} % of the time inside the steps, because the next kernel is not launched "
        "yet.",
        share,
        0.8 if activity.steps >= SURE_STEPS else 0.6,
        (
            Evidence("waiting for launches, of the computation", 100 * activity.launch_share, "%", "near 0"),
            Evidence("kernels in a step", activity.kernels_per_step, "", "fewer, longer ones"),
            Evidence(
                "median length of a kernel", None if kernel_ns is None else kernel_ns / 1e3, "µs", "well above 10"
            ),
            Evidence("steps recorded kernel by kernel", float(activity.steps), "", f"at least {SURE_STEPS}"),
        ),
        tuple(
            Next(change, None, facts.samples_per_s, facts.without(round(share * facts.parts.wall_ns)))
            for change in (
                'torch.compile(mode="reduce-overhead"), or CUDA graphs: one launch for many kernels',
                "a larger batch: the same number of launches for more work",
                "fewer small kernels: fused optimizer (fused=True), channels_last, no loops over tensors",
            )
        ),
    )


RULES = (launch,)
