"""SSD's loss over a packed batch: objects matched to priors, smooth-L1 offsets, softmax with hard negatives.

All objects of a batch are rows of one tensor, so matching is one `[objects, P]` table and a few scatters: no loop
over images, and nothing that makes the host wait for the device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional as F  # noqa: N812  (the name everybody uses)
from torchvision.ops import box_convert, box_iou

MATCH_IOU = 0.5
NEGATIVES_PER_POSITIVE = 3
CENTRE_VARIANCE = 0.1
SIDE_VARIANCE = 0.2
"""The offsets' units: a tenth of a prior's side for the centre, a fifth of a natural logarithm for the sides."""

_TOUCHING = 1e-6
"""Objects that overlap no prior by more than this are left out (Caffe's bound); they have no area to speak of."""


class Losses(NamedTuple):
    """Both scalars, each summed over the batch and divided by its matched priors (by 1 where there are none)."""

    location: torch.Tensor
    confidence: torch.Tensor

    @property
    def total(self) -> torch.Tensor:
        return self.location + self.confidence


def multibox_loss(
    locations: torch.Tensor, confidences: torch.Tensor, targets: torch.Tensor, priors: torch.Tensor
) -> Losses:
    """The loss of a batch of `B` images with `P` priors each.

    `locations` `[B, P, 4]` and `confidences` `[B, P, classes]` come from `SsdNet`; `targets` are float32
    `[objects, 6]` rows of (position in batch, class, x_min, y_min, x_max, y_max), corners in 0..1, in any order;
    `priors` are `[P, 4]` in centre form.
    An image without objects adds nothing, not even negatives, since those are counted from its positives (so in
    the paper and in Caffe); a batch without any has loss 0 and gradient 0. Computed in float32.
    """
    labels, offsets = match(targets, priors, locations.shape[0])
    positive = labels > 0
    logits = confidences.float()
    entropy = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
    wanted = positive | hard_negatives(entropy.detach(), positive)
    distance = F.smooth_l1_loss(locations.float(), offsets, reduction="none").sum(dim=-1)
    matched = positive.sum().clamp(min=1)
    return Losses(
        location=torch.where(positive, distance, 0.0).sum() / matched,
        confidence=torch.where(wanted, entropy, 0.0).sum() / matched,
    )


@torch.no_grad()
def match(targets: torch.Tensor, priors: torch.Tensor, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What every prior should predict: its class `[batch, P]`, 0 = background, and its offsets `[batch, P, 4]`.

    A prior takes the object it overlaps most, if by IoU >= 0.5; every object besides has the prior that overlaps
    it most, whatever the IoU. If several objects claim one prior this way, the one it overlaps most has it; of
    equals, the first row. Background priors are told to stay where they are (the loss does not look at them).
    """
    shapes = box_convert(priors, "cxcywh", "xyxy")
    overlaps = box_iou(targets[:, 2:], shapes)
    best, best_prior = overlaps.max(dim=1, keepdim=True)
    # Lifted above every ordinary overlap, and still ordered among themselves.
    claims = overlaps.scatter(1, best_prior, torch.where(best > _TOUCHING, best + 2.0, best))

    objects = len(targets)
    image = targets[:, 0].long()
    into = image[:, None].expand_as(claims)
    strongest = claims.new_zeros(batch, len(priors)).scatter_reduce_(0, into, claims, "amax")
    row = torch.arange(objects, device=targets.device)[:, None]
    candidate = torch.where(claims == strongest[image], row, objects)
    owner = torch.full_like(strongest, objects, dtype=torch.long)
    owner = owner.scatter_reduce_(0, into, candidate, "amin")
    owner = torch.where(strongest >= MATCH_IOU, owner, objects)

    # Row `objects` of the padded table stands for "none": class 0.
    found = F.pad(targets, (0, 0, 0, 1))[owner]
    boxes = torch.where(strongest[..., None] >= MATCH_IOU, found[..., 2:], shapes)
    return found[..., 1].long(), encode(boxes, priors)


def encode(boxes: torch.Tensor, priors: torch.Tensor) -> torch.Tensor:
    """Corner boxes `[…, P, 4]` as offsets (x, y, width, height) from the priors `[P, 4]`, in units of the variances."""
    low, high = boxes[..., :2], boxes[..., 2:]
    centre, side = priors[:, :2], priors[:, 2:]
    shift = ((low + high) / 2 - centre) / side
    stretch = ((high - low) / side).log()
    return torch.cat((shift / CENTRE_VARIANCE, stretch / SIDE_VARIANCE), dim=-1)


@torch.no_grad()
def hard_negatives(losses: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
    """The background priors to learn from, `[B, P]` bool: in each image the three of highest loss per positive.

    Exactly `min(3 * positives, negatives)` of them, ties included. `losses` must not be negative.
    """
    order = losses.masked_fill(positive, -1.0).argsort(dim=1, descending=True)
    quota = NEGATIVES_PER_POSITIVE * positive.sum(dim=1, keepdim=True)
    within = torch.arange(losses.shape[1], device=losses.device) < quota
    return torch.zeros_like(positive).scatter_(1, order, within) & ~positive
