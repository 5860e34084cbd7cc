"""Planted sweeps as JSON: what `compare batch-sizes --json` adds to the contract's `whyidle-compare`."""

from __future__ import annotations

from typing import Any

from ..judged_sweeps import JudgedSweep


def of_sweep(sweep: JudgedSweep) -> dict[str, Any]:
    """What was planted and named; `true_terms` by batch size in µs a sample; the growth of the planted term, or of the
    whole where none was planted, in percent of the time per sample at the smaller size. `null` where too few sizes ran,
    and as a term that grew: none."""
    verdict, growth = sweep.verdict, sweep.growth
    return {
        "planted": {"cause": sweep.cause, "grew": sweep.grew},
        "named": None if verdict is None else {"cause": verdict.cause, "grew": verdict.grew},
        "right": sweep.right,
        "true_terms": {str(size): dict(terms) for size, terms in sweep.truth.items()},
        "growth_pct": None if growth is None else {"true": 100 * growth.true, "reported": 100 * growth.reported},
    }
