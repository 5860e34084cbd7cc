"""CIFAR-10 in its binary version: no file of it can run anything. And the study's augmentation of it."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from whyidle.errors import DataError

from .arrays import Arrays, stand_in_images
from .fetch import fetch
from .whole import require_whole

if TYPE_CHECKING:  # the protocol imports torch, which reading does not need
    from whyidle.pipelines.protocol import Image, Stage, Targets

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
ARCHIVE = "cifar-10-binary.tar.gz"
ARCHIVE_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
FOLDER = "cifar-10-batches-bin"
PARTS = {"train": tuple(f"data_batch_{n}.bin" for n in range(1, 6)), "test": ("test_batch.bin",)}
SIDE = 32
SAMPLES = {"train": 50_000, "test": 10_000}
_RECORD = 1 + 3 * SIDE * SIDE
"""A label, then the red, green and blue plane."""
_RECORDS = 10_000
"""In each file as published."""
_GET = f"Get the binary version from {URL}, or run `whyidle data cost --out DIR`."


def open_cifar(folder: Path, split: str, stages: Sequence[Stage] = ()) -> Arrays:
    """A split, from the unpacked files in the folder or in `cifar-10-batches-bin/`, or from the archive.

    Raises:
        DataError: the files are not there, or are not what they should be.
    """
    images, labels, others = _read(folder, split)
    title = f"{folder}, not CIFAR-10" if others else "CIFAR-10"
    return Arrays(images, labels, "image", None, stages, {"set": title, "part": split}, others)


@lru_cache(maxsize=2)
def _read(folder: Path, split: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], tuple[str, ...]]:
    """Images, labels, and a sentence where files have not as many as the published ones. Once a process: training and
    trying the net want the same."""
    parts = {path: _records(path, data) for path, data in _files(folder, split)}
    records = np.concatenate(list(parts.values()))
    wrong = [f"{path.name} has {len(part)}" for path, part in parts.items() if len(part) != _RECORDS]
    others = (f"{folder} is not the published CIFAR-10, with {_RECORDS} images per file: {', '.join(wrong)}.",)
    images = np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, SIDE, SIDE)
    return images, records[:, 0].astype(np.int64), others if wrong else ()


def stand_in(split: str, samples: int | None, seed: int, stages: Sequence[Stage] = ()) -> Arrays:
    """Made images, as many as CIFAR-10 has or only `samples`."""
    count = min(samples or SAMPLES[split], SAMPLES[split])
    images, labels = stand_in_images((3, SIDE, SIDE), count, int(split == "test"), seed)
    return Arrays(images, labels, "image", "CIFAR-10 (generated images of ten classes)", stages, {"part": split})


def download(folder: Path, say: Callable[[str], None]) -> None:
    """The archive, into the folder.

    Raises:
        DataError: it cannot be had.
    """
    fetch([URL], folder / ARCHIVE, md5=ARCHIVE_MD5, say=say)


def _files(folder: Path, split: str) -> list[tuple[Path, bytes]]:
    """Name and content of a split's files."""
    for place in (folder, folder / FOLDER):
        paths = [place / name for name in PARTS[split]]
        there = [path for path in paths if path.is_file()]
        if there and len(there) < len(paths):
            gone = next(path for path in paths if path not in there)
            raise DataError(f"{gone} is missing beside {there[0].name}. {_GET}")
        if there:
            try:
                return [(path, path.read_bytes()) for path in paths]
            except OSError as error:
                raise DataError(f"{error.filename} cannot be read: {error.strerror}.") from error
    if (folder / ARCHIVE).is_file():
        return _packed(folder / ARCHIVE, split)
    if list(folder.glob("**/data_batch_1")):
        raise DataError(f"{folder} holds CIFAR-10 as Python pickles, which can run code when read. {_GET}")
    raise DataError(f"{folder} holds no CIFAR-10: neither {FOLDER}/ nor {ARCHIVE}. {_GET}")


def _packed(archive: Path, split: str) -> list[tuple[Path, bytes]]:
    require_whole(archive, ARCHIVE_MD5, _GET)
    try:
        with tarfile.open(archive) as tar:
            files = []
            for name in PARTS[split]:
                member = tar.extractfile(f"{FOLDER}/{name}")
                if member is None:
                    raise KeyError(name)
                files.append((archive / name, member.read()))
            return files
    except (OSError, EOFError, tarfile.TarError, KeyError) as error:
        raise DataError(f"{archive} cannot be read: {error}. {_GET}") from error


def _records(path: Path, data: bytes) -> npt.NDArray[np.uint8]:
    if not data or len(data) % _RECORD:
        raise DataError(f"{path} is cut off or not of CIFAR-10: {len(data)} bytes are not whole records. {_GET}")
    records = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
    if records[:, 0].max() > 9:
        raise DataError(f"{path} is not of CIFAR-10: it has the label {records[:, 0].max()}, not 0 to 9. {_GET}")
    return records


class ShiftAndMirror:
    """Moves an image `[channels, height, width]` by up to a tenth of its sides, whole pixels, borders repeated, and
    mirrors every second one: what the study's generator drew."""

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        moved: list[npt.NDArray[np.int64]] = []
        for side in image.shape[1:]:
            shift = int(np.rint(random.uniform(-0.1, 0.1) * side))
            moved.append((np.arange(side) + shift).clip(0, side - 1))
        if random.random() < 0.5:
            moved[1] = moved[1][::-1]
        return image[:, moved[0][:, None], moved[1]], targets


class Unit:
    """Levels 0..255 as float32 0..1; a leading dimension for images that have no channels."""

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        scaled = image.astype(np.float32) / np.float32(255)
        return scaled[None] if image.ndim == 2 else scaled, targets
