"""What a sweep over batch sizes tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...causes.finding import Evidence
from ...statistics import Estimate


@dataclass(frozen=True)
class Work:
    """What a run of one batch size did; medians over its runs."""

    samples: int
    seconds: float


@dataclass(frozen=True)
class BatchVerdict:
    """One loader's sweep. `cause` is one of the contract's; `grew` names the term that grew, if one did."""

    cause: str
    grew: str | None
    text: str
    """The mechanism in a sentence or two, with its figures."""
    smaller: int
    """The size that the larger is compared with: of the others the one with the least time per sample."""
    larger: int
    """The largest size with enough steps."""
    terms: Mapping[int, Mapping[str, Estimate]]
    """Per batch size: each of `TERMS` in µs a sample, with the interval of its mean over the runs."""
    medians: Mapping[int, Mapping[str, float]]
    """Per batch size: each of `TERMS` in µs a sample, the median over the runs; those of the parts do not sum to the
    total's."""
    changes: Mapping[str, Estimate]
    """What each of `TERMS` grew by from `smaller` to `larger`, µs a sample. With more than two sizes the intervals are
    wider, since these two were chosen among them."""
    work: Mapping[int, Work]
    """Per batch size: what its runs did."""
    runs: Mapping[int, int]
    """Per batch size: how many runs there were."""
    noise: float
    """What runs of the same size are taken to differ by: standard deviation, as a share of the time per sample."""
    evidence: tuple[Evidence, ...] = field(default=())
