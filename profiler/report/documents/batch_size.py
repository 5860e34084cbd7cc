"""Why a larger batch is slower: what is said of one loader's time per sample, by batch size and by term."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...analyse.cells.batch_size.result import BatchVerdict
from ..document import (
    Block,
    SizesOfBatch,
    Space,
)
from ..words.figures import NOT_MEASURED


def batch_size_blocks(verdicts: Mapping[str, BatchVerdict]) -> Iterator[Block]:
    """One block a loader."""
    for number, (name, verdict) in enumerate(verdicts.items()):
        if number:
            yield Space()
        yield SizesOfBatch(name, verdict)


def sentence(verdict: BatchVerdict) -> str:
    """What a larger batch did."""
    return f"{verdict.text[:1].upper()}{verdict.text[1:].rstrip('.')}."


def compared(verdict: BatchVerdict) -> str:
    """What the figures rest on."""
    counts = set(verdict.runs.values())
    if counts == {1}:
        rests = f"One run of each size: it has no interval of its own, runs are taken to differ by {_percent(verdict)}."
    elif len(counts) == 1:
        rests = f"{counts.pop()} runs of each size, taken to differ by {_percent(verdict)}."
    else:
        each = ", ".join(f"{number} of batch {size}" for size, number in verdict.runs.items())
        rests = f"Runs: {each}; those of one size are taken to differ by {_percent(verdict)}."
    return f"Compared: batch {verdict.smaller} and {verdict.larger}. {rests} Intervals are of 95 %."


def _percent(verdict: BatchVerdict) -> str:
    percent = 100 * verdict.noise
    if percent != percent:
        return NOT_MEASURED
    return f"{percent:.1f} %" if percent >= 0.05 or percent == 0 else "less than 0.1 %"


def measured(verdict: BatchVerdict, size: int) -> tuple[str, str]:
    """Samples and seconds of a run, after its warm-up."""
    work = verdict.work.get(size)
    if work is None:
        return NOT_MEASURED, NOT_MEASURED
    return str(work.samples), f"{work.seconds:.1f}" if work.seconds < 100 else f"{work.seconds:.0f}"
