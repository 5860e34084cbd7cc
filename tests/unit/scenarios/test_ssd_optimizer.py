"""How the reduced net's learning rate follows the images, whatever the batch."""

from __future__ import annotations

import pytest
import torch

from stallscope.scenarios.ssd_net import build
from stallscope.scenarios.ssd_optimizer import AT, IMAGES, LEAST, RATE, WARM_UP, adam, share


def rates(batch_size: int, steps: int) -> list[float]:
    """The rate that each of these steps took."""
    net = build("ssd-micro", 3)
    optimizer = adam(net, batch_size)
    taken = []
    for _ in range(steps):
        taken.append(optimizer.param_groups[0]["lr"])
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    return taken


def test_the_rate_grows_with_the_square_root_of_the_batch() -> None:
    small, large = adam(build("ssd-micro", 3), 8), adam(build("ssd-micro", 3), 128)
    ratio = large.param_groups[0]["initial_lr"] / small.param_groups[0]["initial_lr"]
    assert ratio == pytest.approx(4)
    assert adam(build("ssd-micro", 3), AT).param_groups[0]["initial_lr"] == RATE


def test_squared_gradients_are_forgotten_over_as_many_images_whatever_the_batch() -> None:
    images = [size / (1 - adam(build("ssd-micro", 3), size).defaults["betas"][1]) for size in (8, 64, 192)]
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


def test_every_step_takes_the_next_rate_of_the_plan() -> None:
    full = adam(build("ssd-micro", 3), 192).param_groups[0]["initial_lr"]
    expected = [full * share(step * 192, 192) for step in range(20)]
    assert rates(192, 20) == pytest.approx(expected)
    assert expected[0] < expected[5]
