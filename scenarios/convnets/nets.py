"""The nets of the convnet scaling study: four of ImageNet from torchvision, and TensorFlow's two benchmark nets.

The CIFAR-10 net is that of TensorFlow's tutorial, the AlexNet of its `alexnet_benchmark.py` (the convolutions alone,
with channels of its own). TensorFlow's local response normalisation sums over a window, torch's averages: `alpha`
here is TensorFlow's times the window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torchvision import models

CLASSES = 1000
"""Of ImageNet: what the four nets tell apart however few classes the data have, so that their cost is the study's."""
INPUT_SIZE = {
    "googlenet": 224,
    "alexnet": 224,
    "resnet50": 224,
    "inception_v3": 299,
    "cifar10": 24,
    "alexnet-forward": 224,
    "alexnet-forward-backward": 224,
}
"""Side of the square input of each net, pixels."""
NETS = tuple(INPUT_SIZE)
BENCHMARKS = ("alexnet-forward", "alexnet-forward-backward")
"""Of these nothing is learnt: a forward pass, and gradients that no optimizer takes."""
SIDE_BRANCHES = {2: 0.3, 1: 0.4}
"""How many a net has → what the loss of each counts: GoogLeNet, and Inception-v3 in torchvision's own training."""
DECAY = 0.004
"""Of the CIFAR-10 net's two hidden layers."""


class Cifar10Net(nn.Module):
    """1,068,298 parameters with 10 classes. Input float32 `[B, 3, 24, 24]`, standardised."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        # Windows that stick out on the right are cut, as TensorFlow's SAME does with these sizes.
        pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        norm = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), pool, norm),
            *(nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), norm, pool),
        )
        self.hidden = nn.Sequential(nn.Linear(64 * 6 * 6, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU())
        self.classifier = nn.Linear(192, classes)
        self._start()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.classifier(self.hidden(self.features(images).flatten(1)))
        return features

    def _start(self) -> None:
        """The tutorial's weights: normal, cut off at twice the deviation."""
        first, second, third, fourth = self.features[0], self.features[4], self.hidden[0], self.hidden[2]
        layers = ((first, 0.05, 0.0), (second, 0.05, 0.1), (third, 0.04, 0.1), (fourth, 0.04, 0.1))
        for layer, deviation, bias in (*layers, (self.classifier, 1 / 192, 0.0)):
            nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)  # type: ignore[arg-type]
            nn.init.constant_(layer.bias, bias)  # type: ignore[arg-type]


class AlexNetBenchmark(nn.Module):
    """The convolutions of TensorFlow's benchmark, 2,469,696 parameters; gives pool5, `[B, 256, 6, 6]`."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.LocalResponseNorm(11, alpha=11e-4, beta=0.75, k=2.0)
        self.features = nn.Sequential(
            # SAME at stride 4 is 3 pixels on the left and 4 on the right.
            *(nn.ZeroPad2d((3, 4, 3, 4)), nn.Conv2d(3, 64, 11, stride=4), nn.ReLU(), norm, nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), norm, nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2)),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        pooled: torch.Tensor = self.features(images)
        return pooled


def build(net: str, classes: int = CLASSES) -> nn.Module:
    """A net with fresh weights, in training mode. `classes` is what the data have."""
    if net in BENCHMARKS:
        return AlexNetBenchmark()
    if net == "cifar10":
        return Cifar10Net(max(classes, 10))
    make: Callable[..., nn.Module] = getattr(models, net)
    # The initialisation of these two draws from a truncated normal through scipy and takes a minute.
    without = {"init_weights": False} if net in ("googlenet", "inception_v3") else {}
    return make(weights=None, num_classes=max(classes, CLASSES), **without)


def classification_loss(model: Any, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy of labels, that of side branches added where a net has them."""
    said = model(images)
    if isinstance(said, torch.Tensor):
        return nn.functional.cross_entropy(said, labels)
    main, *side = (nn.functional.cross_entropy(each, labels) for each in said)
    return main + SIDE_BRANCHES[len(side)] * sum(side)


def benchmark_loss(pooled: torch.Tensor) -> torch.Tensor:
    """TensorFlow's l2_loss: half of the sum of squares."""
    return pooled.square().sum() / 2


def sgd(model: nn.Module, net: str, batch_size: int) -> torch.optim.Optimizer:
    """The CIFAR-10 tutorial's plain descent at 0.1; else Caffe's 0.01 at 256 images, in proportion."""
    if net != "cifar10":
        return torch.optim.SGD(model.parameters(), lr=0.01 * batch_size / 256, momentum=0.9, weight_decay=5e-4)
    hidden = [p for name, p in model.named_parameters() if name.startswith("hidden") and name.endswith("weight")]
    others = [p for p in model.parameters() if all(p is not decayed for decayed in hidden)]
    groups: list[dict[str, Any]] = [{"params": hidden, "weight_decay": DECAY}, {"params": others}]
    return torch.optim.SGD(groups, lr=0.1)
