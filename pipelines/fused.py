"""Decoding, augmenting and normalising in one go, into the batch's own memory."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .assemble import Meter, Sample, make_sample, pack
from .order import batches, count, randomness
from .protocol import Batch, Copier, Dataset, Image, PhotoFiles, Queue, Settings, Targets, Trace
from .render import FastRenderer
from .stages import Normalise
from .view import View, Viewable, told_by_view, view_of

Buffer = npt.NDArray[Any]


class FusedPipeline:
    """`workers` threads (at least one), each of which makes a sample at a time where it will lie in its batch.

    What the stages would do to a photograph is told first, with their own draws (`view.py`); then it is decoded in the
    smallest scale that will do and resampled once (`render.py`). Nearly all of that is native code that releases the
    GIL. Stages that have to see pixels, and samples that are no JPEG files, are made as every loader makes them.
    `prefetch` bounds the finished batches. Their memory is used again when nobody holds them any more. With
    `pin_memory` the threads also pin.
    """

    name = "fused"

    def __init__(self, dataset: Dataset, settings: Settings, copier: Copier) -> None:
        self._dataset = dataset
        self._settings = settings
        self._copier = copier
        self._ring = _Ring()
        self._going: _Epoch | None = None
        self.queue: Queue | None = Queue(max(1, settings.prefetch), self._ready)
        FastRenderer()  # says now what is not installed

    def __len__(self) -> int:
        return count(len(self._dataset), self._settings)

    def epoch(self, number: int) -> Iterator[Batch]:
        """Sets the threads to work at once."""
        self.close()
        self._going = _Epoch(self._dataset, self._settings, number, self._copier, self._ring)
        return iter(self._going)

    def close(self) -> None:
        if self._going is not None:
            self._going.close()
            self._going = None

    def _ready(self) -> int:
        return 0 if self._going is None else self._going.ready()


class _Ring:
    """Memory of batches, used again once nobody holds it: its pages are there already."""

    def __init__(self) -> None:
        self._free: list[Buffer] = []

    def take(self, shape: tuple[int, ...], dtype: Any) -> Buffer:
        """Uninitialised. Free again when the last reference to what is returned, or to a tensor made of it, is gone."""
        base = next((each for each in self._free if each.shape == shape and each.dtype == dtype), None)
        if base is None:
            self._free.clear()  # of another shape: an epoch's last batch, or other data
            base = np.empty(shape, dtype)
        else:
            self._free.remove(base)
        lent = base[...]
        weakref.finalize(lent, self._free.append, base).atexit = False
        return lent


class _Making:
    """A batch while its samples are made, by several threads."""

    def __init__(self, number: int, indices: list[int], ring: _Ring) -> None:
        self.number = number
        self.indices = indices
        self.error: Exception | None = None
        self._left = len(indices)
        self._ring = ring
        self._inputs: Buffer | None = None
        self._samples: list[Sample | None] = [None] * len(indices)
        self._lock = threading.Lock()

    def place(self, number: int, shape: tuple[int, ...], dtype: Any) -> Buffer:
        """Where a sample lies."""
        with self._lock:
            if self._inputs is None:
                self._inputs = self._ring.take((len(self.indices), *shape), dtype)
        if self._inputs.shape[1:] != shape:
            raise ValueError(f"samples of one batch must have one shape, not {self._inputs.shape[1:]} and {shape}")
        place: Buffer = self._inputs[number]
        return place

    def done(self, number: int, sample: Sample | None) -> bool:
        """Whether this was the batch's last sample. `None`: it could not be made."""
        with self._lock:
            self._samples[number] = sample
            self._left -= 1
            return self._left == 0

    def batch(self, threads: int) -> Batch:
        """Of all its samples."""
        meter, begin = Meter(), time.monotonic_ns()
        samples = [sample for sample in self._samples if sample is not None]
        targets = torch.from_numpy(pack([sample.targets for sample in samples]))
        inputs = torch.from_numpy(self._inputs)
        self._inputs = None
        end = time.monotonic_ns()
        trace = Trace(
            worker=0,
            begin_ns=min(sample.begin_ns for sample in samples),
            end_ns=end,
            read_ns=sum(sample.read_ns for sample in samples),
            decode_ns=sum(sample.decode_ns for sample in samples),
            transform_ns=sum(sample.transform_ns for sample in samples),
            collate_ns=end - begin,
            cpu_ns=sum(sample.cpu_ns for sample in samples) + meter.cpu_ns(),
            minor_faults=sum(sample.minor_faults for sample in samples) + meter.minor_faults(),
            read_bytes=sum(sample.read_bytes for sample in samples),
            threads=threads,
        )
        return Batch(inputs, targets, tuple(self.indices), trace)


