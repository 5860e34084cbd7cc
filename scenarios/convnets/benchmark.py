"""TensorFlow's AlexNet benchmark: a forward pass alone, and gradients that no optimizer takes."""

from __future__ import annotations

from typing import Any

import torch

from whyidle.devices.emulated import EmulatedDevice
from whyidle.devices.profiles import Accelerator
from whyidle.pipelines.protocol import Batch

from ..training import Judge, StepHooks
from .nets import benchmark_loss


class _Benchmark:
    """What nothing is learnt in. The last loss is the benchmark's own: half of the sum of squares of pool5."""

    def __init__(self) -> None:
        self._last: torch.Tensor | None = None

    def read_loss(self) -> float | None:
        return None if self._last is None else float(self._last)

    def set_rate(self, rate: float) -> None:
        """There is no optimizer."""

    def evaluate(self, judge: Judge) -> dict[str, Any] | None:
        return None


class Forward(_Benchmark):
    """A forward pass without gradients. Tells of an optimizer that does nothing, for its end is the step's."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self._net = net

    def step(self, batch: Batch, hooks: StepHooks) -> None:
        hooks.compute_begin()
        with torch.no_grad():
            self._last = benchmark_loss(self._net(batch.inputs))
        hooks.optimizer_begin()
        hooks.optimizer_end()


class Gradients(_Benchmark):
    """Forward and backward."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self._net = net

    def step(self, batch: Batch, hooks: StepHooks) -> None:
        hooks.compute_begin()
        loss = benchmark_loss(self._net(batch.inputs))
        hooks.backward_begin()
        self._net.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        hooks.optimizer_begin()
        hooks.optimizer_end()
        self._last = loss.detach()


class EmulatedForward(_Benchmark):
    """A forward pass as an accelerator's profile says it runs."""

    def __init__(self, device: EmulatedDevice, accelerator: Accelerator, net: str, batch_size: int) -> None:
        super().__init__()
        self._device = device
        self._accelerator = accelerator
        self._net = net
        device.require_memory(accelerator.memory_bytes_needed(net, batch_size))

    def step(self, batch: Batch, hooks: StepHooks) -> None:
        hooks.compute_begin()
        self._device.compute(self._accelerator.step_ns(self._net, batch.samples), self._accelerator.kernels(self._net))
        hooks.optimizer_begin()
        hooks.optimizer_end()

    def read_loss(self) -> float | None:
        self._device.synchronize()
        return None
