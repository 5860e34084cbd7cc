"""Precision and recall of detections, as the study quotes them: one curve over all classes, at IoU 0.2.

A detection is a *hit* if the object of its class that it overlaps most, by IoU 0.2 or more, has not been found by a
surer one: Pascal VOC's rule with the study's threshold. Precision is the share of detections that are hits, recall the
share of objects that were found; both are for the detections whose score reaches a threshold, and the curve has a point
for every threshold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torchvision.ops import box_iou

from .detect import Detections

IOU = 0.2
"""The study's. Pascal VOC takes 0.5."""


class PrecisionPoint(NamedTuple):
    """What counts if every detection with at least this score does."""

    score: float
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


@dataclass(frozen=True)
class PrecisionCurve:
    """The points from the surest detections to all of them; none where nothing was detected."""

    points: tuple[PrecisionPoint, ...]
    detections: int
    objects: int

    @property
    def average_precision(self) -> float:
        """Area under the curve, where the precision at a recall is the best at that recall or a higher one."""
        area, best, recall = 0.0, 0.0, None
        for point in reversed(self.points):
            if recall is not None:
                area += best * (recall - point.recall)
            best, recall = max(best, point.precision), point.recall
        return area + best * (recall or 0.0)

    @property
    def best(self) -> PrecisionPoint | None:
        """The point of the highest F1."""
        return max(self.points, key=lambda point: point.f1, default=None)

    def precision_at(self, recall: float) -> float:
        """The best precision with which at least this share of the objects is found; 0 if so many never are."""
        return max((point.precision for point in self.points if point.recall >= recall), default=0.0)

    def thinned(self, most: int) -> tuple[PrecisionPoint, ...]:
        """At most so many of the points, evenly spread, the first and the last among them."""
        if len(self.points) <= most:
            return self.points
        last = len(self.points) - 1
        return tuple(self.points[round(place * last / (most - 1))] for place in range(most))


def hits(found: Detections, objects: torch.Tensor) -> torch.Tensor:
    """Which detections of an image are hits, `[N]` bool. `objects`: `[M, 5]` rows of (class, corners)."""
    if not len(objects) or not len(found.scores):
        return torch.zeros(len(found.scores), dtype=torch.bool)
    alike = found.classes[:, None] == objects[:, 0]
    overlap, best = torch.where(alike, box_iou(found.boxes, objects[:, 1:]), -1.0).max(dim=1)
    place = torch.arange(len(best))
    place[found.scores.argsort(descending=True, stable=True)] = torch.arange(len(best))
    claimed = torch.where(overlap >= IOU, best, len(objects))
    first = torch.full((len(objects) + 1,), len(best)).scatter_reduce(0, claimed, place, "amin")
    return (overlap >= IOU) & (place == first[claimed])


def curve(images: Iterable[tuple[Detections, torch.Tensor]]) -> PrecisionCurve:
    """The curve of a set of images: what was detected in each, and its objects `[M, 5]`, on the host."""
    scores, hit, objects = [torch.zeros(0)], [torch.zeros(0, dtype=torch.bool)], 0
    for found, truth in images:
        scores.append(found.scores)
        hit.append(hits(found, truth))
        objects += len(truth)
    score, order = torch.cat(scores).double().sort(descending=True, stable=True)
    right = torch.cat(hit)[order].cumsum(0)
    # Equal scores pass a threshold together.
    ends = torch.cat((score[1:] != score[:-1], torch.ones(min(1, len(score)), dtype=torch.bool))).nonzero()[:, 0]
    points = tuple(
        PrecisionPoint(float(score[end]), int(right[end]) / (end + 1), int(right[end]) / objects if objects else 0.0)
        for end in ends.tolist()
    )
    return PrecisionCurve(points, len(score), objects)


def result(found: PrecisionCurve, images: int) -> dict[str, Any]:
    """For run.json. `accuracy` is the average precision; `precision` and `recall` are those of the point with the
    highest F1, at the score `threshold`; the curve has (recall, precision) at 50 points or fewer."""
    best = found.best
    return {
        "accuracy": found.average_precision,
        "average_precision": found.average_precision,
        "precision": best.precision if best else 0.0,
        "recall": best.recall if best else 0.0,
        "threshold": best.score if best else None,
        "precision_at_recall": {str(recall): found.precision_at(recall) for recall in (0.5, 0.65, 0.7)},
        "curve": [[point.recall, point.precision] for point in found.thinned(50)],
        "iou": IOU,
        "samples": images,
        "objects": found.objects,
    }
