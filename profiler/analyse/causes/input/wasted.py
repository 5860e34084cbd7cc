"""Samples are made and thrown away: by `collate_fn`, by workers that make the same, by the loop behind the loader."""

from __future__ import annotations

from ...predict.what_if import VanishedWork
from ...speedup import Speedup
from ..finding import Evidence, Finding, Next
from ..speedup import LEAST_OF_GAIN, Vanishing, as_next, by_parts, by_replay
from .wait import Wait

LEAST_WASTED = 0.15
"""Share of the samples that have to be made for nothing: to leave out a broken file now and then is no fault."""
LEAST_TOLD = 0.02
"""Share of the samples from which a way to waste them is named."""


def wasted(wait: Wait) -> Finding | None:
    """Much of the making is for nothing."""
    found = wait.facts.wasted
    if found is None or found.share < LEAST_WASTED:
        return None
    ways = sorted(
        (
            (
                found.dropped,
                f"samples are thrown away when they have been made ({100 * found.dropped:.0f} %)",
                "leave out before making: choose the indices once, or look at what is cheap (a label, a length, a "
                "header) before decoding; of a stream, let each worker make only its own part",
            ),
            (
                found.repeated,
                f"workers make the same batches, so that {100 * found.repeated:.0f} % of them are there already",
                "divide the data in __iter__ by torch.utils.data.get_worker_info(): each worker makes only its part",
            ),
            (
                found.passed_over,
                f"the training computes nothing with {100 * found.passed_over:.0f} % of the batches it fetches",
                "filter before making: leave those samples out of the dataset or its sampler, not out of the loop",
            ),
        ),
        reverse=True,
    )
    told = [(how, change) for share, how, change in ways if share >= LEAST_TOLD]
    return wait.found(
        f"{wait.begins}, and {100 * found.share:.0f} % of the making is for nothing: "
        f"{'; '.join(how for how, _ in told)}.",
        0.9,
        (
            Evidence(
                "making of samples that is for nothing", 100 * found.share, "%", f"below {100 * LEAST_WASTED:.0f}"
            ),
            Evidence("making of samples that are left out", 100 * found.dropped, "%", "near 0"),
            Evidence("batches that another worker made too", 100 * found.repeated, "%", "0"),
            Evidence("batches fetched and not computed with", 100 * found.passed_over, "%", "near 0"),
            wait.evidence("make_ms_per_sample"),
            wait.evidence("worker_busy_pct"),
        ),
        tuple(_using_all(wait, change) for _, change in told),
    )


def crowding(wait: Wait) -> Finding | None:
    """What is made for nothing takes the CPUs from whatever hands batches over."""
    return wasted(wait) if wait.few_cpus_left else None


def _using_all(wait: Wait, change: str) -> Next:
    """What is gained where nothing is made for nothing: the same steps with so much less making, and each sample of
    an epoch once."""
    facts, found = wait.facts, wait.facts.wasted
    assert found is not None
    once = 1 / (1 - found.repeated)
    less = 1 - (1 - found.dropped) * (1 - found.passed_over)
    making = wait.ns if facts.made_in_training else facts.parts.wall_ns - facts.parts.boundary_ns
    less_made = Vanishing(LEAST_OF_GAIN, 1.0)
    made = by_replay(facts, VanishedWork(making=less), less_made) or by_parts(
        facts, min(wait.ns, less * making), less_made
    )
    low = 1 + (made.low * once - 1) * (LEAST_OF_GAIN if once > 1 else 1.0)
    return as_next(facts, change, Speedup(made.value * once, low, made.high * once, made.to_try), "slice")
