"""Fashion-MNIST: the study in which augmentation cost nothing on one GPU and half as much again on another.

Nets, split, augmentation and schedule are those of Danial Khosravi's notebook (2017), whose largest net Domino Data Lab
measured on AWS P2 and P3 (2018). One worker process, as Keras had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from whyidle.errors import DataError, WhyidleError
from whyidle.pipelines.affine import Affine
from whyidle.pipelines.standardise import Standardise

from ..datasets.idx import FASHION_MNIST, IdxImages, Part
from ..scenario import DataRequest, Experiment, ExperimentRequest, Scenario
from ..variant import TrainingPhase, Variant, grid
from . import nets as fashion_nets

BATCH = 512
SMALL_BATCH = 64
"""Where the processor trains, and in the quick form of the plan."""
QUICK_IMAGES = 4_000
QUICK_STEPS = 40
"""Of a cell of the floor: what is judged (30) and the warm-up."""
HELD_BACK = 5
"""One in so many images of the training set is for validation."""
SPLIT_SEED = 12345
AUGMENTED = (0, 25, 50)
"""Epochs on augmented data, after those of the first two phases."""
FIRST, SECOND = 1e-3, 1e-4
"""Learning rates as the article gives them. Keras had built its training function with the first, and went on with it:
assigning another to the optimizer later did nothing (keras-team/keras#8457)."""


class FashionMnist(Scenario):
    name = "fashion-mnist"
    study = "Domino Data Lab, 2018: Fashion-MNIST on a K80 and a V100; Danial Khosravi, 2017: five convnets"
    question = "Does augmentation always cost time, or only if the GPU is faster than the loader?"
    nets = tuple(fashion_nets.NETS)
    cpu_nets = ("cnn1", "cnn2", "mlp", "cnn3", "cnn4", "cnn5")
    data = "Fashion-MNIST's four files, gzipped or not; without --data Debian's package of them, or a download"
    batch_sizes = (64, 128, 256, BATCH)
    quick_samples = QUICK_IMAGES

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        plan = "How long do 20 epochs and 0, 25 or 50 augmented ones take, and how accurate is the net then?"
        return (
            Experiment("floor", "Which sets the length of an epoch, the net or the loader?", _floor, 2),
            self.loaders(),
            Experiment("plan", plan, partial(_plan, "as written", SECOND), 2, QUICK_IMAGES),
            Experiment(
                "plan-as-run",
                f"{plan} With the rate of 1e-3 that Keras kept.",
                partial(_plan, "as run", FIRST),
                2,
                QUICK_IMAGES,
            ),
        )

    def find_data(self, net: str, say: Callable[[str], None]) -> Path:
        return FASHION_MNIST.find(say)

    def make_data(self, folder: Path, samples: int, seed: int, progress: Callable[[int, int], None]) -> None:
        """Downloads the set, all of it."""
        FASHION_MNIST.download(folder, lambda *_: None, progress)

    def open_data(self, request: DataRequest) -> IdxImages:
        whole, held_out = _part(request.folder, "train"), _part(request.folder, "test")
        rows, mean, std = _training(request.folder)
        if request.split == "test":
            data = held_out.only(slice(request.limit))
        else:
            chosen = {"train": rows, "validation": _held_back(len(whole))}
            if request.split not in chosen:
                raise WhyidleError(f"Fashion-MNIST has no split {request.split!r}. Choose train, validation or test.")
            data = whole.only(chosen[request.split][: request.limit])
        data.facts |= {"part": request.split, "test": len(held_out), "mean": round(mean, 6), "std": round(std, 6)}
        data.others = (*whole.others, *held_out.others)
        net = Standardise(mean, std) if request.net in fashion_nets.STANDARDISED else Standardise()
        data.stages = (Affine(), net) if request.augment else (net,)
        return data

    def build(self, net: str, data: Any) -> torch.nn.Module:
        return fashion_nets.build(net)

    def optimizer(self, model: torch.nn.Module, net: str, batch_size: int) -> torch.optim.Optimizer:
        return fashion_nets.adam(model)

    def profile_net(self, net: str) -> str:
        return f"fashion-{net}"


@lru_cache(maxsize=4)
def _part(folder: Path, part: Part) -> IdxImages:
    """Read once a process: several nets and phases want the same."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} {'is not a folder' if folder.exists() else 'does not exist'}. Name the folder with the four "
            "files of Fashion-MNIST with --data, or leave --data out: whyidle finds or downloads them."
        )
    return IdxImages.open(FASHION_MNIST, folder, part)


@lru_cache(maxsize=2)
def _training(folder: Path) -> tuple[npt.NDArray[np.int64], float, float]:
    """The images to train on, with mean and standard deviation of their pixels as shares of the highest level."""
    images = _part(folder, "train").images
    rows = np.random.RandomState(SPLIT_SEED).permutation(len(images))[len(images) // HELD_BACK :]
    counts = sum(np.bincount(images[part].ravel(), minlength=256) for part in np.array_split(rows, 64))
    levels = np.arange(256) / 255
    mean = float(np.average(levels, weights=counts))
    return rows, mean, float(np.sqrt(np.average((levels - mean) ** 2, weights=counts)))


def _held_back(images: int) -> npt.NDArray[np.int64]:
    """The images to validate with: the first fifth of the permutation."""
    return np.random.RandomState(SPLIT_SEED).permutation(images)[: images // HELD_BACK]


def _base(asked: ExperimentRequest) -> Variant:
    return Variant(net="", pipeline="", batch_size=0, workers=asked.workers or 1)


def _pipelines(asked: ExperimentRequest) -> tuple[str, ...]:
    return asked.pipelines if asked.pipelines_asked else ("workers",)


def _floor(asked: ExperimentRequest) -> list[Variant]:
    """Net alone, loader alone, and both. A loader on its own serves all nets, a net on its own both kinds of data: each
    is measured once."""
    small = asked.kind == "cpu"
    nets = asked.nets or (("cnn1", "cnn2") if small else tuple(net for net in SCENARIO.nets if net != "mlp"))
    SCENARIO.nets_for(asked.kind, nets)
    augments = (False, True) if asked.augment is None else (asked.augment,)
    given = asked.iterations or asked.epochs or asked.full
    stop = asked.stop if given else {"iterations": QUICK_STEPS}
    cells = grid(
        _base(asked),
        device=asked.devices,
        threads=asked.threads or (None,),
        ranks=asked.ranks or (1,),
        batch_size=asked.batch_sizes or (SMALL_BATCH if small else BATCH,),
        pipeline=_pipelines(asked),
        net=nets,
        augment=augments,
        feed=asked.feeds or ("synthetic", "loader-only", "real"),
        **{name: (value,) for name, value in stop.items()},
    )
    shared = {"loader-only": lambda cell: cell.net == nets[0], "synthetic": lambda cell: cell.augment == augments[0]}
    return [cell for cell in cells if cell.feed not in shared or shared[cell.feed](cell)]


def _plan(told: str, second: float, asked: ExperimentRequest) -> list[Variant]:
    """The article's schedule: 10 epochs, 10 at the second rate, then augmented ones. The quick form has a fifth of
    the first, a few images and a small net; it says so in its name."""
    length, augmented, quick = (10, AUGMENTED, "") if asked.full else (2, (0, 2, 4), "quick: ")
    size = BATCH if asked.full else SMALL_BATCH
    return [
        replace(
            variant,
            plan=f"{quick}{length}+{length} epochs {told}, {more} augmented",
            phases=_phases(length, second, more),
        )
        for more in augmented
        for variant in grid(
            replace(_base(asked), evaluate="epochs" if asked.full else "end", augment=False),
            net=SCENARIO.nets_for("cuda" if asked.full else asked.kind, asked.nets),
            device=asked.devices,
            threads=asked.threads or (None,),
            pipeline=_pipelines(asked),
            batch_size=asked.batch_sizes or (size,),
        )
    ]


def _phases(length: int, second: float, augmented: int) -> tuple[TrainingPhase, ...]:
    first: Sequence[TrainingPhase] = (TrainingPhase(epochs=length, lr=FIRST), TrainingPhase(epochs=length, lr=second))
    return (*first, TrainingPhase(epochs=augmented, lr=second, augment=True)) if augmented else tuple(first)


SCENARIO = FashionMnist()
