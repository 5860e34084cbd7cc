"""The single-shot detectors of the `ssd` scenario: torchvision's SSD300, SSD512 as in the paper, and two for CPUs.

"SSD: Single Shot MultiBox Detector" (Liu et al., ECCV 2016, arXiv:1512.02325). `docs/ssd-net.md` has the sizes and what
differs from the paper and from torchvision.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import nn
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.ssd import SSDFeatureExtractorVGG, SSDHead
from torchvision.models.vgg import cfgs, make_layers
from torchvision.ops import Conv2dNormActivation, box_convert

from whyidle.errors import WhyidleError


@dataclass(frozen=True)
class Plan:
    """Where a net looks: its feature maps, from fine to coarse; lengths in pixels of its square input."""

    size: int
    channels: tuple[int, ...]
    steps: tuple[int, ...]
    """Distance of neighbouring cell centres."""
    sides: tuple[float, ...]
    """Of each map's smallest box; the last is for a map that would follow."""
    ratios: tuple[tuple[int, ...], ...]
    """Width to height of the oblong boxes; each also stands upright."""

    @property
    def generator(self) -> DefaultBoxGenerator:
        scales = [side / self.size for side in self.sides]
        return DefaultBoxGenerator(list(map(list, self.ratios)), scales=scales, steps=list(self.steps), clip=False)

    def priors(self) -> torch.Tensor:
        """Default boxes: float32 `[P, 4]` rows of (centre x, centre y, width, height) as shares of the side.

        Ordered by map, row, column, shape, as `SsdNet`'s outputs are. Not clipped, so some reach outside 0..1.
        """
        with torch.device("cpu"):
            maps = [torch.empty(ceil(self.size / step), ceil(self.size / step)) for step in self.steps]
            images = ImageList(torch.empty(1, self.size, self.size), [(self.size, self.size)])
            [corners] = self.generator(images, maps)
        boxes: torch.Tensor = box_convert(corners / self.size, "xyxy", "cxcywh")
        return boxes


_PLANS = {
    "ssd300": Plan(
        300,
        (512, 1024, 512, 256, 256, 256),
        (8, 16, 32, 64, 100, 300),
        (30, 60, 111, 162, 213, 264, 315),
        ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,)),
    ),
    "ssd512": Plan(
        512,
        (512, 1024, 512, 256, 256, 256, 256),
        (8, 16, 32, 64, 128, 256, 512),
        (35.84, 76.8, 153.6, 230.4, 307.2, 384.0, 460.8, 537.6),
        ((2,), (2, 3), (2, 3), (2, 3), (2, 3), (2,), (2,)),
    ),
    "ssd-mini": Plan(96, (64, 96, 128), (8, 16, 32), (14, 32, 60, 90), ((2,), (2, 3), (2,))),
    "ssd-micro": Plan(64, (96, 128, 128), (8, 16, 32), (12, 24, 44, 62), ((2,), (2,), (2,))),
}
_SMALL = {
    # Of each stage: width and stride of every convolution.
    "ssd-mini": (((16, 2), (32, 2), (64, 2)), ((96, 2),), ((128, 2),)),
    "ssd-micro": (
        ((24, 2), (48, 2), (64, 1), (96, 2), (96, 1)),
        ((128, 2), (128, 1)),
        ((128, 2), (128, 1)),
    ),
}


class SsdNet(nn.Module):
    """A trunk of stages, each ending in a feature map, and on every map two heads: where, and what.

    Images are float32 `[B, 3, size, size]` mean-subtracted levels (0..255 less the mean, not scaled). Outputs are
    offsets `[B, P, 4]`, encoded against `priors`, and class logits `[B, P, classes]`, class 0 being background.
    """

    priors: torch.Tensor
    """See `Plan.priors`; moves with the net, is not part of its state."""

    def __init__(self, plan: Plan, stages: nn.Module, classes: int) -> None:
        """`stages`: gives the feature maps of images by name, from fine to coarse."""
        super().__init__()
        self.size = plan.size
        self.stages = stages
        self.head = SSDHead(list(plan.channels), plan.generator.num_anchors_per_location(), classes)
        self.register_buffer("priors", plan.priors(), persistent=False)
        self.apply(_initialise)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.head(list(self.stages(images).values()))
        return found["bbox_regression"], found["cls_logits"]


class _SmallTrunk(nn.ModuleList):
    def __init__(self, stages: tuple[tuple[tuple[int, int], ...], ...]) -> None:
        super().__init__()
        channels = 3
        for stage in stages:
            blocks = nn.Sequential()
            for width, stride in stage:
                blocks.append(Conv2dNormActivation(channels, width, 3, stride))
                channels = width
            self.append(blocks)

    def forward(self, features: torch.Tensor) -> dict[str, torch.Tensor]:
        found = {}
        for number, stage in enumerate(self):
            features = found[str(number)] = stage(features)
        return found


def build(name: str, classes: int) -> SsdNet:
    """An untrained `ssd300`, `ssd512`, `ssd-mini` or `ssd-micro` for `classes` classes, background included (VOC: 21).

    Weights come from torch's global generator: seed it for a repeatable start.
    `WhyidleError` for an unknown name or fewer than two classes.
    """
    plan = _plan(name)
    if classes < 2:
        raise WhyidleError(f"SSD needs background and at least one object class; classes is {classes}.")
    if name in _SMALL:
        return SsdNet(plan, _SmallTrunk(_SMALL[name]), classes)
    stages = SSDFeatureExtractorVGG(make_layers(cfgs["D"]), highres=name == "ssd512")
    if name == "ssd512":
        # torchvision has the paper's layers, but leaves 6 cells a side where the paper goes on halving.
        for layer, stride in ((stages.extra[3][2], 2), (stages.extra[4][2], 2), (stages.extra[5][2], 1)):
            layer.stride, layer.padding = (stride, stride), (1, 1)
    return SsdNet(plan, stages, classes)


def image_size(name: str) -> int:
    """The side in pixels of the images the net `name` takes; `WhyidleError` for an unknown name."""
    return _plan(name).size


def sgd(net: nn.Module, batch_size: int) -> torch.optim.SGD:
    """SSD's optimiser for batches of `batch_size` samples.

    The Caffe script's: momentum 0.9, weight decay 0.0005, learning rate 0.001 at batch 32, biases at twice the
    rate and without decay. Ours: the rate grows in proportion to the batch size (the script leaves it alone), and
    it stays constant (theirs falls tenfold after 80,000 and 100,000 steps, far beyond any run of the scenario).
    """
    rate = 0.001 * batch_size / 32
    named = list(net.named_parameters())
    weights = [parameter for name, parameter in named if not name.endswith("bias")]
    biases = [parameter for name, parameter in named if name.endswith("bias")]
    groups: list[dict[str, Any]] = [
        {"params": weights},
        {"params": biases, "lr": 2 * rate, "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=rate, momentum=0.9, weight_decay=0.0005)


def _plan(name: str) -> Plan:
    if name not in _PLANS:
        raise WhyidleError(f"There is no SSD net {name!r}; choose one of {', '.join(_PLANS)}.")
    return _PLANS[name]


def _initialise(module: nn.Module) -> None:
    """Caffe's "xavier" filler: uniform with variance 1 / fan-in (torch's Xavier also looks at the fan-out)."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_uniform_(module.weight, nonlinearity="linear")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
