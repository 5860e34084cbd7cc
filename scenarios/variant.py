"""What one cell of a comparison trains: everything in which cells may differ."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Feed = Literal["real", "synthetic", "loader-only"]
"""What feeds the steps: the loader; one batch, made once and served again and again from the device; or the loader
with steps that do nothing. The three tell a loader's limit from a net's."""

FEEDS: tuple[Feed, ...] = ("real", "synthetic", "loader-only")

SYNTHETIC = "synthetic"
"""In the place of a loader's name."""

Evaluate = Literal["never", "end", "epochs"]
"""When the net is tried on held-out data."""


@dataclass(frozen=True, kw_only=True)
class TrainingPhase:
    """A stretch of a training plan."""

    epochs: int
    lr: float | None = None
    """`None`: the optimizer's own."""
    augment: bool = False


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One training. Stops after `epochs`, after `iterations` or at the end of its `phases`: exactly one is given."""

    net: str
    pipeline: str
    """Name of a loader; `SYNTHETIC` where no loader feeds the steps."""
    batch_size: int
    """Of each rank."""
    device: str = "auto"
    augment: bool = True
    feed: Feed = "real"
    store: str = "files"
    """How the samples lie on the disk; each scenario says which it has."""
    ranks: int = 1
    """Processes that train together, each with a device and a loader of its own."""
    interconnect: str | None = None
    """What gradients travel over, on emulated devices (`interconnect.py`); elsewhere what the machine has."""
    threads: int | None = None
    """Of the computation on a processor; `None`: torch's default."""
    workers: int = 0
    epochs: int | None = None
    iterations: int | None = None
    phases: tuple[TrainingPhase, ...] = ()
    plan: str | None = None
    """A name for the phases, where cells differ in them."""
    evaluate: Evaluate = "never"


AXES = ("net", "device", "augment", "feed", "store", "ranks", "interconnect", "threads", "workers", "plan")
"""What tells cells apart beside loader and batch size, in the order tables show it."""


def axes(variant: Variant) -> dict[str, Any]:
    """The variant's place on each axis."""
    return {name: getattr(variant, name) for name in AXES}


def plain(variant: Variant) -> Variant:
    """The same training, told in one way only: a synthetic feed has no loader, a single rank exchanges nothing."""
    if variant.ranks == 1:
        variant = replace(variant, interconnect=None)
    if variant.feed == "synthetic":
        return replace(variant, pipeline=SYNTHETIC, workers=0, store="files")
    return variant


def grid(base: Variant, **values: Sequence[Any]) -> list[Variant]:
    """The variants with every combination of the values, the last one changing fastest."""
    names = list(values)
    return [replace(base, **dict(zip(names, each, strict=True))) for each in itertools.product(*values.values())]
