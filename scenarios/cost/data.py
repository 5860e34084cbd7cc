"""The data of the cost study: published sets where a user has them, else stand-ins of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from platformdirs import user_cache_dir

from whyidle.errors import DataError
from whyidle.pipelines.protocol import Stage

from ..datasets import cifar, reviews, text
from ..datasets.arrays import Arrays, stand_in_images
from ..datasets.fetch import fetch
from ..datasets.idx import MNIST, IdxImages, Part
from ..scenario import DataRequest, ScenarioData

MARKER = "whyidle-stand-ins.txt"
"""Lies in the one folder for whose missing sets stand-ins are made."""
SEED = 0
"""Of stand-ins: they are the same in every run."""
_FOLDERS = {"mnist": "mnist", "cifar10": "cifar10", "imdb": "imdb", "lstm": "text", "text": "text"}
"""First word of a net's name → the folder of its data within `--data`."""
_LENGTHS = {"imdb-fasttext": 400, "imdb-bilstm": 100, "imdb-bilstm-unfused": 100}
"""Words of a review that a net reads."""
_MNIST_SAMPLES = {"train": 60_000, "test": 10_000}


def folder_name(net: str) -> str:
    """Of a net's data: `mnist`, `cifar10`, `imdb` or `text`."""
    return _FOLDERS[net.split("-")[0]]


def default_folder() -> Path:
    """Where data are looked for that nobody named."""
    return Path(user_cache_dir("whyidle")) / "data" / "cost"


def stand_in_folder() -> Path:
    """The same, made and marked: for what is not in it, stand-ins may be made."""
    folder = default_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).touch()
    except OSError as error:
        raise DataError(
            f"Cannot write {error.filename or folder}: {error.strerror}. Name a folder of data with --data, or set "
            "XDG_CACHE_HOME."
        ) from error
    return folder


def is_stand_in(net: str) -> bool:
    """Whether a net has no data of its own there."""
    return not (default_folder() / folder_name(net)).exists() and _system_mnist(net) is None


def opened(request: DataRequest) -> ScenarioData:
    """
    Raises:
        DataError: there are no data for the net in a folder that was named, or they cannot be used.
    """
    kind, place = folder_name(request.net), request.folder / folder_name(request.net)
    if place.exists():
        return _OPENERS[kind](request, place)
    if (request.folder / MARKER).exists():
        return _OPENERS[kind](request, _system_mnist(request.net))
    if not request.folder.exists():
        raise DataError(f"{request.folder} does not exist. Name another with --data, or leave it out for a stand-in.")
    if request.folder.is_file() and kind != "text":
        raise DataError(f"{request.folder} is not a folder; {request.net} needs one with {kind}/. Name it with --data.")
    return _OPENERS[kind](request, request.folder)  # the folder of the set itself, or a text


def download(folder: Path, progress: Callable[[int, int], None]) -> None:
    """The published sets, each into its folder; of text none is fetched.

    Raises:
        DataError: they cannot be had.
    """
    jobs: list[Callable[[], Any]] = []
    for name, md5 in MNIST.md5.items():
        urls = [f"{mirror}{name}.gz" for mirror in MNIST.mirrors]
        target = folder / "mnist" / f"{name}.gz"
        jobs.append(lambda urls=urls, target=target, md5=md5: fetch(urls, target, md5=md5, say=_quiet))  # type: ignore[misc]
    jobs += [lambda: cifar.download(folder / "cifar10", _quiet), lambda: reviews.download(folder / "imdb", _quiet)]
    for done, job in enumerate(jobs):
        progress(done, len(jobs))
        job()
    progress(len(jobs), len(jobs))


def _quiet(_: str) -> None:
    """The bar shows how far it is."""


def _mnist(request: DataRequest, place: Path | None) -> IdxImages | Arrays:
    stages: tuple[Stage, ...] = (cifar.Unit(),)
    if place is None:
        count = min(request.limit or _MNIST_SAMPLES[request.split], _MNIST_SAMPLES[request.split])
        images, labels = stand_in_images((28, 28), count, int(request.split == "test"), SEED)
        title = "MNIST (generated images of ten classes)"
        return Arrays(images, labels, "image", title, stages, {"part": request.split})
    found = _idx(place, "test" if request.split == "test" else "train").only(slice(request.limit))
    found.stages = stages
    return found


@lru_cache(maxsize=2)
def _idx(place: Path, part: Part) -> IdxImages:
    """Read once a process."""
    return IdxImages.open(MNIST, place, part)


def _cifar(request: DataRequest, place: Path | None) -> Arrays:
    stages: tuple[Stage, ...] = (*((cifar.ShiftAndMirror(),) if request.augment else ()), cifar.Unit())
    if place is None:
        return cifar.stand_in(request.split, request.limit, SEED, stages)
    found = cifar.open_cifar(place, request.split, stages)
    some = slice(request.limit)
    return replace(found, rows=found.rows[some], labels=found.labels[some])


def _reviews(request: DataRequest, place: Path | None) -> Arrays:
    def split(name: str) -> reviews.Reviews:
        if place is None:
            return reviews.stand_in(name, request.limit, SEED)
        return reviews.open_reviews(place, name).only(request.limit)

    wanted, length = split(request.split), _LENGTHS[request.net]
    if request.net != "imdb-fasttext":
        return reviews.words_only(wanted, length)
    return reviews.with_bigrams(wanted, wanted if request.split == "train" else split("train"), length)


def _text(request: DataRequest, place: Path | None) -> text.Windows:
    if request.split != "train":
        raise DataError(f"the study holds out no text, so {request.net} has no accuracy. Choose other nets.")
    found = text.stand_in(request.limit) if place is None else text.open_text(place, request.limit)
    if request.net == "lstm-text":
        found.stages = (text.OneHot(len(found.alphabet)),)
    return found


def _system_mnist(net: str) -> Path | None:
    return MNIST.installed() if folder_name(net) == "mnist" else None


_OPENERS: dict[str, Callable[[DataRequest, Path | None], ScenarioData]] = {
    "mnist": _mnist,
    "cifar10": _cifar,
    "imdb": _reviews,
    "text": _text,
}
