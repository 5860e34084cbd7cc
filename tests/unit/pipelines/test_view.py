"""A stage's view of an image, told without its pixels, against the stage called with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PillowImage

from whyidle.pipelines.crops import Crop, Mirror, RandomResizedCrop
from whyidle.pipelines.stages import Distort, Expand, Flip, Normalise, RandomCrop, Resize, recoloured
from whyidle.pipelines.view import View, Viewable

Array = npt.NDArray[Any]

GEOMETRY = [
    *(Distort(), Expand(), Expand(fill=(1, 2, 3)), RandomCrop(), Resize(24), Resize(17, "random"), Flip()),
    *(Crop(5), Mirror(), RandomResizedCrop(19)),
]


def drawn(view: View, image: Array) -> Array:
    """The view, pixel by pixel as it says: coloured, laid on its canvas, resized, mirrored."""
    coloured = image if view.colours is None else recoloured(image, view.colours)
    if view.fill is None:
        seen = coloured[-view.top : -view.top + view.height, -view.left : -view.left + view.width]
    else:
        seen = np.tile(np.array(view.fill, np.uint8), (view.height, view.width, 1))
        top, left, bottom, right = view.part
        seen[view.top + top : view.top + bottom, view.left + left : view.left + right] = coloured[
            top:bottom, left:right
        ]
    assert seen.shape == (view.height, view.width, 3), "the image must be wherever no colour fills"
    if view.size is not None:
        seen = np.asarray(PillowImage.fromarray(seen).resize(view.size[::-1], view.filter))
    return seen[:, ::-1] if view.mirrored else seen


@given(
    stages=st.lists(st.sampled_from(GEOMETRY), max_size=6),
    sides=st.tuples(st.integers(8, 90), st.integers(8, 90)),
    objects=st.integers(0, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_view_says_what_the_stages_make(stages: Sequence[Any], sides: tuple[int, int], objects: int, seed: int) -> None:
    given_numbers = np.random.default_rng(seed)
    image = given_numbers.integers(0, 256, (*sides, 3), np.uint8)
    corners = np.sort(given_numbers.random((objects, 2, 2)), axis=1).reshape(-1, 4)
    targets = np.column_stack((np.ones(objects), corners)).astype(np.float32)
    one, other = np.random.default_rng(seed), np.random.default_rng(seed)
    view, told = View.whole(*sides), targets
    made, boxes = image, targets
    for stage in stages:
        height, width = view.size or (view.height, view.width)
        if isinstance(stage, Crop) and min(height, width) < stage.size:
            continue
        seen = stage.view(view, told, one)
        if seen is None:
            assert one.bit_generator.state == other.bit_generator.state, "refusing a view drew a number"
            break
        (view, told), (made, boxes) = seen, stage(made, boxes, other)
    np.testing.assert_array_equal(drawn(view, image), made)
    np.testing.assert_array_equal(told, boxes)
    assert one.bit_generator.state == other.bit_generator.state


def test_stages_that_look_at_pixels_have_no_view() -> None:
    assert not isinstance(Normalise(), Viewable)
    whole = View.whole(40, 30)
    random = np.random.default_rng(1)
    empty = np.empty((0, 5), np.float32)
    resized, _ = Resize(20).view(whole, empty, random) or pytest.fail("a whole image can be resized")
    assert Resize(10).view(resized, empty, random) is None, "a second resampling needs the pixels of the first"
    assert Distort().view(resized, empty, random) is None
    assert Crop(5).view(resized, empty, random) is None


def test_part_of_an_image_that_is_not_seen_is_empty() -> None:
    aside = View(image_height=10, image_width=10, height=4, width=4, top=20, left=-20, fill=(0, 0, 0))
    top, left, bottom, right = aside.part
    assert bottom == top
    assert right == left
