"""What happens to a sample between decoding and batching, one stage at a time.

Every stage is a pure function of its inputs and the generator it is given: same inputs and same generator
state, same result, in whatever process or thread. Images stay uint8 until `Normalise`. A stage never writes
into its inputs and may return a view of them.

The SSD stages follow Liu et al., "SSD: Single Shot MultiBox Detector" (2016), section 2.2, with the details of
the Caffe implementation (weiliu89/caffe, `im_transforms.cpp`, `sampler.cpp` and `ssd_pascal.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image as PillowImage
from PIL.Image import Resampling

from .view import Colours, View

if TYPE_CHECKING:  # no stage needs torch, which the protocol imports
    import torch

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
        colours = self._drawn(random)
        return (image if colours is None else recoloured(image, colours)), targets

    def view(self, view: View, targets: Targets, random: np.random.Generator) -> tuple[View, Targets] | None:
        if view.colours is not None or view.fill is not None or view.size is not None:
            return None
        return view._replace(colours=self._drawn(random)), targets

    def _drawn(self, random: np.random.Generator) -> Colours | None:
        brightness, contrast, saturation, hue = random.random(4) < self.probability
        if not (brightness or contrast or saturation or hue):
            return None
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
        factor = random.uniform(*self.saturation) if saturation else 1.0
        turn = random.uniform(-self.hue, self.hue) * 256 / 180 if hue else 0.0
        return Colours(before if brightness or contrast else None, factor, turn, after)


def recoloured(image: Image, colours: Colours) -> Image:
    """The image with changed colours, as Pillow does it."""
    picture = PillowImage.fromarray(image)
    if colours.before is not None:
        picture = picture.point(colours.before.tolist() * 3)
    if colours.in_hsv:
        turned = np.rint(_LEVELS + colours.turn).astype(np.int64) % 256
        tables = [*turned.tolist(), *_table(_LEVELS * colours.saturation).tolist(), *range(256)]
        picture = picture.convert("HSV").point(tables).convert("RGB")
    if colours.after is not None:
        picture = picture.point(colours.after.tolist() * 3)
    return np.asarray(picture)


@dataclass(frozen=True)
class Expand:
    """Puts the image somewhere on a canvas of up to `max_ratio` times its sides, which makes objects small."""

    max_ratio: float = 4.0
    probability: float = 0.5
    fill: tuple[int, int, int] = (123, 117, 104)
    """Colour of the canvas, RGB levels."""

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        height, width = image.shape[:2]
        canvas = self._canvas(height, width, random)
        if canvas is None:
            return image, targets
        canvas_height, canvas_width, top, left = canvas
        made = np.empty((canvas_height, canvas_width, 3), np.uint8)
        # Broadcasting a finished row is one memcpy per row, 70 times faster than broadcasting a pixel.
        made[:] = np.tile(np.array(self.fill, np.uint8), (canvas_width, 1))
        made[top : top + height, left : left + width] = image
        return made, _on_canvas(targets, height, width, canvas)

    def view(self, view: View, targets: Targets, random: np.random.Generator) -> tuple[View, Targets] | None:
        if view.fill not in (None, self.fill) or not (view.grows and view.holds):
            return None
        canvas = self._canvas(view.height, view.width, random)
        if canvas is None:
            return view, targets
        height, width, top, left = canvas
        seen = view._replace(height=height, width=width, top=view.top + top, left=view.left + left, fill=self.fill)
        return seen, _on_canvas(targets, view.height, view.width, canvas)

    def _canvas(self, height: int, width: int, random: np.random.Generator) -> tuple[int, int, int, int] | None:
        """(height, width, where the image's first row and column lie on it); `None`: no canvas is drawn."""
        if random.random() >= self.probability:
            return None
        ratio = random.uniform(1.0, self.max_ratio)
        canvas_height, canvas_width = int(height * ratio), int(width * ratio)
        top = int(random.integers(canvas_height - height + 1))
        left = int(random.integers(canvas_width - width + 1))
        return canvas_height, canvas_width, top, left


def _on_canvas(targets: Targets, height: int, width: int, canvas: tuple[int, int, int, int]) -> Targets:
    canvas_height, canvas_width, top, left = canvas
    sides = np.array((width, height, width, height), np.float32)
    canvas_sides = np.array((canvas_width, canvas_height, canvas_width, canvas_height), np.float32)
    return _with_corners(
        targets, (targets[:, 1:] * sides + np.array((left, top, left, top), np.float32)) / canvas_sides
    )


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
        (left, top, right, bottom), targets = self._cut(image.shape[0], image.shape[1], targets, random)
        return image[top:bottom, left:right], targets

    def view(self, view: View, targets: Targets, random: np.random.Generator) -> tuple[View, Targets] | None:
        if not view.grows:
            return None
        part, targets = self._cut(view.height, view.width, targets, random)
        return view.within(*part), targets

    def _cut(
        self, height: int, width: int, targets: Targets, random: np.random.Generator
    ) -> tuple[tuple[int, int, int, int], Targets]:
        """(left, top, right, bottom of the part in pixels; the objects in it)."""
        boxes = targets[:, 1:] * np.array((width, height, width, height), np.float64)
        parts = self._parts(width, height, random)
        enough = _best_iou(parts, boxes) >= self._thresholds[:, None]
        first = enough.argmax(axis=1).tolist()
        found = [each for each in zip(range(len(first)), first, strict=True) if enough[each]]
        chosen = int(random.integers(1 + len(found)))
        left, top, right, bottom = (int(side[found[chosen - 1]]) for side in parts) if chosen else (0, 0, width, height)
        x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
        kept = (x >= left) & (x <= right) & (y >= top) & (y <= bottom)
        corners = boxes[kept] - (left, top, left, top)
        corners /= (right - left, bottom - top, right - left, bottom - top)
        return (left, top, right, bottom), _with_corners(targets[kept], corners.clip(0.0, 1.0))

    @cached_property
    def _thresholds(self) -> npt.NDArray[np.float64]:
        return np.array([-np.inf if iou is None else iou for iou in self.min_ious], np.float64)

    def _parts(self, width: int, height: int, random: np.random.Generator) -> _Sides:
        """Random parts in whole pixels, all drawn at once rather than until one succeeds: left, top, right and bottom,
        each `[min_ious, trials]`."""
        shape = (len(self.min_ious), self.trials)
        scale = random.uniform(*self.scale, shape)
        square = scale * scale
        highest = np.minimum(self.aspect[1], 1.0 / square)
        lowest = np.minimum(np.maximum(self.aspect[0], square), highest)
        # Bounds that are arrays would cost `uniform` five times as much, for the same numbers.
        root = np.sqrt(lowest + (highest - lowest) * random.random(shape))
        part_width, part_height = np.minimum(scale * root, 1.0), np.minimum(scale / root, 1.0)
        x, y = (1.0 - part_width) * random.random(shape), (1.0 - part_height) * random.random(shape)
        left, top = np.floor(x * width), np.floor(y * height)
        right = np.maximum(np.floor((x + part_width) * width), left + 1.0)
        bottom = np.maximum(np.floor((y + part_height) * height), top + 1.0)
        return left, top, right, bottom


_Sides = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]


