"""Samples that are rows of an array in memory, and stand-ins for image sets made as such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # the protocol imports torch, which making arrays does not need
    from whyidle.pipelines.protocol import Image, Stage, Targets

MIXED_STYLES = 6
"""Ways in which a class of a stand-in may look."""
NOISE_LEVELS = 64


@dataclass(eq=False)
class Arrays:
    """Rows with their labels. Worker processes share them with their parent where they are forked."""

    rows: npt.NDArray[Any]
    """`[samples, …]`, each row contiguous."""
    labels: npt.NDArray[np.int64]
    """`[samples]`"""
    unit: str
    stand_in: str | None
    stages: Sequence[Stage] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    """What `describe` tells besides."""
    said: Sequence[str] = ()
    """What `notices` tells."""

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, index: int) -> memoryview:
        row: npt.NDArray[Any] = self.rows[index]
        return row.reshape(-1).view(np.uint8).data

    def decode(self, data: bytes | memoryview, index: int) -> Image:
        row: Image = np.frombuffer(data, self.rows.dtype).reshape(self.rows.shape[1:])
        return row

    def targets(self, index: int) -> Targets:
        return np.asarray(self.labels[index])

    def gather(self, indices: Sequence[int]) -> tuple[Image, Targets]:
        return self.rows[indices], self.labels[indices]

    def describe(self) -> dict[str, Any]:
        return {"samples": len(self), "unit": self.unit, "stand_in": self.stand_in, **self.facts}

    def notices(self) -> Sequence[str]:
        return self.said


def stand_in_images(
    shape: tuple[int, ...], samples: int, part: int, seed: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images of ten classes that a net can tell apart, with some training: each a class's pattern in one of a few
    styles, brighter or darker, under noise. `part` 0 and 1 share the patterns, and no image.

    Returns the images `[samples, *shape]` and their classes.
    """
    patterns = np.random.default_rng([seed, 1]).normal(size=(10, MIXED_STYLES, *shape)).astype(np.float32)
    for axis in (-2, -1):  # neighbours alike, as in pictures
        patterns = patterns + np.roll(patterns, 1, axis) + np.roll(patterns, 2, axis)
    random = np.random.default_rng([seed, 2, part])
    labels = random.integers(10, size=samples)
    styles = random.integers(MIXED_STYLES, size=samples)
    contrast = random.uniform(4.0, 14.0, size=samples).astype(np.float32)
    images = random.integers(128 - NOISE_LEVELS, 128 + NOISE_LEVELS, size=(samples, *shape), dtype=np.uint8)
    for start in range(0, samples, 4096):  # so that no float copy of the whole set is made
        some = slice(start, start + 4096)
        shaped = patterns[labels[some], styles[some]] * contrast[some].reshape(-1, *[1] * len(shape))
        images[some] = np.clip(images[some] + shaped, 0, 255).astype(np.uint8)
    return images, labels
