"""SSD on Pascal VOC: the study in which a larger batch made Caffe's training longer.

Nets: `ssd300` and `ssd512` as in the paper, and `ssd-mini`, which trains on a processor. Augmentation, loss and
SGD settings are the study's. Stop by epochs (every batch size sees the same images) or by iterations (a larger
batch sees more: Caffe's rule, and one reading of the study's riddle).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from platformdirs import user_cache_dir

from stallscope.pipelines.protocol import Batch
from stallscope.pipelines.stages import plain_stages, ssd_stages

from .scenario import DataRequest, Scenario
from .ssd_loss import multibox_loss
from .ssd_net import SsdNet, build, image_size, sgd
from .voc.generate import compose
from .voc.read import VocDataset

COMPOSED_IMAGES = 256
"""In the set that stands in for a user's own images."""


class Ssd(Scenario):
    name = "ssd"
    study = "GumGum on the AWS blog, 2017: SSD on Caffe and MXNet"
    question = "Why did a larger batch make Caffe's training longer and MXNet's shorter?"
    nets = ("ssd300", "ssd512", "ssd-mini")
    cpu_nets = ("ssd-mini",)
    data = "Pascal-VOC layout; `stallscope data ssd --out DIR` composes a set"
    batch_sizes = (8, 16, 64, 192)

    def find_data(self, net: str, say: Callable[[str], None]) -> Path:
        """A set of composed images in the user's cache; composed the first time, which takes some seconds."""
        folder = Path(user_cache_dir("stallscope")) / "data" / f"{self.name}-{COMPOSED_IMAGES}"
        if not folder.exists():
            say(f"No --data: composing {COMPOSED_IMAGES} images into {folder}")
        compose(folder, COMPOSED_IMAGES, 0)
        return folder

    def make_data(self, folder: Path, samples: int, seed: int, progress: Callable[[int, int], None]) -> None:
        compose(folder, samples, seed, progress)

    def open_data(self, request: DataRequest) -> VocDataset:
        size = image_size(request.net)
        stages = ssd_stages(size) if request.augment else plain_stages(size)
        return VocDataset.open(request.folder, stages=stages, limit=request.limit)

    def build(self, net: str, data: VocDataset) -> SsdNet:
        return build(net, data.classes + 1)

    def loss(self, model: SsdNet, batch: Batch) -> torch.Tensor:
        locations, confidences = model(batch.inputs)
        return multibox_loss(locations, confidences, batch.targets, model.priors).total

    def optimizer(self, model: torch.nn.Module, net: str, batch_size: int) -> torch.optim.Optimizer:
        return sgd(model, batch_size)


SCENARIO = Ssd()
