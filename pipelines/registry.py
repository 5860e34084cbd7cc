"""The loaders by name. Nothing is imported before it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from whyidle.errors import MissingExtra, WhyidleError

if TYPE_CHECKING:
    from .protocol import Dataset, PipelineFactory


@dataclass(frozen=True)
class _Entry:
    module: str
    attribute: str
    line: str
    needs: tuple[str, ...] = ()
    """Modules that must be importable."""
    extra: str = ""
    """Of whyidle, which brings it."""
    cuda: bool = False
    photos: bool = False
    """Handles JPEG files itself."""


_LOADERS = {
    "naive": _Entry("assemble", "NaivePipeline", "one thread in the training process, on request"),
    "caffe": _Entry(
        "caffe",
        "CaffePipeline",
        "Caffe-SSD's data layer: a reader and a transform thread, JPEG between steps",
        photos=True,
    ),
    "workers": _Entry("workers", "WorkersPipeline", "torch DataLoader with persistent worker processes"),
    "threads": _Entry("threads", "ThreadsPipeline", "SPDL thread pool, Pillow decoding", ("spdl.pipeline",), "studies"),
    "prefetch": _Entry("workers", "PrefetchPipeline", "DataLoader workers, pinned memory, copies one batch ahead"),
    "fused": _Entry(
        "fused",
        "FusedPipeline",
        "worker processes that decode and resample once, in the batch's own memory",
        ("simplejpeg", "cv2"),
        "fused",
    ),
    "fused-exact": _Entry(
        "fused",
        "FusedExactPipeline",
        "as fused, with the pixels of the other loaders",
        ("simplejpeg", "cv2"),
        "fused",
    ),
    "dali-cpu": _Entry("dali", "DaliCpuPipeline", "NVIDIA DALI on CPU threads", ("nvidia.dali",), "dali"),
    "dali-gpu": _Entry(
        "dali",
        "DaliGpuPipeline",
        "NVIDIA DALI, JPEG decoding and augmentation on the GPU",
        ("nvidia.dali",),
        "dali",
        cuda=True,
    ),
}

NAMES = tuple(_LOADERS)
"""Every loader, from the plainest to the most specialised."""


def factory(name: str) -> PipelineFactory:
    """What makes the loader. Raises WhyidleError for a name that is none; making it may raise MissingExtra."""
    entry = _entry(name)
    made: PipelineFactory = getattr(import_module(f".{entry.module}", __package__), entry.attribute)
    return made


def describe(name: str) -> str:
    """The loader in one line."""
    return _entry(name).line


def unavailable(name: str) -> str | None:
    """Why the loader cannot run on this machine and what would change that; `None` if it can."""
    entry = _entry(name)
    for module in entry.needs:
        if not _importable(module):
            return str(MissingExtra(f"{name} needs {module}, which is not installed", entry.extra))
    if entry.cuda and not _has_cuda():
        return f"{name} needs a CUDA device and this machine shows none; dali-cpu does the same work on the CPU"
    return None


def unfit(name: str, dataset: Dataset) -> str | None:
    """Why the loader cannot take these data; `None` if it can."""
    from .protocol import PhotoFiles

    if _entry(name).photos and not isinstance(dataset, PhotoFiles):
        return f"{name} handles JPEG files itself, and these data are not JPEG files"
    if _entry(name).module == "dali" and not isinstance(dataset, PhotoFiles):
        from .dali_graph import ARRAY_STAGES

        for stage in dataset.stages:
            if not isinstance(stage, ARRAY_STAGES):
                return f"{name} cannot do the stage {stage!r}"
    return None


def _entry(name: str) -> _Entry:
    try:
        return _LOADERS[name]
    except KeyError:
        raise WhyidleError(f"There is no loader {name!r}. Choose from {', '.join(NAMES)}") from None


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # a parent package is missing
        return False


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
