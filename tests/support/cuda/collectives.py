"""Collectives as one rank of a job meets them: what NCCL queues on its device, and what `DistributedDataParallel` makes
of a backward pass.

Names here are those of torch/csrc/distributed/c10d: ProcessGroupNCCL.cpp and reducer.cpp. All of it happens in torch's
core, where no hook on Python's classes sees streams that wait. The other ranks are a moment: when the last one comes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from .machine import Machine
from .operations import queue_of


class Work:
    """A collective that was queued on a stream of its own."""

    def __init__(self, machine: Machine, index: int, end_ns: int) -> None:
        self._machine = machine
        self._gpu = machine.of(index)
        self._end_ns = end_ns

    def wait(self) -> None:
        """The current stream waits for it, and the host does not (`WorkNCCL::synchronizeStream`)."""
        queue = queue_of(self._machine, self._gpu)
        self._gpu.clock.pass_ns(self._gpu.spec.call_ns)
        queue.empty_ns = max(queue.empty_ns, self._end_ns)


class ProcessGroup:
    """A group of ranks, on this one's device."""

    def __init__(self, machine: Machine, index: int = 0, late_ns: int = 0) -> None:
        """`late_ns`: how long after this rank the last one comes to a collective."""
        self._machine = machine
        self._index = index
        self._late_ns = late_ns
        self._queue = machine.of(index).stream(0)

    def all_reduce(self, duration_ns: int, asynchronous: bool = False) -> Work | None:
        """A kernel that is done when all ranks have come and have exchanged what they brought.

        It lies in the current stream; if it is asynchronous, in the group's own, which waits for the current one first
        (`collective`: "in asyncOp=false [default] mode, we use currentStream as ncclStream").
        """
        gpu = self._machine.of(self._index)
        current = queue_of(self._machine, gpu)
        queue = self._queue if asynchronous else current
        if asynchronous:
            queue.empty_ns = max(queue.empty_ns, gpu.mark(current))
        gpu.meet(queue, "nccl", duration_ns, gpu.clock.now_ns + self._late_ns)
        return Work(self._machine, self._index, gpu.mark(queue)) if asynchronous else None

    def barrier(self) -> None:
        """A collective that the host waits for, within torch's core (`ProcessGroupNCCL::barrier`)."""
        self.all_reduce(0)
        gpu = self._machine.of(self._index)
        self._machine.synchronise(gpu, queue_of(self._machine, gpu).empty_ns)


def reduce_gradients(group: ProcessGroup, model: nn.Module, bucket_ns: Sequence[int]) -> None:
    """Have the gradients of a model reduced in so many buckets from here on, each in so long, as
    `DistributedDataParallel` does: the last parameters first.

    Each gradient is scaled into its bucket; a bucket that is full is reduced on the group's stream while the backward
    pass goes on (`mark_variable_ready_dense`, `mark_bucket_ready`). At the end of the pass the computing stream waits
    for each bucket, and the gradients are copied out of it (`finalize_backward`, `finalize_bucket_dense`).
    """
    parameters = [each for each in reversed(list(model.parameters())) if each.requires_grad]
    size = -(-len(parameters) // len(bucket_ns))
    buckets = [parameters[at : at + size] for at in range(0, len(parameters), size)]
    pending = [len(bucket) for bucket in buckets]
    under_way: list[Work] = []

    def finalize() -> None:
        for work, bucket in zip(under_way, buckets, strict=True):
            work.wait()
            for parameter in bucket:
                assert parameter.grad is not None
                parameter.grad.copy_(parameter.grad.detach())
        under_way.clear()
        pending[:] = [len(bucket) for bucket in buckets]

    def ready(number: int, parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul(1.0)
        pending[number] -= 1
        while len(under_way) < len(buckets) and pending[len(under_way)] == 0:
            work = group.all_reduce(bucket_ns[len(under_way)], asynchronous=True)
            assert work is not None
            under_way.append(work)
            if len(under_way) == len(buckets):
                torch.autograd.Variable._execution_engine.queue_callback(finalize)

    for number, bucket in enumerate(buckets):
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(lambda each, number=number: ready(number, each))
