"""What the exchange of gradients costs the ranks of an emulated job, which know how long it takes.

Real devices do not tell: there NCCL's kernels run among the training's own, overlap with them, and count as computing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..causes.finding import Evidence, Finding, Next
from ..run.facts import Facts


def exchange_of(info: Mapping[str, Any], facts: Facts, samples_per_s: float) -> Finding | None:
    """`rank.exchange`; `None` where nothing was exchanged that is known of, or it is not worth a word.

    Args:
        info: run.json.
        facts: of one of the ranks; they exchange alike.
        samples_per_s: of the whole job.
    """
    told = info.get("exchange")
    if not isinstance(told, dict) or not isinstance(told.get("ms"), int | float) or facts.window.count == 0:
        return None
    step_ms = facts.parts.wall_ns / facts.window.count / 1e6
    share = min(0.99, told["ms"] / step_ms)
    most = samples_per_s / (1 - share)
    found = Finding(
        "rank.exchange",
        f"The ranks exchange gradients {told['ms']:.1f} ms a step, {100 * share:.0f} % of the time "
        f"({told.get('interconnect')}, {told.get('way')}; emulated).",
        share,
        0.9,
        (
            Evidence("gradients", _times(told.get("bytes"), 1e-6), "MB"),
            Evidence("interconnect, one direction", _times(told.get("gb_per_s"), 1e3), "MB/s, nominal"),
            Evidence("exchange", told["ms"], "ms a step, computed", "little of a step"),
            Evidence("a step", step_ms, "ms"),
        ),
        (
            Next("a larger batch of each rank: as many samples with fewer exchanges", None, samples_per_s, most),
            Next("accumulate gradients over several batches before they are exchanged", None, samples_per_s, most),
            Next("a faster interconnect", None, samples_per_s, most),
        ),
    )
    return None if found.severity == "none" else found


def _times(value: Any, factor: float) -> float | None:
    return factor * value if isinstance(value, int | float) else None
