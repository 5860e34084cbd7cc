"""What happens to a sample between decoding and batching, one stage at a time.

Every stage is a pure function of its inputs and the generator it is given: same inputs and same generator
state, same result, in whatever process or thread. Images stay uint8 until `Normalise`. A stage never writes
into its inputs and may return a view of them.

The SSD stages follow Liu et al., "SSD: Single Shot MultiBox Detector" (2016), section 2.2, with the details of
the Caffe implementation (weiliu89/caffe, `im_transforms.cpp`, `sampler.cpp` and `ssd_pascal.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image as PillowImage
from PIL.Image import Resampling

if TYPE_CHECKING:  # the protocol imports torch, which no stage needs
    from .protocol import Image, Stage, Targets

_LEVELS = np.arange(256, dtype=np.float32)

# OpenCV's linear, cubic, area, nearest and Lanczos, which Caffe draws from, by their Pillow names.
_FILTERS = (
    Resampling.BILINEAR,
    Resampling.BICUBIC,
    Resampling.BOX,
    Resampling.NEAREST,
    Resampling.LANCZOS,
)


def _table(levels: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """A look-up table from level to level, rounded and saturated."""
    return np.rint(levels).clip(0, 255).astype(np.uint8)


@dataclass(frozen=True)
class Distort:
    """Changes of colour, each made with `probability`.

    Brightness comes first, contrast with even chances before or after saturation and hue.
    """

    brightness: float = 32.0
    """Up to this many levels are added or taken away."""
    contrast: tuple[float, float] = (0.5, 1.5)
    """Factor range on the levels."""
    saturation: tuple[float, float] = (0.5, 1.5)
    """Factor range on S of HSV."""
    hue: float = 18.0
    """Largest turn of H in OpenCV's 8-bit units of two degrees, 180 a turn: 18 is 36 degrees either way."""
    probability: float = 0.5

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        brightness, contrast, saturation, hue = random.random(4) < self.probability
        if not (brightness or contrast or saturation or hue):
            return image, targets
        contrast_first = random.random() < 0.5
        before, after = _LEVELS.astype(np.uint8), None
        if brightness:
            before = _table(_LEVELS + random.uniform(-self.brightness, self.brightness))
        if contrast:
            scaled = _table(_LEVELS * random.uniform(*self.contrast))
            if contrast_first or not (saturation or hue):
                before = scaled[before]
            else:
                after = scaled
        picture = PillowImage.fromarray(image)
        if brightness or contrast:
            picture = picture.point(before.tolist() * 3)
        if saturation or hue:
            factor = random.uniform(*self.saturation) if saturation else 1.0
            turn = random.uniform(-self.hue, self.hue) * 256 / 180 if hue else 0.0
            picture = _saturate_and_turn(picture, factor, turn)
        if after is not None:
            picture = picture.point(after.tolist() * 3)
        return np.asarray(picture), targets


def _saturate_and_turn(picture: PillowImage.Image, factor: float, turn: float) -> PillowImage.Image:
    """S of HSV times `factor`, H plus `turn` in 256ths of a turn."""
    turned = np.rint(_LEVELS + turn).astype(np.int64) % 256
    tables = [*turned.tolist(), *_table(_LEVELS * factor).tolist(), *range(256)]
    return picture.convert("HSV").point(tables).convert("RGB")


@dataclass(frozen=True)
class Expand:
    """Puts the image somewhere on a canvas of up to `max_ratio` times its sides, which makes objects small."""

    max_ratio: float = 4.0
    probability: float = 0.5
    fill: tuple[int, int, int] = (123, 117, 104)
    """Colour of the canvas, RGB levels."""

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        if random.random() >= self.probability:
            return image, targets
        height, width = image.shape[:2]
        ratio = random.uniform(1.0, self.max_ratio)
        canvas_height, canvas_width = int(height * ratio), int(width * ratio)
        top = int(random.integers(canvas_height - height + 1))
        left = int(random.integers(canvas_width - width + 1))

        canvas = np.empty((canvas_height, canvas_width, 3), np.uint8)
        # Broadcasting a finished row is one memcpy per row, 70 times faster than broadcasting a pixel.
        canvas[:] = np.tile(np.array(self.fill, np.uint8), (canvas_width, 1))
        canvas[top : top + height, left : left + width] = image

        sides = np.array((width, height, width, height), np.float32)
        canvas_sides = np.array((canvas_width, canvas_height, canvas_width, canvas_height), np.float32)
        corners = (targets[:, 1:] * sides + np.array((left, top, left, top), np.float32)) / canvas_sides
        return canvas, _with_corners(targets, corners)


