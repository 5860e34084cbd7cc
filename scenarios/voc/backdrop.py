"""What stands behind the objects: landscapes, rooms and foliage."""

from __future__ import annotations

import numpy as np

from .texture import Field, enlarge, fractal, mix

_SKIES = ((118, 158, 206), (168, 188, 208), (206, 208, 210), (214, 170, 140), (96, 112, 140))
_GROUNDS = (
    ((58, 84, 34), (122, 144, 66)),
    ((86, 70, 48), (168, 146, 108)),
    ((78, 78, 80), (150, 148, 146)),
    ((40, 70, 88), (110, 142, 156)),
    ((150, 132, 98), (214, 200, 164)),
    ((192, 198, 208), (236, 240, 244)),
)
_WALLS = ((206, 196, 176), (176, 186, 190), (150, 96, 84), (112, 128, 110), (226, 224, 218), (92, 100, 122))
_FLOORS = (((98, 62, 38), (176, 128, 84)), ((120, 116, 110), (180, 176, 170)), ((70, 60, 70), (120, 108, 112)))
_LEAVES = (((22, 38, 18), (120, 152, 70)), ((38, 30, 20), (176, 140, 84)), ((18, 26, 40), (120, 140, 168)))


def backdrop(random: np.random.Generator, height: int, width: int) -> tuple[Field, int]:
    """A backdrop in levels, and the row of its horizon, below which things stand."""
    horizon = int(height * random.uniform(0.3, 0.65))
    kind = random.random()
    if kind < 0.55:
        picture = _landscape(random, height, width, horizon)
    elif kind < 0.85:
        picture = _room(random, height, width, horizon)
    else:
        picture, horizon = _foliage(random, height, width), height // 4
    return picture, horizon


def _colour(random: np.random.Generator, colours: tuple[tuple[int, int, int], ...], spread: float = 14.0) -> Field:
    chosen = np.array(colours[random.integers(len(colours))], np.float32)
    return chosen + random.normal(0, spread, 3).astype(np.float32)


def _pair(
    random: np.random.Generator, pairs: tuple[tuple[tuple[int, int, int], tuple[int, int, int]], ...]
) -> tuple[Field, Field]:
    dark, bright = np.array(pairs[random.integers(len(pairs))], np.float32)
    shift = random.normal(0, 12, 3).astype(np.float32)
    return dark + shift, bright + shift


def _landscape(random: np.random.Generator, height: int, width: int, horizon: int) -> Field:
    """Sky with clouds, a few ranges of hills or trees, and ground that runs to the horizon."""
    picture = np.empty((height, width, 3), np.float32)
    sky = _colour(random, _SKIES)
    haze = sky * 0.4 + 140
    down = np.linspace(0, 1, horizon, dtype=np.float32)[:, None, None] ** 1.5
    clouds = fractal(random, horizon, width, 0.55, coarsest=2) * random.uniform(0.1, 0.5) + random.uniform(-0.5, 0.4)
    picture[:horizon] = mix(mix(sky, haze, down), 242.0, clouds.clip(0, 0.9)[..., None])
    picture[horizon:] = _ground(random, height - horizon, width, haze)

    rows = np.arange(height, dtype=np.float32)[:, None]
    for distance in sorted(random.uniform(0.1, 0.9, random.integers(0, 4)))[::-1]:
        ridge = fractal(random, 4, width, 0.6, coarsest=1)[0] * random.uniform(4, 20) + random.uniform(5, 70)
        top = np.float32(horizon) - ridge * np.float32(1.2 - distance)
        first = max(int(top.min()), 0)
        inside = ((rows[first:horizon] - top).clip(0, 1))[..., None]
        dark, bright = _pair(random, _GROUNDS[:2])
        structure = fractal(random, max(horizon - first, 8), width, 0.75)[: horizon - first, :, None]
        cover = mix(dark, bright, structure * 0.22 + 0.4)
        picture[first:horizon] = mix(picture[first:horizon], mix(cover, haze, distance * 0.8), inside)
    return picture


