"""What a scenario is: a training with which loaders are compared. One file each; `docs/scenarios/your-own.md`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from whyidle.devices.emulated import EmulatedDevice
from whyidle.devices.protocol import Device
from whyidle.errors import WhyidleError
from whyidle.pipelines.protocol import Batch, Dataset

from .evaluation import classified
from .training import EmulatedTraining, TorchTraining, Training, Wrap, whole
from .variant import Feed, Variant, grid


@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """Which data a training wants."""

    folder: Path
    net: str
    augment: bool = False
    split: str = "train"
    """`train`, or `test`: held out."""
    store: str = "files"
    limit: int | None = None
    """So many samples only; which ones, the data say."""
    seed: int = 0


class ScenarioData(Dataset, Protocol):
    """A dataset that can be told of."""

    def describe(self) -> dict[str, Any]:
        """For every output: `samples` (how many), `unit` (what one is called: image, review, …), `stand_in` (what these
        generated data stand for; `None` of real ones), and what else a reader should know, by name."""
        ...

    def notices(self) -> Sequence[str]:
        """What was wrong with the data, a sentence each."""
        ...


@dataclass(frozen=True, kw_only=True)
class ExperimentRequest:
    """What the command asks for; `None` leaves the choice to the experiment."""

    kind: str
    """Of the devices: `cuda`, `cpu` or `emulated`."""
    devices: tuple[str, ...]
    """As given to `--device`, resolved: never `auto`."""
    pipelines: tuple[str, ...]
    """As asked; else all that take these data and run here."""
    pipelines_asked: bool = False
    """Whether the command named them."""
    cpus: int
    """That the job may use."""
    full: bool = False
    """The study's own sizes, however long they take."""
    workers: int | None = None
    nets: tuple[str, ...] | None = None
    batch_sizes: tuple[int, ...] | None = None
    feeds: tuple[Feed, ...] | None = None
    stores: tuple[str, ...] | None = None
    ranks: tuple[int, ...] | None = None
    interconnects: tuple[str, ...] | None = None
    threads: tuple[int, ...] | None = None
    augment: bool | None = None
    epochs: int | None = None
    iterations: int | None = None

    @property
    def stop(self) -> dict[str, int]:
        """The stop rule as asked, for a `Variant`; two epochs unless said."""
        if self.iterations is not None:
            return {"iterations": self.iterations}
        return {"epochs": self.epochs or 2}


@dataclass(frozen=True)
class Experiment:
    """A question that a scenario answers, and the trainings that it takes."""

    name: str
    question: str
    variants: Callable[[ExperimentRequest], list[Variant]]
    """Quick ones by default: under five minutes on two CPUs, `repeats` included."""
    repeats: int = 3
    limit: int | None = None
    """Samples that the quick form uses at most."""


