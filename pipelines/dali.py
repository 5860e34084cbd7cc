"""NVIDIA DALI, on the CPU alone or with decoding and augmentation on the GPU.

Reading, decoding, augmenting and batching run in DALI's native threads. DALI's file reader takes its order from
a list fixed at construction or from its own shuffling, so this uses the other reader it has, `fn.io.file.read`:
an external source names the files of each batch in the common order and DALI's threads read them. Samples that are no
photographs have no files to name: the external source hands in what the dataset decodes, and DALI begins with the
stages.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from whyidle.errors import DeviceOutOfMemory, MissingExtra, WhyidleError

from .assemble import pack
from .order import batches, count
from .protocol import Batch, Copier, Dataset, PhotoFiles, Queue, Settings


class DaliCpuPipeline:
    """DALI with `workers` CPU threads (at least one) and `prefetch` batches in flight.

    Images leave DALI without a copy: under the dynamic executor an output owns its buffer, and the tensor made
    through DLPack keeps it until it is freed itself, whatever DALI does next. They lie in pageable memory;
    `pin_memory` is ignored. Augmentation draws from DALI's own generators, seeded with `seed`: repeatable with
    the same calls, but not the samples of the other loaders. Batches carry no trace and the loader no queue,
    because DALI tells neither when its threads work nor how many batches are finished.
    """

    name = "dali-cpu"
    queue: Queue | None = None
    _on_gpu = False

    def __init__(self, dataset: Dataset, settings: Settings, copier: Copier) -> None:
        self._dataset = dataset
        self._settings = settings
        self._feed: _Feed = _PhotoFeed(dataset) if isinstance(dataset, PhotoFiles) else _ArrayFeed(dataset)
        self._dali: Any = _build(self._feed, dataset, settings, self._on_gpu)

    def __len__(self) -> int:
        return count(len(self._dataset), self._settings)

    def epoch(self, number: int) -> Iterator[Batch]:
        """Sets DALI to work at once; what an abandoned epoch left in flight is finished and dropped first."""
        self._drain()
        self._feed.begin(batches(len(self._dataset), self._settings, number))
        self._dali.reset()
        self._schedule()
        return self._batches()

    def close(self) -> None:
        """DALI stops its threads when the last reference to the pipeline goes."""
        self._dali = None

    def _batches(self) -> Iterator[Batch]:
        while self._dali is not None and not self._dali.empty():
            images, *others = self._outputs()
            indices = tuple(self._feed.under_way.popleft())
            batch = Batch(from_dlpack(images.as_tensor()), self._feed.targets(indices, others), indices)
            self._dali.release_outputs()
            self._schedule()
            yield batch

    def _drain(self) -> None:
        self._feed.begin([])
        while not self._dali.empty():
            self._outputs()
            self._dali.release_outputs()
        self._schedule()  # lets DALI see the end, without which it would not start over

    def _schedule(self) -> None:
        """One more batch, at first as many as DALI keeps in flight, none once the feed has ended. Returns at once."""
        try:
            self._dali.schedule_run()
            return
        except RuntimeError as error:
            message = str(error)
        raise self._explanation(message)

    def _outputs(self) -> Any:
        """Waits for the oldest batch in flight."""
        stream = torch.cuda.current_stream() if self._on_gpu else None
        try:
            return self._dali.share_outputs(cuda_stream=stream)
        except RuntimeError as error:
            message = str(error)
        raise self._explanation(message)

    def _explanation(self, message: str) -> WhyidleError:
        """What to raise. DALI does not name the file it stumbled over, so look for it among those in flight.

        Called outside the handler: a chained exception would keep DALI's frames, and with them its threads, alive.
        """
        for index in chain.from_iterable(self._feed.under_way):
            self._dataset.decode(self._dataset.read(index), index)
        if self._on_gpu and "alloc" in message.lower():
            return DeviceOutOfMemory(
                f"{self.name} ran out of GPU memory: {message}. Try a smaller batch or a smaller prefetch."
            )
        return WhyidleError(f"{self.name} failed inside DALI: {message}")


class DaliGpuPipeline(DaliCpuPipeline):
    """As `dali-cpu`, with JPEG decoding (`mixed`), augmentation and normalising on the current CUDA device.

    Written against DALI 2.4's documentation and NOT YET RUN ON A GPU. Images come as CUDA tensors bound to the
    current stream, so a batch that is late may keep the device waiting rather than the host; targets are small
    and stay on the CPU. Raises WhyidleError where there is no CUDA device.
    """

    name = "dali-gpu"
    _on_gpu = True


class _Feed(ABC):
    """Gives DALI the next batch and remembers which batches are in flight."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._order: Iterator[list[int]] = iter(())
        self.under_way: deque[list[int]] = deque()

    def begin(self, order: Sequence[list[int]]) -> None:
        self._order = iter(order)
        self.under_way.clear()

    def __call__(self) -> Any:
        indices = next(self._order)
        self.under_way.append(indices)
        return self.inputs(indices)

    @abstractmethod
    def inputs(self, indices: Sequence[int]) -> Any:
        """What the external source takes of these samples."""

    def targets(self, indices: Sequence[int], others: Sequence[Any]) -> torch.Tensor:
        """Of a finished batch. `others`: what came out of DALI beside the images."""
        return torch.from_numpy(pack([self._dataset.targets(index) for index in indices]))

    @abstractmethod
    def define(self, dataset: Dataset, on_gpu: bool) -> tuple[Any, ...]:
        """The graph's outputs, images first."""


