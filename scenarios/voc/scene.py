"""Composes one image: a backdrop, objects with texture, light and shadow on it, and the flaws of a camera."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from .backdrop import backdrop
from .shapes import SHAPES, ClassShape
from .texture import Field, blur, enlarge, fractal, mix

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
class DrawnScene:
    image: npt.NDArray[np.uint8]
    """`[height, width, 3]` RGB."""
    owner: npt.NDArray[np.int8]
    """`[height, width]`: which of `objects` covers at least half of the pixel, -1 for none."""
    objects: tuple[Placed, ...]


@dataclass(frozen=True)
class _Sprite:
    """An object before it is placed: colours in levels `[height, width, 3]` and coverage 0..1 `[height, width]`."""

    name: str
    colours: Field
    coverage: Field


def render(seed: int, index: int) -> DrawnScene:
    """Image `index` of the set of this seed; the same whenever and wherever it is made."""
    random = np.random.default_rng((seed, index))
    width, height = _size(random)
    canvas, horizon = backdrop(random, height, width)
    if random.random() < 0.4:
        canvas = _defocus(canvas, random.uniform(0.4, 2.0))
    light = random.uniform(-1.0, 1.0), random.uniform(-1.0, -0.2)
    owner = np.full((height, width), -1, np.int8)
    names: list[str] = []
    areas: list[tuple[int, int]] = []  # pixels of each object in all, and within the image
    wanted, attempts = min(int(random.geometric(0.38)), _MOST_OBJECTS), 0
    while len(names) < wanted and (attempts < 3 * wanted or not names):
        attempts += 1
        foot = horizon + (height * 1.05 - horizon) * random.uniform(0.1, 1.0) ** 0.7
        near = (foot - horizon) / (height - horizon)
        tall = height * random.uniform(0.25, 0.8) * (0.35 + 0.65 * near)
        sprite = _sprite(random, tall, width * 0.9, light)
        left = int(random.uniform(-0.05, 1.05) * width - sprite.coverage.shape[1] / 2)
        area = _place(sprite, left, int(foot) - sprite.coverage.shape[0], canvas, owner, areas)
        if area is not None:
            names.append(sprite.name)
            areas.append(area)
    image = _photograph(random, canvas)
    objects = tuple(_seen(owner == i, name, *areas[i]) for i, name in enumerate(names))
    return DrawnScene(image, owner, objects)


def _size(random: np.random.Generator) -> tuple[int, int]:
    which = int(np.searchsorted(np.cumsum(_SHARES), random.random(), side="right"))
    if which < len(_SIZES):
        return _SIZES[which]
    short = int(random.integers(240, 481))
    return (500, short) if random.random() < 0.75 else (short, 500)


def _defocus(canvas: Field, radius: float) -> Field:
    levels = Image.fromarray(canvas.clip(0, 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(radius))
    return np.array(levels, np.float32)


def _sprite(random: np.random.Generator, tall: float, widest: float, light: tuple[float, float]) -> _Sprite:
    """An object of a random class, `tall` pixels high unless it would be wider than `widest`."""
    name = list(SHAPES)[random.integers(len(SHAPES))]
    shape = SHAPES[name]
    aspect = shape.aspect * random.uniform(0.85, 1.18)
    height = max(int(min(tall, widest / aspect)), 12)
    width = max(int(height * aspect), 8)
    colours, coverage = _draw(random, shape, height, width)
    rough = fractal(random, height, width, 0.75, coarsest=3) * (1 - shape.gloss) * 0.17
    smooth = fractal(random, height, width, 0.5, coarsest=2) * 0.06
    relief = _relief(coverage, light, shape.gloss)
    lit: Field = colours * (1 + rough + smooth)[..., None] * relief[..., None]
    lit += (relief - 1.25).clip(0)[..., None] * (300 * shape.gloss)
    return _Sprite(name, lit, coverage)


def _draw(random: np.random.Generator, shape: ClassShape, height: int, width: int) -> tuple[Field, Field]:
    """Flat colours and coverage of a shape, bent and turned a little, drawn at twice the size for smooth edges."""
    tones = {
        "body": _tint(random, shape.body[random.integers(len(shape.body))]),
        "second": _tint(random, shape.second[random.integers(len(shape.second))]),
        "dark": _tint(random, (38, 36, 38)),
        "glass": _tint(random, (70, 88, 104)),
    }
    colours = Image.new("RGB", (2 * width, 2 * height), tones["body"])
    mask = Image.new("L", (2 * width, 2 * height))
    on_colours, on_mask = ImageDraw.Draw(colours), ImageDraw.Draw(mask)
    mirrored, turn = random.random() < 0.5, np.deg2rad(random.normal(0, 4))
    bend, phase = random.normal(0, 0.02, 2), random.uniform(0, 6.28, 2)
    for tone, points in shape.parts:
        x, y = (points.T - 0.5) * 0.9  # room to bend and turn
        x, y = x + bend[0] * np.sin(5 * y + phase[0]), y + bend[1] * np.sin(5 * x + phase[1])
        x, y = x * np.cos(turn) - y * np.sin(turn) / shape.aspect, y * np.cos(turn) + x * np.sin(turn) * shape.aspect
        outline = np.stack([(0.5 + (-x if mirrored else x)) * 2 * width, (0.5 + y) * 2 * height], axis=1)
        flat = outline.ravel().tolist()
        on_colours.polygon(flat, fill=tones[tone])
        on_mask.polygon(flat, fill=255)
    coverage: Field = np.asarray(mask.reduce(2), np.float32) / np.float32(255)
    return np.asarray(colours.reduce(2), np.float32), coverage


def _tint(random: np.random.Generator, colour: tuple[int, int, int]) -> tuple[int, int, int]:
    red, green, blue = (np.array(colour) * random.normal(1, 0.1) + random.normal(0, 7, 3)).clip(8, 245).astype(int)
    return int(red), int(green), int(blue)


def _relief(coverage: Field, light: tuple[float, float], gloss: float) -> Field:
    """How bright the light makes each point of a body that bulges towards the viewer; 1 for a flat one."""
    size = min(coverage.shape)
    thickness = blur(coverage, size * 0.04 + 1) * 0.4 + blur(coverage, size * 0.14 + 1)
    down, right = np.gradient(thickness * size * 0.45)
    towards = (right * light[0] + down * light[1]) / np.sqrt(1 + right**2 + down**2)
    relief: Field = (0.95 + (0.45 + 0.35 * gloss) * towards).clip(0.3, 1.6)
    return relief


def _place(
    sprite: _Sprite, left: int, top: int, canvas: Field, owner: npt.NDArray[np.int8], areas: list[tuple[int, int]]
) -> tuple[int, int] | None:
    """Paints a sprite unless too little of it, or of what it covers, would be visible; its area in all and inside."""
    height, width = owner.shape
    tall, wide = sprite.coverage.shape
    rows = slice(max(top, 0), min(top + tall, height))
    columns = slice(max(left, 0), min(left + wide, width))
    if rows.start >= rows.stop or columns.start >= columns.stop:
        return None
    part = (slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left))
    coverage = sprite.coverage[part]
    covered = coverage >= 0.5
    area, inside = int((sprite.coverage >= 0.5).sum()), int(covered.sum())
    if inside < max(_LEAST_PIXELS, _VISIBLE * area):
        return None
    lost = np.bincount(owner[rows, columns][covered] + 1, minlength=len(areas) + 1)[1:]
    seen = np.bincount(owner.ravel() + 1, minlength=len(areas) + 1)[1:] - lost
    if any(left_over < max(_LEAST_PIXELS, _VISIBLE * whole) for left_over, (whole, _) in zip(seen, areas, strict=True)):
        return None
    _shade(canvas, top + tall, left, wide)
    canvas[rows, columns] = mix(canvas[rows, columns], sprite.colours[part], coverage[..., None])
    owner[rows, columns][covered] = len(areas)
    return area, inside


def _shade(canvas: Field, foot: int, left: int, wide: int) -> None:
    """The soft shadow where an object stands."""
    height, width = canvas.shape[:2]
    flat = max(wide // 10, 2)
    y = (np.arange(height, dtype=np.float32) - foot) / flat
    x = (np.arange(width, dtype=np.float32) - left - wide / 2) / (wide * 0.55)
    rows = slice(max(foot - 2 * flat, 0), min(foot + 2 * flat, height))
    dark = np.exp(-1.5 * (y[rows, None] ** 2 + x**4))
    canvas[rows] *= (1 - 0.55 * dark)[..., None]


def _photograph(random: np.random.Generator, canvas: Field) -> npt.NDArray[np.uint8]:
    """What a camera makes of it: uneven light, a darker border, slight blur, contrast and sensor noise."""
    height, width = canvas.shape[:2]
    light = enlarge(random.normal(1, 0.07, (3, 3)).astype(np.float32), height, width)
    y, x = np.linspace(-1, 1, height, dtype=np.float32)[:, None], np.linspace(-1, 1, width, dtype=np.float32)
    light *= random.uniform(0.85, 1.15) * (1 - random.uniform(0, 0.22) * (x**2 + y**2) / 2)
    cast = random.normal(1, 0.03, 3).astype(np.float32)
    exposed = (canvas * light[..., None] - 118) * (random.uniform(0.9, 1.25) * cast) + 118
    grain = random.uniform(1.5, 9.0)
    exposed += grain * random.standard_normal((height, width, 1), np.float32)
    blotches = enlarge(random.standard_normal((height // 2, width // 2), np.float32), height, width)
    exposed += blotches[..., None] * np.array((grain, -0.3 * grain, -grain), np.float32)
    levels: npt.NDArray[np.uint8] = np.rint(exposed).clip(0, 255).astype(np.uint8)
    return levels


def _seen(mask: npt.NDArray[np.bool_], name: str, area: int, inside: int) -> Placed:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    box = int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
    return Placed(name, box, truncated=inside < area, occluded=int(mask.sum()) < inside)
