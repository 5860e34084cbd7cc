"""Stages of classification: what is cut out of a photograph with one label, which stays as it is.

Caffe's way is a square of 256 pixels, a random part of it, mirrored half of the time, the mean subtracted;
torchvision's draws the part's size and shape too. The distortions of CIFAR-10 are those of TensorFlow's tutorial.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image as PillowImage
from PIL.Image import Resampling

from .view import View

if TYPE_CHECKING:  # the protocol imports torch, which no stage needs
    from .protocol import Image, Stage, Targets

_TRIALS = 10
"""Parts drawn before the largest that fits is taken, as torchvision does."""


@dataclass(frozen=True)
class Crop:
    """A square of `size` pixels: from anywhere, or from the middle."""

    size: int
    anywhere: bool = True

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        top, left = self._place(image.shape[0], image.shape[1], random)
        return image[top : top + self.size, left : left + self.size], targets

    def view(self, view: View, targets: Targets, random: np.random.Generator) -> tuple[View, Targets] | None:
        if not view.grows:
            return None
        top, left = self._place(view.height, view.width, random)
        return view.within(left, top, left + self.size, top + self.size), targets

    def _place(self, height: int, width: int, random: np.random.Generator) -> tuple[int, int]:
        room = np.array((height, width)) - self.size
        if room.min() < 0:
            raise ValueError(f"a crop of {self.size} from {width} × {height} pixels")
        top, left = (random.integers(room + 1) if self.anywhere else room // 2).tolist()
        return top, left


@dataclass(frozen=True)
class Mirror:
    """Turns left and right round."""

    probability: float = 0.5

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        return (image[:, ::-1], targets) if random.random() < self.probability else (image, targets)

    def view(self, view: View, targets: Targets, random: np.random.Generator) -> tuple[View, Targets] | None:
        turns = random.random() < self.probability
        return view._replace(mirrored=view.mirrored != turns), targets


@dataclass(frozen=True)
class RandomResizedCrop:
    """A part of random area and shape, warped to a square of `size` pixels."""

    size: int
    area: tuple[float, float] = (0.08, 1.0)
    """As a share of the image's."""
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    """Width by height, drawn evenly in the logarithm."""

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        left, top, right, bottom = self._box(image.shape[1], image.shape[0], random)
        cut = PillowImage.fromarray(image[top:bottom, left:right])
        return np.asarray(cut.resize((self.size, self.size), Resampling.BILINEAR)), targets

    def view(self, view: View, targets: Targets, random: np.random.Generator) -> tuple[View, Targets] | None:
        if not view.grows:
            return None
        seen = view.within(*self._box(view.width, view.height, random))
        return seen._replace(size=(self.size, self.size), filter=Resampling.BILINEAR), targets

    def _box(self, width: int, height: int, random: np.random.Generator) -> tuple[int, int, int, int]:
        areas = width * height * random.uniform(*self.area, _TRIALS)
        aspects = np.exp(random.uniform(np.log(self.aspect[0]), np.log(self.aspect[1]), _TRIALS))
        across, down = np.rint(np.sqrt(areas * aspects)), np.rint(np.sqrt(areas / aspects))
        fits = np.flatnonzero((across >= 1) & (across <= width) & (down >= 1) & (down <= height))
        if len(fits):
            wide, tall = int(across[fits[0]]), int(down[fits[0]])
            left, top = int(random.integers(width - wide + 1)), int(random.integers(height - tall + 1))
        else:
            wide, tall = min(width, round(height * self.aspect[1])), min(height, round(width / self.aspect[0]))
            left, top = (width - wide) // 2, (height - tall) // 2
        return left, top, left + wide, top + tall


@dataclass(frozen=True)
class StandardiseEach:
    """uint8 `[height, width, 3]` to float32 `[3, height, width]` of mean 0 and deviation 1, image by image; before that
    brightness and contrast are changed by random amounts, none unless said."""

    brightness: float = 0.0
    """Up to this many levels are added or taken away."""
    contrast: tuple[float, float] = (1.0, 1.0)
    """Range of the factor on what a level differs from its channel's mean."""

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        planes = np.ascontiguousarray(image.transpose(2, 0, 1), np.float32)
        planes += np.float32(random.uniform(-self.brightness, self.brightness))
        mean = planes.mean(axis=(1, 2), keepdims=True)
        planes = (planes - mean) * np.float32(random.uniform(*self.contrast)) + mean
        # A picture of a single level has no deviation; TensorFlow takes that of one level in all of its numbers.
        deviation = max(float(planes.std()), 1 / float(np.sqrt(planes.size)))
        return (planes - planes.mean()) / np.float32(deviation), targets


@dataclass(frozen=True)
class ChannelsLast:
    """`[3, height, width]`, as CIFAR-10 keeps its images, to `[height, width, 3]`."""

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        return image.transpose(1, 2, 0), targets


def cifar_stages(size: int = 24) -> tuple[Stage, ...]:
    """The tutorial's distortions of images of 32 pixels."""
    return Crop(size), Mirror(), StandardiseEach(brightness=63.0, contrast=(0.2, 1.8))
