"""What the stages make of an image, told before any of its pixels is touched.

A stage that only says where pixels are to be, or which colours, need not see them: it changes a `View`, with the same
random numbers and the same boxes as when it is called with the image. Whoever has the whole view decodes and
resamples once, and no more than is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL.Image import Resampling

if TYPE_CHECKING:  # the protocol imports torch, which no stage needs
    from .protocol import Stage, Targets

Table = npt.NDArray[np.uint8]
"""What each of the 256 levels becomes."""


@dataclass(frozen=True)
class Colours:
    """Changes of colour, in this order, the same for every pixel."""

    before: Table | None = None
    """Of each channel's levels."""
    saturation: float = 1.0
    """Factor on S of HSV."""
    turn: float = 0.0
    """Added to H of HSV, in 256ths of a turn."""
    after: Table | None = None
    """Of each channel's levels."""

    @property
    def in_hsv(self) -> bool:
        """Whether hue or saturation change, which needs the pixels' HSV."""
        return self.saturation != 1.0 or self.turn != 0.0


class View(NamedTuple):
    """What is seen of an image of `image_height` x `image_width` pixels: a rectangle, which the image may reach out of,
    or lie in.

    Pixels are those of the image as it is stored, until `size` says how many they become.
    """

    image_height: int
    image_width: int
    height: int
    """Of the rectangle, in pixels."""
    width: int
    top: int = 0
    """Where the image's first row lies in the rectangle; below 0: so many rows of it are not seen."""
    left: int = 0
    fill: tuple[int, int, int] | None = None
    """What is seen where the image is not; `None`: it is everywhere."""
    colours: Colours | None = None
    """Changes to the image's colours, not to those around it."""
    size: tuple[int, int] | None = None
    """Height and width that the rectangle is brought to; `None`: its own."""
    filter: Resampling = Resampling.BILINEAR
    """By which that is done."""
    mirrored: bool = False
    """Whether left and right change places, last of all."""

    @classmethod
    def whole(cls, height: int, width: int) -> View:
        return cls(height, width, height, width)

    @property
    def grows(self) -> bool:
        """Whether the rectangle may still become another: neither resized nor mirrored."""
        return self.size is None and not self.mirrored

    @property
    def part(self) -> tuple[int, int, int, int]:
        """What of the image is seen: (top, left, bottom, right) in its pixels; nothing is where one is not below the
        other."""
        top, left = max(0, -self.top), max(0, -self.left)
        bottom = min(self.image_height, self.height - self.top)
        return top, left, max(top, bottom), max(left, min(self.image_width, self.width - self.left))

    @property
    def holds(self) -> bool:
        """Whether the whole image lies in the rectangle."""
        return self.part == (0, 0, self.image_height, self.image_width)

    @property
    def sees(self) -> bool:
        """Whether anything of the image is seen."""
        top, left, bottom, right = self.part
        return top < bottom and left < right

    def within(self, left: int, top: int, right: int, bottom: int) -> View:
        """Only that part of the rectangle, in its pixels."""
        return self._replace(height=bottom - top, width=right - left, top=self.top - top, left=self.left - left)


@runtime_checkable
class Viewable(Protocol):
    """A stage that can say what it does to an image without it."""

    def view(self, view: View, targets: Targets, random: np.random.Generator) -> tuple[View, Targets] | None:
        """The view after this stage, with its targets; `None`, and nothing drawn, where it has to see the pixels that
        the stages before it made."""
        ...


def viewed(
    stages: Sequence[Stage], size: tuple[int, int], targets: Targets, random: np.random.Generator
) -> tuple[View, Targets, Sequence[Stage]]:
    """What the first stages make of an image of that height and width, as far as they need not see it; its targets; and
    the stages that are left."""
    view = View.whole(*size)
    for number, stage in enumerate(stages):
        if not isinstance(stage, Viewable) or (after := stage.view(view, targets, random)) is None:
            return view, targets, stages[number:]
        view, targets = after
    return view, targets, ()
