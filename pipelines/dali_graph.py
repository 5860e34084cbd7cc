"""The stages of a dataset as a DALI graph.

The same steps with the same ranges, but DALI's own operators and random numbers: with augmentation its samples
are statistically like the other loaders', not the same. Without, they differ by rounding in the resizing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def define(source: Source, stages: Sequence[Stage], on_gpu: bool) -> tuple[Any, Any, Any]:
    """Images, boxes and classes as graph nodes, to be called inside a DALI pipeline's scope.

    Raises WhyidleError for a stage without a counterpart in DALI.
    """
    graph = _Graph(source, on_gpu)
    for stage in stages:
        graph.add(stage)
    return graph.image, graph.boxes, graph.classes


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
        f"The DALI loaders have no counterpart for the stage {stage!r}. Leave it out or use another "
        "loader, such as workers or threads."
    )


class _Graph:
    """Grows by one stage at a time. Boxes and classes stay on the CPU; the image is where it is decoded."""

    def __init__(self, source: Source, on_gpu: bool) -> None:
        from nvidia.dali import fn, types

        self._fn: Any = fn
        self._types: Any = types
        names, self.boxes, self.classes = self._fn.external_source(source=source, num_outputs=3, batch=True)
        self.image = self._fn.decoders.image(
            self._fn.io.file.read(names),
            device="mixed" if on_gpu else "cpu",
            output_type=types.RGB,
            adjust_orientation=False,  # boxes are annotated on the pixels as stored
            jpeg_fancy_upsampling=True,  # smooth chroma on the GPU too, as libjpeg does
        )
        self._mirror: Any = None

    def add(self, stage: Stage) -> None:
        if self._mirror is not None and not isinstance(stage, Normalise):
            self.image = self._fn.flip(self.image, horizontal=self._mirror)
            self._mirror = None
        match stage:
            case Distort():
                self._distort(stage)
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
                self._mirror = self._fn.random.coin_flip(probability=stage.probability)
            case RandomResizedCrop():
                self.image = self._fn.random_resized_crop(
                    self.image, size=(stage.size,) * 2, random_area=stage.area, random_aspect_ratio=stage.aspect
                )
            case StandardiseEach():
                self._standardise_each(stage)
            case _:
                raise _no_counterpart(stage)

    def _distort(self, stage: Distort) -> None:
        """Hue and saturation turn and scale colours linearly in RGB, an approximation of HSV; contrast always
        precedes them."""
        shift = self._drawn(stage.probability, (-stage.brightness, stage.brightness), 0.0)
        contrast = self._drawn(stage.probability, stage.contrast, 1.0)
        saturation = self._drawn(stage.probability, stage.saturation, 1.0)
        turn = stage.hue * _DEGREES_PER_HUE_UNIT
        hue = self._drawn(stage.probability, (-turn, turn), 0.0)
        self.image = self._fn.brightness_contrast(
            self.image, brightness_shift=shift * contrast / _LEVELS, contrast=contrast, contrast_center=0.0
        )
        self.image = self._fn.hsv(self.image, hue=hue, saturation=saturation)

    def _expand(self, stage: Expand) -> None:
        place = {
            "ratio": self._drawn(stage.probability, (1.0, stage.max_ratio), 1.0),
            "paste_x": self._uniform(0.0, 1.0),
            "paste_y": self._uniform(0.0, 1.0),
        }
        self.image = self._fn.paste(self.image, fill_value=list(stage.fill), **place)
        self.boxes = self._fn.bbox_paste(self.boxes, ltrb=True, **place)

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
        self.image = self._fn.slice(self.image, anchor, shape)

    def _resize(self, stage: Resize) -> None:
        """DALI has no box filter: where one may be drawn, linear stands in for it."""
        types = self._types
        filters: Any = types.INTERP_LINEAR
        if stage.interpolation == "random":
            names = ("INTERP_LINEAR", "INTERP_CUBIC", "INTERP_LINEAR", "INTERP_NN", "INTERP_LANCZOS3")
            drawn = self._fn.random.uniform(values=[int(getattr(types, name)) for name in names])
            filters = self._fn.reinterpret(self._fn.cast(drawn, dtype=types.INT32), dtype=types.INTERP_TYPE)
        self.image = self._fn.resize(self.image, size=(stage.size, stage.size), interp_type=filters, antialias=True)

    def _flip(self, stage: Flip) -> None:
        """The image itself is mirrored by whatever comes next: normalising does it for nothing."""
        self._mirror = self._fn.random.coin_flip(probability=stage.probability)
        self.boxes = self._fn.bb_flip(self.boxes, ltrb=True, horizontal=self._mirror)

    def _normalise(self, stage: Normalise) -> None:
        self.image = self._fn.crop_mirror_normalize(
            self.image,
            dtype=self._types.FLOAT,
            output_layout="CHW",
            mean=list(stage.mean),
            std=list(stage.deviation),
            mirror=0 if self._mirror is None else self._mirror,
        )
        self._mirror = None

    def _cut(self, stage: Crop) -> None:
        x, y = (self._uniform(0.0, 1.0) if stage.anywhere else 0.5 for _ in "xy")
        self.image = self._fn.crop(self.image, crop=(stage.size,) * 2, crop_pos_x=x, crop_pos_y=y)

    def _standardise_each(self, stage: StandardiseEach) -> None:
        fn = self._fn
        image = fn.cast(self.image, dtype=self._types.FLOAT) + self._uniform(-stage.brightness, stage.brightness)
        mean = fn.reductions.mean(image, axes=[0, 1], keep_dims=True)
        image = (image - mean) * self._uniform(*stage.contrast) + mean
        # A picture of a single level is divided by what one level in all of its numbers would deviate.
        self.image = fn.transpose(fn.normalize(image, epsilon=1e-9), perm=[2, 0, 1], output_layout="CHW")

    def _uniform(self, low: float, high: float) -> Any:
        """DALI refuses a range without width, which a stage may well have: scale one that has some."""
        return low + (high - low) * self._fn.random.uniform(range=[0.0, 1.0])

    def _drawn(self, probability: float, limits: tuple[float, float], neutral: float) -> Any:
        """A number within the limits with this probability, else the neutral one."""
        coin = self._fn.random.coin_flip(probability=probability)
        return coin * self._uniform(*limits) + (1 - coin) * neutral
