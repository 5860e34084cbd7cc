"""The nets are those of the notebook: parameters as Keras printed them, settings as Keras had them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from whyidle.scenarios.fashion_mnist import nets as fashion_nets
from whyidle.scenarios.fashion_mnist.nets import NETS, build


def parameters(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


def keras_total(model: nn.Module) -> int:
    """Keras counts the running means and variances of batch norm too."""
    return parameters(model) + sum(each.numel() for name, each in model.named_buffers() if "running" in name)


@pytest.mark.parametrize(("net", "total"), [("cnn5", 8_457_322), ("mlp", 468_874)])
def test_as_many_parameters_as_keras_printed(net: str, total: int) -> None:
    assert keras_total(build(net)) == total


@pytest.mark.parametrize("net", NETS)
def test_every_net_takes_gray_images_and_gives_ten_logits(net: str) -> None:
    model = build(net).eval()
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert not any(isinstance(part, nn.Softmax) for part in model.modules())


@pytest.mark.parametrize("net", NETS)
def test_keras_defaults(net: str) -> None:
    torch.manual_seed(0)
    for part in build(net).modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            assert (part.momentum, part.eps) == (pytest.approx(0.01), 1e-3)
        if isinstance(part, nn.Conv2d | nn.Linear):
            assert part.bias is not None
            assert not part.bias.any()
            inputs, outputs = nn.init._calculate_fan_in_and_fan_out(part.weight)
            limit = (6 / (inputs + outputs)) ** 0.5
            assert 0.8 * limit < float(part.weight.detach().abs().max()) <= limit
    adam = fashion_nets.adam(build(net)).defaults
    assert (adam["lr"], adam["betas"], adam["eps"]) == (1e-3, (0.9, 0.999), 1e-8)
