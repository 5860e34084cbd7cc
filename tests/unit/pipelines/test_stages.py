"""What stages make of images and boxes, and of a view told without pixels; affine ones against their matrices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PillowImage
from PIL.Image import Resampling

from whyidle.pipelines.affine import Affine
from whyidle.pipelines.crops import Crop, Mirror, RandomResizedCrop
from whyidle.pipelines.stages import (
    Distort,
    Expand,
    Flip,
    Normalise,
    RandomCrop,
    Resize,
    plain_stages,
    recoloured,
    ssd_stages,
)
from whyidle.pipelines.standardise import Standardise
from whyidle.pipelines.view import View

Array = npt.NDArray[Any]
NO_BOXES = np.zeros((0, 5), np.float32)
NEUTRAL = Distort(brightness=0, contrast=(1, 1), saturation=(1, 1), hue=0, probability=1.0)


def ramp(height: int, width: int) -> Array:
    """An image whose pixels say where they are: red is the column, green the row (sides up to 256)."""
    image = np.zeros((height, width, 3), np.uint8)
    image[..., 0] = np.arange(width)[None, :]
    image[..., 1] = np.arange(height)[:, None]
    image[..., 2] = 77
    return image


@st.composite
def samples(draw: st.DrawFn, least: int = 0) -> tuple[Array, Array]:
    """An image of 8 to 200 pixels a side and up to five boxes of at least one pixel in it."""
    height, width = draw(st.integers(8, 200)), draw(st.integers(8, 200))
    rows = []
    for _ in range(draw(st.integers(least, 5))):
        left, top = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
        right, bottom = draw(st.integers(left + 1, width)), draw(st.integers(top + 1, height))
        rows.append((draw(st.integers(1, 20)), left / width, top / height, right / width, bottom / height))
    return ramp(height, width), np.array(rows, np.float32).reshape(-1, 5)


seeds = st.integers(0, 2**32 - 1)


def run(stages: Any, image: Array, targets: Array, seed: int) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    for stage in stages:
        image, targets = stage(image, targets, random)
    return image, targets


@pytest.mark.parametrize(
    "stages",
    [
        *([Distort(probability=1.0)], [Expand(probability=1.0)], [RandomCrop()], [Resize(32)], [Resize(32, "random")]),
        *([Flip(probability=1.0)], [Normalise()], ssd_stages(48), plain_stages(48)),
    ],
    ids=["distort", "expand", "crop", "resize", "resize-random", "flip", "normalise", "ssd", "plain"],
)
@given(sample=samples(), seed=seeds)
def test_boxes_stay_valid_and_inputs_untouched(stages: Any, sample: tuple[Array, Array], seed: int) -> None:
    image, targets = sample
    image_before, targets_before = image.copy(), targets.copy()

    _, out = run(stages, image, targets, seed)

    assert out.dtype == np.float32
    assert out.shape[1] == 5
    assert (out[:, 1:] >= 0).all()
    assert (out[:, 1:] <= 1).all()
    assert (out[:, 1] < out[:, 3]).all()
    assert (out[:, 2] < out[:, 4]).all()
    assert set(out[:, 0]) <= set(targets[:, 0])
    np.testing.assert_array_equal(image, image_before)
    np.testing.assert_array_equal(targets, targets_before)


def changed(stage: Distort, level: int, seed: int) -> Array:
    grey = np.full((2, 2, 3), level, np.uint8)
    return run([stage], grey, NO_BOXES, seed)[0]


@pytest.mark.parametrize(
    ("stage", "happened"),
    [
        # Only brightness moves a grey pixel when the other ranges are neutral.
        (Distort(brightness=32, contrast=(1, 1), saturation=(1, 1), hue=0), lambda made, image: (made != image).any()),
        (Expand(), lambda made, image: made.shape != image.shape),
        (Flip(), lambda made, image: made[0, 0, 0] == 19 and np.array_equal(made, image[:, ::-1])),
    ],
    ids=["distort", "expand", "flip"],
)
def test_what_is_left_to_chance_happens_half_of_the_time_or_never(stage: Any, happened: Any) -> None:
    image = np.full((20, 20, 3), 100, np.uint8) if isinstance(stage, Distort) else ramp(20, 20)
    made = [run([stage], image, NO_BOXES, seed)[0] for seed in range(1000)]
    assert 430 <= sum(bool(happened(each, image)) for each in made) <= 560
    if isinstance(stage, Expand):
        sides = [each.shape[0] for each in made if each.shape[0] > 20]
        assert 75 <= max(sides) <= 80
        assert 45 <= np.mean(sides) <= 55
    never = replace(stage, probability=0.0)
    assert all(run([never], image, NO_BOXES, seed)[0] is image for seed in range(20))


def test_brightness_adds_within_its_bound_contrast_scales_and_saturation_of_zero_leaves_grey_of_the_largest() -> None:
    levels = {
        level: [int(changed(replace(NEUTRAL, brightness=32), level, seed)[0, 0, 0]) for seed in range(200)]
        for level in (5, 100, 250)
    }
    assert 68 <= min(levels[100]) < 75 < 125 < max(levels[100]) <= 132
    assert (max(levels[5]) <= 37, min(levels[250]) >= 218) == (True, True)
    assert (changed(replace(NEUTRAL, contrast=(0.5, 0.5)), 100, 0) == 50).all()
    image = np.full((2, 2, 3), (200, 50, 10), np.uint8)
    assert (run([replace(NEUTRAL, saturation=(0, 0))], image, NO_BOXES, 0)[0] == 200).all()


def test_hue_is_in_units_of_two_degrees() -> None:
    # A turn of 60 degrees makes red yellow or magenta, so 30 units reach them and no further.
    stage = replace(NEUTRAL, hue=30)
    red = np.full((1, 1, 3), (255, 0, 0), np.uint8)
    outs = np.array([run([stage], red, NO_BOXES, seed)[0][0, 0] for seed in range(300)])
    assert (outs[:, 0] >= 250).all()
    assert outs[:, 1].max() > 230
    assert outs[:, 2].max() > 230
    assert (np.minimum(outs[:, 1], outs[:, 2]) == 0).all()


@given(sample=samples(least=1), seed=seeds)
def test_expand_keeps_pixels_and_boxes_can_be_mapped_back(sample: tuple[Array, Array], seed: int) -> None:
    image, targets = sample
    height, width = image.shape[:2]
    canvas, out = run([Expand(probability=1.0)], image, targets, seed)

    inside = canvas[..., 2] == 77
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    top, left = int(rows[0]), int(columns[0])
    np.testing.assert_array_equal(canvas[top : top + height, left : left + width], image)
    assert (canvas[~inside] == (123, 117, 104)).all()
    assert inside.sum() == height * width
    assert height <= canvas.shape[0] <= 4 * height
    assert width <= canvas.shape[1] <= 4 * width

    canvas_sides = np.array((canvas.shape[1], canvas.shape[0]) * 2)
    back = (out[:, 1:] * canvas_sides - (left, top, left, top)) / ((width, height) * 2)
    np.testing.assert_allclose(back, targets[:, 1:], atol=1e-4)
    np.testing.assert_array_equal(out[:, 0], targets[:, 0])


def where(crop: Array) -> tuple[int, int, int, int]:
    """Which part of `ramp` a crop is: left, top, right, bottom."""
    left, top = int(crop[0, 0, 0]), int(crop[0, 0, 1])
    return left, top, left + crop.shape[1], top + crop.shape[0]


def iou(part: tuple[int, int, int, int], box: Array) -> float:
    across = min(part[2], box[2]) - max(part[0], box[0])
    down = min(part[3], box[3]) - max(part[1], box[1])
    shared = max(across, 0) * max(down, 0)
    union = (part[2] - part[0]) * (part[3] - part[1]) + (box[2] - box[0]) * (box[3] - box[1]) - shared
    return float(shared / union)


@pytest.mark.parametrize("least", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_crop_reaches_the_asked_overlap_with_some_object(least: float) -> None:
    image = ramp(150, 200)
    # Random parts reach 0.9 only of an object that nearly fills the image.
    large = (0.1, 0.1, 0.6, 0.7) if least < 0.9 else (0.05, 0.05, 0.95, 0.95)
    targets = np.array([[1, *large], [2, 0.5, 0.4, 0.95, 0.9]], np.float32)
    boxes = targets[:, 1:] * np.array((200, 150, 200, 150))
    whole, parts = 0, 0
    for seed in range(200):
        part = where(run([RandomCrop(min_ious=(least,))], image, targets, seed)[0])
        if part == (0, 0, 200, 150):
            whole += 1
            continue
        parts += 1
        assert max(iou(part, box) for box in boxes) >= least - 1e-9
    assert whole > 60  # the whole image is one of at most two candidates
    assert parts > 20


@given(sample=samples(least=1), seed=seeds)
def test_crop_keeps_exactly_the_objects_with_their_centre_inside(sample: tuple[Array, Array], seed: int) -> None:
    image, targets = sample
    height, width = image.shape[:2]
    targets[:, 0] = np.arange(1, len(targets) + 1)  # tell them apart
    crop, out = run([RandomCrop()], image, targets, seed)

    left, top, right, bottom = where(crop)
    boxes = targets[:, 1:].astype(np.float64) * ((width, height) * 2)
    x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    inside = (x >= left) & (x <= right) & (y >= top) & (y <= bottom)
    np.testing.assert_array_equal(out[:, 0], targets[inside, 0])
    clipped = boxes[inside].clip((left, top, left, top), (right, bottom, right, bottom))
    found = out[:, 1:] * ((right - left, bottom - top) * 2) + (left, top, left, top)
    np.testing.assert_allclose(found, clipped, atol=1e-3)


@given(seed=seeds)
def test_parts_respect_scale_and_aspect(seed: int) -> None:
    crop = run([RandomCrop(min_ious=(None,))], ramp(200, 200), NO_BOXES, seed)[0]
    height, width = crop.shape[0] / 200, crop.shape[1] / 200
    rounding = 0.01  # a pixel at each end
    assert 0.3 - rounding <= (height * width) ** 0.5 <= 1.0
    assert 0.5 - 2 * rounding / 0.2 <= width / height <= 2.0 + 2 * rounding / 0.2


def test_crop_of_an_image_without_objects_ignores_overlaps_and_takes_all_candidates_equally_often() -> None:
    for seed in range(50):
        crop, out = run([RandomCrop(min_ious=(0.5,))], ramp(60, 80), NO_BOXES, seed)
        assert crop.shape == (60, 80, 3)
        assert out.shape == (0, 5)
    shapes = {run([RandomCrop()], ramp(60, 80), NO_BOXES, seed)[0].shape for seed in range(50)}
    assert len(shapes) > 10
    # One box as large as the image: every overlap is within reach, so there are seven candidates.
    targets = np.array([[1, 0, 0, 1, 1]], np.float32)
    parts = [where(run([RandomCrop()], ramp(100, 100), targets, seed)[0]) for seed in range(1000)]
    assert 100 <= sum(part == (0, 0, 100, 100) for part in parts) <= 190  # a seventh is 143


NOISE = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)


def test_bilinear_resize_is_the_antialiased_one_of_pillow_and_random_uses_five_filters_equally() -> None:
    out = run([Resize(30)], NOISE, NO_BOXES, 0)[0]
    expected = np.asarray(PillowImage.fromarray(NOISE).resize((30, 30), Resampling.BILINEAR))
    np.testing.assert_array_equal(out, expected)
    assert out.std() < NOISE.std() / 2  # noise averages out only under antialiasing
    small = NOISE[:40, :40]
    counts = Counter(run([Resize(23, "random")], small, NO_BOXES, seed)[0].tobytes() for seed in range(500))
    assert len(counts) == 5
    assert min(counts.values()) > 60


@given(sample=samples(), seed=seeds)
def test_flipping_mirrors_and_twice_gives_the_sample_back(sample: tuple[Array, Array], seed: int) -> None:
    image, targets = sample
    once = run([Flip(probability=1.0)], image, targets, seed)
    twice = run([Flip(probability=1.0)], *once, seed)
    np.testing.assert_array_equal(twice[0], image)
    np.testing.assert_allclose(twice[1], targets, atol=2e-7)
    np.testing.assert_allclose(once[1][:, 1] + targets[:, 3], 1.0, atol=2e-7)


def test_normalise_subtracts_the_mean_and_nothing_else() -> None:
    image = ramp(3, 5)
    out = run([Normalise()], image, NO_BOXES, 0)[0]
    np.testing.assert_array_equal(out, image.transpose(2, 0, 1) - np.float32([[[123]], [[117]], [[104]]]))
    assert run([Normalise()], image[:, ::-1], NO_BOXES, 0)[0].flags.c_contiguous


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


LABEL = np.array(3)
IMAGE = np.random.default_rng(0).integers(0, 256, (9, 12), np.uint8)


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
def test_it_is_the_product_of_four_matrices_about_the_centre_for_all_colours_alike(
    numbers: list[float], unit: Any
) -> None:
    stage = Affine(rotation=40, shift=0.2, shear=0.5, zoom=0.4, shear_unit=unit)
    assert stage.shear_radians == pytest.approx(0.5 if unit == "radians" else math.radians(0.5))
    kept = (colours := np.stack([IMAGE, 255 - IMAGE], axis=-1)).copy()
    ours, slow = moved(stage, IMAGE, *numbers), slowly(stage, IMAGE, numbers)
    # Where a source lies half way between two pixels the last bit decides.
    assert (ours == slow).mean() > 0.9
    assert np.array_equal(moved(stage, colours, *numbers), np.stack([ours, 255 - ours], axis=-1))
    assert np.array_equal(colours, kept)
    assert np.array_equal(moved(Affine(rotation=0, shift=0, shear=0, zoom=0), IMAGE, *numbers), IMAGE)


def test_standardising_subtracts_and_divides_shares_of_the_highest_level_channels_first() -> None:
    for image in (IMAGE[..., None], np.stack([IMAGE, 255 - IMAGE, IMAGE // 2], axis=-1)):
        out, targets = Standardise(0.25, 0.5)(image.squeeze(), LABEL, np.random.default_rng(0))
        assert (out.dtype, out.shape) == (np.float32, (image.shape[-1], 9, 12))
        assert out.flags.c_contiguous
        assert np.allclose(out, (np.moveaxis(image, -1, 0) / 255 - 0.25) / 0.5, atol=1e-6)
        assert targets is LABEL
