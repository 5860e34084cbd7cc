"""The pixels that the stages make, within a level of each, by faster ways than theirs.

What is seen is cut out before colours are changed and before it is laid on a canvas, and of the canvas only so much is
made as the resizing can see of the image. Colours go through OpenCV's HSV in float32, quantised where Pillow quantises;
bilinear and bicubic resizing is torch's, which has Pillow's filters in vector code; other filters are Pillow's.
"""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image as PillowImage
from PIL.Image import Resampling

from .render import FastRenderer, Pixels, surround
from .view import Colours, View

if TYPE_CHECKING:
    from .protocol import Image

_TORCH = {Resampling.BILINEAR: "bilinear", Resampling.BICUBIC: "bicubic"}
_REACH = {Resampling.BOX: 0.5, Resampling.BILINEAR: 1.0, Resampling.HAMMING: 1.0, Resampling.BICUBIC: 2.0}
"""Of a filter, in pixels of the coarser image; of those not named 3."""
_HUES, _LEVELS = 255.0 / 360.0, 255.0
_STRIP = 16384
"""Pixels that are turned at a time: what that takes lies in a cache, and is no fresh memory every time."""
_NUDGE = 1e-3
"""What would be a whole number but for rounding is one, before it is cut to one."""


class ExactRenderer(FastRenderer):
    """As `FastRenderer`, but with pixels like those of the stages. Not for several threads at a time."""

    def decode(self, data: bytes | memoryview, view: View) -> Image | None:
        try:
            image: Image = self._jpeg.decode_jpeg(data, buffer=self._room_for(view.image_height, view.image_width))
        except ValueError:
            return None
        return image

    def draw(self, image: Image, view: View, canvas: Pixels) -> None:
        top, left, bottom, right = view.part
        if top >= bottom or left >= right:
            self.leave_empty(view, canvas)
            return
        seen = image[top:bottom, left:right]
        if view.colours is not None:
            seen = self._in_colours(seen, view.colours)
        y, x = view.top + top, view.left + left
        place = y, x, y + bottom - top, x + right - left
        if view.size is None:
            if view.fill is not None:
                surround(canvas, *place, view.fill)
            canvas[place[0] : place[2], place[1] : place[3]] = seen
        else:
            _resize(seen, place, view, canvas)
        if view.mirrored:
            self._cv2.flip(canvas, 1, dst=canvas)

    def _in_colours(self, pixels: Pixels, colours: Colours) -> Pixels:
        changed: Pixels = (
            np.ascontiguousarray(pixels) if colours.before is None else self._cv2.LUT(pixels, colours.before)
        )
        if colours.in_hsv:
            made = np.empty(changed.shape, np.uint8)
            rows = max(1, _STRIP // changed.shape[1])
            for row in range(0, len(changed), rows):
                self._turn(changed[row : row + rows], made[row : row + rows], colours)
            changed = made
        return changed if colours.after is None else self._cv2.LUT(changed, colours.after, dst=changed)

    def _turn(self, pixels: Pixels, made: Pixels, colours: Colours) -> None:
        """Hue and saturation. Where Pillow keeps them they are cut to whole levels, which are turned and multiplied."""
        cv2 = self._cv2
        hsv = cv2.cvtColor(pixels.astype(np.float32), cv2.COLOR_RGB2HSV)
        hue = cv2.extractChannel(hsv, 0)
        hue *= np.float32(_HUES)
        hue += np.float32(_NUDGE)
        levels = hue.astype(np.uint8)
        levels += np.uint8(round(colours.turn) % 256)
        cv2.insertChannel(np.multiply(levels, np.float32(1 / _HUES), out=hue), hsv, 0)
        vivid = cv2.extractChannel(hsv, 1)
        vivid *= np.float32(_LEVELS)
        vivid += np.float32(_NUDGE)
        levels = vivid.astype(np.uint8)
        cv2.convertScaleAbs(levels, dst=levels, alpha=colours.saturation)
        cv2.insertChannel(np.multiply(levels, np.float32(1 / _LEVELS), out=vivid), hsv, 1)
        cv2.convertScaleAbs(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), dst=made)


def _resize(seen: Pixels, place: tuple[int, int, int, int], view: View, canvas: Pixels) -> None:
    """What is seen, at its place in the view, to the size of the canvas."""
    if (view.height, view.width) == seen.shape[:2]:
        canvas[:] = _resampled(seen, canvas.shape[0], canvas.shape[1], view.filter)
        return
    height, width = canvas.shape[:2]
    rows, columns = view.height / height, view.width / width
    reach = _REACH.get(view.filter, 3.0)
    # Of the result, what the image reaches; of the view, what that reaches.
    y0, y1 = _reached(place[0], place[2], rows, reach, height)
    x0, x1 = _reached(place[1], place[3], columns, reach, width)
    top, bottom = _needed(y0, y1, rows, reach, view.height)
    left, right = _needed(x0, x1, columns, reach, view.width)
    fill = view.fill or (0, 0, 0)
    laid = np.empty((bottom - top, right - left, 3), np.uint8)
    inner = place[0] - top, place[1] - left, place[2] - top, place[3] - left
    surround(laid, *inner, fill)
    laid[inner[0] : inner[2], inner[1] : inner[3]] = seen
    surround(canvas, y0, x0, y1, x1, fill)
    box = (x0 * columns - left, y0 * rows - top, x1 * columns - left, y1 * rows - top)
    made = PillowImage.fromarray(laid).resize((x1 - x0, y1 - y0), view.filter, box)
    canvas[y0:y1, x0:x1] = np.asarray(made)


def _reached(start: int, end: int, scale: float, reach: float, size: int) -> tuple[int, int]:
    """Pixels of the result, from and to before, to which those from `start` to before `end` of the view contribute."""
    away = reach * max(scale, 1.0)
    return max(0, floor((start - away) / scale) - 1), min(size, ceil((end + away) / scale) + 1)


def _needed(start: int, end: int, scale: float, reach: float, size: int) -> tuple[int, int]:
    """Pixels of the view that contribute to those from `start` to before `end` of the result."""
    away = reach * max(scale, 1.0)
    return max(0, floor(start * scale - away) - 1), min(size, ceil(end * scale + away) + 1)


def _resampled(pixels: Pixels, height: int, width: int, by: Resampling) -> Image:
    if by in _TORCH:
        planes = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None]
        made = torch.nn.functional.interpolate(planes, (height, width), mode=_TORCH[by], antialias=True)
        image: Image = made[0].permute(1, 2, 0).numpy()
        return image
    return np.asarray(PillowImage.fromarray(pixels).resize((width, height), by))
