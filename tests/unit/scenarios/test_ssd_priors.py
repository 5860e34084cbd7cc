from __future__ import annotations

from math import sqrt

import pytest
import torch
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.image_list import ImageList

from whyidle.errors import WhyidleError
from whyidle.scenarios.ssd.priors import layout, priors

NAMES = ("ssd300", "ssd512", "ssd-mini", "ssd-micro")


@pytest.mark.parametrize(
    ("name", "expected"), [("ssd300", 8_732), ("ssd512", 24_564), ("ssd-mini", 828), ("ssd-micro", 336)]
)
def test_number_of_priors(name: str, expected: int) -> None:
    boxes = priors(layout(name))
    assert boxes.shape == (expected, 4)
    assert boxes.dtype == torch.float32


def test_first_cell_of_ssd300() -> None:
    side, between = 30 / 300, sqrt(30 * 60) / 300
    long, short = side * sqrt(2), side / sqrt(2)
    centre = 4 / 300
    expected = [[side, side], [between, between], [long, short], [short, long]]
    torch.testing.assert_close(
        priors(layout("ssd300"))[:4], torch.tensor([[centre, centre, *shape] for shape in expected])
    )


def test_second_cell_lies_to_the_right_of_the_first() -> None:
    first, second = priors(layout("ssd300"))[0], priors(layout("ssd300"))[4]
    torch.testing.assert_close(second - first, torch.tensor([8 / 300, 0.0, 0.0, 0.0]))


@pytest.mark.parametrize(
    ("name", "smallest", "between"),
    [("ssd300", 0.88, sqrt(264 * 315) / 300), ("ssd512", 0.9, sqrt(0.9 * 1.05))],
)
def test_last_map_covers_the_image(name: str, smallest: float, between: float) -> None:
    squares = priors(layout(name))[-4:-2]
    expected = torch.tensor([[0.5, 0.5, smallest, smallest], [0.5, 0.5, between, between]])
    torch.testing.assert_close(squares, expected)


@pytest.mark.parametrize(
    ("name", "scales"),
    [
        ("ssd300", [0.1, 0.2, 0.37, 0.54, 0.71, 0.88, 1.05]),
        ("ssd512", [0.07, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.05]),
    ],
)
def test_agrees_with_torchvision_given_the_scales_for_voc(name: str, scales: list[float]) -> None:
    plan = layout(name)
    steps = [part.step for part in plan.maps]
    generator = DefaultBoxGenerator([list(part.ratios) for part in plan.maps], scales=scales, steps=steps, clip=False)
    images = ImageList(torch.zeros(1, 3, plan.size, plan.size), [(plan.size, plan.size)])
    maps = [torch.zeros(1, 1, part.cells, part.cells) for part in plan.maps]
    corners = generator(images, maps)[0] / plan.size
    low, high = corners[:, :2], corners[:, 2:]
    theirs = torch.cat(((low + high) / 2, high - low), dim=1)
    torch.testing.assert_close(priors(plan), theirs, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_sizes_grow_from_map_to_map(name: str) -> None:
    plan = layout(name)
    boxes = priors(plan)
    starts = [0]
    for part in plan.maps:
        starts.append(starts[-1] + part.cells**2 * len(part.shapes))
    sides = [boxes[start, 2].item() for start in starts[:-1]]
    assert starts[-1] == len(boxes)
    assert sides == sorted(sides)


def test_last_centres_of_ssd300s_third_map_lie_outside_as_in_caffe() -> None:
    # 10 cells of 32 pixels are 320: the paper's steps are powers of two, not fractions of 300.
    third = priors(layout("ssd300"))[38 * 38 * 4 + 19 * 19 * 6 :][: 10 * 10 * 6]
    assert third[:, :2].max().item() == pytest.approx(304 / 300)


def test_unknown_net_is_named_with_the_known_ones() -> None:
    with pytest.raises(WhyidleError, match=r"'ssd301'.*ssd300, ssd512, ssd-mini"):
        layout("ssd301")