def _best_iou(parts: _Sides, boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The highest IoU of each part with any of the boxes `[objects, 4]`; 0 where there are none."""
    left, top, right, bottom = parts
    areas = (right - left) * (bottom - top)
    best = np.zeros(left.shape)
    # Box by box: few boxes, and each step over all parts at once.
    for x_min, y_min, x_max, y_max in boxes.tolist():
        width = np.minimum(right, x_max) - np.maximum(left, x_min)
        height = np.minimum(bottom, y_max) - np.maximum(top, y_min)
        shared = np.maximum(width, 0.0) * np.maximum(height, 0.0)
        np.maximum(best, shared / (areas + (x_max - x_min) * (y_max - y_min) - shared), out=best)
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
        chosen = self._filter(random)
        return np.asarray(PillowImage.fromarray(image).resize((self.size, self.size), chosen)), targets

    def view(self, view: View, targets: Targets, random: np.random.Generator) -> tuple[View, Targets] | None:
        if not view.grows:
            return None
        return view._replace(size=(self.size, self.size), filter=self._filter(random)), targets

    def _filter(self, random: np.random.Generator) -> Resampling:
        return _FILTERS[random.integers(len(_FILTERS))] if self.interpolation == "random" else Resampling.BILINEAR


@dataclass(frozen=True)
class Flip:
    """Mirrors left and right."""

    probability: float = 0.5

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        if random.random() >= self.probability:
            return image, targets
        return image[:, ::-1], self._turned(targets)

    def view(self, view: View, targets: Targets, random: np.random.Generator) -> tuple[View, Targets] | None:
        if view.size is None:
            return None
        if random.random() >= self.probability:
            return view, targets
        return view._replace(mirrored=not view.mirrored), self._turned(targets)

    def _turned(self, targets: Targets) -> Targets:
        corners = targets[:, 1:].copy()
        corners[:, [0, 2]] = 1.0 - targets[:, [3, 1]]
        return _with_corners(targets, corners)


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

    def on_device(self, images: torch.Tensor) -> torch.Tensor:
        """The same of a batch: uint8 `[samples, height, width, 3]` to contiguous float32 `[samples, 3, height, width]`,
        where the batch lies. Waits for nothing: means and deviations are numbers, not tensors to be copied there."""
        planes = images.permute(0, 3, 1, 2).float().contiguous()
        for channel, (mean, deviation) in enumerate(zip(self.mean, self.deviation, strict=True)):
            plane = planes[:, channel].sub_(mean)
            if deviation != 1.0:
                plane.div_(deviation)
        return planes


OF_IMAGENET = Normalise(mean=(123.7, 116.3, 103.5), deviation=(58.4, 57.1, 57.4))
"""By ImageNet's means and deviations, in levels."""


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
