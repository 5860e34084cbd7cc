"""A split of a Pascal-VOC set as a dataset that any loader can take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from whyidle.errors import DataError
from whyidle.pipelines.photos import JpegFiles
from whyidle.pipelines.stages import plain_stages

from .annotation import AnnotationError, parse
from .check import SetProblem, UsableImage, check, summary
from .layout import CLASSES, Layout, class_index, find

if TYPE_CHECKING:  # the protocol imports torch, which reading does not need
    from whyidle.pipelines.protocol import Stage, Targets

STAND_IN = "Pascal VOC's photographs: images composed by whyidle"


@dataclass(eq=False)
class VocDataset(JpegFiles):
    """The usable images of a split with their objects.

    All that grows with the set is in numpy arrays: worker processes share those with their parent, whereas the
    reference counts in lists of objects would copy them page by page.
    """

    name: str
    """Such as "VOC2012 trainval"."""
    stages: Sequence[Stage]
    layout: Layout
    class_names: tuple[str, ...]
    """The name of class `number` is at `number - 1`."""
    sizes: npt.NDArray[np.int32]
    """Width and height of each image, `[images, 2]`, pixels."""
    file_bytes: npt.NDArray[np.int64]
    """Size of each JPEG file."""
    findings: list[SetProblem]
    """What was wrong with the data."""
    _names: npt.NDArray[np.str_]
    _rows: Targets
    _starts: npt.NDArray[np.int64]
    """The objects of image `i` are the rows from `_starts[i]` to before `_starts[i + 1]`."""

    @classmethod
    def open(
        cls,
        folder: Path,
        split: str = "trainval",
        stages: Sequence[Stage] | None = None,
        limit: int | None = None,
    ) -> VocDataset:
        """Reads and checks a split of the set at `folder`, or only its first `limit` images.

        `stages` are `plain_stages(300)` unless given.

        Raises:
            DataError: there is no set or split, or none of its images can be used.
        """
        try:
            layout = find(folder)
            names = layout.names(split)[:limit]
            samples, findings = check(layout, names)
        except OSError as error:
            raise DataError(
                f"Cannot read {error.filename or folder}: {error.strerror}. Make it readable, or name another folder."
            ) from error
        if not samples:
            problems = "; ".join(summary(findings)) or f"the first {limit} were asked for"
            raise DataError(
                f"None of the {len(names)} images of {layout.root}, split {split!r}, can be used: {problems}. "
                "Replace them, or make a new set: whyidle data ssd --out DIR"
            )
        classes = class_index(_class_names(layout, samples))
        counts = [len(sample.objects) for sample in samples]
        return cls(
            name=f"{layout.root.name} {split}",
            stages=plain_stages(300) if stages is None else stages,
            layout=layout,
            class_names=tuple(classes),
            sizes=np.array([(sample.width, sample.height) for sample in samples], np.int32),
            file_bytes=np.array([sample.bytes for sample in samples], np.int64),
            findings=findings,
            _names=np.array([sample.name for sample in samples]),
            _rows=_rows(samples, classes),
            _starts=np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
        )

    @property
    def classes(self) -> int:
        """How many classes there are, without background."""
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self._names)

    def path(self, index: int) -> Path:
        return self.layout.image(str(self._names[index]))

    def targets(self, index: int) -> Targets:
        if not -len(self) <= index < len(self):
            raise IndexError(f"image {index} of {len(self)}")
        index %= len(self)
        return self._rows[self._starts[index] : self._starts[index + 1]]

    def merged(self, kinds: Mapping[str, str]) -> VocDataset:
        """The same images with coarser classes: `kinds` says for each class what it becomes."""
        names = tuple(dict.fromkeys(kinds.values()))
        number = np.array([0, *(names.index(kinds[name]) + 1 for name in self.class_names)], np.float32)
        rows = self._rows.copy()
        rows[:, 0] = number[rows[:, 0].astype(np.int64)]
        return replace(self, class_names=names, _rows=rows)

    def notices(self) -> list[str]:
        """What was wrong with the data, a sentence each."""
        return summary(self.findings)

    def describe(self) -> dict[str, Any]:
        """How much there is: images, objects, classes that occur, and means of file size and of sides."""
        width, height = self.sizes.mean(axis=0)
        return {
            "samples": len(self),
            "unit": "image",
            "stand_in": STAND_IN if self.layout.is_composed else None,
            "images": len(self),
            "objects": len(self._rows),
            "classes": len(np.unique(self._rows[:, 0])),
            "mean_bytes": float(self.file_bytes.mean()),
            "mean_width": float(width),
            "mean_height": float(height),
        }


def _rows(samples: Sequence[UsableImage], classes: dict[str, int]) -> Targets:
    rows = [
        (
            classes[one.name],
            one.x_min / sample.width,
            one.y_min / sample.height,
            one.x_max / sample.width,
            one.y_max / sample.height,
        )
        for sample in samples
        for one in sample.objects
    ]
    return np.array(rows, np.float32).reshape(-1, 5)


def _class_names(layout: Layout, samples: Sequence[UsableImage]) -> set[str]:
    """The classes to number.

    If there are others than VOC's, all annotations of the set count, so that every split and every `limit` gives
    a class the same number.
    """
    names = {one.name for sample in samples for one in sample.objects}
    if names <= set(CLASSES):
        return names
    for file in layout.annotations.glob("*.xml"):
        try:
            names.update(one.name for one in parse(file).objects)
        except (AnnotationError, OSError):  # reported where its image is used
            continue
    return names
