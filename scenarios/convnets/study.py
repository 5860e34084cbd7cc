"""Convnets on photographs: how training scales with batch size and devices, and what its input has to do with it.

The study had uncompressed records of 256 × 256 in LMDB, MXNet's synthetic batches and TensorFlow's CIFAR-10 tutorial.
All three ways to feed a net are here side by side. Photographs are cut as Caffe did: a square of 256 pixels, a random
part of it, mirrored half of the time. Inception's 299 pixels do not fit in: its parts are warped, as torchvision does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from platformdirs import user_cache_dir

from whyidle.devices.emulated import EmulatedDevice
from whyidle.devices.protocol import Device
from whyidle.errors import DataError
from whyidle.pipelines.crops import ChannelsLast, Crop, Mirror, RandomResizedCrop, StandardiseEach, cifar_stages
from whyidle.pipelines.protocol import Batch, Stage
from whyidle.pipelines.stages import OF_IMAGENET, Resize

from ..datasets import cifar
from ..datasets.arrays import Arrays
from ..datasets.image_folder import ImageFolder, open_folder
from ..datasets.labelled_photos import labelled_photos
from ..datasets.records import Records, open_records
from ..scenario import DataRequest, Experiment, Scenario, ScenarioData, step_times
from ..training import Training, Wrap, whole
from ..voc.generate import RECIPE
from .benchmark import EmulatedForward, Forward, Gradients
from .experiments import experiments
from .nets import BENCHMARKS, INPUT_SIZE, NETS, build, classification_loss, sgd

COMPOSED_IMAGES = 256
"""In the set that stands in for a user's own photographs; the same that the ssd scenario composes."""


class Convnets(Scenario):
    name = "convnets"
    study = "Alibaba Cloud, 2017: GPU-accelerated deep learning, with Caffe, MXNet and TensorFlow"
    question = "Do larger batches and more devices make a training faster, and does the net or its input limit it?"
    nets = NETS
    cpu_nets = ("cifar10", *NETS)
    data = (
        "photographs as DIR/train/CLASS/*.jpg or DIR/CLASS/*.jpg (net cifar10: CIFAR-10's binary version too); without "
        "--data a composed set"
    )
    batch_sizes = (32, 128)
    stores = ("files", "lmdb")

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        return (*experiments(self), self.loaders())

    def find_data(self, net: str, say: Callable[[str], None]) -> Path:
        """Composed images in the user's cache; composed the first time, which takes some seconds."""
        cache = Path(user_cache_dir("whyidle")) / "data"
        kind = f"{COMPOSED_IMAGES}-{RECIPE}"
        folder, composed = cache / f"{self.name}-{kind}", cache / f"ssd-{kind}"
        if not folder.exists():
            say(f"No --data: composing {COMPOSED_IMAGES} images into {folder}")
        return labelled_photos(folder, composed, COMPOSED_IMAGES)

    def make_data(self, folder: Path, samples: int, seed: int, progress: Callable[[int, int], None]) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as composed:
            labelled_photos(folder, Path(composed), samples, seed, progress)

    def open_data(self, request: DataRequest) -> ScenarioData:
        if request.net == "cifar10" and _holds_cifar(request.folder):
            return _cifar(request)
        stages = _stages(request.net, request.augment)
        squares = (Resize(_side(request.net)), *stages)
        photos = open_folder(request.folder, squares, request.split, request.limit)
        if request.store == "lmdb":
            return open_records(photos, _side(request.net), stages)
        return photos

    def build(self, net: str, data: ImageFolder | Records | Arrays) -> torch.nn.Module:
        return build(net, 10 if isinstance(data, Arrays) else data.classes)

    def optimizer(self, model: torch.nn.Module, net: str, batch_size: int) -> torch.optim.Optimizer:
        return sgd(model, net, batch_size)

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        return classification_loss(model, batch.inputs, batch.targets)

    def training(
        self,
        net: str,
        device: Device,
        batch_size: int,
        data: ImageFolder | Records | Arrays,
        wrap: Wrap = whole,
        ranks: int = 1,
    ) -> Training:
        if net not in BENCHMARKS:
            return super().training(net, device, batch_size, data, wrap, ranks)
        if isinstance(device, EmulatedDevice):
            if net == "alexnet-forward":
                return EmulatedForward(device, step_times(device), net, batch_size)
            return super().training(net, device, batch_size, data, wrap)
        model = self.build(net, data).to(device.torch_device)
        return Forward(model) if net == "alexnet-forward" else Gradients(wrap(model))


def _side(net: str) -> int:
    """Of the square that a photograph is kept as: ImageNet's for Caffe, or CIFAR-10's."""
    return cifar.SIDE if net == "cifar10" else 256


def _stages(net: str, augment: bool) -> tuple[Stage, ...]:
    """From the square of `_side` to what the net takes."""
    size, side = INPUT_SIZE[net], _side(net)
    if net == "cifar10":
        return cifar_stages(size) if augment else (Crop(size, anywhere=False), StandardiseEach())
    if size > side:
        return (RandomResizedCrop(size), Mirror(), OF_IMAGENET) if augment else (Resize(size), OF_IMAGENET)
    return (Crop(size), Mirror(), OF_IMAGENET) if augment else (Crop(size, anywhere=False), OF_IMAGENET)


def _holds_cifar(folder: Path) -> bool:
    places = (folder / cifar.FOLDER, folder / cifar.ARCHIVE, folder / cifar.PARTS["train"][0])
    return any(place.exists() for place in places)


def _cifar(request: DataRequest) -> Arrays:
    if request.store != "files":
        raise DataError(f"{request.folder} already holds CIFAR-10 as raw records. Use --store files.")
    found = cifar.open_cifar(request.folder, request.split, (ChannelsLast(), *_stages(request.net, request.augment)))
    return replace(found, rows=found.rows[: request.limit], labels=found.labels[: request.limit])


SCENARIO = Convnets()
