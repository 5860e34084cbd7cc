"""A stand-in for labelled photographs: composed images, each in the folder of what is largest in it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from whyidle.errors import DataError

from ..voc.annotation import Object, parse
from ..voc.generate import compose
from ..voc.layout import Layout
from .image_folder import MARKER

STAND_IN = "ImageNet's photographs: images composed by whyidle, labelled with the largest object, each four times"
_TIMES = {"train": 4, "val": 1}
"""How often each image of a split is in it, so that an epoch is long enough to look at."""


def labelled_photos(
    folder: Path, composed: Path, images: int, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> Path:
    """The stand-in in `folder`, in ImageFolder's layout, made of a set in VOC's layout in `composed`, which is composed
    where it is missing. Files are links to those of the set where the file system has them.

    Raises:
        DataError: a folder holds something else, or cannot be written.
    """
    wanted = {"format": "whyidle-image-folder", "images": images, "seed": seed, "stand_in": STAND_IN}
    if folder.exists():
        _require_same(folder, wanted)
        return folder
    compose(composed, images, seed, progress)
    layout = Layout(composed / "VOCdevkit" / "VOC2012")
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        for split, times in _TIMES.items():
            for image in layout.names(split):
                into = part / split / max(parse(layout.annotation(image)).objects, key=_area).name
                into.mkdir(parents=True, exist_ok=True)
                for number in range(times):
                    _link(layout.image(image), into / f"{image}-{number}.jpg")
        (part / MARKER).write_text(json.dumps(wanted), encoding="utf-8")
        part.replace(folder)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        if folder.exists():  # another process was first
            return folder
        raise DataError(f"Cannot write the images to {folder}: {error.strerror}. Name your own with --data.") from error
    return folder


def _require_same(folder: Path, wanted: dict[str, object]) -> None:
    try:
        there = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        there = None
    if there != wanted:
        raise DataError(f"{folder} does not hold the stand-in for photographs. Remove it, or use --data.")


def _area(placed: Object) -> float:
    return (placed.x_max - placed.x_min) * (placed.y_max - placed.y_min)


def _link(source: Path, file: Path) -> None:
    try:
        os.link(source, file)
    except OSError:
        shutil.copyfile(source, file)
