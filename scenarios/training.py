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

Queueing = Callable[[], object]
"""Has an emulated device work."""


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
    """Stands for a net on an emulated accelerator: it computes nothing, and has the work queued that it is given.

    It has one parameter, which learns nothing, so that there is a graph to go backward through.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, forward: Queueing, backward: Queueing) -> Any:
        """The loss. `forward` is called now, `backward` when that pass runs."""
        return _Queued.apply(self.weight, forward, backward)


class _Queued(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, forward: Queueing, backward: Queueing) -> torch.Tensor:
        ctx.queue_backward = backward
        forward()
        return weight.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        ctx.queue_backward()
        return gradient, None, None


class EmulatedOptimizer(torch.optim.Optimizer):
    """The optimizer of an `EmulatedNet`: its step is the work that it is given as the closure."""

    def __init__(self, net: EmulatedNet) -> None:
        super().__init__(net.parameters(), {})

    def step(self, closure: Any) -> None:  # type: ignore[override]
        closure()


class EmulatedTraining:
    """A training as an accelerator's profile says that it runs: kernels queued, nothing computed."""

    def __init__(self, device: EmulatedDevice, accelerator: Accelerator, net: str, batch_size: int) -> None:
        self._device = device
        self._accelerator = accelerator
        self._name = net
        self._net = EmulatedNet()
        self._optimizer = EmulatedOptimizer(self._net)
        self.exchange: Callable[[], None] = lambda: None
        """Called when a backward pass was queued: where several ranks exchange their gradients."""
        device.require_memory(accelerator.memory_bytes_needed(net, batch_size))

    def step(self, batch: Batch) -> None:
        duration = self._accelerator.step_ns(self._name, batch.samples)
        shares = self._accelerator.phases(self._name, batch.samples)
        kernels = self._accelerator.net(self._name).net.kernels

        def backward() -> None:
            self._device.compute(round(duration * shares.backward), kernels.backward)
            self.exchange()

        loss = self._net(lambda: self._device.compute(round(duration * shares.forward), kernels.forward), backward)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step(lambda: self._device.compute(round(duration * shares.optimizer), kernels.optimizer))

    def read_loss(self) -> float | None:
        self._device.synchronize()
        return None

    def set_rate(self, rate: float) -> None:
        """Takes the same time at any rate."""

    def evaluate(self, judge: Judge) -> dict[str, Any] | None:
        return None
