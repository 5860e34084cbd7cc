"""The nets as published and as torchvision builds them, where their priors lie, and how they learn."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import pytest
import torch
from torch import nn
from torchvision.models.detection import SSD300_VGG16_Weights, ssd300_vgg16

from whyidle.errors import WhyidleError
from whyidle.scenarios.ssd.net import build, image_size, sgd

SIZES = {
    "ssd300": (300, 26_285_486, 8_732),
    "ssd512": (512, 27_188_676, 24_564),
    "ssd-mini": (96, 492_782, 828),
    "ssd-micro": (64, 1_048_644, 336),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_net_is_as_large_as_the_documentation_says_and_computes_without_a_value(name: str) -> None:
    # On meta anything that needs a value, as a host sync does, raises.
    size, parameters, count = SIZES[name]
    with torch.device("meta"):
        net = build(name, 21)
        if name == "ssd300":
            published = SSD300_VGG16_Weights.COCO_V1.meta["num_params"]
            assert sum(each.numel() for each in build(name, 91).parameters()) == published
    locations, confidences = net(torch.empty(2, 3, size, size, device="meta"))
    assert image_size(name) == size
    assert sum(each.numel() for each in net.parameters()) == parameters
    assert (locations.shape, confidences.shape) == ((2, count, 4), (2, count, 21))
    assert net.priors.shape == (count, 4)
    assert net.priors.dtype == torch.float32
    assert net.to("meta").priors.device.type == "meta"
    assert "priors" not in net.state_dict()


@pytest.mark.slow
def test_ssd300_computes_what_torchvisions_computes_with_the_same_weights() -> None:
    torch.manual_seed(0)
    ours = build("ssd300", 21).eval()
    theirs = ssd300_vgg16(weights=None, weights_backbone=None, num_classes=21).eval()
    with torch.no_grad():
        for source, destination in zip(ours.parameters(), theirs.parameters(), strict=True):
            destination.copy_(source)
        images = torch.randn(1, 3, 300, 300) * 60
        expected = theirs.head(list(theirs.backbone(images).values()))
        locations, confidences = ours(images)
    torch.testing.assert_close(locations, expected["bbox_regression"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(confidences, expected["cls_logits"], rtol=1e-4, atol=1e-4)
    assert confidences.std() > 0.1


def test_weights_start_with_variance_one_over_fan_in() -> None:
    torch.manual_seed(0)
    convolutions = [module for module in build("ssd300", 21).modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 35
    for convolution in convolutions:
        fan_in = convolution.weight[0].numel()
        assert convolution.weight.abs().max() <= (3 / fan_in) ** 0.5
        assert convolution.weight.var().item() == pytest.approx(1 / fan_in, rel=0.1)
        assert convolution.bias is not None
        assert not convolution.bias.any()


def test_priors_of_ssd300_are_the_papers_and_lie_where_caffes_do() -> None:
    side, between = 30 / 300, sqrt(30 * 60) / 300
    shapes = [[side, side], [between, between], [side * sqrt(2), side / sqrt(2)], [side / sqrt(2), side * sqrt(2)]]
    expected = [[x / 300, 4 / 300, *shape] for x in (4, 12) for shape in shapes]
    priors = build("ssd300", 2).priors
    torch.testing.assert_close(priors[:8], torch.tensor(expected))
    # 10 cells of 32 pixels are 320: the paper's steps are powers of two, not fractions of 300.
    third = priors[38 * 38 * 4 + 19 * 19 * 6 :][: 10 * 10 * 6]
    assert third[:, :2].max().item() == pytest.approx(304 / 300)


@pytest.mark.parametrize(
    ("name", "scales"),
    [
        ("ssd300", [0.1, 0.2, 0.37, 0.54, 0.71, 0.88, 1.05]),
        ("ssd512", [0.07, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.05]),
    ],
)
def test_squares_have_the_papers_sizes_for_voc(name: str, scales: list[float]) -> None:
    priors = build(name, 2).priors
    squares = priors[(priors[:, 2] - priors[:, 3]).abs() < 1e-5, 2]
    expected = torch.tensor([*scales[:-1], *(sqrt(small * large) for small, large in pairwise(scales))])
    torch.testing.assert_close((1000 * squares).round().unique(), (1000 * expected).round().unique())


def test_outputs_are_ordered_like_the_priors() -> None:
    torch.manual_seed(0)
    net = build("ssd-mini", 4).eval()
    images = torch.randn(1, 3, 96, 96, requires_grad=True)
    locations, confidences = net(images)
    cell = 5 * 12 + 9
    for out in (locations, confidences):
        (gradient,) = torch.autograd.grad(out[0, cell * 4].sum(), images, retain_graph=True)
        rows, columns = gradient[0].abs().sum(dim=0).nonzero().float().unbind(dim=1)
        # A cell of the first map sees a square around the centre of its priors, give or take half a cell.
        centre_x, centre_y = net.priors[cell * 4, :2] * 96
        assert abs(columns.mean() - centre_x) <= 4
        assert abs(rows.mean() - centre_y) <= 4


@pytest.mark.parametrize(
    ("name", "classes", "message"),
    [("ssd301", 21, r"no SSD net 'ssd301'.*ssd300, ssd512, ssd-mini"), ("ssd300", 1, "classes is 1")],
)
def test_a_net_that_cannot_be_built_is_explained(name: str, classes: int, message: str) -> None:
    with pytest.raises(WhyidleError, match=message):
        build(name, classes)


def test_sgd_is_the_studys_at_batch_32_and_scales_with_the_batch() -> None:
    net = build("ssd-mini", 5)
    weights, biases = sgd(net, 32).param_groups
    assert (weights["lr"], weights["momentum"], weights["weight_decay"]) == (0.001, 0.9, 0.0005)
    assert (biases["lr"], biases["momentum"], biases["weight_decay"]) == (0.002, 0.9, 0.0)
    assert [group["lr"] for group in sgd(net, 192).param_groups] == pytest.approx([0.006, 0.012])
    assert len(weights["params"]) + len(biases["params"]) == len(list(net.parameters()))
    assert all(parameter.dim() == 1 for parameter in biases["params"])
    assert sum(parameter.dim() == 4 for parameter in weights["params"]) == 11
