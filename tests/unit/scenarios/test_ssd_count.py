from __future__ import annotations

import pytest
import torch
from torch import nn
from torchvision.models.detection import SSD300_VGG16_Weights

from whyidle.errors import WhyidleError
from whyidle.scenarios.ssd.count import count
from whyidle.scenarios.ssd.net import build

COUNTS = {
    "ssd300": {
        "parameters": 26_285_486,
        "priors": 8_732,
        "forward_macs": 31_373_537_792,
        "backward_macs": 62_591_555_584,
        "net_activation_bytes": 142_924_256,
    },
    "ssd512": {
        "parameters": 27_188_676,
        "priors": 24_564,
        "forward_macs": 90_207_908_864,
        "backward_macs": 179_962_832_896,
        "net_activation_bytes": 413_957_120,
    },
    "ssd-mini": {
        "parameters": 492_782,
        "priors": 828,
        "forward_macs": 23_286_528,
        "backward_macs": 45_577_728,
        "net_activation_bytes": 663_552,
    },
    "ssd-micro": {
        "parameters": 1_048_644,
        "priors": 336,
        "forward_macs": 32_385_024,
        "backward_macs": 64_106_496,
        "net_activation_bytes": 614_400,
    },
}
"""What `docs/ssd-net.md` says. How many operations there are depends on the version of torch."""


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_those_of_the_documentation(name: str) -> None:
    found = count(name)
    assert {key: found[key] for key in COUNTS[name]} == COUNTS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_macs_agree_with_a_sum_over_the_convolutions(name: str) -> None:
    macs: list[int] = []
    without_input: list[int] = []

    def note(module: nn.Module, inputs: tuple[torch.Tensor], out: torch.Tensor) -> None:
        assert isinstance(module, nn.Conv2d)
        macs.append(out.numel() * module.weight[0].numel())
        if not inputs[0].requires_grad:
            without_input.append(macs[-1])

    with torch.device("meta"):
        net = build(name, 21)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(note)
    net(torch.empty(1, 3, net.size, net.size, device="meta"))
    found = count(name)
    assert found["forward_macs"] == sum(macs)
    assert len(without_input) == 1
    assert found["backward_macs"] == 2 * sum(macs) - without_input[0]


def test_meta_counts_what_a_real_step_keeps() -> None:
    assert count("ssd-mini", device="cpu") == count("ssd-mini")


def test_activations_of_the_mini_net_by_hand() -> None:
    # Each block keeps the convolution's output (for the batch norm) and the activation; the first also the image.
    maps = 16 * 48**2 + 32 * 24**2 + 64 * 12**2 + 96 * 6**2 + 128 * 3**2
    assert count("ssd-mini")["net_activation_bytes"] == 4 * (3 * 96**2 + 2 * maps)


@pytest.mark.parametrize("name", COUNTS)
def test_operations_cover_every_convolution_and_the_loss(name: str) -> None:
    with torch.device("meta"):
        convolutions = sum(isinstance(module, nn.Conv2d) for module in build(name, 21).modules())
    found = count(name)
    assert found["forward_ops"] > 2 * convolutions
    assert found["backward_ops"] > 2 * convolutions
    assert found["activation_bytes"] > found["net_activation_bytes"]


def test_unknown_net() -> None:
    with pytest.raises(WhyidleError, match="no SSD net 'resnet'"):
        count("resnet")


def test_ssd300_with_cocos_classes_has_the_size_torchvision_publishes() -> None:
    published = SSD300_VGG16_Weights.COCO_V1.meta
    found = count("ssd300", classes=91)
    assert found["parameters"] == published["num_params"]
    assert found["forward_macs"] / 1e9 == pytest.approx(published["_ops"], abs=0.001)
