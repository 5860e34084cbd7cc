"""TensorFlow's AlexNet benchmark: a forward pass alone, and gradients that no optimizer takes."""

from __future__ import annotations

from typing import Any

import torch

from whyidle.devices.emulated import EmulatedDevice
from whyidle.devices.profiles import Accelerator
from whyidle.pipelines.protocol import Batch

from ..training import Untrained
from .nets import benchmark_loss


class _Benchmark(Untrained):
    """The last loss is the benchmark's own: half of the sum of squares of pool5."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self._net = net
        self._last: torch.Tensor | None = None

    def read_loss(self) -> float | None:
        return None if self._last is None else float(self._last)


class Forward(_Benchmark):
    """A forward pass without gradients."""

    def step(self, batch: Batch) -> None:
        with torch.no_grad():
            self._last = benchmark_loss(self._net(batch.inputs))
        self._end.step()


class Gradients(_Benchmark):
    """Forward and backward."""

    def step(self, batch: Batch) -> None:
        loss = benchmark_loss(self._net(batch.inputs))
        self._net.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._end.step()
        self._last = loss.detach()


class EmulatedForward(Untrained):
    """A forward pass as an accelerator's profile says it runs."""

    def __init__(self, device: EmulatedDevice, accelerator: Accelerator, net: str, batch_size: int) -> None:
        super().__init__()
        self._device = device
        self._accelerator = accelerator
        self._net = net
        device.require_memory(accelerator.memory_bytes_needed(net, batch_size))

    def step(self, batch: Batch) -> None:
        self._device.compute(self._accelerator.step_ns(self._net, batch.samples), self._accelerator.kernels(self._net))
        self._end.step()

    def read_loss(self) -> float | None:
        self._device.synchronize()
        return None
