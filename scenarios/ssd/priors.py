"""Where SSD looks: the default ("prior") boxes of each net.

Every feature map is a square grid. Each cell proposes boxes of a few shapes around its centre; the net predicts
for each of them an offset and a class. Sizes, ratios and steps are those of "SSD: Single Shot MultiBox Detector"
(Liu et al., ECCV 2016, arXiv:1512.02325) for Pascal VOC, as its Caffe code sets them; those of the small nets
are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import torch

from whyidle.errors import WhyidleError


@dataclass(frozen=True)
class PriorMap:
    """The priors of one feature map; lengths in pixels of the net's input."""

    cells: int
    """Cells along each side."""
    step: int
    """Distance of neighbouring cell centres."""
    smallest: float
    largest: float
    """The second square has the side sqrt(smallest * largest)."""
    ratios: tuple[int, ...]
    """Width to height of the oblong priors; each also stands upright."""

    @property
    def shapes(self) -> list[tuple[float, float]]:
        """(width, height) of each prior of a cell, in the order of the heads' channels."""
        between = sqrt(self.smallest * self.largest)
        shapes = [(self.smallest, self.smallest), (between, between)]
        for ratio in self.ratios:
            long, short = self.smallest * sqrt(ratio), self.smallest / sqrt(ratio)
            shapes += [(long, short), (short, long)]
        return shapes


@dataclass(frozen=True)
class PriorLayout:
    """The side of a net's square input in pixels, and its prior maps from fine to coarse."""

    size: int
    maps: tuple[PriorMap, ...]


_LAYOUTS = {
    "ssd300": PriorLayout(
        300,
        (
            PriorMap(38, 8, 30, 60, (2,)),
            PriorMap(19, 16, 60, 111, (2, 3)),
            PriorMap(10, 32, 111, 162, (2, 3)),
            PriorMap(5, 64, 162, 213, (2, 3)),
            PriorMap(3, 100, 213, 264, (2,)),
            PriorMap(1, 300, 264, 315, (2,)),
        ),
    ),
    "ssd512": PriorLayout(
        512,
        (
            PriorMap(64, 8, 35.84, 76.8, (2,)),
            PriorMap(32, 16, 76.8, 153.6, (2, 3)),
            PriorMap(16, 32, 153.6, 230.4, (2, 3)),
            PriorMap(8, 64, 230.4, 307.2, (2, 3)),
            PriorMap(4, 128, 307.2, 384.0, (2, 3)),
            PriorMap(2, 256, 384.0, 460.8, (2,)),
            PriorMap(1, 512, 460.8, 537.6, (2,)),
        ),
    ),
    "ssd-mini": PriorLayout(
        96,
        (
            PriorMap(12, 8, 14, 32, (2,)),
            PriorMap(6, 16, 32, 60, (2, 3)),
            PriorMap(3, 32, 60, 90, (2,)),
        ),
    ),
    "ssd-micro": PriorLayout(
        64,
        (
            PriorMap(8, 8, 12, 26, (2,)),
            PriorMap(4, 16, 24, 44, (2,)),
            PriorMap(2, 32, 44, 62, (2,)),
        ),
    ),
}


def layout(name: str) -> PriorLayout:
    """The layout of the net `name`; `WhyidleError` for a name that is none of ours."""
    try:
        return _LAYOUTS[name]
    except KeyError:
        raise WhyidleError(f"There is no SSD net {name!r}; choose one of {', '.join(_LAYOUTS)}.") from None


def priors(plan: PriorLayout) -> torch.Tensor:
    """All priors of a net: float32 `[P, 4]` rows of (centre x, centre y, width, height) as shares of the side.

    Ordered by map, row, column, shape: the order of `SsdNet`'s outputs. Not clipped, so some reach outside 0..1.
    """
    return torch.cat([_map_priors(part, plan.size) for part in plan.maps])


def _map_priors(part: PriorMap, size: int) -> torch.Tensor:
    shapes = torch.tensor(part.shapes, dtype=torch.float64) / size
    centres = (torch.arange(part.cells, dtype=torch.float64) + 0.5) * part.step / size
    y, x = torch.meshgrid(centres, centres, indexing="ij")
    at = torch.stack((x, y), dim=-1).reshape(-1, 1, 2).expand(-1, len(shapes), -1)
    return torch.cat((at, shapes.expand_as(at)), dim=-1).reshape(-1, 4).float()
