"""The JSON of what a machine could make of samples: `roofline --json`, and within `compare --json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ...analyse.cells.roofline import LoadingPart, PlacedRoofline, Roofline
from .differential import SpreadJson, spread


class PartJson(Struct):
    """One part of preparing samples, done alone."""

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
    """Samples/s that one core can prepare."""
    limit: float
    """Samples/s that all cores together can prepare."""
    bound_by: str
    """`making`, or the part beside it that is slower."""
    parts: list[PartJson]


class RooflineResultJson(RooflineJson, kw_only=True):
    """What `roofline` measured by itself."""

    format: str = "whyidle-roofline"
    version: int = 1
    what: str
    """As it was named: a scenario, a folder or a run."""
    dataset: dict[str, Any]
    """As the data describe themselves."""
    size: int | None
    """The side of the square that files are resized to, in pixels; `null` of a scenario, whose nets say that."""
    batch_size: int
    rounds: int
    notices: list[str]
    """What was wrong with the data."""


def placed(found: PlacedRoofline) -> RooflineJson:
    return RooflineJson(**_told(found))


def roofline(found: PlacedRoofline, setting: Mapping[str, Any]) -> RooflineResultJson:
    """As `whyidle-roofline` version 1. `setting`: what was measured, by the names of the keys."""
    return RooflineResultJson(**_told(found), **setting)


def _told(found: PlacedRoofline) -> dict[str, Any]:
    made: Roofline = found.roofline
    return {
        "place": found.place,
        "decoder": found.decoder,
        "transformer": found.transformer,
        "cores": made.cores,
        "one_core": made.one,
        "limit": made.all,
        "bound_by": made.bound_by,
        "parts": [_part(part) for part in made.parts],
    }


def _part(part: LoadingPart) -> PartJson:
    return PartJson(part.name, part.kind, spread(part.one), spread(part.all))
