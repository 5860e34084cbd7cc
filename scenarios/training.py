"""One training step: for real with torch, or on an emulated accelerator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from whyidle.devices.emulated import EmulatedDevice
from whyidle.devices.profiles import Accelerator
from whyidle.pipelines.protocol import Batch

Judge = Callable[[Any], dict[str, Any]]
"""Says what a net is worth."""

Wrap = Callable[[torch.nn.Module], Any]
"""Makes of a module what several ranks train together."""


def whole(module: torch.nn.Module) -> Any:
    """A module as it is, for a single rank."""
    return module


class Training(Protocol):
    def step(self, batch: Batch) -> None:
        """Forward, backward and optimizer on a batch that is on the device."""
        ...

    def read_loss(self) -> float | None:
        """The loss of the last step; waits for the device. `None` on an emulated one, which computes none."""
        ...

    def set_rate(self, rate: float) -> None:
        """Learn at this rate from now on."""
        ...

    def evaluate(self, judge: Judge) -> dict[str, Any] | None:
        """What the judge makes of the net as it is, in evaluation mode. `None` where no net is trained."""
        ...


class TorchTraining:
    """A net trained for real."""

    def __init__(
        self,
        net: torch.nn.Module,
        loss: Callable[[Any, Batch], torch.Tensor],
        optimizer: torch.optim.Optimizer,
        wrap: Wrap = whole,
    ) -> None:
        self._net = net
        self._trained = wrap(net)
        self._loss = loss
        self._optimizer = optimizer
        self._last: torch.Tensor | None = None

    def step(self, batch: Batch) -> None:
        loss = self._loss(self._trained, batch)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._last = loss.detach()

    def read_loss(self) -> float | None:
        return None if self._last is None else float(self._last)

    def set_rate(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def evaluate(self, judge: Judge) -> dict[str, Any] | None:
        self._net.eval()
        try:
            with torch.no_grad():
                return judge(self._net)
        finally:
            self._net.train()


class Untrained:
    """What nothing is learnt in."""

    def __init__(self) -> None:
        # A step ends where an optimizer does: one without anything to learn.
        self._end = torch.optim.SGD([torch.zeros(1)], lr=0.0)

    def read_loss(self) -> float | None:
        return None

    def set_rate(self, rate: float) -> None:
        """Nothing learns."""

    def evaluate(self, judge: Judge) -> dict[str, Any] | None:
        return None


class EmulatedNet(torch.nn.Module):
    """Stands for a net on an emulated accelerator: queues the kernels that the profile says it has, and computes
    nothing. It has one parameter, which learns nothing, so that there is a graph to go backward through."""

    def __init__(self, device: EmulatedDevice, accelerator: Accelerator, net: str) -> None:
        super().__init__()
        self._device = device
        self._accelerator = accelerator
        self._name = net
        self._samples = 0
        self._weight = torch.nn.Parameter(torch.zeros(()))
        self.exchange: Callable[[], None] | None = None
        """Called when the backward pass was queued: several ranks exchange their gradients."""

    def forward(self, samples: int) -> Any:
        self._samples = samples
        return _Queued.apply(self._weight, self)

    def queue(self, part: str) -> None:
        """Queue the kernels of the last batch's `forward`, `backward` or `optimizer`."""
        share = getattr(self._accelerator.phases(self._name, self._samples), part)
        kernels = getattr(self._accelerator.net(self._name).net.kernels, part)
        self._device.compute(round(self._accelerator.step_ns(self._name, self._samples) * share), kernels)


class _Queued(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, net: EmulatedNet) -> torch.Tensor:
        ctx.net = net
        net.queue("forward")
        return weight.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        net: EmulatedNet = ctx.net
        net.queue("backward")
        if net.exchange is not None:
            net.exchange()
        return gradient, None


class _EmulatedOptimizer(torch.optim.Optimizer):
    """Queues the kernels of an optimizer's step."""

    def __init__(self, net: EmulatedNet) -> None:
        super().__init__(net.parameters(), {})
        self._emulated = net

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self._emulated.queue("optimizer")


class EmulatedTraining(TorchTraining):
    """A training of a net as an accelerator's profile says it runs."""

    def __init__(self, device: EmulatedDevice, accelerator: Accelerator, net: str, batch_size: int) -> None:
        self.net = EmulatedNet(device, accelerator, net)
        super().__init__(self.net, lambda model, batch: model(batch.samples), _EmulatedOptimizer(self.net))
        self._device = device
        device.require_memory(accelerator.memory_bytes_needed(net, batch_size))

    def read_loss(self) -> float | None:
        self._device.synchronize()
        return None

    def evaluate(self, judge: Judge) -> dict[str, Any] | None:
        return None
