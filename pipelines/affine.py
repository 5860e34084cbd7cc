"""A random rotation, shift, shear and zoom of an image, as Keras' `ImageDataGenerator` of 2017 makes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # the protocol imports torch, which no stage needs
    from .protocol import Image, Targets


@dataclass(frozen=True)
class Affine:
    """Each output pixel is taken from the place that zoom, shear, shift and rotation, in this order and about the
    centre, bring it to: the nearest pixel (interpolation of order 0), outside the image the nearest edge.

    All amounts are drawn uniformly, zoom for each axis on its own. One image at a time, all its pixels at once. Targets
    are left alone, so it is for labels, not for boxes. Images are `[height, width]` or `[height, width, channels]`.
    """

    rotation: float = 8.0
    """Degrees at most, either way."""
    shift: float = 0.08
    """Share of the side at most, either way, for each axis."""
    shear: float = 0.3
    """At most, either way."""
    zoom: float = 0.08
    """The factor is between 1 - zoom and 1 + zoom."""
    shear_unit: Literal["radians", "degrees"] = "radians"
    """Keras read `shear_range` in radians up to 2.1.2 and in degrees from 2.1.3 (January 2018): 0.3 is 17 degrees, or
    next to nothing."""

    @property
    def shear_radians(self) -> float:
        return self.shear if self.shear_unit == "radians" else math.radians(self.shear)

    def matrix(self, height: int, width: int, random: np.random.Generator) -> npt.NDArray[np.float64]:
        """`[2, 3]`, from (row, column, 1) of an output pixel, counted from the centre, to those of its source."""
        turn, down, right, shear, zoom_rows, zoom_columns = random.uniform(-1.0, 1.0, 6).tolist()
        angle, lean = math.radians(self.rotation) * turn, self.shear_radians * shear
        rows, columns = 1 + self.zoom * zoom_rows, 1 + self.zoom * zoom_columns
        down, right = self.shift * height * down, self.shift * width * right
        cos, sin = math.cos(angle), math.sin(angle)
        along, across = -math.sin(lean) * columns, math.cos(lean) * columns
        return np.array(
            [
                [cos * rows, cos * along - sin * across, cos * down - sin * right],
                [sin * rows, sin * along + cos * across, sin * down + cos * right],
            ]
        )

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        height, width = image.shape[:2]
        places = self.matrix(height, width, random) @ _grid(height, width)
        places += ((height - 1) / 2 + 0.5,), ((width - 1) / 2 + 0.5,)  # truncating then rounds
        np.clip(places, 0.0, ((height - 1,), (width - 1,)), out=places)
        rows, columns = places.astype(np.intp)
        return image[rows, columns].reshape(image.shape), targets


@cache
def _grid(height: int, width: int) -> npt.NDArray[np.float64]:
    """(row, column, 1) of every pixel, counted from the centre: `[3, height * width]`."""
    rows, columns = np.indices((height, width), np.float64).reshape(2, -1)
    return np.stack([rows - (height - 1) / 2, columns - (width - 1) / 2, np.ones_like(rows)])