class _Epoch:
    """The threads of an epoch, and what they have made. Iterated by the one that trains."""

    def __init__(self, dataset: Dataset, settings: Settings, number: int, copier: Copier, ring: _Ring) -> None:
        self._dataset = dataset
        self._settings = settings
        self._number = number
        self._copier = copier
        self._ring = ring
        self._order = batches(len(dataset), settings, number)
        self._ahead = max(1, settings.prefetch)
        self._threads = max(1, settings.workers)
        self._making: _Making | None = None
        self._next = 0
        """Sample of `_making` that nobody makes yet."""
        self._begun = self._taken = 0
        """Batches."""
        self._made: dict[int, Batch | Exception] = {}
        self._closed = False
        self._changed = threading.Condition()
        self._pool = [
            threading.Thread(target=self._work, name=f"whyidle-fused-{n}", daemon=True) for n in range(self._threads)
        ]
        for thread in self._pool:
            thread.start()

    def __iter__(self) -> Iterator[Batch]:
        for number in range(len(self._order)):
            with self._changed:
                self._changed.wait_for(lambda: number in self._made or self._closed)
                if self._closed:
                    return
                batch = self._made.pop(number)
                self._taken += 1
                self._changed.notify_all()
            if isinstance(batch, Exception):
                raise batch
            yield batch
            del batch  # whoever trains decides how long its memory is held

    def ready(self) -> int:
        """Finished batches."""
        return min(len(self._made), self._ahead)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._pool:
            thread.join()

    def _work(self) -> None:
        maker = _Maker(self._dataset, self._settings, self._number)
        while (task := self._task()) is not None:
            making, number = task
            sample = None
            try:
                sample = maker.make(making, number)
            except Exception as error:  # carried to whoever trains
                making.error = error
            if making.done(number, sample):
                self._finish(making)

    def _task(self) -> tuple[_Making, int] | None:
        """A sample to make; waits where enough is made. `None`: there is nothing left to do."""
        with self._changed:
            while not self._closed:
                if self._making is not None and self._next < len(self._making.indices):
                    self._next += 1
                    return self._making, self._next - 1
                if self._begun == len(self._order):
                    return None
                if self._begun <= self._taken + self._ahead:
                    self._making = _Making(self._begun, self._order[self._begun], self._ring)
                    self._begun += 1
                    self._next = 0
                else:
                    self._changed.wait()
        return None

    def _finish(self, making: _Making) -> None:
        made: Batch | Exception
        try:
            if making.error is not None:
                raise making.error
            made = making.batch(self._threads)
            if self._settings.pin_memory:
                made = self._copier.pin(made)
        except Exception as error:
            made = error
        with self._changed:
            self._made[making.number] = made
            self._changed.notify_all()


class _Maker:
    """Makes samples in one thread."""

    def __init__(self, dataset: Dataset, settings: Settings, epoch: int) -> None:
        self._dataset = dataset
        self._settings = settings
        self._epoch = epoch
        self._told: tuple[Viewable, ...] = ()
        if isinstance(dataset, PhotoFiles) and len(dataset):
            self._told = told_by_view(dataset.stages, dataset.targets(0))
        self._rest = tuple(dataset.stages[len(self._told) :])
        self._renderer = FastRenderer()
        self._canvas = np.empty((0, 0, 3), np.uint8)

    def make(self, making: _Making, number: int) -> Sample:
        """Raises DataError naming what is missing or broken."""
        index = making.indices[number]
        if not self._told:
            sample = make_sample(self._dataset, index, self._epoch, self._settings)
            making.place(number, sample.image.shape, sample.image.dtype)[...] = sample.image
            return sample
        meter, begin = Meter(), time.monotonic_ns()
        data = self._dataset.read(index)
        have_read = time.monotonic_ns()
        view, targets, random, image, decode_ns = self._decoded(index, data)
        shape = view.size or (view.height, view.width)
        if self._canvas.shape[:2] != shape:
            self._canvas = np.empty((*shape, 3), np.uint8)
        if image is None:
            self._renderer.leave_empty(view, self._canvas)
        else:
            self._renderer.draw(image, view, self._canvas)
        image, targets = self._finished(making, number, targets, random)
        return Sample(
            index=index,
            image=image,
            targets=targets,
            begin_ns=begin,
            read_ns=have_read - begin,
            decode_ns=decode_ns,
            transform_ns=time.monotonic_ns() - have_read - decode_ns,
            cpu_ns=meter.cpu_ns(),
            minor_faults=meter.minor_faults(),
            read_bytes=len(data),
        )

    def _decoded(
        self, index: int, data: bytes
    ) -> tuple[View, Targets, np.random.Generator, Image | None, int]:
        """View, its targets, the generator after its draws; the image, `None` where nothing of it is seen, and the time
        that decoding took."""
        before, random = self._dataset.targets(index), randomness(self._settings, self._epoch, index)
        size = self._renderer.size(data)
        if size is not None:
            view, targets = view_of(self._told, size, before, random)
            if not view.sees:
                return view, targets, random, None, 0
            begin = time.monotonic_ns()
            image = self._renderer.decode(data, view)
            if image is not None:
                return view, targets, random, image, time.monotonic_ns() - begin
            random = randomness(self._settings, self._epoch, index)
        begin = time.monotonic_ns()
        image = np.array(self._dataset.decode(data, index))  # of its own: colours are changed in place
        took = time.monotonic_ns() - begin
        height, width = image.shape[:2]
        return *view_of(self._told, (height, width), before, random), random, image, took

    def _finished(
        self, making: _Making, number: int, targets: Targets, random: np.random.Generator
    ) -> tuple[Image, Targets]:
        """The canvas after all other stages, where it belongs."""
        image: Image = self._canvas
        if len(self._rest) == 1 and isinstance(self._rest[0], Normalise):
            place = making.place(number, (3, *image.shape[:2]), np.float32)
            self._renderer.normalise(image, self._rest[0], place)
            return place, targets
        for stage in self._rest:
            image, targets = stage(image, targets, random)
        place = making.place(number, image.shape, image.dtype)
        place[...] = image
        return place, targets
