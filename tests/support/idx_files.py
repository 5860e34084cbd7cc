"""Small sets in the IDX format."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def idx(array: npt.NDArray[np.uint8]) -> bytes:
    """An array of bytes as a file."""
    shape = np.array(array.shape, ">u4")
    return bytes((0, 0, 8, array.ndim)) + shape.tobytes() + array.tobytes()


def write(path: Path, content: bytes) -> Path:
    """Gzipped where the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def make_set(folder: Path, images: int = 60, held_out: int = 20, suffix: str = "", seed: int = 0) -> Path:
    """Images of 28 x 28 whose brightness tells the class a little, labels in turn."""
    random = np.random.default_rng(seed)
    for part, count in (("train", images), ("test", held_out)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        pixels = random.integers(0, 90, (count, 28, 28)) + 16 * labels[:, None, None]
        for name, array in zip(NAMES[part], (pixels.astype(np.uint8), labels), strict=True):
            write(folder / f"{name}{suffix}", idx(array))
    return folder
