"""Tells whether a JPEG decodes as a whole.

Pillow reports a stream that breaks off, but where the entropy-coded data is merely wrong, libjpeg fills in grey or
skips bytes and only warns, and Pillow drops the warnings. Both cases can be told from outside by decoding again with
the data made longer or shorter: data after a complete image is never read, data missing from one is always seen.
"""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

_SEQUENTIAL = (0xC0, 0xC1)
_FRAMES = (*_SEQUENTIAL, 0xC2, 0xC3, *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0))
_START_OF_SCAN = 0xDA
_END = b"\xff\xd9"
_MORE = bytes((0x35, 0x9A, 0x6C, 0xD3)) * 64
_EXCESS = 1024
"""Bytes left over after an image that count as damage: more than its last block of coefficients can take."""
_GREY = {"RGB": (128, 128, 128), "L": 128}
"""What libjpeg makes of missing data, by mode."""


class JpegError(Exception):
    """A file is not a JPEG that decodes as a whole; the message says why."""


class _Scan(NamedTuple):
    """The entropy-coded data of an image with a single scan: where it starts and what it ends before."""

    start: int
    end: int


def verify(data: bytes) -> tuple[int, int]:
    """Width and height of the image, after really decoding it.

    An eighth of the resolution is enough: it takes all of the data and a fraction of the time. Images with
    several scans (progressive ones) are only checked for a stream that breaks off or has errors Pillow reports.

    Raises:
        JpegError: the data is no JPEG, breaks off, or does not hold exactly one image.
    """
    pixels, size = _decode(data)
    scan = _single_scan(data)
    if scan is None:
        return size
    if _markers_within(data, scan):
        raise JpegError("its image data contain a marker")
    if not _same(_decode(data[: scan.end] + _MORE + data[scan.end :])[0], pixels):
        raise JpegError("its image data end too early")
    shorter = scan.end - _EXCESS
    if shorter > scan.start and _loss_shows(pixels) and _same(_decode(data[:shorter] + data[scan.end :])[0], pixels):
        raise JpegError("its image data go on after the image's end")
    return size


def _decode(data: bytes) -> tuple[Image.Image, tuple[int, int]]:
    """The image at an eighth of its size, and its real size."""
    try:
        image = Image.open(io.BytesIO(data), formats=("JPEG",))
        size = image.size
        image.draft(None, (1, 1))
        image.load()
    except UnidentifiedImageError as error:
        raise JpegError("it is not a JPEG" if data else "it is empty") from error
    except Exception as error:  # whatever a decoder trips over, the file is at fault
        raise JpegError(str(error)) from error
    return image, size


def _loss_shows(pixels: Image.Image) -> bool:
    """Whether a lost end would not look like the end that is there."""
    return pixels.mode in _GREY and pixels.getpixel((pixels.width - 1, pixels.height - 1)) != _GREY[pixels.mode]


def _same(one: Image.Image, other: Image.Image) -> bool:
    return one.tobytes() == other.tobytes()


def _single_scan(data: bytes) -> _Scan | None:
    """Where the only scan of a sequential JPEG lies; `None` for other JPEGs and for unusual headers."""
    at, components = 2, 0
    while at + 4 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 2 + length]
        at += 2 + length
        if marker in _FRAMES:
            if marker not in _SEQUENTIAL:
                return None
            components = body[5]
        elif marker == _START_OF_SCAN:
            if body[0] != components:
                return None
            end = data.find(_END, at)
            if end < 0:
                raise JpegError("it has no end marker")
            return _Scan(at, end)
    return None


def _markers_within(data: bytes, scan: _Scan) -> bool:
    """Whether the scan holds anything after 0xFF but a stuffed zero, a restart or a fill byte."""
    body = np.frombuffer(data, np.uint8, scan.end - scan.start, scan.start)
    after = body[1:][body[:-1] == 0xFF]
    return bool(((after != 0x00) & ((after < 0xD0) | (after > 0xD7)) & (after != 0xFF)).any())
