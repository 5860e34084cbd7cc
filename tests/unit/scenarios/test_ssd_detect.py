"""What a net says, as boxes."""

from __future__ import annotations

import pytest
import torch

from whyidle.scenarios.ssd.detect import MOST, decode, detect
from whyidle.scenarios.ssd.loss import encode
from whyidle.scenarios.ssd.net import build

PRIORS = torch.tensor([[0.3, 0.3, 0.2, 0.2], [0.32, 0.3, 0.2, 0.2], [0.7, 0.7, 0.4, 0.2]])


def saying(*probabilities: tuple[float, ...]) -> torch.Tensor:
    """Logits `[1, P, classes]` whose softmax these are."""
    return torch.tensor([probabilities]).log()


def test_no_offset_means_the_prior_itself() -> None:
    boxes = decode(torch.zeros(1, 3, 4), PRIORS)
    torch.testing.assert_close(boxes[0, 0], torch.tensor([0.2, 0.2, 0.4, 0.4]))
    torch.testing.assert_close(boxes[0, 2], torch.tensor([0.5, 0.6, 0.9, 0.8]))


def test_decoding_undoes_the_encoding_of_the_loss() -> None:
    torch.manual_seed(0)
    shapes = build("ssd-micro", 2).priors
    low = torch.rand(5, len(shapes), 2) * 0.5
    boxes = torch.cat((low, low + 0.05 + torch.rand(5, len(shapes), 2) * 0.4), dim=-1)
    torch.testing.assert_close(decode(encode(boxes, shapes), shapes), boxes, rtol=1e-4, atol=1e-5)


def test_of_two_boxes_of_a_class_on_one_object_the_surer_is_kept() -> None:
    # The first two priors overlap by 0.18 / 0.22 = 0.82.
    [found] = detect(torch.zeros(1, 3, 4), saying((0.1, 0.6, 0.3), (0.1, 0.8, 0.1), (0.2, 0.4, 0.4)), PRIORS)
    of_first = found.scores[found.classes == 1]
    torch.testing.assert_close(of_first, torch.tensor([0.8, 0.4]))
    torch.testing.assert_close(found.boxes[0], torch.tensor([0.22, 0.2, 0.42, 0.4]))


def test_boxes_of_different_classes_do_not_drive_each_other_out() -> None:
    [found] = detect(torch.zeros(1, 3, 4), saying((0.1, 0.6, 0.3), (0.98, 0.01, 0.01), (0.98, 0.01, 0.01)), PRIORS)
    assert found.classes.tolist() == [1, 2]
    assert found.scores.tolist() == pytest.approx([0.6, 0.3])


def test_what_is_taken_for_background_is_no_detection() -> None:
    [found] = detect(torch.zeros(1, 3, 4), saying(*[(0.99, 0.005, 0.005)] * 3), PRIORS)
    assert len(found.scores) == 0


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
