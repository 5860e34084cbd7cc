from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812
from torchvision.models.detection._utils import BoxCoder
from torchvision.models.detection.ssd import SSD
from torchvision.ops import box_convert, box_iou

from whyidle.scenarios.ssd.loss import hard_negatives, match, multibox_loss
from whyidle.scenarios.ssd.net import build

PRIORS = build("ssd-mini", 2).priors
PRIOR_CORNERS = box_convert(PRIORS, "cxcywh", "xyxy")
CODER = BoxCoder((10.0, 10.0, 5.0, 5.0))
CLASSES = 5


@st.composite
def packed(draw: st.DrawFn) -> tuple[torch.Tensor, int]:
    """Targets of 1 to 4 images with 0 to 5 objects each, rows in any order, some without area."""
    batch = draw(st.integers(1, 4))
    shares = st.integers(0, 1000).map(lambda thousandths: thousandths / 1000)
    rows = []
    for image in range(batch):
        for _ in range(draw(st.integers(0, 5))):
            x, y = (sorted((draw(shares), draw(shares))) for _ in range(2))
            rows.append([image, draw(st.integers(1, CLASSES - 1)), x[0], y[0], x[1], y[1]])
    rows = draw(st.permutations(rows))
    return torch.tensor(rows, dtype=torch.float32).reshape(-1, 6), batch


