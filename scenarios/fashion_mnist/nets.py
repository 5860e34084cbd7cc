"""The six nets of Danial Khosravi's notebook on Fashion-MNIST; the last is the one Domino Data Lab measured.

Layers, sizes and settings are those of Keras in 2017: a ReLU right after each layer with weights, then batch norm
(momentum 0.99, which torch writes as 0.01, epsilon 1e-3), Glorot's uniform weights, biases of 0.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

CLASSES = 10
STANDARDISED = ("cnn3", "cnn4", "cnn5")
"""They take levels with the training images' mean subtracted, divided by the standard deviation; the others take shares
of the highest level."""


def build(net: str) -> nn.Sequential:
    """From `[samples, 1, 28, 28]` to logits `[samples, 10]`."""
    model = NETS[net]()
    for part in model.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            assert part.bias is not None
            nn.init.zeros_(part.bias)
    return model


def adam(model: nn.Module) -> torch.optim.Adam:
    """At Keras' settings of 2017."""
    return torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8)


def _conv(inputs: int, outputs: int, padding: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=padding), nn.ReLU()]


def _full(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.ReLU()]


def _norm(channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def _full_norm(inputs: int, outputs: int) -> list[nn.Module]:
    return [*_full(inputs, outputs), nn.BatchNorm1d(outputs, eps=1e-3, momentum=0.01), nn.Dropout(0.5)]


def _mlp() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), *_full(28 * 28, 512), *_full(512, 128), nn.Linear(128, CLASSES))


def _cnn1() -> nn.Sequential:
    return nn.Sequential(
        *_conv(1, 32, 0), nn.MaxPool2d(2), nn.Dropout(0.2),
        nn.Flatten(), *_full(32 * 13 * 13, 128), nn.Linear(128, CLASSES),
    )  # fmt: skip


def _cnn2() -> nn.Sequential:
    return nn.Sequential(
        *_conv(1, 32, 0), nn.MaxPool2d(2), nn.Dropout(0.2),
        *_conv(32, 64, 0), nn.MaxPool2d(2), nn.Dropout(0.2),
        *_conv(64, 128, 0), nn.Dropout(0.2),
        nn.Flatten(), *_full(128 * 3 * 3, 128), nn.Dropout(0.2), nn.Linear(128, CLASSES),
    )  # fmt: skip


def _cnn3() -> nn.Sequential:
    return nn.Sequential(
        *_conv(1, 32, 0), _norm(32),
        *_conv(32, 32, 0), _norm(32), nn.Dropout(0.25),
        *_conv(32, 64, 0), nn.MaxPool2d(2), nn.Dropout(0.25),
        *_conv(64, 128, 0), _norm(128), nn.Dropout(0.25),
        nn.Flatten(), *_full_norm(128 * 9 * 9, 512), *_full_norm(512, 128), nn.Linear(128, CLASSES),
    )  # fmt: skip


def _cnn4() -> nn.Sequential:
    return nn.Sequential(
        *_conv(1, 32, 1), *_conv(32, 32, 1), nn.MaxPool2d(2),
        *_conv(32, 64, 1), *_conv(64, 64, 1), nn.MaxPool2d(2),
        *_conv(64, 128, 1), *_conv(128, 128, 1), nn.MaxPool2d(2),
        *_conv(128, 256, 1), *_conv(256, 256, 1), *_conv(256, 256, 1), nn.MaxPool2d(2),
        nn.Flatten(), *_full(256, 512), nn.Dropout(0.5), *_full(512, 512), nn.Dropout(0.5), nn.Linear(512, CLASSES),
    )  # fmt: skip


def _cnn5() -> nn.Sequential:
    """Unlike cnn4 it keeps 28 x 28 through four layers and 14 x 14 through five: nine times the work."""
    return nn.Sequential(
        *_conv(1, 32, 1), *_conv(32, 32, 1), _norm(32), nn.Dropout(0.25),
        *_conv(32, 64, 1), *_conv(64, 64, 1), nn.MaxPool2d(2), nn.Dropout(0.25),
        *_conv(64, 128, 1), *_conv(128, 128, 1), _norm(128), nn.Dropout(0.25),
        *_conv(128, 256, 1), *_conv(256, 256, 1), *_conv(256, 256, 1), nn.MaxPool2d(2),
        nn.Flatten(), *_full_norm(256 * 7 * 7, 512), *_full_norm(512, 512), nn.Linear(512, CLASSES),
    )  # fmt: skip


NETS: dict[str, Callable[[], nn.Sequential]] = {
    "cnn5": _cnn5, "cnn4": _cnn4, "cnn3": _cnn3, "cnn2": _cnn2, "cnn1": _cnn1, "mlp": _mlp,
}  # fmt: skip
