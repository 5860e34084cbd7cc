"""The stages of a dataset as a DALI graph.

The same steps with the same ranges, but DALI's own operators and random numbers: with augmentation its samples
are statistically like the other loaders', not the same. Without, they differ by rounding in the resizing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import radians
from typing import Any

from whyidle.errors import WhyidleError

from .affine import Affine
from .crops import Crop, Mirror, RandomResizedCrop, StandardiseEach
from .protocol import Stage
from .stages import Distort, Expand, Flip, Normalise, RandomCrop, Resize
from .standardise import Standardise

Source = Callable[[], tuple[list[Any], list[Any], list[Any]]]
"""Gives the file names (uint8 arrays), boxes (float32 `[objects, 4]`) and classes (int32 `[objects]`) of the next
batch; raises StopIteration at the end of an epoch."""

_DEGREES_PER_HUE_UNIT = 2.0
_LEVELS = 255.0
_LEAST_SEEN = 1 / 16
"""Share of the image's sides that is decoded at least, though none of it may be seen."""


def define(source: Source, stages: Sequence[Stage], on_gpu: bool) -> tuple[Any, Any, Any]:
    """Images, boxes and classes as graph nodes, to be called inside a DALI pipeline's scope.

    Raises WhyidleError for a stage without a counterpart in DALI.
    """
    graph = _Graph(source, on_gpu)
    for stage in stages:
        graph.add(stage)
    return graph.image(), graph.boxes, graph.classes


def define_arrays(source: Callable[[], Any], stages: Sequence[Stage], shape: tuple[int, ...], on_gpu: bool) -> Any:
    """What the stages make of arrays `[samples, *shape]`, as a graph node; without stages the arrays as they are.

    Raises WhyidleError for a stage without a counterpart in DALI.
    """
    graph = _ArrayGraph(source, shape, on_gpu)
    for stage in stages:
        graph.add(stage)
    return graph.image


ARRAY_STAGES = (Affine, Standardise)
"""What can be done to arrays."""


class _ArrayGraph:
    """Grows by one stage at a time, on images `[height, width]` or `[height, width, channels]` with labels."""

    def __init__(self, source: Callable[[], Any], shape: tuple[int, ...], on_gpu: bool) -> None:
        from nvidia.dali import fn, types

        self._fn: Any = fn
        self._types: Any = types
        self._shape = shape
        self._is_image = False
        self.image = self._fn.external_source(source=source, batch=True)
        if on_gpu:
            self.image = self.image.gpu()

    def add(self, stage: Stage) -> None:
        if not self._is_image:
            self._is_image = True
            height, width = self._shape[:2]
            channels = self._shape[2] if len(self._shape) == 3 else 1
            self.image = self._fn.reshape(self.image, shape=[height, width, channels], layout="HWC")
        match stage:
            case Affine():
                self._affine(stage)
            case Standardise():
                self._standardise(stage)
            case _:
                raise _no_counterpart(stage)

    def _affine(self, stage: Affine) -> None:
        """The same product of matrices in x and y, from DALI's own numbers. Its pixels have their centres at halves."""
        from nvidia.dali import math

        height, width = self._shape[:2]
        turn, down, right, shear, zoom_rows, zoom_columns = (
            self._fn.random.uniform(range=[-1.0, 1.0]) for _ in "abcdef"
        )
        angle, lean = turn * radians(stage.rotation), shear * stage.shear_radians
        cos, sin = math.cos(angle), math.sin(angle)
        rows, columns = 1.0 + stage.zoom * zoom_rows, 1.0 + stage.zoom * zoom_columns
        down, right = down * (stage.shift * height), right * (stage.shift * width)
        along, across = 0.0 - math.sin(lean) * columns, math.cos(lean) * columns
        y_y, y_x, y = cos * rows, cos * along - sin * across, cos * down - sin * right
        x_y, x_x, x = sin * rows, sin * along + cos * across, sin * down + cos * right
        to_y, to_x = height / 2, width / 2
        elements = (x_x, x_y, x + to_x - x_x * to_x - x_y * to_y, y_x, y_y, y + to_y - y_x * to_x - y_y * to_y)
        matrix = self._fn.reshape(self._fn.stack(*elements), shape=[2, 3])
        self.image = self._fn.warp_affine(
            self.image, matrix, interp_type=self._types.INTERP_NN, fill_value=None, inverse_map=True
        )

    def _standardise(self, stage: Standardise) -> None:
        channels = self._shape[2] if len(self._shape) == 3 else 1
        self.image = self._fn.crop_mirror_normalize(
            self.image,
            dtype=self._types.FLOAT,
            output_layout="CHW",
            mean=[stage.mean * _LEVELS] * channels,
            std=[stage.std * _LEVELS] * channels,
        )


