"""One of the processes that train together: its device, its share of the data, and how it meets the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from whyidle.devices.emulated import EmulatedDevice
from whyidle.devices.protocol import Device
from whyidle.errors import WhyidleError
from whyidle.pipelines.protocol import Batch, Settings
from whyidle.record.processes import describe_process
from whyidle.record.run import update_run

from .interconnect import gradient_bytes, named, own_link
from .training import EmulatedTraining, Judge, StepHooks, Training


@dataclass(frozen=True)
class Rank:
    """The only process of a training unless said otherwise."""

    number: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether it speaks for all: it alone writes run.json and tries the net on held-out data."""
        return self.number == 0

    def device(self, name: str) -> str:
        """The device of this rank, of those that the training was given. All ranks are on one machine."""
        if name != "cuda" or self.size == 1:
            return name
        torch.cuda.set_device(self.number)
        return f"cuda:{self.number}"

    def share(self, settings: Settings) -> Settings:
        """The loader's settings, for this rank's share of each epoch."""
        return replace(settings, rank=self.number, ranks=self.size)

    def tell(self, folder: Path, changes: dict[str, Any]) -> None:
        """Into run.json, which is of all ranks."""
        if self.leads:
            update_run(folder, changes)

    def describe(self, folder: Path, device: Device) -> None:
        """Say who records here; a training of one process leaves that to run.json."""
        if self.size > 1:
            facts = {
                "world_size": self.size,
                "local_rank": self.number,
                "torch": torch.__version__,
                "device": device.describe(),
                "began_ns": device.now(),
            }
            describe_process(folder, self.number, os.getpid(), facts)

    def wrap(self, module: torch.nn.Module) -> Any:
        """A module whose gradients are averaged over the ranks; one that learns nothing as it is."""
        if self.size == 1 or not any(each.requires_grad for each in module.parameters()):
            return module
        # Built alike on all ranks; what is drawn from now on (dropout) is to differ.
        torch.manual_seed(torch.initial_seed() + self.number)
        return Replica(module)

    def training(
        self, training: Training, device: Device, net: str, interconnect: str | None, folder: Path
    ) -> Training:
        """The training, with the exchange of gradients where that is emulated. `net`: as profiles call it."""
        if self.size == 1 or not isinstance(training, EmulatedTraining) or not isinstance(device, EmulatedDevice):
            return training
        if device.profile is None:
            raise WhyidleError(f"{device.title} has no profile, so it is not known what its ranks have to exchange.")
        link = named(interconnect) if interconnect else own_link(device.profile)
        nbytes = gradient_bytes(device.profile, net)
        self.tell(folder, {"exchange": link.describe(nbytes, self.size)})
        return ExchangingTraining(training, device, link.exchange_ns(nbytes, self.size))

    def meet(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            dist.barrier()


ALONE = Rank()


class Replica(DistributedDataParallel):
    """Has what its module has, which losses ask for by name."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            return getattr(self.module, name)


class ExchangingTraining:
    """An emulated training whose device exchanges gradients with those of the other ranks.

    The exchange begins when the last device is done with its backward pass, and takes the time that the interconnect
    gives; none of it is hidden behind the backward pass.
    """

    def __init__(self, training: Training, device: EmulatedDevice, exchange_ns: int) -> None:
        self._training = training
        self._device = device
        self._exchange_ns = exchange_ns

    def step(self, batch: Batch, hooks: StepHooks) -> None:
        self._training.step(batch, _ExchangingHooks(hooks, self._exchange))

    def read_loss(self) -> float | None:
        return self._training.read_loss()

    def set_rate(self, rate: float) -> None:
        self._training.set_rate(rate)

    def evaluate(self, judge: Judge) -> dict[str, Any] | None:
        return self._training.evaluate(judge)

    def _exchange(self) -> None:
        # When this device would begin. All ranks are on one machine, and so on one clock; the latest counts.
        arrives = torch.tensor(self._device.record().time_ns(), dtype=torch.int64)
        dist.all_reduce(arrives, dist.ReduceOp.MAX)
        self._device.hold(int(arrives))
        self._device.compute(self._exchange_ns)


class _ExchangingHooks:
    """Exchanges between the backward pass and the optimizer."""

    def __init__(self, hooks: StepHooks, exchange: Callable[[], None]) -> None:
        self._hooks = hooks
        self._exchange = exchange
        self._backward = False

    def compute_begin(self) -> None:
        self._hooks.compute_begin()

    def backward_begin(self) -> None:
        self._backward = True
        self._hooks.backward_begin()

    def optimizer_begin(self) -> None:
        # Without a backward pass there is nothing to exchange.
        if self._backward:
            self._exchange()
        self._hooks.optimizer_begin()

    def optimizer_end(self) -> None:
        self._hooks.optimizer_end()
