"""Decoding, augmenting and normalising in one go, into the batch's own memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import get_worker_info

from whyidle.errors import WhyidleError

from .assemble import Meter, Sample, make_sample, pack, trace_of
from .order import randomness
from .protocol import ArrayRows, Batch, Copier, Dataset, Image, PhotoFiles, Settings, Stage, Targets, Trace
from .render import FastRenderer
from .render_exact import ExactRenderer
from .ring import Ring
from .stages import Normalise
from .standardise import Standardise
from .view import View, viewed
from .workers import EpochBatches, WorkersPipeline


class FusedPipeline(WorkersPipeline):
    """Worker processes, as `workers` has them, that make every sample where it will lie in its batch.

    What the stages would do to a photograph is told first, with their own draws (`view.py`); then it is decoded in the
    smallest scale that will do and resampled once (`render.py`). Samples that are rows of an array, and only get other
    numbers for their levels, are made a batch at a time. Stages that have to see pixels, and other samples that are no
    JPEG files, are made as every loader makes them. On the way to a device with memory of its own photographs stay
    uint8, and are normalised there. Batches lie in memory that is shared with the workers and used again once nobody
    holds it (`ring.py`): what is sent is which of it, and the targets.
    """

    name = "fused"
    _renderer: ClassVar[type[FastRenderer]] = FastRenderer

    def __init__(self, dataset: Dataset, settings: Settings, copier: Copier) -> None:
        self._renderer()  # says here what is not installed
        self._ring = Ring()
        last = dataset.stages[-1] if dataset.stages else None
        self._left: Normalise | None = None
        if copier.own_memory and isinstance(dataset, PhotoFiles) and isinstance(last, Normalise):
            self._left = last
        super().__init__(dataset, settings, copier)

    def close(self) -> None:
        super().close()
        self._ring.close()

    def _makers(self, dataset: Dataset, settings: Settings) -> dict[str, Any]:
        stages = tuple(dataset.stages) if self._left is None else tuple(dataset.stages)[:-1]
        return {
            "dataset": _Batches(dataset, stages, settings, self._ring, self._renderer),
            "sampler": _Slots(self._sampler, self._ring),
            "batch_size": None,
            "collate_fn": _as_it_is,
        }

    def _received(self, made: Any) -> Batch:
        if isinstance(made, WhyidleError):
            raise made
        inputs = torch.from_numpy(self._ring.lend(made.slot, made.shape, made.dtype))
        on_device = None if self._left is None else self._left.on_device
        return Batch(inputs, torch.from_numpy(made.targets), made.indices, made.trace, on_device)


_Place = Callable[[tuple[int, ...], Any], npt.NDArray[Any]]
"""Gives the memory in which an image of a shape and type is to lie."""


class FusedExactPipeline(FusedPipeline):
    """As `fused`, with the pixels of the other loaders: within a level in 999 of 1,000."""

    name = "fused-exact"
    _renderer = ExactRenderer


class _Written(NamedTuple):
    """A batch that lies in its slot."""

    slot: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    targets: npt.NDArray[Any]
    indices: tuple[int, ...]
    trace: Trace


class _Slots:
    """Sampler whose keys say where a batch is to lie as well: asked in this process, when a worker is to begin."""

    def __init__(self, batches: EpochBatches, ring: Ring) -> None:
        self._batches = batches
        self._ring = ring

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        # The workers have ended what an abandoned epoch asked of them before the first of these is asked for.
        self._ring.take_back()
        for keys in self._batches:
            yield self._ring.take(), keys


def _as_it_is(made: Any) -> Any:
    return made


class _Batches(TorchDataset[Any]):
    """Makes whole batches. A user's mistake is returned, not raised: DataLoader would bury its message."""

    def __init__(
        self,
        dataset: Dataset,
        stages: Sequence[Stage],
        settings: Settings,
        ring: Ring,
        renderer: Callable[[], FastRenderer],
    ) -> None:
        self._renderer = renderer
        self._dataset = dataset
        self._stages = stages
        self._settings = settings
        self._ring = ring
        self._maker: _Maker | None = None
        only = stages[0] if len(stages) == 1 else None
        self._rows: tuple[ArrayRows, Standardise] | None = None
        """What is made a batch at a time, and how."""
        if isinstance(dataset, ArrayRows) and isinstance(only, Standardise):
            self._rows = dataset, only

    def __getitem__(self, key: tuple[int, list[tuple[int, int]]]) -> _Written | WhyidleError:
        slot, keys = key
        if self._maker is None:  # of this process: it has room of its own to decode into
            self._maker = _Maker(self._dataset, self._stages, self._settings, self._renderer())
        try:
            if self._rows is not None:
                return self._looked_up(*self._rows, self._maker.renderer, slot, keys)
            return self._written(self._maker, slot, keys)
        except WhyidleError as error:
            return error

    def _looked_up(
        self, dataset: ArrayRows, stage: Standardise, renderer: FastRenderer, slot: int, keys: list[tuple[int, int]]
    ) -> _Written:
        """A batch of rows, whose levels become other numbers."""
        meter, begin = Meter(), time.monotonic_ns()
        indices = [index for _, index in keys]
        levels, targets = dataset.gather(indices)
        read = time.monotonic_ns()
        planes = levels[:, None] if levels.ndim == 3 else np.ascontiguousarray(levels.transpose(0, 3, 1, 2))
        inputs = self._ring.array(slot, planes.shape, np.float32)
        renderer.look_up(planes, stage.values, inputs)
        end = time.monotonic_ns()
        trace = Trace(
            worker=_worker(),
            begin_ns=begin,
            end_ns=end,
            read_ns=read - begin,
            decode_ns=0,
            transform_ns=end - read,
            collate_ns=0,
            cpu_ns=meter.cpu_ns(),
            minor_faults=meter.minor_faults(),
            read_bytes=levels.nbytes,
        )
        return _Written(slot, inputs.shape, inputs.dtype, targets, tuple(indices), trace)

    def _written(self, maker: _Maker, slot: int, keys: list[tuple[int, int]]) -> _Written:
        inputs: npt.NDArray[Any] | None = None
        samples: list[Sample] = []

        def place(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
            nonlocal inputs
            if inputs is None:
                inputs = self._ring.array(slot, (len(keys), *shape), dtype)
            found: npt.NDArray[Any] = inputs[len(samples)]
            if found.shape != shape:
                raise ValueError(f"the samples of a batch must have one shape: {found.shape} and {shape} are two")
            return found

        for epoch, index in keys:
            samples.append(maker.make(epoch, index, place))
        assert inputs is not None
        meter, begin = Meter(), time.monotonic_ns()
        targets = pack([sample.targets for sample in samples])
        trace = trace_of(samples, meter, begin, worker=_worker())
        return _Written(slot, inputs.shape, inputs.dtype, targets, tuple(index for _, index in keys), trace)


def _worker() -> int:
    """Number of the worker process that this is; 0 in none."""
    info = get_worker_info()
    return info.id if info else 0


class _Maker:
    """Makes samples in one process."""

    def __init__(self, dataset: Dataset, stages: Sequence[Stage], settings: Settings, renderer: FastRenderer) -> None:
        self._dataset = dataset
        self._stages = stages
        self._settings = settings
        self._are_photos = isinstance(dataset, PhotoFiles)
        self.renderer = renderer
        self._canvas = np.empty((0, 0, 3), np.uint8)

    def make(self, epoch: int, index: int, place: _Place) -> Sample:
        """A sample whose image lies where `place` says. Raises DataError naming what is missing or broken."""
        if not self._are_photos:
            sample = make_sample(self._dataset, index, epoch, self._settings)
            place(sample.image.shape, sample.image.dtype)[...] = sample.image
            return sample
        meter, begin = Meter(), time.monotonic_ns()
        data = self._dataset.read(index)
        have_read = time.monotonic_ns()
        view, targets, left, random, image, decode_ns = self._decoded(epoch, index, data)
        shape = view.size or (view.height, view.width)
        if self._canvas.shape[:2] != shape:
            self._canvas = np.empty((*shape, 3), np.uint8)
        if image is None:
            self.renderer.leave_empty(view, self._canvas)
        else:
            self.renderer.draw(image, view, self._canvas)
        image, targets = self._finished(place, left, targets, random)
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
        self, epoch: int, index: int, data: bytes | memoryview
    ) -> tuple[View, Targets, Sequence[Stage], np.random.Generator, Image | None, int]:
        """View, its targets, the stages that are left and the generator as it is then; the image, `None` where nothing
        of it is seen, and the time that decoding took."""
        stages, before = self._stages, self._dataset.targets(index)
        random = randomness(self._settings, epoch, index)
        size = self.renderer.size(data)
        if size is not None:
            view, targets, left = viewed(stages, size, before, random)
            if not view.sees:
                return view, targets, left, random, None, 0
            begin = time.monotonic_ns()
            image = self.renderer.decode(data, view)
            if image is not None:
                return view, targets, left, random, image, time.monotonic_ns() - begin
            random = randomness(self._settings, epoch, index)
        begin = time.monotonic_ns()
        image = np.array(self._dataset.decode(data, index))  # of its own: colours are changed in place
        took = time.monotonic_ns() - begin
        view, targets, left = viewed(stages, (image.shape[0], image.shape[1]), before, random)
        return view, targets, left, random, image, took

    def _finished(
        self, place: _Place, left: Sequence[Stage], targets: Targets, random: np.random.Generator
    ) -> tuple[Image, Targets]:
        """The canvas after all other stages, where it belongs."""
        image: Image = self._canvas
        if len(left) == 1 and isinstance(left[0], Normalise):
            planes = place((3, *image.shape[:2]), np.float32)
            self.renderer.normalise(image, left[0], planes)
            return planes, targets
        for stage in left:
            image, targets = stage(image, targets, random)
        place(image.shape, image.dtype)[...] = image
        return image, targets
