"""How the reduced net's learning rates follow the images, whatever the batch, and what Muon makes of a gradient."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from whyidle.scenarios.ssd.muon import orthogonal
from whyidle.scenarios.ssd.net import build
from whyidle.scenarios.ssd.optimizer import AT, IMAGES, KERNEL_RATE, LEAST, RATE, WARM_UP, muon, share


class Small(nn.Module):
    """What of an SSD net the optimizer looks at: a trunk of stages, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3))
        self.classify = nn.Conv2d(16, 2, 3)


def test_the_rates_grow_with_the_square_root_of_the_batch() -> None:
    made = {size: muon(Small(), size) for size in (AT, 8, 64, 128, 192)}
    highest = {size: [group["initial_lr"] for group in each.param_groups] for size, each in made.items()}
    assert highest[128] == pytest.approx([4 * rate for rate in highest[8]])
    assert highest[AT] == [KERNEL_RATE, RATE]
    # And squared gradients are forgotten over as many images.
    images = [size / (1 - made[size].defaults["betas"][1]) for size in (8, 64, 192)]
    assert images == pytest.approx([images[0]] * 3)


@pytest.mark.parametrize("batch_size", [8, 64, 192])
def test_the_plan_is_counted_in_images_and_alike_at_every_batch_size(batch_size: int) -> None:
    whole = [share(step * batch_size, batch_size) for step in range(IMAGES // batch_size + 5)]
    highest = max(range(len(whole)), key=whole.__getitem__)
    assert highest * batch_size == pytest.approx(WARM_UP, abs=batch_size)
    assert whole[highest] > 0.98
    assert whole[len(whole) // 2] == pytest.approx(0.5, abs=0.05)
    assert whole[-1] == LEAST
    falling = whole[highest:]
    assert falling == sorted(falling, reverse=True)


def test_every_step_takes_the_next_rates_of_the_plan_and_no_head_learns_by_muon() -> None:
    net = build("ssd-micro", 3)
    optimizer = muon(net, 192)
    kernels, rest = optimizer.param_groups
    assert len(kernels["params"]) == 9
    assert {id(weight) for weight in net.head.parameters()} < {*map(id, rest["params"])}
    for step in range(6):
        expected = share(step * 192, 192)
        assert (kernels["lr"], rest["lr"]) == pytest.approx((KERNEL_RATE * expected, RATE * expected))
        optimizer.step()
    assert share(0, 192) < share(5 * 192, 192)


def test_a_kernel_moves_as_far_in_every_direction_and_everything_else_by_adam() -> None:
    torch.manual_seed(0)
    net = Small()
    optimizer = muon(net, 192)
    kernels, rest = ([*group["params"]] for group in optimizer.param_groups)
    assert len(kernels) == 2
    assert {id(weight) for weight in kernels + rest} == {id(weight) for weight in net.parameters()}
    before = [weight.detach().clone() for weight in kernels + rest]
    for weight in kernels + rest:
        weight.grad = torch.randn_like(weight)
    rate, adams = (group["lr"] for group in optimizer.param_groups)
    optimizer.step()
    moved = [was - weight.detach() for was, weight in zip(before, kernels + rest, strict=True)]
    for step in moved[: len(kernels)]:
        along = torch.linalg.svdvals(step.flatten(1)) / rate
        assert along.min() > 0.5
        assert along.max() < 1.3
    for step in moved[len(kernels) :]:
        # Adam's first step is the rate itself, whatever the gradient.
        torch.testing.assert_close(step.abs(), torch.full_like(step, adams), rtol=0.01, atol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(24, 27), (128, 1152), (8, 1)])
def test_an_orthogonal_matrix_points_where_the_matrix_does(rows: int, columns: int) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(rows, columns) * 1e-4
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    found = left.T @ orthogonal(matrix) @ right.T
    clear = sizes > 0.02 * sizes[0]
    assert (found.diagonal()[clear] - 1).abs().max() < 0.4
    assert (found - torch.diag(found.diagonal())).abs().max() < 0.01
