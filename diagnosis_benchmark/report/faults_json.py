"""Planted faults as JSON: what `compare faults --json` adds to the contract's `whyidle-compare`."""

from __future__ import annotations

from typing import Any

from ..confusion import CaseSummary, Confusion, Errors, HitRate

UNJUDGED: dict[str, Any] = {
    "named_first": None,
    "named": {},
    "right": 0,
    "all_found": 0,
    "share_pct": {"true": None, "reported": None},
    "shares_pct": {},
}
"""A cell without a run that could be judged."""


def matrix(result: Confusion) -> dict[str, Any]:
    """The confusion matrix and the figures that targets are set for; `null` where nothing was judged."""
    return {
        "named_for": {planted: dict(named) for planted, named in result.matrix.items()},
        "faults_named_first": hit_rate(result.faults),
        "compounds_found": hit_rate(result.compounds),
        "compounds_named_first": hit_rate(result.compounds_first),
        "controls_quiet": hit_rate(result.controls),
        "share_errors": _errors(result.errors),
    }


def of_case(case: CaseSummary) -> dict[str, Any]:
    """One case's cell: what its runs say together, by medians. `named_first` is the commonest verdict, `right` how many
    runs named a planted cause first (a control: had no finding above minor), `share_pct` that of the first cause."""
    shares = {
        share.cause: {"true": share.true_pct, "reported": share.reported_pct, "errors": _errors(share.errors)}
        for share in case.shares
    }
    first = case.shares[0] if case.shares else None
    return {
        "named_first": next(iter(case.named), None),
        "named": dict(case.named),
        "right": case.first.hits,
        "all_found": case.every.hits,
        "share_pct": {
            "true": first.true_pct if first else None,
            "reported": first.reported_pct if first else None,
        },
        "shares_pct": shares,
    }


def hit_rate(rate: HitRate) -> dict[str, Any]:
    """So many of so many, the rate and its 95 % interval (0..1; `null` where nothing was judged)."""
    low, high = rate.interval
    return {"hits": rate.hits, "of": rate.of, "rate": rate.value, "low": low, "high": high}


def _errors(errors: Errors) -> dict[str, Any]:
    return {
        "median": errors.median,
        "worst": errors.worst,
        "within_5": errors.close.hits,
        "of": errors.close.of,
        "unnamed": errors.unnamed,
    }
