"""SSD: its nets and how they learn, their loss, what they say as boxes and how that is judged; and the study whole."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torchvision.models.detection import SSD300_VGG16_Weights, ssd300_vgg16
from torchvision.models.detection._utils import BoxCoder
from torchvision.models.detection.ssd import SSD
from torchvision.ops import box_convert, box_iou

from whyidle.devices.choose import choose
from whyidle.errors import DataError, WhyidleError
from whyidle.pipelines.assemble import make_batch
from whyidle.pipelines.protocol import Settings
from whyidle.scenarios.rank import Replica
from whyidle.scenarios.scenario import DataRequest
from whyidle.scenarios.ssd.detect import MOST, Detections, detect
from whyidle.scenarios.ssd.judge import IOU, PrecisionCurve, PrecisionPoint, curve, hits, result
from whyidle.scenarios.ssd.loss import hard_negatives, multibox_loss
from whyidle.scenarios.ssd.muon import orthogonal
from whyidle.scenarios.ssd.net import build, image_size, sgd
from whyidle.scenarios.ssd.optimizer import AT, IMAGES, KERNEL_RATE, LEAST, RATE, WARM_UP, muon, share
from whyidle.scenarios.ssd.study import SCENARIO
from whyidle.scenarios.training import TorchTraining
from whyidle.scenarios.voc.generate import compose
from whyidle.scenarios.voc.layout import KINDS

SIZES = {
    "ssd300": (300, 26_285_486, 8_732),
    "ssd512": (512, 27_188_676, 24_564),
    "ssd-mini": (96, 492_782, 828),
    "ssd-micro": (64, 1_048_644, 336),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_net_is_as_large_as_the_documentation_says_and_computes_without_a_value(name: str) -> None:
    # On meta anything that needs a value, as a host sync does, raises.
    size, parameters, count = SIZES[name]
    with torch.device("meta"):
        net = build(name, 21)
        if name == "ssd300":
            published = SSD300_VGG16_Weights.COCO_V1.meta["num_params"]
            assert sum(each.numel() for each in build(name, 91).parameters()) == published
    locations, confidences = net(torch.empty(2, 3, size, size, device="meta"))
    assert image_size(name) == size
    assert sum(each.numel() for each in net.parameters()) == parameters
    assert (locations.shape, confidences.shape) == ((2, count, 4), (2, count, 21))
    assert net.priors.shape == (count, 4)
    assert net.priors.dtype == torch.float32
    assert net.to("meta").priors.device.type == "meta"
    assert "priors" not in net.state_dict()


@pytest.mark.slow
def test_ssd300_computes_what_torchvisions_computes_with_the_same_weights() -> None:
    torch.manual_seed(0)
    ours = build("ssd300", 21).eval()
    theirs = ssd300_vgg16(weights=None, weights_backbone=None, num_classes=21).eval()
    with torch.no_grad():
        for source, destination in zip(ours.parameters(), theirs.parameters(), strict=True):
            destination.copy_(source)
        images = torch.randn(1, 3, 300, 300) * 60
        expected = theirs.head(list(theirs.backbone(images).values()))
        locations, confidences = ours(images)
    torch.testing.assert_close(locations, expected["bbox_regression"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(confidences, expected["cls_logits"], rtol=1e-4, atol=1e-4)
    assert confidences.std() > 0.1


@pytest.mark.parametrize(
    ("name", "scales"),
    [
        ("ssd300", [0.1, 0.2, 0.37, 0.54, 0.71, 0.88, 1.05]),
        ("ssd512", [0.07, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.05]),
    ],
)
def test_priors_have_the_papers_sizes_for_voc(name: str, scales: list[float]) -> None:
    priors = build(name, 2).priors
    squares = priors[(priors[:, 2] - priors[:, 3]).abs() < 1e-5, 2]
    expected = torch.tensor([*scales[:-1], *(sqrt(small * large) for small, large in pairwise(scales))])
    torch.testing.assert_close((1000 * squares).round().unique(), (1000 * expected).round().unique())
    if name == "ssd300":
        # They lie where Caffe's do: 10 cells of 32 pixels are 320, as steps are powers of two and no parts of 300.
        torch.testing.assert_close(priors[:8, :2], torch.tensor([[x / 300, 4 / 300] for x in [4] * 4 + [12] * 4]))
        third = priors[38 * 38 * 4 + 19 * 19 * 6 :][: 10 * 10 * 6]
        assert third[:, :2].max().item() == pytest.approx(304 / 300)


def test_outputs_are_ordered_like_the_priors() -> None:
    torch.manual_seed(0)
    net = build("ssd-mini", 4).eval()
    images = torch.randn(1, 3, 96, 96, requires_grad=True)
    locations, confidences = net(images)
    cell = 5 * 12 + 9
    for out in (locations, confidences):
        (gradient,) = torch.autograd.grad(out[0, cell * 4].sum(), images, retain_graph=True)
        rows, columns = gradient[0].abs().sum(dim=0).nonzero().float().unbind(dim=1)
        # A cell of the first map sees a square around the centre of its priors, give or take half a cell.
        centre_x, centre_y = net.priors[cell * 4, :2] * 96
        assert abs(columns.mean() - centre_x) <= 4
        assert abs(rows.mean() - centre_y) <= 4


@pytest.mark.parametrize(
    ("name", "classes", "message"),
    [("ssd301", 21, r"no SSD net 'ssd301'.*ssd300, ssd512, ssd-mini"), ("ssd300", 1, "classes is 1")],
)
def test_a_net_that_cannot_be_built_is_explained(name: str, classes: int, message: str) -> None:
    with pytest.raises(WhyidleError, match=message):
        build(name, classes)


def test_sgd_is_the_studys_at_batch_32_and_scales_with_the_batch() -> None:
    net = build("ssd-mini", 5)
    weights, biases = sgd(net, 32).param_groups
    assert (weights["lr"], weights["momentum"], weights["weight_decay"]) == (0.001, 0.9, 0.0005)
    assert (biases["lr"], biases["momentum"], biases["weight_decay"]) == (0.002, 0.9, 0.0)
    assert [group["lr"] for group in sgd(net, 192).param_groups] == pytest.approx([0.006, 0.012])
    assert len(weights["params"]) + len(biases["params"]) == len(list(net.parameters()))
    assert all(parameter.dim() == 1 for parameter in biases["params"])
    assert sum(parameter.dim() == 4 for parameter in weights["params"]) == 11


class Small(nn.Module):
    """What of an SSD net the optimizer looks at: a trunk of stages, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3))
        self.classify = nn.Conv2d(16, 2, 3)


