"""Where the parts of a Pascal-VOC set lie, and how its classes are numbered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from whyidle.errors import DataError

CLASSES = (
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)
"""The 20 classes of VOC in the order that every published net numbers them, from 1."""

KINDS = {
    "person": ("person",),
    "animal": ("bird", "cat", "cow", "dog", "horse", "sheep"),
    "vehicle": ("aeroplane", "bicycle", "boat", "bus", "car", "motorbike", "train"),
    "indoor": ("bottle", "chair", "diningtable", "pottedplant", "sofa", "tvmonitor"),
}
"""VOC's own grouping of its classes."""

COMPOSED, COMPOSED_EARLIER = "whyidle-data.json", "stallscope-data.json"
"""Lies in the folder of a set that whyidle composed, beside `VOCdevkit`; and what it was called under whyidle's earlier
name."""
_PARTS = ("JPEGImages", "Annotations", "ImageSets/Main")
_YEAR = re.compile(r"VOC\d{4}")


def composed_marker(folder: Path) -> Path:
    """The file that marks a composed set in `folder`: the one that is there, else where it belongs."""
    earlier = folder / COMPOSED_EARLIER
    return earlier if earlier.is_file() else folder / COMPOSED


@dataclass(frozen=True)
class Layout:
    """A set on disk. `root` is the folder of one year, such as `VOCdevkit/VOC2012`."""

    root: Path

    @property
    def is_composed(self) -> bool:
        """Whether these are no photographs."""
        return composed_marker(self.root.parent.parent).is_file()

    @property
    def images(self) -> Path:
        return self.root / "JPEGImages"

    @property
    def annotations(self) -> Path:
        return self.root / "Annotations"

    @property
    def splits(self) -> Path:
        return self.root / "ImageSets" / "Main"

    def image(self, name: str) -> Path:
        return self.images / f"{name}.jpg"

    def annotation(self, name: str) -> Path:
        return self.annotations / f"{name}.xml"

    def names(self, split: str) -> list[str]:
        """The images of a split in the order of its file, each once.

        Raises:
            DataError: the split does not exist or names no image.
            OSError: its file cannot be read.
        """
        file = self.splits / f"{split}.txt"
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            there = ", ".join(sorted(path.stem for path in self.splits.glob("*.txt"))) or "none"
            raise DataError(f"{self.root} has no split {split!r} ({file} is missing); splits there: {there}.") from None
        # Split files of a single class have a second column.
        names = list(dict.fromkeys(line.split()[0] for line in lines if line.strip()))
        if not names:
            raise DataError(f"{file} names no image. {_way_out()}")
        return names


def find(folder: Path) -> Layout:
    """The set at `folder`, which may be the folder of a year, the devkit, or what the devkit lies in.

    Of several years the newest is taken.

    Raises:
        DataError: there is none.
        OSError: a folder cannot be read.
    """
    for root in _candidates(folder):
        if all((root / part).is_dir() for part in _PARTS):
            return Layout(root)
    if not folder.exists():
        fact = f"{folder} does not exist"
    elif not folder.is_dir():
        fact = f"{folder} is not a folder"
    elif not any(folder.iterdir()):
        fact = f"{folder} is empty"
    else:
        fact = f"{folder} holds no Pascal-VOC set"
    raise DataError(f"{fact}: it needs {', '.join(_PARTS)}, itself or in VOCdevkit/VOC2012 or VOC2007. {_way_out()}")


def _candidates(folder: Path) -> Iterator[Path]:
    yield folder
    for parent in (folder, folder / "VOCdevkit"):
        if parent.is_dir():
            years = (path for path in parent.iterdir() if _YEAR.fullmatch(path.name))
            yield from sorted(years, reverse=True)


def _way_out() -> str:
    return "Name a folder with such a set, or make one: whyidle data ssd --out DIR"


def class_index(names: Iterable[str]) -> dict[str, int]:
    """Numbers from 1 for VOC's classes, then for the others of `names` in alphabetic order; 0 is background."""
    others = sorted(set(names) - set(CLASSES))
    return {name: number for number, name in enumerate((*CLASSES, *others), start=1)}
