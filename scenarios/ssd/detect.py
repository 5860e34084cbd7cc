"""What an SSD net says of an image, as boxes: offsets undone, classes' scores, and one box an object."""

from __future__ import annotations

from math import log
from typing import NamedTuple

import torch
from torchvision.ops import batched_nms

from .loss import CENTRE_VARIANCE, SIDE_VARIANCE

LEAST_SCORE = 0.01
OVERLAP = 0.45
"""Of two boxes of a class that overlap by more (IoU), only the surer one is kept."""
CANDIDATES = 400
"""Of each class, before that."""
MOST = 200
"""Boxes of an image. All four as in Caffe-SSD's deploy script."""

_LARGEST_STRETCH = log(1000.0)
"""A box a thousand times its prior has long left the image; more would overflow."""


class Detections(NamedTuple):
    """Of one image, surest first."""

    boxes: torch.Tensor
    """`[N, 4]` corners in 0..1."""
    classes: torch.Tensor
    """`[N]`, from 1."""
    scores: torch.Tensor
    """`[N]`, probabilities."""

    def cpu(self) -> Detections:
        """The same on the host."""
        return Detections(*(each.cpu() for each in self))


def decode(offsets: torch.Tensor, priors: torch.Tensor) -> torch.Tensor:
    """Offsets `[…, P, 4]` from the priors `[P, 4]` as corner boxes, not clipped: `loss.encode` undone."""
    centre = priors[:, :2] + offsets[..., :2] * CENTRE_VARIANCE * priors[:, 2:]
    half = priors[:, 2:] * (offsets[..., 2:] * SIDE_VARIANCE).clamp(max=_LARGEST_STRETCH).exp() / 2
    return torch.cat((centre - half, centre + half), dim=-1)


@torch.no_grad()
def detect(locations: torch.Tensor, confidences: torch.Tensor, priors: torch.Tensor) -> list[Detections]:
    """The objects in each image of a batch, from the net's outputs `[B, P, 4]` and `[B, P, classes]`."""
    boxes = decode(locations.float(), priors).clamp(0, 1)
    scores = confidences.float().softmax(dim=-1)[..., 1:]
    return [_of_one(*one) for one in zip(boxes, scores, strict=True)]


def _of_one(boxes: torch.Tensor, scores: torch.Tensor) -> Detections:
    best, prior = scores.topk(min(CANDIDATES, len(scores)), dim=0)
    at, number = (best > LEAST_SCORE).nonzero(as_tuple=True)
    found, sure = boxes[prior[at, number]], best[at, number]
    kept = batched_nms(found, sure, number, OVERLAP)[:MOST]
    return Detections(found[kept], number[kept] + 1, sure[kept])
