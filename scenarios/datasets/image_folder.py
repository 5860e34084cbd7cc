"""Labelled photographs in the layout of torchvision's ImageFolder, as a dataset that any loader can take.

A folder of folders, one for each class, of JPEG files: `DIR/train/CLASS/*.jpg` with `DIR/val` or `DIR/test` beside it,
or `DIR/CLASS/*.jpg`. Bad files are named and left out. Names in alphabetic order number the classes, from 0.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from whyidle.errors import DataError
from whyidle.pipelines.photos import JpegFiles

from ..output import counted
from ..voc import cache
from ..voc.cache import Verified
from ..voc.jpeg import JpegError, verify

if TYPE_CHECKING:  # the protocol imports torch, which reading does not need
    from whyidle.pipelines.protocol import Stage, Targets

MARKER = "whyidle-data.json"
"""In the folder of a set that whyidle made: what it stands for."""
SPLITS = {"train": ("train",), "test": ("val", "test")}
SUBSET_SEED = 0
"""Draws the photographs of a limited set."""
_SUFFIXES = (".jpg", ".jpeg")
_LAYOUT = "DIR/train/CLASS/*.jpg or DIR/CLASS/*.jpg"


@dataclass(eq=False)
class ImageFolder(JpegFiles):
    """The usable photographs of a split with their labels. What grows with the set is in numpy arrays, which worker
    processes share with their parent."""

    root: Path
    """Of the split: the class folders are in it."""
    stages: Sequence[Stage]
    class_names: tuple[str, ...]
    stand_in: str | None
    file_bytes: npt.NDArray[np.int64]
    changed_ns: npt.NDArray[np.int64]
    """When each file was last written."""
    labels: npt.NDArray[np.int64]
    names: npt.NDArray[np.str_]
    """Paths below `root`."""
    bad: tuple[str, ...]
    """What was left out, a file each with the reason."""

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> Path:
        return self.root / str(self.names[index])

    def targets(self, index: int) -> Targets:
        return np.asarray(self.labels[index])

    def notices(self) -> list[str]:
        if not self.bad:
            return []
        first = "first: " if len(self.bad) > 1 else ""
        return [f"image corrupt: {len(self.bad)}, left out; {first}{self.bad[0]}"]

    def describe(self) -> dict[str, Any]:
        return {
            "samples": len(self),
            "unit": "image",
            "stand_in": self.stand_in,
            "classes": self.classes,
            "mean_bytes": float(self.file_bytes.mean()),
        }


def open_folder(folder: Path, stages: Sequence[Stage], split: str = "train", limit: int | None = None) -> ImageFolder:
    """Reads and checks the photographs of a split, or `limit` of them: the same ones whatever a training's seed, as
    a store of them is made once.

    A set without splits is all of `train`, and nothing is held out.

    Raises:
        DataError: there is no such set, or none of its files can be used.
    """
    try:
        root = _root(folder, split)
        class_names = _classes(folder, root)
        listed = [(name, label) for label, each in enumerate(class_names) for name in _files(root, each)]
    except OSError as error:
        raise DataError(
            f"Cannot read {error.filename or folder}: {error.strerror}. Make it readable, or name another folder."
        ) from error
    if not listed:
        raise DataError(f"{root} holds no photographs in folders of classes. Name a folder with {_LAYOUT}.")
    if limit is not None and limit < len(listed):
        drawn = np.random.default_rng(SUBSET_SEED).choice(len(listed), limit, replace=False)
        listed = [listed[at] for at in sorted(drawn)]
    found = _verified(root, [name for name, _ in listed])
    good = [(*pair, each) for pair, each in zip(listed, found, strict=True) if not each.fault]
    bad = tuple(f"{root / name}: {each.fault}" for (name, _), each in zip(listed, found, strict=True) if each.fault)
    if not good:
        raise DataError(f"None of the {len(bad)} photographs in {root} can be used; first: {bad[0]}. Replace them.")
    return ImageFolder(
        root=root,
        stages=stages,
        class_names=class_names,
        stand_in=_stand_in(folder),
        file_bytes=np.array([each.bytes for *_, each in good], np.int64),
        changed_ns=np.array([each.mtime_ns for *_, each in good], np.int64),
        labels=np.array([label for _, label, _ in good], np.int64),
        names=np.array([name for name, *_ in good]),
        bad=bad,
    )


def _root(folder: Path, split: str) -> Path:
    """Where the class folders of a split are."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} {'is not a folder' if folder.exists() else 'does not exist'}. Name one with {_LAYOUT}."
        )
    split_there = any((folder / name).is_dir() for names in SPLITS.values() for name in names)
    for name in SPLITS[split]:
        if (folder / name).is_dir():
            return folder / name
    if split_there:
        raise DataError(f"{folder} has no {' or '.join(SPLITS[split])} beside its other split. Add one.")
    if split == "test":
        raise DataError(
            f"{folder} has no val/ or test/ folder to evaluate on. Divide its photographs between {folder / 'train'} "
            f"and {folder / 'val'}, with the folders of the classes in both."
        )
    return folder


def _classes(folder: Path, root: Path) -> tuple[str, ...]:
    """Of all splits together, so that each split numbers them alike even where it lacks one."""
    splits = [folder / name for names in SPLITS.values() for name in names] if root != folder else [folder]
    there = (entry.name for split in splits if split.is_dir() for entry in os.scandir(split) if entry.is_dir())
    return tuple(sorted(set(there)))


def _files(root: Path, class_name: str) -> list[str]:
    """The JPEG files of a class, below `root`; also those in folders within, as ImageFolder takes them."""
    return sorted(
        os.path.relpath(os.path.join(at, name), root)  # noqa: PTH118  (a million paths)
        for at, _, names in os.walk(root / class_name)
        for name in names
        if name.lower().endswith(_SUFFIXES)
    )


def _verified(root: Path, names: Sequence[str]) -> list[Verified]:
    """What decoding each file found; remembered, so that it is done once."""
    known = cache.load(root)
    # Threads are enough: Pillow decodes without holding the GIL.
    with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), 16)) as pool:
        results = pool.map(lambda name: _verify(root / name, known.get(name)), names)
        found = list(counted(results, "checking images", len(names)))
    now = {**known, **dict(zip(names, found, strict=True))}
    if now != known:
        cache.store(root, now)
    return found


def _verify(file: Path, known: Verified | None) -> Verified:
    try:
        stat = file.stat()
        if known is not None and (known.bytes, known.mtime_ns) == (stat.st_size, stat.st_mtime_ns):
            return known
        width, height = verify(file.read_bytes())
    except OSError as error:
        # The file may be good, so no time that would let this answer be remembered.
        return Verified(0, -1, 0, 0, f"it cannot be read: {error.strerror}")
    except JpegError as error:
        return Verified(stat.st_size, stat.st_mtime_ns, 0, 0, str(error))
    return Verified(stat.st_size, stat.st_mtime_ns, width, height, "")


def _stand_in(folder: Path) -> str | None:
    try:
        said = json.loads((folder / MARKER).read_text(encoding="utf-8")).get("stand_in")
    except (OSError, ValueError, AttributeError):
        return None
    return said if isinstance(said, str) else None
