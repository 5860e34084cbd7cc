"""The single-shot detectors of the `ssd` scenario: SSD300 and SSD512 on VGG16, and two small ones for CPUs.

Structure after "SSD: Single Shot MultiBox Detector" (Liu et al., ECCV 2016, arXiv:1512.02325) and its Caffe code.
Weights start at random. `docs/ssd-net.md` has the sizes and what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  (the name everybody uses)

from whyidle.errors import WhyidleError

from .priors import PriorLayout, layout, priors


class L2Norm(nn.Module):
    """Scales the channel vector of every pixel to a learnt length, one factor a channel."""

    def __init__(self, channels: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((channels,), scale))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return F.normalize(features, dim=1) * self.weight[:, None, None]


class SsdNet(nn.Module):
    """A trunk of stages, each ending in a feature map, and on every map two heads: where, and what.

    Images are float32 `[B, 3, size, size]` mean-subtracted levels (0..255 less the mean, not scaled). Outputs are
    offsets `[B, P, 4]`, encoded against `priors`, and class logits `[B, P, classes]`, class 0 being background.
    """

    priors: torch.Tensor
    """float32 `[P, 4]`, see `priors.priors`; moves with the net, is not part of its state."""

    def __init__(
        self, plan: PriorLayout, classes: int, stages: Sequence[nn.Module], taps: Sequence[tuple[int, nn.Module]]
    ) -> None:
        """`taps`: for each stage the channels it ends with, and what stands between it and its heads."""
        super().__init__()
        self.size = plan.size
        self.classes = classes
        self.stages = nn.ModuleList(stages)
        self.taps = nn.ModuleList(tap for _, tap in taps)
        widths = [(channels, len(part.shapes)) for (channels, _), part in zip(taps, plan.maps, strict=True)]
        self.locate = nn.ModuleList(nn.Conv2d(c, shapes * 4, 3, padding=1) for c, shapes in widths)
        self.classify = nn.ModuleList(nn.Conv2d(c, shapes * classes, 3, padding=1) for c, shapes in widths)
        self.register_buffer("priors", priors(plan), persistent=False)
        self.apply(_initialise)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        locations, confidences = [], []
        features = images
        for stage, tap, locate, classify in zip(self.stages, self.taps, self.locate, self.classify, strict=True):
            features = stage(features)
            seen = tap(features)
            locations.append(_by_prior(locate(seen), 4))
            confidences.append(_by_prior(classify(seen), self.classes))
        return torch.cat(locations, dim=1), torch.cat(confidences, dim=1)


def build(name: str, classes: int) -> SsdNet:
    """An untrained `ssd300`, `ssd512`, `ssd-mini` or `ssd-micro` for `classes` classes, background included (VOC: 21).

    Weights come from torch's global generator: seed it for a repeatable start.
    `WhyidleError` for an unknown name or fewer than two classes.
    """
    plan = layout(name)
    if classes < 2:
        raise WhyidleError(f"SSD needs background and at least one object class; classes is {classes}.")
    if name == "ssd-mini":
        return SsdNet(plan, classes, _mini_stages(), [(width, nn.Identity()) for width in _MINI_WIDTHS])
    if name == "ssd-micro":
        return SsdNet(plan, classes, _micro_stages(), [(width, nn.Identity()) for width in _MICRO_WIDTHS])
    stages = [_vgg_to_conv4(), _conv5_to_fc7()]
    taps: list[tuple[int, nn.Module]] = [(512, L2Norm(512, scale=20.0)), (1024, nn.Identity())]
    channels = 1024
    for middle, out, kernel, stride, padding in _EXTRAS[name]:
        squeeze = _conv(channels, middle, kernel=1, padding=0)
        stages.append(nn.Sequential(*squeeze, *_conv(middle, out, kernel, stride, padding)))
        taps.append((out, nn.Identity()))
        channels = out
    return SsdNet(plan, classes, stages, taps)


def image_size(name: str) -> int:
    """The side in pixels of the images the net `name` takes; `WhyidleError` for an unknown name."""
    return layout(name).size


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


_EXTRAS = {
    # (1x1 width, width, kernel, stride, padding), conv6 onwards
    "ssd300": ((256, 512, 3, 2, 1), (128, 256, 3, 2, 1), (128, 256, 3, 1, 0), (128, 256, 3, 1, 0)),
    "ssd512": ((256, 512, 3, 2, 1), *((128, 256, 3, 2, 1),) * 3, (128, 256, 4, 1, 1)),
}
_MINI_WIDTHS = (64, 96, 128)
_MICRO_WIDTHS = (96, 128, 128)


def _conv(
    channels: int, out: int, kernel: int = 3, stride: int = 1, padding: int = 1, dilation: int = 1
) -> list[nn.Module]:
    # In place, because backward needs only one of the two, and at batch 192 each is gigabytes.
    return [nn.Conv2d(channels, out, kernel, stride, padding, dilation), nn.ReLU(inplace=True)]


def _pool() -> nn.Module:
    # Caffe rounds up: 75 pixels pool to 38.
    return nn.MaxPool2d(2, 2, ceil_mode=True)


def _vgg_to_conv4() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for block, (width, depth) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3))):
        if block:
            layers.append(_pool())
        for _ in range(depth):
            layers += _conv(channels, width)
            channels = width
    return nn.Sequential(*layers)


def _conv5_to_fc7() -> nn.Module:
    conv5 = [layer for _ in range(3) for layer in _conv(512, 512)]
    keep_size = nn.MaxPool2d(3, stride=1, padding=1)
    fc6 = _conv(512, 1024, padding=6, dilation=6)
    fc7 = _conv(1024, 1024, kernel=1, padding=0)
    return nn.Sequential(_pool(), *conv5, keep_size, *fc6, *fc7)


def _mini_stages() -> list[nn.Module]:
    fine, middle, coarse = _MINI_WIDTHS
    first = nn.Sequential(_mini_block(3, 16), _mini_block(16, 32), _mini_block(32, fine))
    return [first, _mini_block(fine, middle), _mini_block(middle, coarse)]


def _micro_stages() -> list[nn.Module]:
    fine, middle, coarse = _MICRO_WIDTHS
    first = (_mini_block(3, 24), _mini_block(24, 48), _mini_block(48, 64, 1), _mini_block(64, fine))
    return [
        nn.Sequential(*first, _mini_block(fine, fine, 1)),
        nn.Sequential(_mini_block(fine, middle), _mini_block(middle, middle, 1)),
        nn.Sequential(_mini_block(middle, coarse), _mini_block(coarse, coarse, 1)),
    ]


def _mini_block(channels: int, out: int, stride: int = 2) -> nn.Module:
    conv = nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU(inplace=True))


def _initialise(module: nn.Module) -> None:
    """Caffe's "xavier" filler: uniform with variance 1 / fan-in (torch's Xavier also looks at the fan-out)."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_uniform_(module.weight, nonlinearity="linear")
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _by_prior(out: torch.Tensor, values: int) -> torch.Tensor:
    """A head's `[B, shapes * values, rows, columns]` as `[B, rows * columns * shapes, values]`."""
    return out.permute(0, 2, 3, 1).reshape(out.shape[0], -1, values)
