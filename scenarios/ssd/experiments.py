"""The study's experiments besides E8 (loaders by batch size): what E1 to E7 asked, as trainings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from whyidle.errors import WhyidleError

from ..scenario import Experiment, ExperimentRequest, Scenario
from ..variant import Variant, grid
from .optimizer import IMAGES

LIMIT = 192
"""Images of the quick forms: a whole number of batches of 8, 16, 64 and 192."""

_FULL = {"ssd300": (8,), "ssd512": (8, 64, 192)}
"""Batch sizes of E7 by net."""
_CAFFE_IMAGES = 120_000 * 32
"""That Caffe-SSD's script for Pascal VOC trains on, iterations times images; what E7 trained on was not published."""

_MACHINES: dict[str, tuple[tuple[int, ...], str]] = {
    "emulated:k520": ((1, 2, 5), "ethernet-10g"),
    "emulated:gtx1080": ((1, 2), "ethernet-1g"),
}
"""Device → machines of one such GPU each (E1, E2), and what joins them: the office's Ethernet at its usual rate, and
for the cloud, whose rate was never published, one that is no bottleneck, since nothing slowed down there."""
_AT_MOST = {"emulated:k520": 8}
"""A larger batch does not fit into the K520's 4 GB with certainty, and the study tried none."""


def experiments(scenario: Scenario) -> tuple[Experiment, ...]:
    return (
        Experiment(
            "stop-rule",
            "E8, E9: does batch 16 take longer because of stalls, or of twice the images? By epochs and iterations.",
            partial(_stop_rule, scenario),
            3,
            LIMIT,
        ),
        Experiment(
            "accuracy",
            "E7: does accuracy stay when the batch grows from 8 to 64 and 192, with equally many images?",
            partial(_accuracy, scenario),
            1,
        ),
        Experiment(
            "machines",
            "E1, E2, E4: what do more machines of one GPU gain, and does a larger batch make up for the network?",
            partial(_machines, scenario),
            1,
            LIMIT,
        ),
        Experiment(
            "devices",
            "E5, E6: what do four GPUs in one machine gain, at a fixed total batch and at 16 for each?",
            partial(_devices, scenario),
            1,
            LIMIT,
        ),
    )


def _stop_rule(scenario: Scenario, asked: ExperimentRequest) -> list[Variant]:
    """The same loaders under both rules: 4 passes whatever the batch, or as many batches whatever their size."""
    epochs, iterations = asked.epochs or 4, asked.iterations or 60
    base = _base(scenario, asked)
    rules = (replace(base, plan="epochs", epochs=epochs), replace(base, plan="iterations", iterations=iterations))
    return [
        each
        for rule in rules
        for each in grid(
            rule,
            device=asked.devices,
            pipeline=_loaders(asked, "caffe", "prefetch"),
            batch_size=asked.batch_sizes or (8, 16),
        )
    ]


def _accuracy(scenario: Scenario, asked: ExperimentRequest) -> list[Variant]:
    """The same images at every batch size, and the net tried at the end: the reduced one, or those of the study.

    Raises:
        WhyidleError: no net is trained on an emulated device.
    """
    if asked.kind == "emulated":
        raise WhyidleError(
            "experiment accuracy trains a net, which emulated devices cannot. Use --device cpu or --device cuda."
        )
    images = _CAFFE_IMAGES if asked.full else IMAGES
    trained: dict[str, tuple[int, ...]] = _FULL if asked.full else {"ssd-micro": _FULL["ssd512"]}
    if asked.nets:
        trained = dict.fromkeys(asked.nets, _FULL["ssd512"])
    base = replace(_base(scenario, asked), evaluate="end")
    if asked.kind == "cpu":
        # Half of the processors for the net and half for its loader: more threads than those wait for each other.
        half = max(1, asked.cpus // 2)
        base = replace(base, threads=(asked.threads or (half,))[0], workers=asked.workers or half)
    return [
        replace(each, **_rule(asked, iterations=max(1, images // each.batch_size)))
        for net, sizes in trained.items()
        for each in grid(
            base,
            net=(net,),
            device=asked.devices,
            pipeline=_loaders(asked, "workers"),
            batch_size=asked.batch_sizes or sizes,
        )
    ]


def _machines(scenario: Scenario, asked: ExperimentRequest) -> list[Variant]:
    """One batch served again and again: what limits is the GPUs and the network, as the study's loaders did not."""
    found = []
    for device in asked.devices:
        ranks, link = _MACHINES.get(device, ((1, 2), "ethernet-1g"))
        largest = _AT_MOST.get(device)
        sizes = asked.batch_sizes or tuple(size for size in (8, 32) if largest is None or size <= largest)
        base = replace(_base(scenario, asked), device=device, pipeline=_loaders(asked, "workers")[0])
        for each in grid(
            base,
            feed=asked.feeds or ("synthetic",),
            ranks=asked.ranks or ranks,
            batch_size=sizes,
        ):
            found += [
                replace(each, interconnect=name, **_rule(asked, iterations=32))
                for name in _links(asked, each.ranks, link)
            ]
    return found


def _devices(scenario: Scenario, asked: ExperimentRequest) -> list[Variant]:
    """A total of 24 images over 1 to 4 GPUs, and 16 for each, without and with loaders. Each rank has its own."""
    found: list[Variant] = []
    for device in asked.devices:
        base = replace(_base(scenario, asked), device=device, pipeline=_loaders(asked, "workers")[0])
        for ranks in asked.ranks or (1, 2, 3, 4):
            for size in asked.batch_sizes or dict.fromkeys((24 // ranks, 16)):
                for each in grid(base, feed=asked.feeds or ("synthetic", "real"), ranks=(ranks,), batch_size=(size,)):
                    workers = asked.workers or max(1, asked.cpus // ranks)
                    found.append(replace(each, workers=workers, **_rule(asked, iterations=32)))
    return found


def _links(asked: ExperimentRequest, ranks: int, usual: str) -> Iterator[str | None]:
    yield from (None,) if ranks == 1 else asked.interconnects or (usual,)


def _base(scenario: Scenario, asked: ExperimentRequest) -> Variant:
    return Variant(
        net=scenario.nets_for(asked.kind, asked.nets)[0],
        pipeline="",
        batch_size=0,
        workers=asked.workers or asked.cpus,
        augment=asked.augment is not False,
    )


def _loaders(asked: ExperimentRequest, *usual: str) -> Sequence[str]:
    return asked.pipelines if asked.pipelines_asked else usual


def _rule(asked: ExperimentRequest, **usual: int) -> dict[str, Any]:
    """The stop rule as asked, else this one."""
    if asked.epochs is None and asked.iterations is None:
        return dict(usual)
    return dict(asked.stop)
