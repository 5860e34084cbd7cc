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


class StepHooks(Protocol):
    """Where a step tells what it does (`capture.steps.StepRecorder` listens)."""

    def compute_begin(self) -> None: ...
    def backward_begin(self) -> None: ...
    def optimizer_begin(self) -> None: ...
    def optimizer_end(self) -> None: ...


class Training(Protocol):
    def step(self, batch: Batch, hooks: StepHooks) -> None:
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

    def step(self, batch: Batch, hooks: StepHooks) -> None:
        hooks.compute_begin()
        loss = self._loss(self._trained, batch)
        hooks.backward_begin()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        hooks.optimizer_begin()
        self._optimizer.step()
        hooks.optimizer_end()
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


class EmulatedTraining:
    """A step of a net as an accelerator's profile says it runs: kernels queued, nothing computed."""

    def __init__(self, device: EmulatedDevice, accelerator: Accelerator, net: str, batch_size: int) -> None:
        self._device = device
        self._accelerator = accelerator
        self._net = net
        device.require_memory(accelerator.memory_bytes_needed(net, batch_size))

    def step(self, batch: Batch, hooks: StepHooks) -> None:
        duration = self._accelerator.step_ns(self._net, batch.samples)
        shares = self._accelerator.phases(self._net, batch.samples)
        kernels = self._accelerator.net(self._net).net.kernels
        hooks.compute_begin()
        self._device.compute(round(duration * shares.forward), kernels.forward)
        hooks.backward_begin()
        self._device.compute(round(duration * shares.backward), kernels.backward)
        hooks.optimizer_begin()
        self._device.compute(round(duration * shares.optimizer), kernels.optimizer)
        hooks.optimizer_end()

    def read_loss(self) -> float | None:
        self._device.synchronize()
        return None

    def set_rate(self, rate: float) -> None:
        """Takes the same time at any rate."""

    def evaluate(self, judge: Judge) -> dict[str, Any] | None:
        return None
