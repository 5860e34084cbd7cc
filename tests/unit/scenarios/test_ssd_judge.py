"""Precision and recall of detections, against what is computed by hand and by a slower way."""

from __future__ import annotations

import pytest
import torch

from whyidle.scenarios.ssd.detect import Detections
from whyidle.scenarios.ssd.judge import IOU, PrecisionCurve, PrecisionPoint, curve, hits, result

ONE = (1, 0.0, 0.0, 0.2, 0.2)
OTHER = (1, 0.5, 0.5, 0.9, 0.9)


def objects(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32).reshape(-1, 5)


def found(*rows: tuple[float, ...]) -> Detections:
    """(score, class, corners) each."""
    table = torch.tensor(rows, dtype=torch.float32).reshape(-1, 6)
    return Detections(table[:, 2:], table[:, 1].long(), table[:, 0])


def test_an_object_is_found_once_by_the_surest_of_its_detections() -> None:
    twice = found((0.6, *ONE), (0.9, 1, 0.0, 0.0, 0.2, 0.19), (0.5, *OTHER))
    assert hits(twice, objects(ONE, OTHER)).tolist() == [False, True, True]


def test_a_detection_of_another_class_or_too_far_off_is_no_hit() -> None:
    # The second overlaps by 0.02 / 0.06 = 0.33, the third by 0.008 / 0.072 = 0.11.
    said = found((0.9, 2, 0.0, 0.0, 0.2, 0.2), (0.8, 1, 0.1, 0.0, 0.3, 0.2), (0.7, 1, 0.16, 0.0, 0.36, 0.2))
    assert hits(said, objects(ONE)).tolist() == [False, True, False]


def test_the_overlap_asked_for_is_the_studys() -> None:
    # A box of a height of h over one of height 1 and the same width: IoU h.
    low, high = (1, 0.0, 0.0, 0.5, IOU - 0.01), (1, 0.0, 0.0, 0.5, IOU + 0.01)
    whole = objects((1, 0.0, 0.0, 0.5, 1.0))
    assert hits(found((0.9, *low)), whole).tolist() == [False]
    assert hits(found((0.9, *high)), whole).tolist() == [True]


def test_a_curve_computed_by_hand() -> None:
    images = [
        (found((0.9, *ONE), (0.6, *OTHER)), objects(ONE, OTHER)),  # hit, hit
        (found((0.8, *ONE), (0.4, *ONE)), objects((2, *ONE[1:]))),  # of the wrong class: two misses
        (found(), objects(OTHER)),
    ]
    drawn = curve(images)
    assert drawn.objects == 4
    assert drawn.detections == 4
    expected = [(0.9, 1.0, 0.25), (0.8, 0.5, 0.25), (0.6, 2 / 3, 0.5), (0.4, 0.5, 0.5)]
    assert [tuple(point) for point in drawn.points] == [pytest.approx(each) for each in expected]
    # 0.25 of the objects at precision 1, as much again at 2/3, the rest never.
    assert drawn.average_precision == pytest.approx(0.25 + 0.25 * 2 / 3)
    assert drawn.best == drawn.points[2]
    assert drawn.precision_at(0.25) == 1.0
    assert drawn.precision_at(0.3) == pytest.approx(2 / 3)
    assert drawn.precision_at(0.6) == 0.0


def test_equal_scores_are_one_point_whatever_their_order() -> None:
    rows = [(0.5, *ONE), (0.5, 2, 0.3, 0.3, 0.4, 0.4)]
    for order in (rows, rows[::-1]):
        assert curve([(found(*order), objects(ONE))]).points == (PrecisionPoint(0.5, 0.5, 1.0),)


def test_a_net_that_says_nothing_has_no_curve_and_no_accuracy() -> None:
    told = result(curve([(found(), objects(ONE))]), 1)
    assert told["accuracy"] == told["precision"] == told["recall"] == 0.0
    assert told["threshold"] is None
    assert told["curve"] == []
    assert told["objects"] == 1


def test_a_long_curve_is_thinned_with_both_ends_kept() -> None:
    long = PrecisionCurve(tuple(PrecisionPoint(1 - n / 1000, 0.5, n / 1000) for n in range(1000)), 1000, 1000)
    told = result(long, 7)
    assert len(told["curve"]) == 50
    assert told["curve"][0] == [0.0, 0.5]
    assert told["curve"][-1] == [0.999, 0.5]
    assert told["samples"] == 7
    assert told["iou"] == 0.2
