from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from whyidle.scenarios.voc.jpeg import JpegError, verify
from whyidle.scenarios.voc.paint import noise


def photograph(width: int = 160, height: int = 120) -> Image.Image:
    random = np.random.default_rng(1)
    planes = [noise(random, height, width, 0.7) * 40 + 128 for _ in range(3)]
    return Image.fromarray(np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", **{"quality": 95, **options})
    return stream.getvalue()


GOOD = encoded(photograph())
MIDDLE = len(GOOD) // 2


@pytest.mark.parametrize(
    "options",
    [{"quality": 5}, {"quality": 100, "subsampling": 0}, {"restart_marker_rows": 1}, {"progressive": True}],
    ids=str,
)
def test_good_images_of_all_kinds_pass(options: dict[str, Any]) -> None:
    assert verify(encoded(photograph(), **options) + b"appended by a camera" * 50) == (160, 120)
    for mode in ("CMYK", "L"):
        assert verify(encoded(photograph(97, 61).convert(mode), **options)) == (97, 61)
    for level, size in ((0, (1, 1)), (128, (8, 8)), (128, (500, 375)), (255, (500, 375))):
        assert verify(encoded(Image.new("RGB", size, (level, level, level)), **options)) == size
    half = photograph(400, 300)
    half.paste((128, 128, 128), (0, 100, 400, 300))  # ends in the grey of lost data
    assert verify(encoded(half, **options)) == (400, 300)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (b"", "is empty"),
        (b"<html>Not found</html>", "not a JPEG"),
        (GOOD[:100], "Truncated"),
        (GOOD[:MIDDLE], "truncated"),
        (GOOD[:-40], "truncated"),
        (GOOD[:MIDDLE] + b"\xff\xd9", "end too early"),
        (GOOD[:MIDDLE] + GOOD[MIDDLE + 2000 :], "end too early"),
        (GOOD[:MIDDLE] + GOOD[MIDDLE - 4000 :], "go on after the image"),
        (GOOD[:MIDDLE] + bytes(len(GOOD) - MIDDLE), "truncated|no end marker|end too early"),
        (GOOD[:MIDDLE] + b"\xff\xfe" + GOOD[MIDDLE:], "contain a marker|broken|end too early"),
    ],
    ids=["empty", "html", "header", "half", "end lost", "ended", "hole", "repeat", "zeros", "marker inside"],
)
def test_damage_is_found(damaged: bytes, message: str) -> None:
    with pytest.raises(JpegError, match=message):
        verify(damaged)
