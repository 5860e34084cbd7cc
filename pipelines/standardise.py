"""From the levels of small images to what a net takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # the protocol imports torch, which no stage needs
    from .protocol import Image, Targets


@dataclass(frozen=True)
class Standardise:
    """uint8 `[height, width]` or `[height, width, channels]` to contiguous float32 `[channels, height, width]`:
    (level / 255 - mean) / std, the same numbers for all channels."""

    mean: float = 0.0
    std: float = 1.0
    values: npt.NDArray[np.float32] = field(init=False, repr=False, compare=False)
    """What each of the 256 levels becomes."""

    def __post_init__(self) -> None:
        values = (np.arange(256) / 255 - self.mean) / self.std
        object.__setattr__(self, "values", values.astype(np.float32))

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        planes = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
        return self.values.take(np.ascontiguousarray(planes)), targets
