"""Sets in VOC's layout, written file by file."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from whyidle.scenarios.voc.read import VocDataset

Box = tuple[str, float, float, float, float]


class VocMaker:
    """A set that is written file by file. Images are 100 × 80."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "VOCdevkit" / "VOC2012"
        for part in ("JPEGImages", "Annotations", "ImageSets/Main"):
            (self.root / part).mkdir(parents=True)

    def image(self, name: str, size: tuple[int, int] = (100, 80)) -> Path:
        random = np.random.default_rng(len(name))
        stream = io.BytesIO()
        Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), np.uint8)).save(stream, "JPEG", quality=90)
        file = self.root / "JPEGImages" / f"{name}.jpg"
        file.write_bytes(stream.getvalue())
        return file

    def annotation(self, name: str, *boxes: Box) -> Path:
        objects = "".join(
            f"<object><name>{label}</name><part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax>"
            f"<ymax>2</ymax></bndbox></part><bndbox><xmax>{x2}</xmax><xmin>{x1}</xmin><ymax>{y2}</ymax>"
            f"<ymin>{y1}</ymin></bndbox></object>"
            for label, x1, y1, x2, y2 in boxes
        )
        return self.text(name, f"<annotation><size><width>9</width></size>{objects}</annotation>")

    def text(self, name: str, text: str) -> Path:
        file = self.root / "Annotations" / f"{name}.xml"
        file.write_text(text)
        return file

    def sample(self, name: str, *boxes: Box) -> None:
        self.image(name)
        self.annotation(name, *(boxes or (("dog", 11, 21, 60, 40),)))

    def split(self, *names: str, split: str = "trainval") -> None:
        (self.root / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(names))

    def open(self, split: str = "trainval", limit: int | None = None) -> VocDataset:
        return VocDataset.open(self.folder, split, limit=limit)


def names(dataset: VocDataset) -> list[str]:
    """Of its images, in their order."""
    return [dataset.path(i).stem for i in range(len(dataset))]
