"""Silhouettes of VOC's classes, as polygons in a unit square; `scene` gives them size, place, texture and light.

Longer than other modules: it is one table, with the polygons of each of the twenty classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Tone = Literal["body", "second", "dark", "glass"]
Points = npt.NDArray[np.float64]
"""Corners `[corners, 2]` of a polygon: x from left to right, y from top to bottom, both 0..1."""
Part = tuple[Tone, Points]
Colour = tuple[int, int, int]


@dataclass(frozen=True)
class ClassShape:
    """How objects of one class look."""

    aspect: float
    """Width by height."""
    parts: tuple[Part, ...]
    """Drawn in order, later ones over earlier ones."""
    body: tuple[Colour, ...]
    """Colours to choose the body's from."""
    second: tuple[Colour, ...]
    gloss: float
    """From 0, matt and structured, to 1, smooth and shiny."""


def _oval(x: float, y: float, across: float, down: float, turn: float = 0.0) -> Points:
    """An ellipse around (x, y) with these half axes, turned by degrees."""
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    a, b, t = across * np.cos(angle), down * np.sin(angle), np.deg2rad(turn)
    return np.stack([x + a * np.cos(t) - b * np.sin(t), y + a * np.sin(t) + b * np.cos(t)], axis=1)


def _block(left: float, top: float, right: float, bottom: float) -> Points:
    """A rectangle with rounded corners (a superellipse)."""
    angle = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    c, s = np.cos(angle), np.sin(angle)
    x, y = np.sign(c) * np.abs(c) ** 0.3, np.sign(s) * np.abs(s) ** 0.3
    return np.stack([(left + right + x * (right - left)) / 2, (top + bottom + y * (bottom - top)) / 2], axis=1)


def _corners(*points: tuple[float, float]) -> Points:
    return np.array(points, np.float64)


def _bar(x0: float, y0: float, x1: float, y1: float, thick: float) -> Points:
    """A line of some thickness."""
    along = np.array([x1 - x0, y1 - y0])
    side = np.array([-along[1], along[0]]) / np.hypot(*along) * thick / 2
    start, end = np.array([x0, y0]), np.array([x1, y1])
    return np.array([start + side, end + side, end - side, start - side])


def _ring(x: float, y: float, across: float, down: float, thick: float) -> Points:
    """A wheel one can look through: out along the outer edge, back along the inner."""
    outer, inner = _oval(x, y, across, down), _oval(x, y, across * (1 - thick), down * (1 - thick))
    return np.vstack([outer, outer[:1], inner[:1], inner[::-1]])


def _same(tone: Tone, shapes: Sequence[Points]) -> tuple[Part, ...]:
    return tuple((tone, points) for points in shapes)


def _legs(tone: Tone, top: float, thick: float, *places: float) -> tuple[Part, ...]:
    return _same(tone, [_bar(x, top, x + 0.01, 1.0, thick) for x in places])


_FUR: tuple[Colour, ...] = ((112, 78, 50), (176, 132, 84), (60, 52, 48), (206, 190, 168), (150, 96, 52))
_PAINT: tuple[Colour, ...] = (
    (176, 28, 30),
    (36, 70, 140),
    (190, 192, 196),
    (38, 40, 44),
    (226, 226, 220),
    (30, 98, 74),
)
_CLOTH: tuple[Colour, ...] = (
    (150, 44, 52),
    (52, 78, 120),
    (200, 186, 150),
    (90, 110, 74),
    (120, 84, 120),
    (214, 214, 210),
)
_WOOD: tuple[Colour, ...] = ((136, 90, 52), (176, 128, 80), (96, 62, 40), (200, 164, 120))
_PALE: tuple[Colour, ...] = ((232, 228, 216), (214, 206, 190), (240, 240, 236))
_SKIN: tuple[Colour, ...] = ((224, 178, 148), (188, 136, 100), (126, 84, 60), (92, 60, 44))
_LEAF: tuple[Colour, ...] = ((58, 110, 44), (84, 132, 58), (40, 84, 48))

