from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn
from torchvision.models.detection import ssd300_vgg16

from whyidle.errors import WhyidleError
from whyidle.scenarios.ssd.net import L2Norm, SsdNet, build, image_size, sgd


def on_meta(name: str, classes: int = 21) -> SsdNet:
    with torch.device("meta"):
        return build(name, classes)


@pytest.mark.parametrize(("name", "expected"), [("ssd300", 26_285_486), ("ssd512", 27_188_676), ("ssd-mini", 492_782)])
def test_number_of_parameters_for_voc(name: str, expected: int) -> None:
    assert sum(parameter.numel() for parameter in on_meta(name).parameters()) == expected


@pytest.mark.parametrize(("name", "classes", "count"), [("ssd300", 21, 8_732), ("ssd512", 5, 24_564)])
def test_output_shapes_without_computing_a_value(name: str, classes: int, count: int) -> None:
    # On meta anything that needs a value, as a host sync does, raises.
    net = on_meta(name, classes)
    locations, confidences = net(torch.empty(2, 3, image_size(name), image_size(name), device="meta"))
    assert locations.shape == (2, count, 4)
    assert confidences.shape == (2, count, classes)
    assert net.priors.shape == (count, 4)


@pytest.mark.slow
def test_ssd300_computes_what_torchvisions_computes_with_the_same_weights() -> None:
    torch.manual_seed(0)
    ours = build("ssd300", 21).eval()
    theirs = ssd300_vgg16(weights=None, weights_backbone=None, num_classes=21).eval()
    # In module order they differ in two places only: the L2 scale comes first, classes before locations.
    trunk = [parameter for name, parameter in ours.named_parameters() if name.startswith("stages.")]
    mine = [ours.taps[0].weight, *trunk, *ours.classify.parameters(), *ours.locate.parameters()]
    with torch.no_grad():
        for source, destination in zip(mine, theirs.parameters(), strict=True):
            destination.copy_(source)
        images = torch.randn(1, 3, 300, 300) * 60
        expected = theirs.head(list(theirs.backbone(images).values()))
        locations, confidences = ours(images)
    torch.testing.assert_close(locations, expected["bbox_regression"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(confidences, expected["cls_logits"], rtol=1e-4, atol=1e-4)
    assert confidences.std() > 0.1


def test_ssd512_has_the_stages_of_ssd300_and_one_more() -> None:
    def stage_shapes(name: str) -> Counter[tuple[int, ...]]:
        return Counter(tuple(parameter.shape) for parameter in on_meta(name).stages.parameters())

    small, large = stage_shapes("ssd300"), stage_shapes("ssd512")
    assert not small - large
    assert large - small == Counter([(128, 256, 1, 1), (128,), (256, 128, 4, 4), (256,)])


def test_l2norm_gives_every_pixel_the_learnt_length() -> None:
    norm = L2Norm(6, scale=20.0)
    out = norm(torch.randn(2, 6, 3, 3) * 100)
    torch.testing.assert_close(out.norm(dim=1), torch.full((2, 3, 3), 20.0))
    assert build("ssd-mini", 2).taps[0](out) is out


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


def test_same_seed_same_weights() -> None:
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(build("ssd-mini", 4).parameters())

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


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


def test_priors_move_with_the_net_but_are_not_saved() -> None:
    net = build("ssd-mini", 3)
    assert "priors" not in net.state_dict()
    assert net.to("meta").priors.device.type == "meta"


@pytest.mark.slow
def test_forward_and_heads_trace_into_one_graph() -> None:
    torch.manual_seed(0)
    net = build("ssd-mini", 3).eval()
    images = torch.randn(2, 3, 96, 96)
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    for ours, traced in zip(net(images), compiled(images), strict=True):
        torch.testing.assert_close(ours, traced)


@pytest.mark.parametrize(
    ("name", "classes", "message"), [("vgg", 21, "no SSD net 'vgg'"), ("ssd300", 1, "classes is 1")]
)
def test_a_net_that_cannot_be_built_is_explained(name: str, classes: int, message: str) -> None:
    with pytest.raises(WhyidleError, match=message):
        build(name, classes)


@pytest.mark.parametrize(("name", "size"), [("ssd300", 300), ("ssd512", 512), ("ssd-mini", 96), ("ssd-micro", 64)])
def test_image_size(name: str, size: int) -> None:
    assert image_size(name) == size


def test_sgd_is_the_studys_at_batch_32_and_scales_with_the_batch() -> None:
    net = build("ssd-mini", 5)
    weights, biases = sgd(net, 32).param_groups
    assert (weights["lr"], weights["momentum"], weights["weight_decay"]) == (0.001, 0.9, 0.0005)
    assert (biases["lr"], biases["momentum"], biases["weight_decay"]) == (0.002, 0.9, 0.0)
    assert [group["lr"] for group in sgd(net, 192).param_groups] == pytest.approx([0.006, 0.012])
    assert len(weights["params"]) + len(biases["params"]) == len(list(net.parameters()))
    assert all(parameter.dim() == 1 for parameter in biases["params"])
    assert sum(parameter.dim() == 4 for parameter in weights["params"]) == 11
