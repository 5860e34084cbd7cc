"""Any JPEG files, without labels: what a machine could do with them as a training of image nets would take them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from whyidle.errors import DataError
from whyidle.pipelines.crops import Mirror, RandomResizedCrop
from whyidle.pipelines.photos import JpegFiles
from whyidle.pipelines.stages import OF_IMAGENET, Resize

from ..voc.jpeg import JpegError, verify

if TYPE_CHECKING:  # the protocol imports torch, which reading does not need
    from whyidle.pipelines.protocol import Stage, Targets

SUFFIXES = (".jpg", ".jpeg")
MOST = 320
"""Files that are measured with."""


class LoosePhotos(JpegFiles):
    """Files with the stages of training an image net: a part of random size and place, resized, mirrored half of the
    time and normalised; or, without augmentation, all of it resized and normalised."""

    def __init__(self, files: Sequence[Path], size: int, augment: bool) -> None:
        """
        Args:
            files: of which the good ones among `MOST`, evenly from all of them, are taken.
            size: the side of the square that the net takes, in pixels.

        Raises:
            DataError: none of these is a JPEG file that can be read.
        """
        every = sorted(files)
        places = np.unique(np.linspace(0, len(every) - 1, min(len(every), MOST)).astype(np.int64))
        tried = [(every[place], _fault(every[place])) for place in places.tolist()]
        self._files: list[Path] = [file for file, fault in tried if fault is None]
        self.faults = [f"{file}: {fault}" for file, fault in tried if fault is not None]
        """Of those left out, a sentence each."""
        if not self._files:
            raise DataError(f"None of the {len(tried)} JPEG files tried can be used; first: {self.faults[0]}.")
        self.mean_bytes = float(np.mean([file.stat().st_size for file in self._files]))
        self.stages: Sequence[Stage] = (
            (RandomResizedCrop(size), Mirror(), OF_IMAGENET) if augment else (Resize(size), OF_IMAGENET)
        )

    def __len__(self) -> int:
        return len(self._files)

    def path(self, index: int) -> Path:
        return self._files[index]

    def targets(self, index: int) -> Targets:
        return np.zeros((), np.int64)


def jpeg_files(folder: Path) -> list[Path]:
    """All in a folder and those within it.

    Raises:
        DataError: there are none.
    """
    found = [
        Path(root, name) for root, _, names in os.walk(folder) for name in names if name.lower().endswith(SUFFIXES)
    ]
    if not found:
        raise DataError(f"{folder} and the folders in it hold no JPEG files. Name another folder.")
    return found


def _fault(file: Path) -> str | None:
    try:
        verify(file.read_bytes())
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    except JpegError as error:
        return str(error)
    return None
