"""The device idles inside the steps' computation: the host launches kernels more slowly than the device runs them."""

from __future__ import annotations

from .claim import Claim
from .divided import RUNNING
from .finding import Evidence, Finding


def launch(claim: Claim) -> Finding | None:
    """The driver saw far fewer kernels than the computation spans."""
    facts = claim.facts
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
        ),
        (
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
        ),
    )
