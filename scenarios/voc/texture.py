"""Fields of noise from which scenes get their structure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

Field = npt.NDArray[np.float32]
"""Float32 `[height, width]`, or `[height, width, 3]` for colours in levels."""


def fractal(random: np.random.Generator, height: int, width: int, gain: float = 0.5, coarsest: int = 4) -> Field:
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


def blur(field: Field, radius: float) -> Field:
    """A field of levels 0..1, blurred; about 1/255 exact."""
    levels = Image.fromarray((field * 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(radius))
    blurred: Field = np.asarray(levels, np.float32) / np.float32(255)
    return blurred


def mix(low: Field, high: Field | float, share: Field | float) -> Field:
    """From `low` where `share` is 0 to `high` where it is 1."""
    mixed: Field = low + (high - low) * share
    return mixed