def _ground(random: np.random.Generator, height: int, width: int, haze: Field) -> Field:
    """A plane in perspective, fading into the haze."""
    dark, bright = _pair(random, _GROUNDS)
    tile = fractal(random, 256, 256, random.uniform(0.6, 0.85))
    tile = np.block([[tile, tile[:, ::-1]], [tile[::-1], tile[::-1, ::-1]]])  # repeats without a seam
    row = np.arange(1, height + 1, dtype=np.float32)[:, None]
    depth = height / row
    across = ((np.arange(width, dtype=np.float32) - width / 2) * depth * 0.6).astype(np.int32) & 511
    along = (depth * height * 0.9 + random.integers(512)).astype(np.int32) & 511
    structure = tile[along, across] * 0.2 + fractal(random, height, width, 0.5, coarsest=2) * 0.15 + 0.5
    near = (row / height * 4).clip(0.15, 1)[..., None]
    return mix(haze * 0.8, mix(dark, bright, structure.clip(-0.2, 1.3)[..., None]), near)


def _room(random: np.random.Generator, height: int, width: int, floor: int) -> Field:
    """A plastered wall with things hung on it, and boards or tiles on the floor."""
    picture = np.empty((height, width, 3), np.float32)
    light = enlarge(random.normal(1.0, 0.13, (3, 4)).astype(np.float32), height, width)[..., None]
    plaster = fractal(random, floor, width, 0.85) * random.uniform(2, 7)
    if random.random() < 0.4:
        period = random.integers(14, 60)
        plaster += np.where(np.arange(width) // period % 2 == 0, np.float32(9), np.float32(-9))
    picture[:floor] = _colour(random, _WALLS) + plaster[..., None]
    for _ in range(random.integers(0, 4)):
        _hang(random, picture[:floor])

    dark, bright = _pair(random, _FLOORS)
    row = np.arange(1, height - floor + 1, dtype=np.float32)[:, None]
    depth = (height - floor) / row
    board = (np.arange(width, dtype=np.float32) - width / 2) * depth / random.uniform(30, 90) + 200
    number = board.astype(np.int32)
    shade = random.normal(0, 0.12, 512).astype(np.float32)[number & 511]
    grain = fractal(random, height - floor, width, 0.75)
    gap = np.where(board - number < 0.06, np.float32(0.3), np.float32(0))
    picture[floor:] = mix(dark, bright, (0.5 + shade + grain * 0.12 - gap)[..., None])
    picture[floor - 4 : floor] *= np.float32(0.6)
    return picture * light


def _hang(random: np.random.Generator, wall: Field) -> None:
    """A framed picture, a window or a shelf somewhere on the wall."""
    height, width = wall.shape[:2]
    tall, wide = int(height * random.uniform(0.2, 0.6)), int(width * random.uniform(0.08, 0.3))
    top, left = random.integers(0, height - tall + 1), random.integers(0, width - wide + 1)
    wall[top + 5 : top + tall + 5, left + 5 : left + wide + 5] *= np.float32(0.75)
    frame = wall[top : top + tall, left : left + wide]
    frame[:] = _colour(random, _WALLS, 30) * np.float32(random.uniform(0.3, 1.0))
    edge = max(min(tall, wide) // 12, 2)
    inner = frame[edge:-edge, edge:-edge]
    if min(inner.shape[:2]) >= 8:
        dark, bright = _pair(random, _GROUNDS)
        structure = fractal(random, inner.shape[0], inner.shape[1], 0.6, coarsest=2)
        inner[:] = mix(dark, bright, structure[..., None] * 0.3 + 0.5)


def _foliage(random: np.random.Generator, height: int, width: int) -> Field:
    """Leaves or soil from near by, without a horizon."""
    dark, bright = _pair(random, _LEAVES)
    rough = fractal(random, height, width, random.uniform(0.6, 0.8), coarsest=6)
    # Folding the noise gives creases like those between leaves.
    folded = 1.0 - np.abs(rough) * 0.5 + fractal(random, height, width, 0.5, coarsest=2) * 0.2
    return mix(dark, bright, folded[..., None])