def _no_counterpart(stage: Stage) -> WhyidleError:
    return WhyidleError(
        f"The DALI loaders cannot do the stage {stage!r}. Leave it out or use another "
        "loader, such as workers or threads."
    )


@dataclass(frozen=True)
class _Window:
    """What is seen of an image, or of a canvas around it: graph nodes, as shares of the image's width and height."""

    x: Any
    y: Any
    width: Any
    height: Any


class _Graph:
    """Grows by one stage at a time. Boxes and classes stay on the CPU; the image is where it is decoded.

    Until a resizing no pixel is touched: expanding and cropping only say what is seen of the image and of the canvas
    around it. The resizing then decodes that part alone, brings it to its final size, changes its colours, which are
    few by then, and fills up what lies outside of the image. Any other stage finds the pixels made before it.
    """

    def __init__(self, source: Source, on_gpu: bool) -> None:
        from nvidia.dali import fn, math, types

        self._fn: Any = fn
        self._math: Any = math
        self._types: Any = types
        names, self.boxes, self.classes = self._fn.external_source(source=source, num_outputs=3, batch=True)
        self._file = self._fn.io.file.read(names)
        self._how = {
            "device": "mixed" if on_gpu else "cpu",
            "output_type": types.RGB,
            "adjust_orientation": False,  # boxes are annotated on the pixels as stored
            "jpeg_fancy_upsampling": True,  # smooth chroma on the GPU too, as libjpeg does
        }
        self._pixels: Any = None
        self._distort: Distort | None = None
        """What is still to be done to the colours."""
        self._window: _Window | None = None
        """What is seen; `None`: the image."""
        self._fill: list[int] | None = None
        """What is seen where the image is not; `None` where it is everywhere."""
        self._mirror: Any = None

    def image(self) -> Any:
        """All pixels as the stages so far leave them."""
        self._pixels = self._unturned()
        if self._mirror is not None:
            self._pixels = self._fn.flip(self._pixels, horizontal=self._mirror)
            self._mirror = None
        return self._pixels

    def _unturned(self) -> Any:
        """The same before they are mirrored, which some operators do for nothing."""
        if self._pixels is None:
            self._pixels = self._decoded()
        self._distort_now()
        if self._window is not None:
            self._pixels = self._cut_out(self._pixels, self._window)
            self._window = self._fill = None
        return self._pixels

    @property
    def _is_file(self) -> bool:
        """Whether nothing was done yet that concerns where pixels are."""
        return self._pixels is None and self._window is None and self._mirror is None

    def _decoded(self) -> Any:
        return self._fn.decoders.image(self._file, **self._how)

    def _cut_out(self, pixels: Any, seen: _Window) -> Any:
        return self._fn.slice(
            pixels,
            rel_start=self._fn.stack(seen.y, seen.x),
            rel_shape=self._fn.stack(seen.height, seen.width),
            axes=[0, 1],
            out_of_bounds_policy="pad",
            fill_values=self._fill or [0],
        )

    def add(self, stage: Stage) -> None:
        match stage:
            case Distort():
                if self._window is not None or self._distort is not None:
                    self._unturned()
                self._distort = stage
            case Expand():
                self._expand(stage)
            case RandomCrop():
                self._crop(stage)
            case Resize():
                self._resize(stage)
            case Flip():
                self._flip(stage)
            case Normalise():
                self._normalise(stage)
            case Crop():
                self._cut(stage)
            case Mirror():
                self._turn(stage.probability)
            case RandomResizedCrop():
                self._cut_and_resize(stage)
            case StandardiseEach():
                self._standardise_each(stage)
            case _:
                raise _no_counterpart(stage)

    def _distort_now(self) -> None:
        """Hue and saturation turn and scale colours linearly in RGB, an approximation of HSV; contrast always
        precedes them."""
        stage, self._distort = self._distort, None
        if stage is None:
            return
        shift = self._drawn(stage.probability, (-stage.brightness, stage.brightness), 0.0)
        contrast = self._drawn(stage.probability, stage.contrast, 1.0)
        saturation = self._drawn(stage.probability, stage.saturation, 1.0)
        turn = stage.hue * _DEGREES_PER_HUE_UNIT
        hue = self._drawn(stage.probability, (-turn, turn), 0.0)
        image = self._fn.brightness_contrast(
            self._pixels, brightness_shift=shift * contrast / _LEVELS, contrast=contrast, contrast_center=0.0
        )
        self._pixels = self._fn.hsv(image, hue=hue, saturation=saturation)

    def _see(self, x: Any, y: Any, width: Any, height: Any) -> None:
        """From here on only this part, in shares of what was seen before."""
        if self._mirror is not None:
            self.image()
        of = self._window or _Window(0.0, 0.0, 1.0, 1.0)
        self._window = _Window(of.x + x * of.width, of.y + y * of.height, width * of.width, height * of.height)

    def _expand(self, stage: Expand) -> None:
        if self._fill is not None:
            self._unturned()
        ratio = self._drawn(stage.probability, (1.0, stage.max_ratio), 1.0)
        x, y = self._uniform(0.0, 1.0), self._uniform(0.0, 1.0)
        self.boxes = self._fn.bbox_paste(self.boxes, ltrb=True, ratio=ratio, paste_x=x, paste_y=y)
        self._see(0.0 - x * (ratio - 1.0), 0.0 - y * (ratio - 1.0), ratio, ratio)
        self._fill = list(stage.fill)

    def _crop(self, stage: RandomCrop) -> None:
        """One threshold or "no crop" is drawn first and its trials come second; the stage tries all, then draws."""
        anchor, shape, self.boxes, self.classes = self._fn.random_bbox_crop(
            self.boxes,
            self.classes,
            bbox_layout="xyXY",
            thresholds=[iou or 0.0 for iou in stage.min_ious],
            scaling=list(stage.scale),
            aspect_ratio=list(stage.aspect),
            allow_no_crop=True,
            all_boxes_above_threshold=False,
            num_attempts=stage.trials,
            total_num_attempts=stage.trials * len(stage.min_ious),
            quiet=True,
        )
        self._see(anchor[0], anchor[1], shape[0], shape[1])

    def _resize(self, stage: Resize) -> None:
        """DALI has no box filter: where one may be drawn, linear stands in for it."""
        types, size = self._types, stage.size
        filters: Any = types.INTERP_LINEAR
        if stage.interpolation == "random":
            names = ("INTERP_LINEAR", "INTERP_CUBIC", "INTERP_LINEAR", "INTERP_NN", "INTERP_LANCZOS3")
            drawn = self._fn.random.uniform(values=[int(getattr(types, name)) for name in names])
            filters = self._fn.reinterpret(self._fn.cast(drawn, dtype=types.INT32), dtype=types.INTERP_TYPE)
        how = {"interp_type": filters, "antialias": True}
        if self._window is not None and self._pixels is None:
            self._pixels = self._resized_part(self._window, size, how)
            self._window = self._fill = None
            return
        if self._window is not None:
            self._unturned()
        pixels = self._decoded() if self._pixels is None else self._pixels
        self._pixels = self._fn.resize(pixels, size=(size, size), **how)
        self._distort_now()

    def _resized_part(self, seen: _Window, size: int, how: dict[str, Any]) -> Any:
        """Of what is seen the part that is image, decoded alone and brought to the pixels that it is to take, with what
        is not image around it."""
        fn, math = self._fn, self._math
        left, top = (math.clamp(at, 0.0, 1.0 - _LEAST_SEEN) for at in (seen.x, seen.y))
        right = math.max(math.min(seen.x + seen.width, 1.0), left + _LEAST_SEEN)
        bottom = math.max(math.min(seen.y + seen.height, 1.0), top + _LEAST_SEEN)
        part = fn.decoders.image_slice(
            self._file, rel_start=fn.stack(left, top), rel_end=fn.stack(right, bottom), axis_names="WH", **self._how
        )
        across, down = size / seen.width, size / seen.height
        columns, rows = math.max((right - left) * across, 1.0), math.max((bottom - top) * down, 1.0)
        whole = self._fill is None
        self._pixels = fn.resize(part, size=(size, size) if whole else fn.stack(rows, columns), **how)
        self._distort_now()
        if whole:
            return self._pixels
        return fn.slice(
            self._pixels,
            start=fn.cast(fn.stack((seen.y - top) * down, (seen.x - left) * across), dtype=self._types.INT32),
            shape=[size, size],
            axes=[0, 1],
            out_of_bounds_policy="pad",
            fill_values=self._fill,
        )

    def _flip(self, stage: Flip) -> None:
        """The image itself is mirrored by whatever comes next: normalising does it for nothing."""
        self._turn(stage.probability)
        self.boxes = self._fn.bb_flip(self.boxes, ltrb=True, horizontal=self._mirror)

    def _turn(self, probability: float) -> None:
        if self._mirror is not None:
            self.image()
        self._mirror = self._fn.random.coin_flip(probability=probability)

    def _normalise(self, stage: Normalise) -> None:
        self._pixels = self._fn.crop_mirror_normalize(
            self._unturned(),
            dtype=self._types.FLOAT,
            output_layout="CHW",
            mean=list(stage.mean),
            std=list(stage.deviation),
            mirror=0 if self._mirror is None else self._mirror,
        )
        self._mirror = None

    def _cut(self, stage: Crop) -> None:
        x, y = (self._uniform(0.0, 1.0) if stage.anywhere else 0.5 for _ in "xy")
        where = {"crop": (stage.size,) * 2, "crop_pos_x": x, "crop_pos_y": y}
        if self._is_file:
            self._pixels = self._fn.decoders.image_crop(self._file, **where, **self._how)
        else:
            self._pixels = self._fn.crop(self.image(), **where)

    def _cut_and_resize(self, stage: RandomResizedCrop) -> None:
        drawn = {"random_area": stage.area, "random_aspect_ratio": stage.aspect}
        if self._is_file:
            part = self._fn.decoders.image_random_crop(self._file, **drawn, **self._how)
            self._pixels = self._fn.resize(part, size=(stage.size,) * 2)
            self._distort_now()
        else:
            self._pixels = self._fn.random_resized_crop(self.image(), size=(stage.size,) * 2, **drawn)

    def _standardise_each(self, stage: StandardiseEach) -> None:
        fn = self._fn
        image = fn.cast(self.image(), dtype=self._types.FLOAT) + self._uniform(-stage.brightness, stage.brightness)
        mean = fn.reductions.mean(image, axes=[0, 1], keep_dims=True)
        image = (image - mean) * self._uniform(*stage.contrast) + mean
        # A picture of a single level is divided by what one level in all of its numbers would deviate.
        self._pixels = fn.transpose(fn.normalize(image, epsilon=1e-9), perm=[2, 0, 1], output_layout="CHW")

    def _uniform(self, low: float, high: float) -> Any:
        """DALI refuses a range without width, which a stage may well have: scale one that has some."""
        return low + (high - low) * self._fn.random.uniform(range=[0.0, 1.0])

    def _drawn(self, probability: float, limits: tuple[float, float], neutral: float) -> Any:
        """A number within the limits with this probability, else the neutral one."""
        coin = self._fn.random.coin_flip(probability=probability)
        return coin * self._uniform(*limits) + (1 - coin) * neutral
