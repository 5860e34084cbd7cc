"""SSD on Pascal VOC: the study in which a larger batch made Caffe's training longer.

Nets: `ssd300` and `ssd512` as in the paper, `ssd-mini`, which trains on a processor, and `ssd-micro`, which learns
something there within minutes. Augmentation, loss and SGD settings are the study's. Stop by epochs (every batch size
sees the same images) or by iterations (a larger batch sees more: Caffe's rule, and one reading of the study's riddle).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from platformdirs import user_cache_dir

from whyidle.devices.protocol import Device
from whyidle.errors import DataError
from whyidle.pipelines.protocol import Batch, Stage
from whyidle.pipelines.stages import Distort, Flip, Normalise, RandomCrop, Resize, plain_stages, ssd_stages

from ..evaluation import held_out
from ..scenario import DataRequest, Experiment, Scenario
from ..voc.generate import RECIPE, compose
from ..voc.layout import KINDS, find
from ..voc.read import VocDataset
from .detect import detect
from .experiments import experiments
from .judge import curve, result
from .loss import multibox_loss
from .net import SsdNet, build, image_size, sgd
from .optimizer import muon

COMPOSED_IMAGES = 256
"""In the set that stands in for a user's own images."""
COMPOSED_TO_LEARN_FROM = 960
"""In that of `ssd-micro`, the net that is to learn something: four times 192 to train on, and 192 held out."""
JUDGED_AT_ONCE = 32
"""Images that a net is tried on at a time: a batch of 256 would take gigabytes."""
_KINDS = {name: kind for kind, names in KINDS.items() for name in names}


class Ssd(Scenario):
    name = "ssd"
    study = "GumGum on the AWS blog, 2017: SSD on Caffe and MXNet"
    question = "Why did a larger batch make Caffe's training slower and MXNet's faster?"
    nets = ("ssd300", "ssd512", "ssd-mini", "ssd-micro")
    cpu_nets = ("ssd-mini", "ssd-micro")
    data = "a set in Pascal-VOC layout; `whyidle data ssd --out DIR` composes one"
    batch_sizes = (8, 16, 64, 192)

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        return (self.loaders(), *experiments(self))

    def find_data(self, net: str, say: Callable[[str], None]) -> Path:
        """A set of composed images in the user's cache; composed the first time, which takes some seconds."""
        images = COMPOSED_TO_LEARN_FROM if net == "ssd-micro" else COMPOSED_IMAGES
        folder = Path(user_cache_dir("whyidle")) / "data" / f"{self.name}-{images}-{RECIPE}"
        if not folder.exists():
            say(f"No --data: composing {images} images into {folder}")
        compose(folder, images, 0)
        return folder

    def make_data(self, folder: Path, samples: int, seed: int, progress: Callable[[int, int], None]) -> None:
        compose(folder, samples, seed, progress)

    def open_data(self, request: DataRequest) -> VocDataset:
        stages = _stages(request.net) if request.augment else plain_stages(image_size(request.net))
        split = _training_split(request.folder)
        if request.split == "test":
            if split != "train":
                raise DataError(
                    f"{request.folder} has no split `train`: the training uses all of it and leaves nothing to "
                    "evaluate on. Write ImageSets/Main/train.txt and val.txt, one name per line."
                )
            split = "val"
        data = VocDataset.open(request.folder, split, stages, request.limit)
        # What can be learnt within minutes from a thousand small images: which of VOC's four kinds, not which of 20.
        return data.merged(_KINDS) if request.net == "ssd-micro" and set(data.class_names) <= set(_KINDS) else data

    def build(self, net: str, data: VocDataset) -> SsdNet:
        return build(net, data.classes + 1)

    def loss(self, model: SsdNet, batch: Batch) -> torch.Tensor:
        locations, confidences = model(batch.inputs)
        return multibox_loss(locations, confidences, batch.targets, model.priors).total

    def optimizer(self, model: torch.nn.Module, net: str, batch_size: int) -> torch.optim.Optimizer:
        return muon(model, batch_size) if net == "ssd-micro" else sgd(model, batch_size)

    def evaluate(self, model: Any, net: str, data: VocDataset, device: Device) -> dict[str, Any]:
        """Precision and recall at IoU 0.2, the study's: see `judge.result`."""
        images = []
        for batch in held_out(data, device, JUDGED_AT_ONCE):
            objects = batch.targets.cpu()
            locations, confidences = model(batch.inputs)
            for place, found in enumerate(detect(locations, confidences, model.priors)):
                images.append((found.cpu(), objects[objects[:, 0] == place, 1:]))
        return result(curve(images), len(images))


def _stages(net: str) -> tuple[Stage, ...]:
    """How training images are prepared: as in the study, for `ssd-micro` with what costs least."""
    size = image_size(net)
    if net != "ssd-micro":
        return ssd_stages(size)
    # Colours are changed once the image is small; nothing is put on a canvas, where objects of 64 pixels would vanish.
    return RandomCrop(), Resize(size), Distort(), Flip(), Normalise()


def _training_split(folder: Path) -> str:
    """`train`, so that `val` is held out; all there is in a set that was never split."""
    try:
        return "train" if (find(folder).splits / "train.txt").exists() else "trainval"
    except OSError:
        return "train"


SCENARIO = Ssd()
