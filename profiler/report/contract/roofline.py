"""The JSON of what a machine could make of samples: `roofline --json`, and within `compare --json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ...analyse.cells.roofline import LoadingPart, PlacedRoofline, Roofline
from .differential import SpreadJson, spread
from .encode import beside

FORMAT, VERSION = "whyidle-roofline", 1


class PartJson(Struct):
    """One part of making samples, done alone."""

    name: str
    kind: str
    """`making`: done one after the other; `beside`: done meanwhile; `stored`: reading files that are
    not in memory, in place of reading them from it; `aside`: a loader can do without."""
    one_core: SpreadJson | None
    """Samples/s: median over the rounds, lowest and highest."""
    all_cores: SpreadJson | None


class RooflineJson(Struct):
    place: Mapping[str, Any]
    """`net`, `store` and `augment` of the samples."""
    decoder: str
    transformer: str
    """Libraries."""
    cores: int
    one_core: float
    """Samples/s that one core could make."""
    limit: float
    """And all of them."""
    bound_by: str
    """`making`, or the part beside it that is slower."""
    parts: list[PartJson]


def placed(found: PlacedRoofline) -> RooflineJson:
    made: Roofline = found.roofline
    return RooflineJson(
        place=found.place,
        decoder=found.decoder,
        transformer=found.transformer,
        cores=made.cores,
        one_core=made.one,
        limit=made.all,
        bound_by=made.bound_by,
        parts=[_part(part) for part in made.parts],
    )


def roofline(found: PlacedRoofline, setting: Mapping[str, Any]) -> dict[str, Any]:
    """As `whyidle-roofline` version 1. `setting`: what was measured: scenario, device, dataset, …"""
    return beside({"format": FORMAT, "version": VERSION, **setting}, placed(found))


def _part(part: LoadingPart) -> PartJson:
    return PartJson(part.name, part.kind, spread(part.one), spread(part.all))