@dataclass(frozen=True)
class RandomCrop:
    """Cuts out a part that overlaps some object by at least a drawn IoU (the batch sampler of Caffe-SSD).

    The candidates are the whole image and, for each entry of `min_ious` (`None`: any part will do), the first of
    `trials` random parts that reaches this IoU with at least one object. One candidate is taken at random. Parts
    are on whole pixels. Objects stay if their centre lies in the part, which may be none; boxes are clipped.
    """

    min_ious: tuple[float | None, ...] = (None, 0.1, 0.3, 0.5, 0.7, 0.9)
    scale: tuple[float, float] = (0.3, 1.0)
    """Side of the part as a share of the image's side, before the aspect is applied."""
    aspect: tuple[float, float] = (0.5, 2.0)
    """Width by height of the part, relative to the image's; limited so that the part fits in."""
    trials: int = 50

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        height, width = image.shape[:2]
        boxes = targets[:, 1:].astype(np.float64) * (width, height, width, height)
        parts = self._parts(width, height, random)
        enough = _best_iou(parts, boxes) >= self._thresholds()[:, None]
        found = enough.any(axis=1)
        first = parts[found, enough.argmax(axis=1)[found]]
        candidates = np.vstack([[(0, 0, width, height)], first])
        left, top, right, bottom = candidates[random.integers(len(candidates))].tolist()

        x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
        kept = (x >= left) & (x <= right) & (y >= top) & (y <= bottom)
        corners = boxes[kept] - (left, top, left, top)
        corners /= (right - left, bottom - top, right - left, bottom - top)
        return image[top:bottom, left:right], _with_corners(targets[kept], corners.clip(0.0, 1.0))

    def _thresholds(self) -> npt.NDArray[np.float64]:
        return np.array([-np.inf if iou is None else iou for iou in self.min_ious], np.float64)

    def _parts(self, width: int, height: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
        """Random parts `[min_ious, trials, 4]` in pixels, all drawn at once rather than until one succeeds."""
        scale = random.uniform(*self.scale, (len(self.min_ious), self.trials))
        highest = np.minimum(self.aspect[1], scale**-2)
        lowest = np.minimum(np.maximum(self.aspect[0], scale**2), highest)
        aspect = random.uniform(lowest, highest)
        part_width = np.minimum(scale * np.sqrt(aspect), 1.0)
        part_height = np.minimum(scale / np.sqrt(aspect), 1.0)
        x, y = random.uniform(0.0, 1.0 - part_width), random.uniform(0.0, 1.0 - part_height)
        left, top = (x * width).astype(np.int64), (y * height).astype(np.int64)
        right = np.maximum(((x + part_width) * width).astype(np.int64), left + 1)
        bottom = np.maximum(((y + part_height) * height).astype(np.int64), top + 1)
        return np.stack([left, top, right, bottom], axis=-1)


def _best_iou(parts: npt.NDArray[np.int64], boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The highest IoU of each part `[..., 4]` with any of the boxes `[objects, 4]`; 0 where there are none."""
    one = parts[..., None, :]
    sides = np.minimum(one[..., 2:], boxes[:, 2:]) - np.maximum(one[..., :2], boxes[:, :2])
    shared = sides.clip(0.0).prod(axis=-1)
    areas = (one[..., 2:] - one[..., :2]).prod(axis=-1) + (boxes[:, 2:] - boxes[:, :2]).prod(axis=-1)
    best: npt.NDArray[np.float64] = (shared / (areas - shared)).max(axis=-1, initial=0.0)
    return best


@dataclass(frozen=True)
class Resize:
    """Warps the image to a square of `size` pixels; boxes are shares and stay.

    "bilinear" is Pillow's, with antialiasing; "random" draws one of five filters: bilinear, bicubic, box,
    nearest and Lanczos.
    """

    size: int
    interpolation: Literal["bilinear", "random"] = "bilinear"

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        chosen = Resampling.BILINEAR
        if self.interpolation == "random":
            chosen = _FILTERS[random.integers(len(_FILTERS))]
        return np.asarray(PillowImage.fromarray(image).resize((self.size, self.size), chosen)), targets


@dataclass(frozen=True)
class Flip:
    """Mirrors left and right."""

    probability: float = 0.5

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        if random.random() >= self.probability:
            return image, targets
        corners = targets[:, 1:].copy()
        corners[:, [0, 2]] = 1.0 - targets[:, [3, 1]]
        return image[:, ::-1], _with_corners(targets, corners)


@dataclass(frozen=True)
class Normalise:
    """uint8 `[height, width, 3]` to contiguous float32 `[3, height, width]`, the mean subtracted, in levels."""

    mean: tuple[float, float, float] = (123.0, 117.0, 104.0)
    """RGB means of the ImageNet set as the original VGG weights expect them."""
    deviation: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """What is then divided by."""

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        height, width = image.shape[:2]
        planes = np.empty((3, height, width), np.float32)
        mean = np.array(self.mean, np.float32)[:, None, None]
        # Without `out` numpy would keep the channels-last memory order of the input.
        np.subtract(image.transpose(2, 0, 1), mean, out=planes)
        if self.deviation != (1.0, 1.0, 1.0):
            planes /= np.array(self.deviation, np.float32)[:, None, None]
        return planes, targets


def _with_corners(targets: Targets, corners: npt.NDArray[Any]) -> Targets:
    """The same classes with other boxes."""
    moved = targets.copy()
    moved[:, 1:] = corners
    return moved


def plain_stages(size: int) -> tuple[Stage, ...]:
    """What evaluation does, and the least a training can do: warp to `size` and normalise."""
    return Resize(size), Normalise()


def ssd_stages(size: int) -> tuple[Stage, ...]:
    """The augmentation of SSD training in its order."""
    return Distort(), Expand(), RandomCrop(), Resize(size, "random"), Flip(), Normalise()
