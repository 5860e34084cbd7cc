"""The data layer of Caffe-SSD, rebuilt from its description: one reader thread, one transform thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image as PillowImage

from .assemble import Meter, Sample, collate
from .background import Background
from .order import batches, count, randomness
from .photos import decode, photo_files
from .protocol import Batch, Copier, Dataset, Image, Queue, Settings, Stage, Targets
from .stages import Distort, Expand, RandomCrop

PREFETCH_COUNT = 3
"""Batch buffers of the layer, the one being filled included."""
_BATCHES_OF_RECORDS = 4
"""Encoded records the reader may hold, in batches."""
_QUALITY = 95
"""OpenCV's default when it writes a JPEG."""


class CaffePipeline:
    """Models Caffe-SSD's AnnotatedDataLayer (weiliu89/caffe, branch ssd) on one GPU.

    A reader thread keeps up to four batches of encoded records; one transform thread makes batches of them,
    three buffers ahead. Each of colour distortion, expansion and cropping takes a JPEG and leaves a JPEG, as the
    original does between its steps, so an augmented image is decoded 3.5 and encoded 2.5 times on average
    (expansion acts on half of the images). Without augmentation it is decoded once.

    Where the original differs: it is native code (OpenCV, Boost threads) and never holds a GIL, while here only
    Pillow's and numpy's inner loops run without it; it reads sequentially from an LMDB of records, here from
    single files in the common order; its transform thread also copies the batch to the GPU on a stream of its
    own, here whoever trains copies; its threads run across epochs, here they end with each. Nothing is slowed
    down on purpose.

    Ignores `workers` and `prefetch`: the original has no such settings. With `pin_memory` the transform thread
    pins, since the original's buffers are page-locked.
    """

    name = "caffe"

    def __init__(self, dataset: Dataset, settings: Settings, copier: Copier, codec: Codec | None = None) -> None:
        self._dataset = photo_files(dataset, self.name)
        self._settings = settings
        self._copier = copier
        self._codec = codec or Codec()
        self._records: Background[_Record] | None = None
        self._batches: Background[Batch] | None = None
        self.queue: Queue | None = Queue(PREFETCH_COUNT, self._ready)

    def __len__(self) -> int:
        return count(len(self._dataset), self._settings)

    def epoch(self, number: int) -> Iterator[Batch]:
        """Sets both threads to work at once."""
        self.close()
        order = batches(len(self._dataset), self._settings, number)
        held = _BATCHES_OF_RECORDS * self._settings.batch_size
        self._records = Background(self._read(order), held, "whyidle-caffe-read")
        made = self._transform(self._records, order, number)
        self._batches = Background(made, PREFETCH_COUNT, "whyidle-caffe-transform")
        return self._batches

    def close(self) -> None:
        for thread in (self._records, self._batches):
            if thread is not None:
                thread.close()

    def _ready(self) -> int:
        return self._batches.ready() if self._batches is not None else 0

    def _read(self, order: list[list[int]]) -> Iterator[_Record]:
        for indices in order:
            for index in indices:
                meter, begin = Meter(), time.monotonic_ns()
                data = self._dataset.read(index)
                yield _Record(index, data, time.monotonic_ns() - begin, meter.cpu_ns(), meter.minor_faults())

    def _transform(self, records: Iterator[_Record], order: list[list[int]], epoch: int) -> Iterator[Batch]:
        for indices in order:
            samples = [self._sample(record, epoch) for _, record in zip(indices, records, strict=False)]
            if len(samples) < len(indices):
                return  # the reader was stopped
            batch = collate(samples, worker=0)
            yield self._copier.pin(batch) if self._settings.pin_memory else batch

    def _sample(self, record: _Record, epoch: int) -> Sample:
        random = randomness(self._settings, epoch, record.index)
        meter, begin = Meter(), time.monotonic_ns()
        picture = _Picture(record.data, self._dataset.path(record.index), self._codec)
        targets = self._dataset.targets(record.index)
        for stage in self._dataset.stages:
            targets = picture.apply(stage, targets, random)
        image = picture.image()
        wall = time.monotonic_ns() - begin
        return Sample(
            index=record.index,
            image=image,
            targets=targets,
            begin_ns=begin,
            read_ns=record.read_ns,
            decode_ns=picture.decode_ns,
            transform_ns=wall - picture.decode_ns,
            cpu_ns=record.cpu_ns + meter.cpu_ns(),
            minor_faults=record.minor_faults + meter.minor_faults(),
            read_bytes=len(record.data),
        )


@dataclass(frozen=True, slots=True)
class _Record:
    """One encoded image as the reader hands it over, with what reading it cost."""

    index: int
    data: bytes
    read_ns: int
    cpu_ns: int
    minor_faults: int


class Codec:
    """JPEG in memory."""

    def decode(self, data: bytes, path: Path) -> Image:
        return decode(data, path)

    def encode(self, image: Image) -> bytes:
        """Chroma at half resolution, as OpenCV writes it."""
        buffer = BytesIO()
        PillowImage.fromarray(np.ascontiguousarray(image)).save(buffer, "JPEG", quality=_QUALITY)
        return buffer.getvalue()


class _Picture:
    """An image that is a JPEG between the augmenting steps and is decoded when pixels are needed."""

    def __init__(self, data: bytes, path: Path, codec: Codec) -> None:
        self._data = data
        self._path = path
        self._codec = codec
        self._pixels: Image | None = None
        self.decode_ns = 0

    def image(self) -> Image:
        if self._pixels is None:
            begin = time.monotonic_ns()
            self._pixels = self._codec.decode(self._data, self._path)
            self.decode_ns += time.monotonic_ns() - begin
        return self._pixels

    def apply(self, stage: Stage, targets: Targets, random: np.random.Generator) -> Targets:
        before = self.image()
        self._pixels, targets = stage(before, targets, random)
        if _leaves_jpeg(stage, changed=self._pixels is not before):
            self._data = self._codec.encode(self._pixels)
            self._pixels = None
        return targets


def _leaves_jpeg(stage: Stage, changed: bool) -> bool:
    """Distorting and cropping write a JPEG whatever they did; an expansion that is not drawn is left out."""
    return isinstance(stage, Distort | RandomCrop) or (isinstance(stage, Expand) and changed)
