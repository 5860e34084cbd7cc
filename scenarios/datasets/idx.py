"""Image sets in the IDX format of MNIST: raw or gzipped, flat or in torchvision's folders.

A file is a magic number (two zero bytes, 8 for unsigned bytes, the number of dimensions), the dimensions as big-endian
32-bit integers, and the values.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from platformdirs import user_cache_dir

from whyidle.errors import DataError

from .fetch import fetch

if TYPE_CHECKING:  # the protocol imports torch, which reading does not need
    from whyidle.pipelines.protocol import Image, Stage, Targets

_UNSIGNED_BYTE = 8
_CLASSES = 10
_SIDE = 28

Part = Literal["train", "test"]

_FILES: dict[Part, tuple[str, str]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


@dataclass(frozen=True)
class IdxSet:
    """A published set: where it is to be had, and what its files are."""

    title: str
    torchvision: str
    """Torchvision's name for its folder."""
    key: str
    """Of the folder in a cache."""
    mirrors: tuple[str, ...]
    md5: Mapping[str, str]
    """Of the gzipped files as published, by name without `.gz`."""
    content_md5: Mapping[str, str]
    """Of what is in them, however it was packed: Debian gzips the files of Fashion-MNIST anew."""
    places: tuple[Path, ...] = ()
    """Folders where systems keep it."""
    package: str = ""
    """Debian's package that puts it there; empty where there is none."""

    def installed(self) -> Path | None:
        """The folder where this machine's system keeps all files of it."""
        names = [name for part in _FILES.values() for name in part]
        return next((place for place in self.places if all(_found(self, place, name) for name in names)), None)

    def find(self, say: Callable[[str], None]) -> Path:
        """A folder with the set: one of this machine, the user's cache, or downloaded into that.

        Raises:
            DataError: it cannot be downloaded.
        """
        if (place := self.installed()) is not None:
            return place
        cache = Path(user_cache_dir("whyidle")) / "data" / self.key
        self.download(cache, say)
        return cache

    def download(
        self, folder: Path, say: Callable[[str], None], progress: Callable[[int, int], None] = lambda *_: None
    ) -> None:
        """Gets what the folder lacks. `progress` is called with how many of how many files are there.

        Raises:
            DataError: it cannot be downloaded.
        """
        apt = f"`apt install {self.package}` puts the set where whyidle finds it without --data. Or "
        instead = {"instead": apt} if self.package and shutil.which("apt") else {}
        for number, (name, md5) in enumerate(self.md5.items(), start=1):
            urls = [f"{mirror}{name}.gz" for mirror in self.mirrors]
            fetch(urls, folder / f"{name}.gz", md5=md5, say=say, **instead)
            progress(number, len(self.md5))