class _PhotoFeed(_Feed):
    """Names files. Boxes go through DALI, because stages change them; labels stay here."""

    def __init__(self, dataset: PhotoFiles) -> None:
        super().__init__(dataset)
        self._has_boxes = len(dataset) == 0 or dataset.targets(0).ndim == 2

    def inputs(self, indices: Sequence[int]) -> tuple[list[Any], list[Any], list[Any]]:
        names = [np.frombuffer(os.fsencode(self._dataset.path(index)), np.uint8) for index in indices]
        none = np.empty((0, 5), np.float32)
        targets = [self._dataset.targets(index) if self._has_boxes else none for index in indices]
        boxes = [np.ascontiguousarray(rows[:, 1:]) for rows in targets]
        return names, boxes, [rows[:, 0].astype(np.int32) for rows in targets]

    def targets(self, indices: Sequence[int], others: Sequence[Any]) -> torch.Tensor:
        """DALI's ragged lists as `[objects, 6]` rows."""
        if not self._has_boxes:
            return super().targets(indices, others)
        boxes, classes = others
        rows = [np.column_stack((classes.at(i), boxes.at(i))).astype(np.float32) for i in range(len(boxes))]
        return torch.from_numpy(pack(rows))

    def define(self, dataset: Dataset, on_gpu: bool) -> tuple[Any, ...]:
        from .dali_graph import define

        return define(self, dataset.stages, on_gpu)


class _ArrayFeed(_Feed):
    """Hands in arrays. Their targets stay here: no stage changes a label."""

    def inputs(self, indices: Sequence[int]) -> Any:
        return np.stack([self._dataset.decode(self._dataset.read(index), index) for index in indices])

    def define(self, dataset: Dataset, on_gpu: bool) -> tuple[Any, ...]:
        from .dali_graph import define_arrays

        shape = dataset.decode(dataset.read(0), 0).shape if len(dataset) else ()
        return (define_arrays(self, dataset.stages, shape, on_gpu),)


def _build(feed: _Feed, dataset: Dataset, settings: Settings, on_gpu: bool) -> Any:
    try:
        from nvidia.dali import Pipeline
    except ImportError as error:
        raise MissingExtra(f"The DALI loaders need NVIDIA DALI, which cannot be imported ({error})", "dali") from error
    if on_gpu and not torch.cuda.is_available():
        raise WhyidleError(
            "dali-gpu needs a CUDA device and torch sees none here. Use dali-cpu, or run on a machine with a GPU."
        )
    pipeline = Pipeline(
        batch_size=settings.batch_size,
        num_threads=max(1, settings.workers),
        device_id=torch.cuda.current_device() if on_gpu else None,
        seed=settings.seed,
        exec_dynamic=True,
        prefetch_queue_depth=max(1, settings.prefetch),
    )
    with pipeline:
        pipeline.set_outputs(*feed.define(dataset, on_gpu))
    pipeline.build()
    return pipeline
