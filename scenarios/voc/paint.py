"""Paints one image that decodes like a photograph: noise of a photograph's spectrum, and simple shapes in true boxes.

What a decoder takes depends on pixels and bytes, not on what is to be seen. Each class is a rectangle or an ellipse in
a colour of its own, which a net learns soon.
"""

from __future__ import annotations

from colorsys import hsv_to_rgb
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from .layout import CLASSES

Field = npt.NDArray[np.float32]
"""Float32 `[height, width]`, or `[height, width, 3]` for colours in levels."""

_SIZES = ((500, 375), (375, 500), (500, 333), (333, 500), (500, 400))
_SHARES = np.array((0.60, 0.16, 0.12, 0.05, 0.03))
"""How often each size comes; the rest are 500 long and 240 to 480 short. Close to VOC2012."""
_MOST_OBJECTS = 8
_VISIBLE = 0.4
"""Share of an object that must stay visible, and least pixels; else whatever would cover it is not placed."""
_LEAST_PIXELS = 120


@dataclass(frozen=True)
class Placed:
    """An object as it can be seen."""

    name: str
    box: tuple[int, int, int, int]
    """Left, top, right, bottom of its visible pixels; from 0, the last two exclusive."""
    truncated: bool
    """Part of it is outside the image."""
    occluded: bool
    """Part of it is behind another object."""


@dataclass(frozen=True)
class Painting:
    image: npt.NDArray[np.uint8]
    """`[height, width, 3]` RGB."""
    owner: npt.NDArray[np.int8]
    """`[height, width]`: which of `objects` is seen at the pixel, -1 for none."""
    objects: tuple[Placed, ...]


def paint(seed: int, index: int) -> Painting:
    """Image `index` of the set of this seed; the same whenever and wherever it is made."""
    random = np.random.default_rng((seed, index))
    width, height = _size(random)
    # Colours of little saturation, which no class has.
    top, bottom = random.uniform(70, 190, (2, 1)) + random.normal(0, 12, (2, 3))
    canvas = np.linspace(top, bottom, height, dtype=np.float32)[:, None].repeat(width, axis=1)
    owner = np.full((height, width), -1, np.int8)
    names: list[str] = []
    areas: list[tuple[int, int]] = []  # pixels of each object in all, and within the image
    wanted, attempts = min(int(random.geometric(0.38)), _MOST_OBJECTS), 0
    while len(names) < wanted and (attempts < 3 * wanted or not names):
        attempts += 1
        number = int(random.integers(len(CLASSES)))
        area = _place(random, number, canvas, owner, areas)
        if area is not None:
            names.append(CLASSES[number])
            areas.append(area)
    canvas += noise(random, height, width, random.uniform(0.55, 0.75))[..., None] * np.float32(random.uniform(10, 25))
    objects = tuple(_seen(owner == i, name, *areas[i]) for i, name in enumerate(names))
    return Painting(_photograph(random, canvas), owner, objects)


def _size(random: np.random.Generator) -> tuple[int, int]:
    which = int(np.searchsorted(np.cumsum(_SHARES), random.random(), side="right"))
    if which < len(_SIZES):
        return _SIZES[which]
    short = int(random.integers(240, 481))
    return (500, short) if random.random() < 0.75 else (short, 500)


def _place(
    random: np.random.Generator,
    number: int,
    canvas: Field,
    owner: npt.NDArray[np.int8],
    areas: list[tuple[int, int]],
) -> tuple[int, int] | None:
    """Paints an object of a class unless too little of it, or of what it covers, would be visible; its area in all and
    inside."""
    height, width = owner.shape
    tall = height * random.uniform(0.15, 0.7)
    wide = min(tall * random.uniform(0.6, 1.9), width * 0.9)
    x, y = random.uniform(0.0, 1.0) * width, random.uniform(0.1, 0.95) * height
    across = (np.arange(width, dtype=np.float32) + 0.5 - x) / (wide / 2)
    down = (np.arange(height, dtype=np.float32)[:, None] + 0.5 - y) / (tall / 2)
    if number % 2:
        covered = across**2 + down**2 <= 1
        area = int(np.pi / 4 * wide * tall)
    else:
        covered = (np.abs(across) <= 1) & (np.abs(down) <= 1)
        area = int(wide * tall)
    inside = int(covered.sum())
    if inside < max(_LEAST_PIXELS, _VISIBLE * area):
        return None
    lost = np.bincount(owner[covered] + 1, minlength=len(areas) + 1)[1:]
    seen = np.bincount(owner.ravel() + 1, minlength=len(areas) + 1)[1:] - lost
    if any(left_over < max(_LEAST_PIXELS, _VISIBLE * whole) for left_over, (whole, _) in zip(seen, areas, strict=True)):
        return None
    colour = np.array(hsv_to_rgb(number / len(CLASSES), 0.85, 0.9), np.float32) * np.float32(230)
    canvas[covered] = colour * np.float32(random.uniform(0.8, 1.1)) + random.normal(0, 6, 3).astype(np.float32)
    owner[covered] = len(areas)
    return area, inside


def _seen(mask: npt.NDArray[np.bool_], name: str, area: int, inside: int) -> Placed:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    box = int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
    return Placed(name, box, truncated=inside < 0.98 * area, occluded=int(mask.sum()) < inside)


def _photograph(random: np.random.Generator, canvas: Field) -> npt.NDArray[np.uint8]:
    """With a sensor's noise, in brightness and in colour."""
    height, width = canvas.shape[:2]
    grain = random.uniform(1.5, 9.0)
    canvas += grain * random.standard_normal((height, width, 1), np.float32)
    blotches = enlarge(random.standard_normal((height // 2, width // 2), np.float32), height, width)
    canvas += blotches[..., None] * np.array((grain, -0.3 * grain, -grain), np.float32)
    levels: npt.NDArray[np.uint8] = np.rint(canvas).clip(0, 255).astype(np.uint8)
    return levels


def noise(random: np.random.Generator, height: int, width: int, gain: float = 0.5, coarsest: int = 4) -> Field:
    """Noise at all scales with mean 0 and deviation 1, like clouds, soil or foliage.

    Each octave is `gain` times as strong as the one of twice its size: 0.5 is smooth with the 1/f spectrum of
    photographs, 0.8 is rough. The coarsest has about `coarsest` features along the shorter side.
    """
    steps = max(int(np.log2(min(height, width) / coarsest)), 0)
    sides = [(-(-height // 2**step), -(-width // 2**step)) for step in range(steps, -1, -1)]
    field = random.standard_normal(sides[0], np.float32)
    strength = 1.0
    for side in sides[1:]:
        strength *= gain
        field = enlarge(field, *side)
        field += strength * random.standard_normal(side, np.float32)
    field -= field.mean()
    field /= max(float(field.std()), 1e-6)
    return field


def enlarge(field: Field, height: int, width: int) -> Field:
    """The field at another size, interpolated."""
    return np.array(Image.fromarray(field).resize((width, height), Image.Resampling.BICUBIC))
