"""One of the processes that train together: its device, its share of the data, and how it meets the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from whyidle.devices.emulated import EmulatedDevice
from whyidle.devices.protocol import Device
from whyidle.errors import WhyidleError
from whyidle.pipelines.protocol import Settings
from whyidle.record.run import update_run

from .interconnect import gradient_bytes, named, own_link
from .training import EmulatedTraining, Training


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

    def wrap(self, module: torch.nn.Module) -> Any:
        """A module whose gradients are averaged over the ranks; one that learns nothing as it is."""
        if self.size == 1 or not any(each.requires_grad for each in module.parameters()):
            return module
        # Built alike on all ranks; what is drawn from now on (dropout) is to differ.
        torch.manual_seed(torch.initial_seed() + self.number)
        return Replica(module)

    def connect(self, training: Training, device: Device, net: str, interconnect: str | None, folder: Path) -> None:
        """Let emulated devices exchange gradients with those of the other ranks. `net`: as profiles call it."""
        if self.size == 1 or not isinstance(training, EmulatedTraining) or not isinstance(device, EmulatedDevice):
            return
        if device.profile is None:
            raise WhyidleError(f"{device.title} has no profile, so what its ranks exchange is unknown.")
        link = named(interconnect) if interconnect else own_link(device.profile)
        nbytes = gradient_bytes(device.profile, net)
        self.tell(folder, {"exchange": link.describe(nbytes, self.size)})
        exchange_ns = link.exchange_ns(nbytes, self.size)

        def exchange() -> None:
            """Begins when the last device is done with its backward pass, and takes the time that the interconnect
            gives; none of it is hidden behind the backward pass."""
            # When this device would begin. All ranks are on one machine, and so on one clock; the latest counts.
            arrives = np.array([device.record().time_ns()])
            dist.all_reduce(torch.from_numpy(arrives), dist.ReduceOp.MAX)
            device.hold(int(arrives[0]))
            device.compute(exchange_ns)

        training.exchange = exchange

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