def predictions(batch: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    locations = torch.randn(batch, len(PRIORS), 4, generator=generator)
    return locations, torch.randn(batch, len(PRIORS), CLASSES, generator=generator) * 3


def slow_owners(targets: torch.Tensor, batch: int) -> list[dict[int, int]]:
    """For each image which row each matched prior takes, one image and one prior at a time."""
    overlaps = box_iou(targets[:, 2:], PRIOR_CORNERS)
    favourites = overlaps.max(dim=1).indices.tolist()
    # Rounded like the claims of the code under test, so that near-equals are equal to both.
    claims, plain = (overlaps + 2.0).tolist(), overlaps.tolist()
    owners = []
    for image in range(batch):
        rows = [row for row in range(len(targets)) if targets[row, 0] == image]
        owner: dict[int, int] = {}
        for prior in range(len(PRIORS)):
            close = [row for row in rows if plain[row][prior] >= 0.5]
            if close:
                owner[prior] = max(close, key=lambda row: plain[row][prior])
        claimed: dict[int, int] = {}
        for row in rows:
            prior = favourites[row]
            if plain[row][prior] <= 1e-6:
                continue
            if prior not in claimed or claims[row][prior] > claims[claimed[prior]][prior]:
                claimed[prior] = row
        owners.append(owner | claimed)
    return owners


def theirs(
    locations: torch.Tensor, confidences: torch.Tensor, targets: torch.Tensor, owners: list[dict[int, int]]
) -> dict[str, torch.Tensor]:
    """Torchvision's loss, which loops over images, of the same matches."""
    boxes, matched = [], []
    for image, owner in enumerate(owners):
        rows = (targets[:, 0] == image).nonzero()[:, 0].tolist()
        boxes.append({"boxes": targets[rows, 2:], "labels": targets[rows, 1].long()})
        matched.append(torch.tensor([rows.index(owner[p]) if p in owner else -1 for p in range(len(PRIORS))]))
    said = {"bbox_regression": locations, "cls_logits": confidences}
    ssd: Any = SimpleNamespace(box_coder=CODER, neg_to_pos_ratio=3)
    return SSD.compute_loss(ssd, boxes, said, [PRIOR_CORNERS] * len(owners), matched)


@given(packed())
def test_matching_equals_one_image_at_a_time(case: tuple[torch.Tensor, int]) -> None:
    targets, batch = case
    labels, offsets = match(targets, PRIORS, batch)
    expected = torch.zeros(batch, len(PRIORS), dtype=torch.long)
    for image, owner in enumerate(slow_owners(targets, batch)):
        for prior, row in owner.items():
            expected[image, prior] = int(targets[row, 1])
            wanted = CODER.encode_single(targets[row, None, 2:], PRIOR_CORNERS[prior, None])[0]
            torch.testing.assert_close(offsets[image, prior], wanted, rtol=1e-3, atol=1e-3)
    assert torch.equal(labels, expected)
    assert offsets.isfinite().all()


@given(packed(), st.integers(0, 100))
def test_the_loss_is_torchvisions(case: tuple[torch.Tensor, int], seed: int) -> None:
    targets, batch = case
    locations, confidences = predictions(batch, seed)
    losses = multibox_loss(locations, confidences, targets, PRIORS)
    expected = theirs(locations, confidences, targets, slow_owners(targets, batch))
    torch.testing.assert_close(losses.location, expected["bbox_regression"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(losses.confidence, expected["classification"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(losses.total, losses.location + losses.confidence)


@given(packed(), st.randoms(use_true_random=False))
def test_hard_negatives_are_three_a_positive_and_the_hardest(case: tuple[torch.Tensor, int], random: Any) -> None:
    targets, batch = case
    positive = match(targets, PRIORS, batch)[0] > 0
    # Few distinct values: many ties.
    losses = torch.tensor([[random.randrange(4) / 2 for _ in PRIORS] for _ in range(batch)])
    chosen = hard_negatives(losses, positive)
    assert not (chosen & positive).any()
    for image in range(batch):
        positives, negatives = int(positive[image].sum()), int((~positive[image]).sum())
        assert chosen[image].sum() == min(3 * positives, negatives)
        left = ~positive[image] & ~chosen[image]
        if chosen[image].any() and left.any():
            assert losses[image][chosen[image]].min() >= losses[image][left].max()


def test_where_all_losses_are_zero_negatives_are_as_many_as_there_are_and_no_positive_takes_their_place() -> None:
    positive = torch.tensor([[True, True, False, False, False]])
    assert hard_negatives(torch.zeros(1, 5), positive).tolist() == [[False, False, True, True, True]]
    for position in range(8):
        positive = F.one_hot(torch.tensor([position]), 8).bool()
        chosen = hard_negatives(torch.zeros(1, 8), positive)
        assert chosen.sum() == 3
        assert not chosen[0, position]


def test_two_objects_with_one_favourite_prior_leave_it_to_the_closer() -> None:
    boxes = torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.1, 0.1, 0.1, 0.1]])
    inner, outer = [0, 1, 0.4, 0.4, 0.6, 0.6], [0, 2, 0.375, 0.375, 0.625, 0.625]
    for rows in ([inner, outer], [outer, inner]):
        assert match(torch.tensor(rows), boxes, 1)[0].tolist() == [[2, 0]]


def test_a_batch_without_objects_has_no_loss_and_no_gradient() -> None:
    locations, confidences = (out.requires_grad_() for out in predictions(3))
    losses = multibox_loss(locations, confidences, torch.empty(0, 6), PRIORS)
    losses.total.backward()
    assert losses.total.item() == 0
    for out in (locations, confidences):
        assert out.grad is not None
        assert not out.grad.any()


def test_half_precision_outputs_are_summed_in_float32() -> None:
    targets = torch.tensor([[0, 1, 0.1, 0.1, 0.5, 0.6]])
    half = [out.bfloat16() for out in predictions(1)]
    losses = multibox_loss(half[0], half[1], targets, PRIORS)
    exact = multibox_loss(half[0].float(), half[1].float(), targets, PRIORS)
    assert losses.total.dtype == torch.float32
    assert torch.equal(losses.total, exact.total)


def test_loss_needs_no_value_and_no_host_tensor() -> None:
    # A meta tensor has no values: whatever would have to wait for one raises, also inside torch.
    with torch.device("meta"):
        locations = torch.empty(3, len(PRIORS), 4, requires_grad=True)
        confidences = torch.empty(3, len(PRIORS), CLASSES, requires_grad=True)
        targets, boxes = torch.empty(7, 6), torch.empty(len(PRIORS), 4)
    losses = multibox_loss(locations, confidences, targets, boxes)
    losses.total.backward()
    assert losses.total.shape == ()
    assert locations.grad is not None
