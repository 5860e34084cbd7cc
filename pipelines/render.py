"""What a view of a JPEG file looks like, put into its place: decoded once, resampled once, and no more than is seen."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL.Image import Resampling

from whyidle.errors import MissingExtra

from .stages import Normalise
from .view import Colours, View

if TYPE_CHECKING:  # the protocol imports torch, which no pixel needs
    from .protocol import Image

Pixels = npt.NDArray[np.uint8]

_SCALES = (8, 4, 2)
"""By which libjpeg-turbo divides an image's sides while it decodes, with vector code; its others take longer than the
whole image."""


class FastRenderer:
    """Pixels like those of the stages, by the fastest way there is. Not for several threads at a time.

    What differs: resizing has no filter wider than a pixel's neighbours, only the scale of decoding averages; box and
    Lanczos become linear and cubic; colours are changed after resizing where that makes fewer pixels; what is seen of
    the image ends on whole pixels of the result.
    """

    def __init__(self) -> None:
        try:
            import cv2
            import simplejpeg
        except ImportError as error:
            raise MissingExtra(f"The fused loader cannot import what it needs ({error})", "fused") from error
        self._cv2: Any = cv2
        self._jpeg: Any = simplejpeg
        self._filters = {
            Resampling.NEAREST: cv2.INTER_NEAREST,
            Resampling.BOX: cv2.INTER_LINEAR,
            Resampling.BILINEAR: cv2.INTER_LINEAR,
            Resampling.HAMMING: cv2.INTER_LINEAR,
            Resampling.BICUBIC: cv2.INTER_CUBIC,
            Resampling.LANCZOS: cv2.INTER_CUBIC,
        }
        self._room = np.empty(0, np.uint8)
        self._hsv = np.empty((0, 0, 3), np.uint8)

    def size(self, data: bytes | memoryview) -> tuple[int, int] | None:
        """Height and width, as stored; `None` of a file that only Pillow may understand."""
        try:
            height, width, space, _ = self._jpeg.decode_jpeg_header(data)
        except ValueError:
            return None
        return (height, width) if space in ("YCbCr", "Gray", "RGB") else None

    def decode(self, data: bytes | memoryview, view: View) -> Image | None:
        """The image in the smallest scale that its view allows, valid until the next call; `None` of a file that only
        Pillow may understand."""
        rows, columns = _scale(view)
        divisor = next((each for each in _SCALES if max(rows, columns) * each <= 1.0), 1)
        height, width = ceil(view.image_height / divisor), ceil(view.image_width / divisor)
        least = {"min_height": height, "min_width": width} if divisor > 1 else {}
        try:
            room = self._room_for(height, width)
            image: Image = self._jpeg.decode_jpeg(data, fastdct=True, fastupsample=True, buffer=room, **least)
        except ValueError:
            return None
        return image

    def _room_for(self, height: int, width: int) -> Pixels:
        if self._room.size < height * width * 3:
            self._room = np.empty(height * width * 3, np.uint8)
        return self._room

    def draw(self, image: Image, view: View, canvas: Pixels) -> None:
        """The view of an image, decoded in whatever scale, onto all of the canvas."""
        height, width = canvas.shape[:2]
        rows, columns = height / view.height, width / view.width
        top, left, bottom, right = view.part
        y0, y1 = round((view.top + top) * rows), round((view.top + bottom) * rows)
        x0, x1 = round((view.left + left) * columns), round((view.left + right) * columns)
        if view.mirrored:
            x0, x1 = width - x1, width - x0
        if view.fill is not None:
            surround(canvas, y0, x0, y1, x1, view.fill)
        if y0 >= y1 or x0 >= x1:
            return
        down, across = image.shape[0] / view.image_height, image.shape[1] / view.image_width
        seen = image[floor(top * down) : ceil(bottom * down), floor(left * across) : ceil(right * across)]
        place = canvas[y0:y1, x0:x1]
        colours = view.colours
        if colours is not None and seen.shape[0] * seen.shape[1] < place.shape[0] * place.shape[1]:
            self._recolour(seen, colours)
            colours = None
        if view.size is None:
            place[:] = seen
        else:
            self._cv2.resize(seen, (x1 - x0, y1 - y0), dst=place, interpolation=self._filters[view.filter])
        if colours is not None:
            self._recolour(place, colours)
        if view.mirrored:
            self._cv2.flip(place, 1, dst=place)

    def leave_empty(self, view: View, canvas: Pixels) -> None:
        """The canvas of a view in which nothing of the image is seen."""
        surround(canvas, 0, 0, 0, 0, view.fill or (0, 0, 0))

    def normalise(self, image: Image, stage: Normalise, planes: npt.NDArray[np.float32]) -> None:
        """What the stage does, into `planes` `[3, height, width]`."""
        for channel, plane in enumerate(self._cv2.split(image)):
            np.subtract(plane, np.float32(stage.mean[channel]), out=planes[channel])
        if stage.deviation != (1.0, 1.0, 1.0):
            planes /= np.array(stage.deviation, np.float32)[:, None, None]

    def look_up(self, levels: Pixels, values: npt.NDArray[np.float32], found: npt.NDArray[np.float32]) -> None:
        """What each level becomes, into `found`; both contiguous, of one size."""
        width = levels.shape[-1]
        self._cv2.LUT(levels.reshape(-1, width), values, dst=found.reshape(-1, width))

    def _recolour(self, pixels: Pixels, colours: Colours) -> None:
        """In place."""
        cv2 = self._cv2
        if colours.before is not None:
            cv2.LUT(pixels, colours.before, dst=pixels)
        if colours.in_hsv:
            # A channel that is taken out and put back takes a quarter of what a table for all three does.
            hsv = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV_FULL)
            if colours.turn:
                hue = cv2.extractChannel(hsv, 0)
                cv2.insertChannel(np.add(hue, np.uint8(round(colours.turn) % 256), out=hue), hsv, 0)
            if colours.saturation != 1.0:
                vivid = cv2.extractChannel(hsv, 1)
                cv2.insertChannel(cv2.convertScaleAbs(vivid, dst=vivid, alpha=colours.saturation), hsv, 1)
            cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL, dst=pixels)
        if colours.after is not None:
            cv2.LUT(pixels, colours.after, dst=pixels)


def _scale(view: View) -> tuple[float, float]:
    """By what an image's height and width are multiplied; whichever is larger needs the finer image."""
    height, width = view.size or (view.height, view.width)
    return height / view.height, width / view.width


def surround(canvas: Pixels, y0: int, x0: int, y1: int, x1: int, fill: tuple[int, int, int]) -> None:
    """All but that place."""
    if (y0, x0, y1, x1) == (0, 0, *canvas.shape[:2]):
        return
    row = _row(fill, canvas.shape[1])
    canvas[:y0], canvas[y1:] = row, row
    canvas[y0:y1, :x0], canvas[y0:y1, x1:] = row[:x0], row[x1:]


@lru_cache(8)
def _row(fill: tuple[int, int, int], width: int) -> Pixels:
    """Broadcasting a finished row is one memcpy per row, 70 times faster than broadcasting a pixel."""
    return np.tile(np.array(fill, np.uint8), (width, 1))