SHAPES: dict[str, ClassShape] = {
    "aeroplane": ClassShape(
        2.4,
        (
            ("second", _corners((0.42, 0.45), (0.55, 0.45), (0.64, 0.12), (0.57, 0.12))),
            ("second", _corners((0.02, 0.48), (0.0, 0.08), (0.09, 0.08), (0.2, 0.45))),
            ("body", _oval(0.5, 0.5, 0.5, 0.12)),
            ("second", _corners((0.36, 0.52), (0.55, 0.52), (0.74, 0.97), (0.62, 0.97))),
            *_same("glass", [_oval(x, 0.46, 0.009, 0.022) for x in np.linspace(0.25, 0.82, 14)]),
            ("glass", _oval(0.93, 0.46, 0.035, 0.04)),
        ),
        _PALE,
        _PAINT,
        0.8,
    ),
    "bicycle": ClassShape(
        1.6,
        (
            ("dark", _ring(0.21, 0.67, 0.21, 0.33, 0.12)),
            ("dark", _ring(0.79, 0.67, 0.21, 0.33, 0.12)),
            *_same("body", [_bar(0.21, 0.67, 0.36, 0.25, 0.028), _bar(0.36, 0.25, 0.7, 0.22, 0.028)]),
            *_same("body", [_bar(0.46, 0.7, 0.36, 0.2, 0.03), _bar(0.46, 0.7, 0.7, 0.22, 0.03)]),
            *_same("body", [_bar(0.21, 0.67, 0.46, 0.7, 0.025), _bar(0.79, 0.67, 0.68, 0.08, 0.028)]),
            ("dark", _bar(0.6, 0.08, 0.76, 0.04, 0.035)),
            ("dark", _oval(0.35, 0.16, 0.09, 0.045)),
            ("second", _oval(0.46, 0.7, 0.045, 0.07)),
        ),
        _PAINT,
        _PALE,
        0.7,
    ),
    "bird": ClassShape(
        1.3,
        (
            *_same("dark", [_bar(0.46, 0.75, 0.46, 1.0, 0.02), _bar(0.54, 0.75, 0.55, 1.0, 0.02)]),
            ("second", _corners((0.0, 0.72), (0.05, 0.86), (0.36, 0.68), (0.3, 0.52))),
            ("body", _oval(0.5, 0.57, 0.3, 0.24, -18)),
            ("body", _oval(0.76, 0.26, 0.14, 0.17)),
            ("second", _oval(0.42, 0.56, 0.24, 0.13, -8)),
            ("dark", _corners((0.88, 0.22), (1.0, 0.29), (0.88, 0.33))),
            ("dark", _oval(0.8, 0.23, 0.018, 0.024)),
        ),
        ((84, 74, 66), (60, 90, 140), (190, 120, 60), (210, 208, 200), (150, 40, 36)),
        _FUR,
        0.2,
    ),
    "boat": ClassShape(
        1.0,
        (
            ("dark", _bar(0.48, 0.0, 0.48, 0.78, 0.018)),
            ("second", _corners((0.5, 0.03), (0.5, 0.7), (0.93, 0.7))),
            ("second", _corners((0.46, 0.1), (0.46, 0.7), (0.12, 0.7))),
            ("body", _corners((0.0, 0.76), (1.0, 0.74), (0.84, 1.0), (0.14, 1.0))),
            ("dark", _corners((0.0, 0.76), (1.0, 0.74), (0.98, 0.79), (0.03, 0.81))),
        ),
        (*_PAINT, *_WOOD),
        _PALE,
        0.5,
    ),
    "bottle": ClassShape(
        0.33,
        (
            ("body", _block(0.02, 0.36, 0.98, 1.0)),
            ("body", _corners((0.36, 0.16), (0.64, 0.16), (0.95, 0.44), (0.05, 0.44))),
            ("body", _block(0.34, 0.04, 0.66, 0.3)),
            ("dark", _block(0.31, 0.0, 0.69, 0.09)),
            ("second", _corners((0.02, 0.55), (0.98, 0.55), (0.98, 0.82), (0.02, 0.82))),
        ),
        ((34, 78, 42), (96, 58, 28), (150, 186, 190), (40, 60, 90)),
        (*_PALE, *_CLOTH),
        1.0,
    ),
    "bus": ClassShape(
        1.9,
        (
            ("body", _block(0.0, 0.0, 1.0, 0.9)),
            *_same("glass", [_block(x, 0.13, x + 0.13, 0.46) for x in np.linspace(0.04, 0.66, 5)]),
            ("glass", _block(0.84, 0.12, 0.98, 0.56)),
            ("second", _corners((0.0, 0.58), (1.0, 0.58), (1.0, 0.67), (0.0, 0.67))),
            *_same("dark", [_oval(0.22, 0.88, 0.07, 0.12), _oval(0.76, 0.88, 0.07, 0.12)]),
            *_same("second", [_oval(0.22, 0.88, 0.03, 0.055), _oval(0.76, 0.88, 0.03, 0.055)]),
        ),
        _PAINT,
        _PALE,
        0.8,
    ),
    "car": ClassShape(
        2.2,
        (
            ("body", _corners((0.18, 0.45), (0.32, 0.04), (0.66, 0.0), (0.84, 0.42))),
            ("body", _block(0.0, 0.36, 1.0, 0.86)),
            ("glass", _corners((0.25, 0.42), (0.35, 0.1), (0.48, 0.08), (0.48, 0.42))),
            ("glass", _corners((0.52, 0.42), (0.52, 0.08), (0.64, 0.07), (0.77, 0.4))),
            ("dark", _corners((0.0, 0.72), (1.0, 0.72), (0.99, 0.8), (0.01, 0.8))),
            *_same("dark", [_oval(0.21, 0.79, 0.1, 0.21), _oval(0.79, 0.79, 0.1, 0.21)]),
            *_same("second", [_oval(0.21, 0.79, 0.055, 0.115), _oval(0.79, 0.79, 0.055, 0.115)]),
            ("second", _oval(0.96, 0.52, 0.025, 0.05)),
        ),
        _PAINT,
        _PALE,
        0.9,
    ),
    "cat": ClassShape(
        0.9,
        (
            ("second", _bar(0.12, 0.9, 0.02, 0.35, 0.08)),
            ("body", _oval(0.45, 0.72, 0.36, 0.28)),
            ("body", _oval(0.62, 0.55, 0.2, 0.28)),
            *_same("body", [_bar(0.55, 0.7, 0.56, 1.0, 0.1), _bar(0.7, 0.7, 0.71, 1.0, 0.1)]),
            *_same(
                "body", [_corners((0.5, 0.2), (0.5, 0.0), (0.66, 0.1)), _corners((0.74, 0.1), (0.9, 0.0), (0.9, 0.2))]
            ),
            ("body", _oval(0.7, 0.26, 0.24, 0.2)),
            *_same("second", [_oval(0.7, 0.36, 0.09, 0.07), _oval(0.4, 0.68, 0.05, 0.2, 10)]),
            *_same(
                "dark", [_oval(0.61, 0.24, 0.03, 0.025), _oval(0.79, 0.24, 0.03, 0.025), _oval(0.7, 0.33, 0.02, 0.015)]
            ),
        ),
        _FUR,
        _FUR,
        0.1,
    ),
    "chair": ClassShape(
        0.62,
        (
            *_legs("body", 0.1, 0.07, 0.06, 0.8),
            *_same("body", [_bar(0.2, 0.6, 0.18, 0.92, 0.06), _bar(0.94, 0.6, 0.95, 0.95, 0.07)]),
            ("body", _block(0.02, 0.0, 0.86, 0.12)),
            *_same("body", [_bar(x, 0.08, x, 0.55, 0.05) for x in (0.26, 0.45, 0.64)]),
            ("second", _corners((0.02, 0.54), (0.84, 0.52), (1.0, 0.63), (0.12, 0.67))),
        ),
        _WOOD,
        (*_CLOTH, *_WOOD),
        0.4,
    ),
    "cow": ClassShape(
        1.6,
        (
            *_legs("body", 0.6, 0.05, 0.17, 0.27, 0.62, 0.72),
            ("dark", _bar(0.06, 0.3, 0.04, 0.7, 0.02)),
            ("body", _block(0.05, 0.2, 0.78, 0.74)),
            ("body", _oval(0.87, 0.28, 0.1, 0.18, 25)),
            *_same(
                "second", [_oval(0.25, 0.4, 0.11, 0.13), _oval(0.52, 0.48, 0.13, 0.17), _oval(0.68, 0.3, 0.06, 0.07)]
            ),
            *_same(
                "dark",
                [_bar(0.84, 0.12, 0.88, 0.0, 0.02), _oval(0.9, 0.42, 0.06, 0.05), _oval(0.87, 0.23, 0.012, 0.02)],
            ),
        ),
        (*_FUR, *_PALE),
        _FUR,
        0.15,
    ),
    "diningtable": ClassShape(
        1.8,
        (
            *_same("body", [_bar(0.06, 0.3, 0.07, 1.0, 0.04), _bar(0.94, 0.3, 0.93, 1.0, 0.04)]),
            *_same("body", [_bar(0.24, 0.2, 0.24, 0.75, 0.03), _bar(0.76, 0.2, 0.76, 0.75, 0.03)]),
            ("body", _corners((0.0, 0.3), (0.18, 0.05), (0.82, 0.05), (1.0, 0.3), (1.0, 0.38), (0.0, 0.38))),
            ("second", _corners((0.3, 0.38), (0.36, 0.05), (0.64, 0.05), (0.7, 0.38))),
            *_same("glass", [_oval(0.2, 0.2, 0.07, 0.045), _oval(0.8, 0.2, 0.07, 0.045)]),
        ),
        _WOOD,
        (*_CLOTH, *_PALE),
        0.6,
    ),
    "dog": ClassShape(
        1.25,
        (
            *_legs("body", 0.6, 0.075, 0.2, 0.3, 0.58, 0.67),
            ("body", _bar(0.14, 0.5, 0.0, 0.18, 0.06)),
            ("body", _oval(0.42, 0.53, 0.32, 0.2)),
            ("body", _oval(0.66, 0.4, 0.14, 0.22, 30)),
            ("body", _oval(0.76, 0.22, 0.14, 0.16)),
            ("body", _oval(0.9, 0.28, 0.1, 0.08)),
            *_same("second", [_oval(0.67, 0.27, 0.05, 0.15, 15), _oval(0.5, 0.62, 0.16, 0.09)]),
            *_same("dark", [_oval(0.98, 0.25, 0.022, 0.026), _oval(0.81, 0.18, 0.018, 0.022)]),
        ),
        _FUR,
        _FUR,
        0.1,
    ),
    "horse": ClassShape(
        1.25,
        (
            *_legs("body", 0.5, 0.045, 0.2, 0.29, 0.58, 0.67),
            ("dark", _corners((0.1, 0.34), (0.15, 0.38), (0.08, 0.8), (0.01, 0.72))),
            ("body", _oval(0.4, 0.44, 0.3, 0.17)),
            ("body", _corners((0.52, 0.34), (0.74, 0.06), (0.86, 0.12), (0.68, 0.54))),
            ("body", _oval(0.87, 0.16, 0.13, 0.075, 35)),
            ("dark", _corners((0.5, 0.33), (0.72, 0.0), (0.77, 0.07), (0.6, 0.36))),
            ("second", _corners((0.32, 0.27), (0.5, 0.27), (0.48, 0.42), (0.34, 0.42))),
            ("dark", _oval(0.85, 0.11, 0.012, 0.016)),
        ),
        _FUR,
        (*_CLOTH, *_FUR),
        0.3,
    ),
    "motorbike": ClassShape(
        1.6,
        (
            ("dark", _ring(0.2, 0.72, 0.2, 0.28, 0.3)),
            ("dark", _ring(0.8, 0.72, 0.2, 0.28, 0.3)),
            ("second", _bar(0.8, 0.72, 0.68, 0.12, 0.04)),
            ("second", _oval(0.47, 0.68, 0.15, 0.19)),
            ("dark", _bar(0.1, 0.84, 0.5, 0.82, 0.05)),
            ("body", _oval(0.55, 0.38, 0.18, 0.15, -10)),
            ("body", _corners((0.08, 0.36), (0.42, 0.44), (0.4, 0.56), (0.14, 0.5))),
            ("dark", _block(0.12, 0.28, 0.46, 0.42)),
            ("dark", _bar(0.58, 0.06, 0.74, 0.1, 0.045)),
            ("glass", _oval(0.76, 0.24, 0.05, 0.075)),
        ),
        _PAINT,
        _PALE,
        0.9,
    ),
    "person": ClassShape(
        0.38,
        (
            *_same("dark", [_bar(0.38, 0.5, 0.32, 0.97, 0.2), _bar(0.6, 0.5, 0.68, 0.97, 0.2)]),
            *_same("second", [_oval(0.28, 0.97, 0.15, 0.03), _oval(0.74, 0.97, 0.15, 0.03)]),
            *_same("body", [_bar(0.24, 0.24, 0.1, 0.46, 0.17), _bar(0.76, 0.24, 0.88, 0.46, 0.17)]),
            *_same("second", [_bar(0.1, 0.44, 0.14, 0.56, 0.11), _bar(0.88, 0.44, 0.84, 0.56, 0.11)]),
            ("second", _bar(0.5, 0.1, 0.5, 0.22, 0.18)),
            ("body", _block(0.2, 0.18, 0.8, 0.56)),
            ("dark", _oval(0.5, 0.075, 0.21, 0.075)),
            ("second", _oval(0.5, 0.092, 0.17, 0.066)),
        ),
        _CLOTH,
        _SKIN,
        0.15,
    ),
    "pottedplant": ClassShape(
        0.75,
        (
            *_same("body", [_bar(0.5, 0.75, 0.5 + x, 0.25, 0.02) for x in (-0.2, -0.08, 0.06, 0.2)]),
            *_same(
                "body",
                [
                    _oval(0.5 + 0.36 * np.sin(a), 0.4 - 0.28 * np.cos(a), 0.08, 0.2, np.rad2deg(a))
                    for a in np.linspace(-1.5, 1.5, 9)
                ],
            ),
            *_same(
                "body",
                [
                    _oval(0.5 + 0.2 * np.sin(a), 0.42 - 0.2 * np.cos(a), 0.07, 0.18, np.rad2deg(a))
                    for a in np.linspace(-1.2, 1.2, 5)
                ],
            ),
            ("second", _corners((0.24, 0.68), (0.76, 0.68), (0.68, 1.0), (0.32, 1.0))),
            ("second", _block(0.2, 0.64, 0.8, 0.73)),
        ),
        _LEAF,
        ((168, 92, 58), (190, 180, 166), (70, 84, 110)),
        0.3,
    ),
    "sheep": ClassShape(
        1.4,
        (
            *_legs("dark", 0.6, 0.05, 0.24, 0.34, 0.6, 0.69),
            *_same(
                "body",
                [_oval(0.44 + 0.3 * np.cos(a), 0.44 + 0.24 * np.sin(a), 0.14, 0.17) for a in np.linspace(0, 6.28, 11)],
            ),
            ("body", _oval(0.44, 0.45, 0.33, 0.3)),
            ("dark", _oval(0.86, 0.36, 0.12, 0.14, 35)),
            ("dark", _oval(0.76, 0.26, 0.07, 0.035, -20)),
        ),
        _PALE,
        _PALE,
        0.0,
    ),
    "sofa": ClassShape(
        2.0,
        (
            *_same("dark", [_block(0.05, 0.9, 0.12, 1.0), _block(0.88, 0.9, 0.95, 1.0)]),
            ("body", _block(0.06, 0.0, 0.94, 0.7)),
            ("body", _block(0.04, 0.56, 0.96, 0.95)),
            *_same("second", [_block(0.13, 0.48, 0.5, 0.68), _block(0.5, 0.48, 0.87, 0.68)]),
            *_same("body", [_block(0.0, 0.3, 0.15, 0.94), _block(0.85, 0.3, 1.0, 0.94)]),
            ("second", _block(0.2, 0.16, 0.36, 0.5)),
        ),
        _CLOTH,
        _CLOTH,
        0.1,
    ),
    "train": ClassShape(
        2.3,
        (
            ("dark", _block(0.03, 0.82, 0.97, 1.0)),
            ("body", _corners((0.0, 0.08), (0.84, 0.04), (0.94, 0.2), (1.0, 0.6), (1.0, 0.9), (0.0, 0.9))),
            *_same("glass", [_block(x, 0.22, x + 0.09, 0.5) for x in np.linspace(0.03, 0.64, 6)]),
            ("glass", _corners((0.8, 0.18), (0.91, 0.2), (0.96, 0.48), (0.8, 0.48))),
            ("second", _corners((0.0, 0.62), (1.0, 0.62), (1.0, 0.72), (0.0, 0.72))),
            *_same("dark", [_oval(x, 0.92, 0.035, 0.08) for x in (0.1, 0.2, 0.5, 0.6, 0.82, 0.92)]),
        ),
        _PAINT,
        _PALE,
        0.7,
    ),
    "tvmonitor": ClassShape(
        1.25,
        (
            ("dark", _corners((0.42, 0.75), (0.58, 0.75), (0.6, 0.97), (0.4, 0.97))),
            ("dark", _block(0.25, 0.93, 0.75, 1.0)),
            ("dark", _block(0.0, 0.0, 1.0, 0.82)),
            ("glass", _corners((0.05, 0.06), (0.95, 0.06), (0.95, 0.73), (0.05, 0.73))),
            ("second", _corners((0.1, 0.12), (0.5, 0.12), (0.42, 0.66), (0.1, 0.66))),
        ),
        ((40, 40, 44), (70, 72, 76)),
        ((90, 140, 190), (120, 160, 110), (180, 130, 90)),
        1.0,
    ),
}