class Scenario(ABC):
    """A training of a published study, or of a user's own."""

    name: str
    study: str
    question: str
    nets: tuple[str, ...]
    """The first is the default on a GPU and on emulated devices."""
    cpu_nets: tuple[str, ...]
    """The first is the default where the processor is the device: a size that trains there."""
    data: str
    """What `--data` takes, and what stands in without it."""
    batch_sizes: tuple[int, ...]
    """The study's."""
    quick_batch_sizes: tuple[int, ...] = ()
    """Of the quick form of `loaders`; without any the first two of the study's."""
    quick_samples: int | None = None
    """That the quick form of `loaders` uses at most."""
    stores: tuple[str, ...] = ("files",)

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """The first is what `compare` runs unless told another."""
        return (self.loaders(),)

    @abstractmethod
    def find_data(self, net: str, say: Callable[[str], None]) -> Path:
        """Where the data for a net are if nobody named a folder: found here, fetched, or generated, which `say` says.

        Raises:
            DataError: they cannot be had; the message says what to do.
        """

    @abstractmethod
    def open_data(self, request: DataRequest) -> ScenarioData:
        """
        Raises:
            DataError: no usable data there.
        """

    def make_data(self, folder: Path, samples: int, seed: int, progress: Callable[[int, int], None]) -> None:
        """Put data into a folder: what `whyidle data NAME --out DIR` does. `progress` is called with how many of how
        many samples are there.

        Raises:
            DataError: they cannot be had or written.
        """
        raise WhyidleError(f"scenario {self.name} makes no data. It needs: {self.data}")

    @abstractmethod
    def build(self, net: str, data: Any) -> torch.nn.Module:
        """The net for these data (what `open_data` returned)."""

    def loss(self, model: Any, batch: Batch) -> torch.Tensor:
        """Of a batch on the device, to be minimised. Cross entropy of labels unless overridden."""
        return torch.nn.functional.cross_entropy(model(batch.inputs), batch.targets)

    def optimizer(self, model: torch.nn.Module, net: str, batch_size: int) -> torch.optim.Optimizer:
        """SGD with momentum unless overridden. `batch_size` is that of all ranks together."""
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def evaluate(self, model: Any, net: str, data: Any, device: Device) -> dict[str, Any]:
        """What the net does on held-out data: `accuracy` and `loss` (shares and means) and whatever else belongs to
        it, for run.json. Called in evaluation mode, without gradients. Classification unless overridden."""
        return classified(model, data, device)

    def profile_net(self, net: str) -> str:
        """What the profiles of accelerators call the net."""
        return net

    def training(
        self, net: str, device: Device, batch_size: int, data: Any, wrap: Wrap = whole, ranks: int = 1
    ) -> Training:
        """The training of a net on a device, in batches of so many samples. `wrap` makes of a module what several
        ranks train together.

        Raises:
            DeviceOutOfMemory: an emulated device has too little memory for the batch.
            WhyidleError: an emulated device has no step time for this net.
        """
        if isinstance(device, EmulatedDevice):
            return EmulatedTraining(device, step_times(device), self.profile_net(net), batch_size)
        model = self.build(net, data).to(device.torch_device)
        return TorchTraining(model, self.loss, self.optimizer(model, net, batch_size * ranks), wrap)

    def nets_for(self, kind: str, asked: Sequence[str] | None) -> tuple[str, ...]:
        """The nets to train on a kind of device: the asked ones, else the default.

        Raises:
            WhyidleError: it has no such net.
        """
        for net in asked or ():
            if net not in self.nets:
                raise WhyidleError(f"scenario {self.name} has no net {net!r}. It has {', '.join(self.nets)}.")
        return tuple(asked) if asked else ((self.cpu_nets if kind == "cpu" else self.nets)[0],)

    def experiment(self, name: str | None) -> Experiment:
        """
        Raises:
            WhyidleError: there is none of that name.
        """
        known = {each.name: each for each in self.experiments}
        if name is not None and name not in known:
            raise WhyidleError(
                f"scenario {self.name} has no experiment {name!r}. It has {', '.join(known)} "
                "(`whyidle scenarios` explains them)."
            )
        return known[name] if name else self.experiments[0]

    def loaders(self) -> Experiment:
        """Every loader at every batch size: the experiment that each scenario has."""
        return Experiment(
            "loaders", "Which loader is fastest at which batch size, and why?", self._loaders, limit=self.quick_samples
        )

    def _loaders(self, asked: ExperimentRequest) -> list[Variant]:
        base = Variant(
            net="", pipeline="", batch_size=0, workers=asked.workers or asked.cpus, augment=asked.augment is not False
        )
        return grid(
            base,
            net=self.nets_for(asked.kind, asked.nets),
            device=asked.devices,
            store=asked.stores or self.stores[:1],
            feed=asked.feeds or ("real",),
            ranks=asked.ranks or (1,),
            interconnect=asked.interconnects or (None,),
            threads=asked.threads or (None,),
            pipeline=asked.pipelines,
            batch_size=asked.batch_sizes
            or (self.batch_sizes if asked.full else self.quick_batch_sizes or self.batch_sizes[:2]),
            **{name: (value,) for name, value in asked.stop.items()},
        )


def step_times(device: Device) -> Any:
    """The profile an emulated device takes step times from.

    Raises:
        WhyidleError: it has none.
    """
    if not isinstance(device, EmulatedDevice) or device.profile is None:
        raise WhyidleError(f"{device.title} has no profile with step times.")
    return device.profile
