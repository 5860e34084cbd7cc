"""The device idles inside the steps' computation: the host launches kernels more slowly than the device runs them."""

from __future__ import annotations

from ..run.facts import Facts
from .divided import RUNNING, computing
from .finding import Evidence, Finding, Next
from .gain import removing

SURE_STEPS = 8
"""Steps from at least two activity windows of the default length; fewer may not be typical."""


def launch(facts: Facts) -> Finding | None:
    """Seen kernel by kernel in activity windows."""
    activity, launch_ns = facts.activity, computing(facts).launch
    if activity is None or launch_ns <= 0:
        return None
    kernel_ns = activity.median_kernel_ns
    return Finding(
        "host.launch",
        f"The device idles {100 * launch_ns / facts.parts.wall_ns:.0f} % of the time inside the steps, because the "
        "next kernel is not launched yet.",
        launch_ns / facts.parts.wall_ns,
        0.8 if activity.steps >= SURE_STEPS else 0.6,
        (
            Evidence("waiting for launches, of the computation", 100 * activity.launch_share, "%", "near 0"),
            Evidence("kernels in a step", activity.kernels_per_step, "", "fewer, longer ones"),
            Evidence(
                "median length of a kernel", None if kernel_ns is None else kernel_ns / 1e3, "µs", "well above 10"
            ),
            Evidence("steps recorded kernel by kernel", float(activity.steps), "", f"at least {SURE_STEPS}"),
        ),
        _changes(facts, launch_ns),
    )


def launch_by_utilisation(facts: Facts) -> Finding | None:
    """Without activity windows: the driver saw far fewer kernels than the computation spans."""
    launch_ns = computing(facts).launch
    if facts.activity is not None or launch_ns <= 0:
        return None
    return Finding(
        "host.launch",
        f"The device seems to idle {100 * launch_ns / facts.parts.wall_ns:.0f} % of the time inside the steps, while "
        "the training's thread is busy all the time: kernels are launched too slowly.",
        launch_ns / facts.parts.wall_ns,
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
        _changes(facts, launch_ns),
    )


RULES = (launch, launch_by_utilisation)


def _changes(facts: Facts, launch_ns: float) -> tuple[Next, ...]:
    return (
        removing(
            facts,
            'torch.compile(model, mode="reduce-overhead"), or CUDA graphs: one launch for many kernels',
            launch_ns,
            least=0.2,
            likely=0.7,
        ),
        removing(facts, "a larger batch: the same number of launches for more work", launch_ns, likely=0.5),
        removing(
            facts,
            "fewer small kernels: fused optimizer (fused=True), channels_last, no loops over tensors",
            launch_ns,
            likely=0.3,
        ),
    )
