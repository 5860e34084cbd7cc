"""What the experiments of the SSD study train, and that the scenario learns and judges end to end on a few images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from whyidle.devices.choose import choose
from whyidle.errors import DataError
from whyidle.pipelines.assemble import make_batch
from whyidle.pipelines.protocol import Settings
from whyidle.scenarios.rank import Replica
from whyidle.scenarios.scenario import DataRequest
from whyidle.scenarios.ssd.study import SCENARIO
from whyidle.scenarios.training import TorchTraining
from whyidle.scenarios.voc.generate import compose
from whyidle.scenarios.voc.layout import KINDS


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "voc"
    compose(folder, 15, 0, workers=1)
    return folder


def test_training_and_held_out_images_have_none_in_common(images: Path) -> None:
    request = DataRequest(folder=images, net="ssd-mini")
    train, held_out = SCENARIO.open_data(request), SCENARIO.open_data(replace(request, split="test"))
    assert (len(train), len(held_out)) == (12, 3)
    assert not {train.path(n) for n in range(12)} & {held_out.path(n) for n in range(3)}


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

    seen, unseen = accuracy("train"), accuracy("test")
    assert (seen["samples"], unseen["samples"]) == (12, 3)
    assert seen["accuracy"] == seen["average_precision"] > 0.1
    assert len(seen["curve"]) <= 50
    assert seen["objects"] == sum(len(data.targets(index)) for index in range(12))