def test_the_rates_grow_with_the_square_root_of_the_batch() -> None:
    made = {size: muon(Small(), size) for size in (AT, 8, 64, 128, 192)}
    highest = {size: [group["initial_lr"] for group in each.param_groups] for size, each in made.items()}
    assert highest[128] == pytest.approx([4 * rate for rate in highest[8]])
    assert highest[AT] == [KERNEL_RATE, RATE]
    # And squared gradients are forgotten over as many images.
    images = [size / (1 - made[size].defaults["betas"][1]) for size in (8, 64, 192)]
    assert images == pytest.approx([images[0]] * 3)


@pytest.mark.parametrize("batch_size", [8, 64, 192])
def test_the_plan_is_counted_in_images_and_alike_at_every_batch_size(batch_size: int) -> None:
    whole = [share(step * batch_size, batch_size) for step in range(IMAGES // batch_size + 5)]
    highest = max(range(len(whole)), key=whole.__getitem__)
    assert highest * batch_size == pytest.approx(WARM_UP, abs=batch_size)
    assert whole[highest] > 0.98
    assert whole[len(whole) // 2] == pytest.approx(0.5, abs=0.05)
    assert whole[-1] == LEAST
    falling = whole[highest:]
    assert falling == sorted(falling, reverse=True)


def test_a_kernel_moves_as_far_in_every_direction_and_everything_else_by_adam() -> None:
    torch.manual_seed(0)
    net = Small()
    optimizer = muon(net, 192)
    kernels, rest = ([*group["params"]] for group in optimizer.param_groups)
    assert len(kernels) == 2
    assert {id(weight) for weight in kernels + rest} == {id(weight) for weight in net.parameters()}
    before = [weight.detach().clone() for weight in kernels + rest]
    for weight in kernels + rest:
        weight.grad = torch.randn_like(weight)
    rate, adams = (group["lr"] for group in optimizer.param_groups)
    optimizer.step()
    moved = [was - weight.detach() for was, weight in zip(before, kernels + rest, strict=True)]
    for step in moved[: len(kernels)]:
        along = torch.linalg.svdvals(step.flatten(1)) / rate
        assert along.min() > 0.5
        assert along.max() < 1.3
    for step in moved[len(kernels) :]:
        # Adam's first step is the rate itself, whatever the gradient.
        torch.testing.assert_close(step.abs(), torch.full_like(step, adams), rtol=0.01, atol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(24, 27), (128, 1152), (8, 1)])
def test_an_orthogonal_matrix_points_where_the_matrix_does(rows: int, columns: int) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(rows, columns) * 1e-4
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    found = left.T @ orthogonal(matrix) @ right.T
    clear = sizes > 0.02 * sizes[0]
    assert (found.diagonal()[clear] - 1).abs().max() < 0.4
    assert (found - torch.diag(found.diagonal())).abs().max() < 0.01


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


@given(packed(), st.integers(0, 100))
def test_the_loss_is_torchvisions(case: tuple[torch.Tensor, int], seed: int) -> None:
    targets, batch = case
    locations, confidences = predictions(batch, seed)
    losses = multibox_loss(locations, confidences, targets, PRIORS)
    expected = theirs(locations, confidences, targets, slow_owners(targets, batch))
    torch.testing.assert_close(losses.location, expected["bbox_regression"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(losses.confidence, expected["classification"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(losses.total, losses.location + losses.confidence)


def test_where_all_losses_are_zero_negatives_are_as_many_as_there_are_and_no_positive_takes_their_place() -> None:
    positive = torch.tensor([[True, True, False, False, False]])
    assert hard_negatives(torch.zeros(1, 5), positive).tolist() == [[False, False, True, True, True]]
    for position in range(8):
        positive = F.one_hot(torch.tensor([position]), 8).bool()
        chosen = hard_negatives(torch.zeros(1, 8), positive)
        assert chosen.sum() == 3
        assert not chosen[0, position]


def test_a_batch_without_objects_has_no_loss_and_no_gradient() -> None:
    locations, confidences = (out.requires_grad_() for out in predictions(3))
    losses = multibox_loss(locations, confidences, torch.empty(0, 6), PRIORS)
    losses.total.backward()
    assert losses.total.item() == 0
    for out in (locations, confidences):
        assert out.grad is not None
        assert not out.grad.any()


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


@pytest.mark.parametrize("seed", range(3))
def test_what_is_said_of_an_image_is_what_torchvision_makes_of_it(seed: int) -> None:
    locations, confidences = predictions(2, seed)
    ssd: Any = SimpleNamespace(box_coder=CODER, score_thresh=0.01, nms_thresh=0.45)
    ssd.topk_candidates, ssd.detections_per_img = 400, MOST
    said = {"bbox_regression": locations, "cls_logits": confidences}
    expected = SSD.postprocess_detections(ssd, said, [PRIOR_CORNERS] * 2, [(1, 1)] * 2)
    for ours, other in zip(detect(locations, confidences, PRIORS), expected, strict=True):
        torch.testing.assert_close(ours.scores, other["scores"])
        torch.testing.assert_close(ours.boxes, other["boxes"], rtol=1e-4, atol=1e-5)
        assert ours.classes.tolist() == other["labels"].tolist()


@pytest.mark.parametrize("value", [float("nan"), 1e30])
def test_a_net_that_diverged_gives_boxes_without_nan_or_none(value: float) -> None:
    [found] = detect(torch.full((1, len(PRIORS), 4), value), torch.full((1, len(PRIORS), 5), value), PRIORS)
    assert found.boxes.isfinite().all()


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


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "voc"
    compose(folder, 15, 0, workers=1)
    return folder


def test_a_set_without_splits_trains_on_all_and_holds_nothing_out(tmp_path: Path) -> None:
    compose(tmp_path / "voc", 3, 0, workers=1)
    splits = tmp_path / "voc" / "VOCdevkit" / "VOC2012" / "ImageSets" / "Main"
    (splits / "train.txt").unlink()
    (splits / "val.txt").unlink()
    request = DataRequest(folder=tmp_path / "voc", net="ssd-mini")
    assert len(SCENARIO.open_data(request)) == 3
    with pytest.raises(DataError, match=r"no split .train."):
        SCENARIO.open_data(replace(request, split="test"))


def test_the_reduced_net_tells_vocs_four_kinds_apart(images: Path) -> None:
    whole, kinds = (SCENARIO.open_data(DataRequest(folder=images, net=net)) for net in ("ssd-mini", "ssd-micro"))
    assert kinds.class_names == tuple(KINDS)
    for index in range(len(whole)):
        for fine, coarse in zip(whole.targets(index), kinds.targets(index), strict=True):
            name = whole.class_names[int(fine[0]) - 1]
            assert name in KINDS[kinds.class_names[int(coarse[0]) - 1]]
            assert fine[1:].tolist() == coarse[1:].tolist()


@pytest.mark.usefixtures("alone")
def test_it_learns_also_where_the_net_is_wrapped_and_is_judged_on_what_it_did_not_see(images: Path) -> None:
    torch.manual_seed(0)
    device = choose("cpu")
    request = DataRequest(folder=images, net="ssd-micro")
    data = SCENARIO.open_data(request)
    training = SCENARIO.training("ssd-micro", device, 12, data, wrap=Replica)
    assert isinstance(training, TorchTraining)
    batch = make_batch(data, range(12), 0, Settings(12), worker=0)
    losses = []
    for _ in range(45):
        training.step(batch)
        losses.append(training.read_loss())
    assert losses[-1] < losses[0] / 3, losses[::5]

    def accuracy(split: str) -> dict[str, Any]:
        held = SCENARIO.open_data(replace(request, split=split))
        told = training.evaluate(lambda net: SCENARIO.evaluate(net, "ssd-micro", held, device))
        assert told is not None
        return told

    held_out = SCENARIO.open_data(replace(request, split="test"))
    assert not {data.path(n) for n in range(12)} & {held_out.path(n) for n in range(3)}
    seen, unseen = accuracy("train"), accuracy("test")
    assert (seen["samples"], unseen["samples"]) == (12, 3)
    assert seen["accuracy"] == seen["average_precision"] > 0.1
    assert len(seen["curve"]) <= 50
    assert seen["objects"] == sum(len(data.targets(index)) for index in range(12))
