"""What a run without workers cannot tell of them."""

from __future__ import annotations

from ..run.worker_records import HandedOver


class Assumed:
    """What torch's loader costs on Linux, where a run does not tell: measured on two virtual CPUs with torch 2.15, at
    batches of 4 kB to 13 MB, of 1 to 100 tensors and 0 to 10,000 other objects."""

    HANDOFF_NS = 800_000.0
    """Taking over a batch that lies ready, whatever is in it."""
    HANDOFF_NS_PER_TENSOR = 450_000.0
    """Each tensor's memory is asked for at a socket, opened and mapped by itself."""
    HANDOFF_NS_PER_OBJECT = 500.0
    """What is no tensor is unpickled."""
    TENSORS = 2
    """In a batch that nobody looked into."""
    TOUCH_NS_PER_BYTE = 0.43
    """Memory that was mapped for a batch costs a page fault for each page when the training first looks at it."""
    SHARE_NS_PER_TENSOR = 225_000.0
    """CPU time of a worker on a batch that the training's own process would not need: memory that all see, pickling."""
    SHARE_NS_PER_BYTE = 0.64
    """What each byte of the batch adds to that."""
    CONTENTION = 0.1
    """Share by which whatever computes takes longer where all other CPUs compute too: caches, memory and power are
    shared. Measured with two: none for most pairs of work, 0.25 beside work that waits for memory."""
    MOST_CONTENTION = 0.25
    """What that may well be."""
    OF_WAITED = 0.6
    """The hand-over's part of the time from a batch's end to the end of the fetch that waited for it."""
    START_NS = 25e6
    """Starting a worker, and ending it with its epoch, as `Workload.start_ns`: 1, 4, 8 and 16 forked workers took 67,
    105, 200 and 470 ms."""

    @staticmethod
    def contention(most: float, cpus: float) -> float:
        """`Workload.contention` of such a share, of so many CPUs."""
        return most / max(1.0, cpus - 1)

    @classmethod
    def handoff_ns(cls, held: HandedOver | None) -> float:
        """What the training spends to take a batch over, its memory untouched."""
        if held is None:
            return cls.HANDOFF_NS + cls.HANDOFF_NS_PER_TENSOR * cls.TENSORS
        return cls.HANDOFF_NS + cls.HANDOFF_NS_PER_TENSOR * held.tensors + cls.HANDOFF_NS_PER_OBJECT * held.objects

    @classmethod
    def sharing_ns(cls, held: HandedOver | None, nbytes: float) -> float:
        """CPU time that a worker spends to hand over a batch of so many bytes."""
        return (
            cls.SHARE_NS_PER_TENSOR * (cls.TENSORS if held is None else held.tensors) + cls.SHARE_NS_PER_BYTE * nbytes
        )