FASHION_MNIST = IdxSet(
    title="Fashion-MNIST",
    torchvision="FashionMNIST",
    key="fashion-mnist",
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
    md5={
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    content_md5={
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
    places=(Path("/usr/share/datasets/fashion-mnist"),),
    package="dataset-fashion-mnist",
)

MNIST = IdxSet(
    title="MNIST",
    torchvision="MNIST",
    key="mnist",
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
    md5={
        "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    content_md5={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    places=(Path("/usr/share/datasets/mnist"),),
)


@dataclass(eq=False)
class IdxImages:
    """The images of a part of a set, in memory; a sample as stored is the bytes of its pixels."""

    title: str
    """Such as "Fashion-MNIST"; of other files than the published ones, their folder."""
    stages: Sequence[Stage]
    images: npt.NDArray[np.uint8]
    """`[images, height, width]`, read-only."""
    labels: npt.NDArray[np.int64]
    """`[images]`"""
    facts: dict[str, Any] = field(default_factory=dict)
    """What `describe` tells besides."""
    others: Sequence[str] = ()
    """Files that are not those of the published set, a sentence each."""

    @classmethod
    def open(cls, which: IdxSet, folder: Path, part: Part = "train", stages: Sequence[Stage] = ()) -> IdxImages:
        """
        Raises:
            DataError: the set is not there, or its files are cut off, damaged or of another set.
        """
        files = [_locate(which, folder, name) for name in _FILES[part]]
        (images, labels), others = _read_all(files, which)
        if len(images) != len(labels) or not len(images):
            raise DataError(
                f"{files[0]} has {len(images)} images and {files[1]} {len(labels)} labels, so they do not belong "
                f"together. {_again(which)}"
            )
        if images.shape[1:] != (_SIDE, _SIDE):
            height, width = images.shape[1:]
            raise DataError(
                f"{files[0]} has images of {height} x {width}; those of {which.title} are {_SIDE} x {_SIDE}. "
                f"{_again(which)}"
            )
        if labels.max() >= _CLASSES:
            raise DataError(f"{files[1]} has the label {labels.max()}; {which.title} has 0 to 9. {_again(which)}")
        title = f"{folder}, not {which.title}" if others else which.title
        return cls(title, stages, images, labels.astype(np.int64), {"part": part}, others)

    def only(self, rows: npt.NDArray[Any] | slice) -> IdxImages:
        """A part of it, in the order of the rows."""
        images = self.images[rows]
        images.flags.writeable = False
        return IdxImages(self.title, self.stages, images, self.labels[rows], dict(self.facts), self.others)

    def __len__(self) -> int:
        return len(self.images)

    def read(self, index: int) -> memoryview:
        return memoryview(self.images[index].reshape(-1))

    def decode(self, data: bytes | memoryview, index: int) -> Image:
        pixels: Image = np.frombuffer(data, np.uint8).reshape(self.images.shape[1:])
        return pixels

    def targets(self, index: int) -> Targets:
        label: Targets = self.labels[index : index + 1].reshape(())
        return label

    def gather(self, indices: Sequence[int]) -> tuple[Image, Targets]:
        return self.images[indices], self.labels[indices]

    def describe(self) -> dict[str, Any]:
        return {"samples": len(self), "unit": "image", "stand_in": None, "set": self.title, **self.facts}

    def notices(self) -> Sequence[str]:
        """What is cut off or contradicts itself is refused; another set of the same kind is welcome, but named."""
        return self.others


def _found(which: IdxSet, folder: Path, name: str) -> Path | None:
    """The file, unpacked rather than gzipped where there are both."""
    inner = Path(which.torchvision)
    for place in (folder, folder / "raw", folder / inner / "raw", folder / inner):
        # torchvision's older releases wrote a dot where the files have a dash
        for spelling in (name, f"{name}.gz", name.replace("-idx", ".idx")):
            if (place / spelling).is_file():
                return place / spelling
    return None


def _locate(which: IdxSet, folder: Path, name: str) -> Path:
    found = _found(which, folder, name)
    if found is None:
        inner = f"{which.torchvision}/raw/"
        raise DataError(f"{folder} has no {name}, nor has raw/ or {inner} in it, with or without .gz. {_again(which)}")
    return found


def _again(which: IdxSet) -> str:
    return f"Get {which.title} from {which.mirrors[0]} and name its folder with --data."


def _read_all(files: Sequence[Path], which: IdxSet) -> tuple[list[npt.NDArray[np.uint8]], tuple[str, ...]]:
    """The images and labels of the two files, and a sentence about each that is not the published one."""
    arrays, others = [], []
    for path, dimensions in zip(files, (3, 1), strict=True):
        array, md5 = _read(path, which, dimensions)
        arrays.append(array)
        if md5 != which.content_md5[path.name.removesuffix(".gz").replace(".idx", "-idx")]:
            others.append(f"{path} is not the published file of {which.title}: the md5 of its content is {md5}.")
    return arrays, tuple(others)


def _read(path: Path, which: IdxSet, dimensions: int) -> tuple[npt.NDArray[np.uint8], str]:
    """The values of a file, and the md5 of all its bytes.

    Raises:
        DataError: not the file it should be, or not whole.
    """
    magic = bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            head = stream.read(4 + 4 * dimensions)
            if len(head) < 4 + 4 * dimensions or head[:4] != magic:
                raise DataError(
                    f"{path} does not begin as an IDX file of bytes in {dimensions} dimensions: {head[:4].hex()} "
                    f"instead of {magic.hex()}. {_again(which)}"
                )
            shape = np.frombuffer(head, ">u4", offset=4).tolist()
            size = math.prod(shape)
            data = stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise DataError(f"{path} cannot be read: {why}. {_again(which)}") from problem
    if len(data) != size:
        fault = "is cut off" if len(data) < size else "has more bytes than it should"
        shown = " x ".join(map(str, shape))
        raise DataError(f"{path} {fault}: its header says {shown} = {size} bytes. {_again(which)}")
    return np.frombuffer(data, np.uint8).reshape(shape), hashlib.md5(head + data, usedforsecurity=False).hexdigest()
