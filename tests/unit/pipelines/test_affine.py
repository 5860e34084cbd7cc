"""The affine stage against the same matrices multiplied and applied pixel by pixel, and what it promises."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.pipelines.affine import Affine
from whyidle.pipelines.standardise import Standardise

LABEL = np.array(3)
IMAGE = np.random.default_rng(0).integers(0, 256, (9, 12), np.uint8)
STILL = Affine(rotation=0, shift=0, shear=0, zoom=0)


class Drawn:
    """A generator that gives these six numbers: turn, down, right, shear, zoom of rows, zoom of columns."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = np.array(numbers)

    def uniform(self, low: float, high: float, count: int) -> npt.NDArray[np.float64]:
        assert (low, high, count) == (-1.0, 1.0, len(self._numbers))
        return self._numbers


def moved(stage: Affine, image: npt.NDArray[np.uint8] = IMAGE, *numbers: float) -> npt.NDArray[np.uint8]:
    drawn: Any = Drawn(*(numbers or (0,) * 6))
    out, targets = stage(image, LABEL, drawn)
    assert targets is LABEL
    return out


def slowly(stage: Affine, image: npt.NDArray[np.uint8], numbers: list[float]) -> npt.NDArray[np.uint8]:
    """rotation · shift · shear · zoom about the centre, one pixel at a time, nearest pixel, edges repeated."""
    turn, down, right, shear, zoom_rows, zoom_columns = numbers
    height, width = image.shape
    a, s = math.radians(stage.rotation * turn), stage.shear_radians * shear
    rotation = np.array([[math.cos(a), -math.sin(a), 0], [math.sin(a), math.cos(a), 0], [0, 0, 1]])
    shift = np.array([[1, 0, stage.shift * height * down], [0, 1, stage.shift * width * right], [0, 0, 1]])
    shearing = np.array([[1, -math.sin(s), 0], [0, math.cos(s), 0], [0, 0, 1]])
    zoom = np.diag([1 + stage.zoom * zoom_rows, 1 + stage.zoom * zoom_columns, 1])
    matrix = rotation @ shift @ shearing @ zoom
    centre = np.array([(height - 1) / 2, (width - 1) / 2, 0])
    out = np.empty_like(image)
    for row in range(height):
        for column in range(width):
            y, x, _ = matrix @ (np.array([row, column, 1]) - centre) + centre
            out[row, column] = image[
                min(max(math.floor(y + 0.5), 0), height - 1), min(max(math.floor(x + 0.5), 0), width - 1)
            ]
    return out


@given(st.lists(st.floats(-1, 1), min_size=6, max_size=6), st.sampled_from(["radians", "degrees"]))
def test_it_is_the_product_of_four_matrices_about_the_centre(numbers: list[float], unit: Any) -> None:
    stage = Affine(rotation=40, shift=0.2, shear=0.5, zoom=0.4, shear_unit=unit)
    ours, slow = moved(stage, IMAGE, *numbers), slowly(stage, IMAGE, numbers)
    # Where a source lies half way between two pixels the last bit decides.
    assert (ours == slow).mean() > 0.9


SQUARE = IMAGE[:9, :9]
SHIFTED = np.concatenate((IMAGE[:, 3:], IMAGE[:, -1:], IMAGE[:, -1:], IMAGE[:, -1:]), axis=1)


@pytest.mark.parametrize(
    ("stage", "image", "numbers", "rows", "expected"),
    [
        (STILL, IMAGE, (1, 1, 1, 1, 1, 1), slice(None), IMAGE),
        (replace(STILL, shift=3 / 12), IMAGE, (0, 0, 1, 0, 0, 0), slice(None), SHIFTED),
        (replace(STILL, rotation=90), SQUARE, (1, 0, 0, 0, 0, 0), slice(None), np.rot90(SQUARE, -1)),
        (replace(STILL, zoom=0.5), IMAGE, (0, 0, 0, 0, -1, 0), [0, 4], IMAGE[[2, 4]]),
    ],
    ids=["still", "shift repeats the edge", "quarter turn", "zoom of rows alone"],
)
def test_what_can_be_exact_is(stage: Affine, image: Any, numbers: Any, rows: Any, expected: Any) -> None:
    assert np.array_equal(moved(stage, image, *numbers)[rows], expected)


def test_a_shear_of_0_3_is_17_degrees_in_2017_and_next_to_nothing_a_year_later() -> None:
    image = np.repeat(np.arange(28, dtype=np.uint8)[:, None], 28, axis=1)
    before, after = Affine(shear=0.3), Affine(shear=0.3, shear_unit="degrees")
    lean = (0, 0, 0, 1, 0, 0)
    assert math.degrees(before.shear_radians) == pytest.approx(17.19, abs=0.01)
    assert not np.array_equal(moved(before, image, *lean), image)
    assert np.array_equal(moved(after, image, *lean), image)
    same = Affine(shear=math.degrees(0.3), shear_unit="degrees")
    assert np.array_equal(moved(same, image, *lean), moved(before, image, *lean))


def test_colours_move_together_and_the_input_is_left_alone() -> None:
    colours = np.stack([IMAGE, 255 - IMAGE, IMAGE // 2], axis=-1)
    kept = colours.copy()
    stage = Affine(rotation=30)
    out, _ = stage(colours, LABEL, np.random.default_rng(1))
    gray, _ = stage(IMAGE, LABEL, np.random.default_rng(1))
    assert np.array_equal(colours, kept)
    assert np.array_equal(out[..., 0], gray)
    assert np.array_equal(out[..., 1], 255 - gray)
    assert out.dtype == np.uint8


def test_standardising_subtracts_and_divides_shares_of_the_highest_level_channels_first() -> None:
    for image in (IMAGE[..., None], np.stack([IMAGE, 255 - IMAGE, IMAGE // 2], axis=-1)):
        out, targets = Standardise(0.25, 0.5)(image.squeeze(), LABEL, np.random.default_rng(0))
        assert (out.dtype, out.shape) == (np.float32, (image.shape[-1], 9, 12))
        assert out.flags.c_contiguous
        assert np.allclose(out, (np.moveaxis(image, -1, 0) / 255 - 0.25) / 0.5, atol=1e-6)
        assert targets is LABEL
