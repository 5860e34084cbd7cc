"""What a net says, as boxes; and their precision and recall, against what is computed by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from whyidle.scenarios.ssd.detect import MOST, Detections, decode, detect
from whyidle.scenarios.ssd.judge import IOU, PrecisionCurve, PrecisionPoint, curve, hits, result
from whyidle.scenarios.ssd.loss import encode
from whyidle.scenarios.ssd.net import build

PRIORS = torch.tensor([[0.3, 0.3, 0.2, 0.2], [0.32, 0.3, 0.2, 0.2], [0.7, 0.7, 0.4, 0.2]])


def saying(*probabilities: tuple[float, ...]) -> torch.Tensor:
    """Logits `[1, P, classes]` whose softmax these are."""
    return torch.tensor([probabilities]).log()


def test_decoding_undoes_the_encoding_of_the_loss_and_no_offset_means_the_prior_itself() -> None:
    boxes = decode(torch.zeros(1, 3, 4), PRIORS)
    torch.testing.assert_close(boxes[0, [0, 2]], torch.tensor([[0.2, 0.2, 0.4, 0.4], [0.5, 0.6, 0.9, 0.8]]))
    torch.manual_seed(0)
    shapes = build("ssd-micro", 2).priors
    low = torch.rand(5, len(shapes), 2) * 0.5
    boxes = torch.cat((low, low + 0.05 + torch.rand(5, len(shapes), 2) * 0.4), dim=-1)
    torch.testing.assert_close(decode(encode(boxes, shapes), shapes), boxes, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("said", "classes", "scores"),
    [
        # The first two priors overlap by 0.18 / 0.22 = 0.82: the surer box of a class is kept.
        (((0.1, 0.6, 0.3), (0.1, 0.8, 0.1), (0.2, 0.4, 0.4)), [1, 1, 2, 2], [0.8, 0.4, 0.4, 0.3]),
        # Boxes of different classes do not drive each other out.
        (((0.1, 0.6, 0.3), (0.98, 0.01, 0.01), (0.98, 0.01, 0.01)), [1, 2], [0.6, 0.3]),
        # Background is no detection.
        (((0.99, 0.005, 0.005),) * 3, [], []),
    ],
)
def test_what_is_said_is_a_box_of_its_class_and_once(said: Any, classes: list[int], scores: list[float]) -> None:
    [found] = detect(torch.zeros(1, 3, 4), saying(*said), PRIORS)
    assert sorted(found.classes.tolist()) == classes
    assert found.scores.tolist() == pytest.approx(scores)
    if len(scores) == 4:
        torch.testing.assert_close(found.boxes[0], torch.tensor([0.22, 0.2, 0.42, 0.4]))


def test_boxes_end_where_the_image_does() -> None:
    far = torch.tensor([[[-30.0, 0.0, 9.0, 0.0]]])
    [found] = detect(far, saying((0.1, 0.9)), PRIORS[:1])
    assert found.boxes[0, 0] == 0.0
    assert found.boxes.max() <= 1.0


@pytest.mark.parametrize("value", [float("nan"), 1e30])
def test_a_net_that_diverged_gives_boxes_without_nan_or_none(value: float) -> None:
    [found] = detect(torch.full((1, 3, 4), value), torch.full((1, 3, 5), value), PRIORS)
    assert found.boxes.isfinite().all()


def test_every_image_has_its_own_detections_surest_first_and_not_too_many() -> None:
    torch.manual_seed(1)
    net = build("ssd-micro", 21).eval()
    with torch.no_grad():
        found = detect(*net(torch.randn(3, 3, 64, 64) * 60), net.priors)
    assert len(found) == 3
    for each in found:
        assert len(each.scores) <= MOST
        assert each.scores.tolist() == sorted(each.scores.tolist(), reverse=True)
        assert int(each.classes.min()) >= 1


ONE = (1, 0.0, 0.0, 0.2, 0.2)
OTHER = (1, 0.5, 0.5, 0.9, 0.9)


def objects(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32).reshape(-1, 5)


def found(*rows: tuple[float, ...]) -> Detections:
    """(score, class, corners) each."""
    table = torch.tensor(rows, dtype=torch.float32).reshape(-1, 6)
    return Detections(table[:, 2:], table[:, 1].long(), table[:, 0])


@pytest.mark.parametrize(
    ("said", "real", "expected"),
    [
        # An object is found once, by the surest of its detections.
        (((0.6, *ONE), (0.9, 1, 0.0, 0.0, 0.2, 0.19), (0.5, *OTHER)), (ONE, OTHER), [False, True, True]),
        # The first is of another class; the second overlaps by 0.02 / 0.06 = 0.33, the third by 0.008 / 0.072 = 0.11.
        (
            ((0.9, 2, *ONE[1:]), (0.8, 1, 0.1, 0.0, 0.3, 0.2), (0.7, 1, 0.16, 0.0, 0.36, 0.2)),
            *((ONE,), [False, True, False]),
        ),
        # A box of a height of h over one of height 1 and the same width: IoU h.
        (((0.9, 1, 0.0, 0.0, 0.5, IOU - 0.01),), ((1, 0.0, 0.0, 0.5, 1.0),), [False]),
        (((0.9, 1, 0.0, 0.0, 0.5, IOU + 0.01),), ((1, 0.0, 0.0, 0.5, 1.0),), [True]),
    ],
)
def test_which_detections_are_hits(said: Any, real: Any, expected: list[bool]) -> None:
    assert hits(found(*said), objects(*real)).tolist() == expected


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
    assert drawn.points[2].f1 == pytest.approx(4 / 7)
    assert drawn.precision_at(0.25) == 1.0
    assert drawn.precision_at(0.3) == pytest.approx(2 / 3)
    assert drawn.precision_at(0.6) == 0.0
    # Equal scores are one point, whatever their order.
    rows = [(0.5, *ONE), (0.5, 2, 0.3, 0.3, 0.4, 0.4)]
    for order in (rows, rows[::-1]):
        assert curve([(found(*order), objects(ONE))]).points == (PrecisionPoint(0.5, 0.5, 1.0),)


def test_a_net_that_says_nothing_has_no_curve_and_no_accuracy_and_a_long_curve_is_thinned() -> None:
    told = result(curve([(found(), objects(ONE))]), 1)
    assert told["accuracy"] == told["precision"] == told["recall"] == 0.0
    assert (told["threshold"], told["curve"], told["objects"]) == (None, [], 1)
    long = PrecisionCurve(tuple(PrecisionPoint(1 - n / 1000, 0.5, n / 1000) for n in range(1000)), 1000, 1000)
    told = result(long, 7)
    assert len(told["curve"]) == 50
    assert (told["curve"][0], told["curve"][-1]) == ([0.0, 0.5], [0.999, 0.5])
    assert (told["samples"], told["iou"]) == (7, 0.2)
