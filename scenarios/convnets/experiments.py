"""What the study of scaling asked, as trainings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from whyidle.errors import WhyidleError

from ..scenario import Experiment, ExperimentRequest, Scenario
from ..variant import Feed, Variant, grid

_IMAGENET = ("alexnet", "googlenet", "resnet50")
"""What the study trained with Caffe."""
_MOST_RANKS = 8


def experiments(scenario: Scenario) -> tuple[Experiment, ...]:
    return (
        Experiment(
            "differential",
            "Is the net slow, or its input? It trains on one repeated batch, loads alone, and does both.",
            partial(_differential, scenario),
        ),
        Experiment(
            "scaling",
            "What do larger batches and more devices gain, until memory runs out?",
            _scaling,
            2,
        ),
        Experiment(
            "placement",
            "Does TensorFlow scale badly? A small net on more devices, with slow, fast and no loaders.",
            _placement,
            2,
        ),
        Experiment(
            "forward",
            "How long do AlexNet's convolutions take forward, and forward and backward?",
            partial(_forward, scenario),
        ),
    )


def _differential(scenario: Scenario, asked: ExperimentRequest) -> list[Variant]:
    """Each store alone, the net alone, and the net on each store. The net alone needs no store twice."""
    feeds: Sequence[Feed] = asked.feeds or ("synthetic", "loader-only", "real")
    stores = asked.stores or scenario.stores
    base = _base(asked, iterations=500 if asked.full else 40)
    sizes = asked.batch_sizes or ((64, 128) if asked.full else (32,))
    cells = grid(
        base,
        net=scenario.nets_for(asked.kind, asked.nets),
        device=asked.devices,
        batch_size=sizes,
        ranks=asked.ranks or (1,),
        pipeline=_loaders(asked, "workers"),
        feed=feeds,
        store=stores,
    )
    return [each for each in cells if each.feed != "synthetic" or each.store == stores[0]]


def _scaling(asked: ExperimentRequest) -> list[Variant]:
    """Batch sizes × devices, with a loader of each rank's own and without any. Ranks share the processors."""
    sizes: tuple[int, ...] = (32, 128, 512)
    nets: tuple[str, ...] = ("googlenet",)
    if asked.full:
        sizes, nets = (16, 32, 64, 128, 256, 512, 1024), _IMAGENET
    elif asked.kind == "cpu":
        sizes, nets = (16, 64), ("cifar10",)
    cells = grid(
        _base(asked, iterations=500 if asked.full else 40),
        net=asked.nets or nets,
        device=asked.devices,
        store=asked.stores or ("lmdb",),
        pipeline=_loaders(asked, "prefetch"),
        feed=asked.feeds or ("synthetic", "real"),
        batch_size=asked.batch_sizes or sizes,
        ranks=asked.ranks or _ranks(asked),
    )
    return _linked(asked, [replace(each, workers=_share(asked, each.ranks)) for each in cells])


def _placement(asked: ExperimentRequest) -> list[Variant]:
    """(a) In the training processes, and by worker processes for each rank that all want the same processors; (b) from
    raw records, a batch ahead; (c) nothing loaded.

    Raises:
        WhyidleError: the processor, which the loaders need, is also the device.
    """
    if asked.kind == "cpu":
        raise WhyidleError(
            "experiment placement asks whether devices wait for CPUs, so the CPU cannot be the device. Add "
            "--device emulated:k40 (as in the tutorial of 2015), or --device cuda."
        )
    base = _base(asked, iterations=500 if asked.full else 40)
    ways: tuple[dict[str, Any], ...] = (
        {"pipeline": "naive", "store": "files", "workers": 0},
        {"pipeline": "workers", "store": "files"},
        {"pipeline": "prefetch", "store": "lmdb"},
        {"pipeline": "prefetch", "store": "lmdb", "feed": "synthetic"},
    )
    # Two processors decode for two such devices; four ask for more than they make.
    ranks = asked.ranks or ((1, 2, 4) if asked.kind == "emulated" else _ranks(asked))
    cells = [
        each
        for way in ways
        for each in grid(
            replace(base, **way),
            net=asked.nets or ("cifar10",),
            device=asked.devices,
            batch_size=asked.batch_sizes or ((128,) if asked.full else (64,)),
            ranks=ranks,
        )
    ]
    fast = [replace(each, workers=_share(asked, each.ranks)) if each.store == "lmdb" else each for each in cells]
    return _linked(asked, fast)


def _forward(scenario: Scenario, asked: ExperimentRequest) -> list[Variant]:
    """TensorFlow's benchmark had batches of 128 random images and 100 steps after 10."""
    small = asked.kind == "cpu" and not asked.full
    return grid(
        _base(asked, iterations=32 if small else 110),
        net=asked.nets or ("alexnet-forward", "alexnet-forward-backward"),
        device=asked.devices,
        feed=asked.feeds or ("synthetic",),
        store=asked.stores or scenario.stores[:1],
        pipeline=_loaders(asked, "workers"),
        batch_size=asked.batch_sizes or ((8,) if small else (128,)),
    )


def _base(asked: ExperimentRequest, iterations: int) -> Variant:
    given = asked.epochs is not None or asked.iterations is not None
    stop = asked.stop if given else {"iterations": iterations}
    return Variant(
        net="",
        pipeline="",
        batch_size=0,
        workers=asked.workers or asked.cpus,
        threads=(asked.threads or (None,))[0],
        augment=asked.augment is not False,
        epochs=stop.get("epochs"),
        iterations=stop.get("iterations"),
    )


def _loaders(asked: ExperimentRequest, usual: str) -> tuple[str, ...]:
    return asked.pipelines if asked.pipelines_asked else (usual,)


def _ranks(asked: ExperimentRequest) -> tuple[int, ...]:
    """1, 2, 4, … devices: those there are; 8 emulated ones in the study's size, else 2."""
    most = _MOST_RANKS if asked.full else 2
    if asked.kind == "cuda":
        most = torch.cuda.device_count()
    elif asked.kind == "cpu":
        most = 2
    return tuple(1 << power for power in range(most.bit_length()) if 1 << power <= most)


def _share(asked: ExperimentRequest, ranks: int) -> int:
    """Workers of a rank, where all ranks together have as many as there are processors."""
    return asked.workers or max(1, asked.cpus // ranks)


def _linked(asked: ExperimentRequest, cells: list[Variant]) -> list[Variant]:
    """The cells of several ranks over each interconnect that was asked for."""
    return [
        replace(each, interconnect=link)
        for each in cells
        for link in (asked.interconnects or (None,) if each.ranks > 1 else (None,))
    ]
