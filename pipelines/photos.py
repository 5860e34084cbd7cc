"""Samples that are JPEG files, one each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image as PillowImage

from whyidle.errors import DataError, WhyidleError

if TYPE_CHECKING:  # the protocol imports torch, which reading does not need
    from .protocol import Dataset, Image, PhotoFiles


class JpegFiles(ABC):
    """What a dataset of files adds to its paths: how they are read and decoded."""

    @abstractmethod
    def path(self, index: int) -> Path:
        """The file of a sample."""

    def read(self, index: int) -> bytes:
        return read(self.path(index))

    def decode(self, data: bytes | memoryview, index: int) -> Image:
        return decode(data, self.path(index))


def photo_files(dataset: Dataset, loader: str) -> PhotoFiles:
    """The dataset, for a loader that handles files itself.

    Raises:
        WhyidleError: it has none.
    """
    from .protocol import PhotoFiles

    if not isinstance(dataset, PhotoFiles):
        raise WhyidleError(f"the {loader} loader needs JPEG files, and these data are not. Use another loader.")
    return dataset


def read(path: Path) -> bytes:
    """The whole file. Raises DataError naming it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}. Check the dataset folder and its permissions."
        ) from error


def decode(data: bytes | memoryview, path: Path) -> Image:
    """uint8 RGB `[height, width, 3]`, read-only, EXIF orientation not applied. Raises DataError naming the file."""
    try:
        with PillowImage.open(BytesIO(data)) as picture:
            return np.asarray(picture if picture.mode == "RGB" else picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError, PillowImage.DecompressionBombError) as error:
        raise DataError(
            f"{path} cannot be decoded: {error}. Replace the file or take it out of the dataset."
        ) from error
