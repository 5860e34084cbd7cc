"""What a run without workers cannot tell of them."""

from __future__ import annotations


class Assumed:
    """What torch's loader costs on Linux, where a run does not tell: measured on two virtual CPUs with torch 2.15, at
    batches of 4 kB to 13 MB."""

    HANDOFF_NS = 900_000.0
    """Taking over a batch that lies ready: a few system calls for each of its two tensors."""
    TOUCH_NS_PER_BYTE = 0.43
    """Memory that was mapped for a batch costs a page fault for each page when the training first looks at it."""
    SHARE_NS = 450_000.0
    """CPU time of a worker on a batch that the training's own process would not need: memory that all see, pickling."""
    SHARE_NS_PER_BYTE = 0.64
    """What each byte of the batch adds to `SHARE_NS`."""
    OF_WAITED = 0.6
    """The hand-over's part of the time from a batch's end to the end of the fetch that waited for it."""
    START_NS = 25e6
    """Starting a worker, and ending it with its epoch, as `Workload.start_ns`: 1, 4, 8 and 16 forked workers took 67,
    105, 200 and 470 ms."""
