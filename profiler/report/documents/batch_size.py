"""Why a larger batch is slower: one loader's time per sample, by batch size and by term."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...analyse.cells.batch_size.result import BatchVerdict
from ..document import Block, SizesOfBatch, Space


def batch_size_blocks(verdicts: Mapping[str, BatchVerdict]) -> Iterator[Block]:
    """One block a loader."""
    for number, (name, verdict) in enumerate(verdicts.items()):
        if number:
            yield Space()
        yield SizesOfBatch(name, verdict)
