"""The scaling study: its nets by the formulas of others; labelled photographs, their stand-in, and crops of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from unit.scenarios.conftest import photographs

import whyidle
from whyidle.capture.recording import recording
from whyidle.devices.cpu import CpuDevice
from whyidle.devices.emulated import EmulatedDevice
from whyidle.devices.profiles import load
from whyidle.errors import DataError, DeviceOutOfMemory
from whyidle.pipelines.assemble import make_batch, make_sample
from whyidle.pipelines.crops import Crop, Mirror, RandomResizedCrop, StandardiseEach
from whyidle.pipelines.protocol import Batch, PhotoFiles, Settings
from whyidle.pipelines.registry import factory, unavailable
from whyidle.record.run import open_run
from whyidle.record.schema import STEP
from whyidle.scenarios.convnets import study as convnets
from whyidle.scenarios.convnets.benchmark import EmulatedForward, Forward, Gradients
from whyidle.scenarios.convnets.nets import NETS, build, classification_loss
from whyidle.scenarios.copying import BatchCopier
from whyidle.scenarios.datasets.image_folder import ImageFolder, open_folder
from whyidle.scenarios.datasets.labelled_photos import labelled_photos
from whyidle.scenarios.registry import scenario
from whyidle.scenarios.scenario import DataRequest
from whyidle.scenarios.training import Training

PARAMETERS = {
    "alexnet": 61_100_840,
    "googlenet": 13_004_888,
    "resnet50": 25_557_032,
    "inception_v3": 27_161_264,
    "cifar10": 1_068_298,
    "alexnet-forward": 2_469_696,
    "alexnet-forward-backward": 2_469_696,
}


def steps_seen(folder: Path, training: Training, batch: Batch, number: int) -> int:
    """How many steps the recording of so many has."""
    with recording(folder, "cpu", sampler=False):
        for each in whyidle.watch(iter([batch] * number)):
            training.step(each)
    return len(open_run(folder).records(STEP))


def batch_of(inputs: torch.Tensor) -> Batch:
    return Batch(inputs, torch.zeros(len(inputs), dtype=torch.int64), tuple(range(len(inputs))))


@pytest.mark.parametrize("net", NETS)
def test_a_net_has_the_parameters_of_the_study(net: str) -> None:
    with torch.device("meta"):
        model = build(net, 10 if net == "cifar10" else 1000)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[net]
    assert model.training


@pytest.mark.parametrize(
    ("net", "radius", "alpha", "bias"),
    [("cifar10", 4, 0.001 / 9, 1.0), ("alexnet-forward", 5, 1e-4, 2.0)],
)
def test_responses_are_normalised_by_tensorflows_formula(net: str, radius: int, alpha: float, bias: float) -> None:
    with torch.device("meta"):  # the layer has no weights
        layer = build(net, 10).get_submodule("features.3")
    features = np.random.default_rng(0).normal(0, 20, 64).astype(np.float32)
    expected = [
        value / (bias + alpha * (features[max(at - radius, 0) : at + radius + 1] ** 2).sum()) ** 0.75
        for at, value in enumerate(features)
    ]
    normalised = layer(torch.from_numpy(features)[None, :, None, None]).flatten()
    np.testing.assert_allclose(normalised.numpy(), expected, rtol=1e-5)


def test_side_branches_count_for_a_part_of_the_loss() -> None:
    said, labels = torch.tensor([[2.0, -1.0]]), torch.tensor([0])
    alone = classification_loss(lambda images: said, said, labels)
    for branches, each in ((2, 0.3), (1, 0.4)):
        together = classification_loss(lambda images: (said,) * (1 + branches), said, labels)  # noqa: B023
        assert together.item() == pytest.approx(alone.item() * (1 + branches * each))


class TestBenchmark:
    @pytest.mark.parametrize("training", [Forward, Gradients])
    def test_a_pass_is_a_step_that_learns_nothing_and_has_the_gradients_of_half_the_squares_or_none(
        self, tmp_path: Path, training: Any
    ) -> None:
        net, batch = torch.nn.Conv2d(3, 4, 3), batch_of(torch.ones(2, 3, 8, 8))
        before, trained = net.weight.detach().clone(), training(net)
        assert steps_seen(tmp_path / "run", trained, batch, 2) == 2
        assert torch.equal(net.weight, before)
        loss = net(batch.inputs).square().sum() / 2
        if training is Forward:
            assert net.weight.grad is None
            assert trained.read_loss() == pytest.approx(loss.item())
        else:
            torch.testing.assert_close(net.weight.grad, torch.autograd.grad(loss, net.weight)[0])

    def test_emulated_a_pass_takes_what_was_published(self, tmp_path: Path) -> None:
        titanx = load("titanx")
        queued: list[tuple[int, int]] = []
        device = SimpleNamespace(
            require_memory=lambda nbytes: None,
            compute=lambda duration_ns, kernels: queued.append((duration_ns, kernels)),
        )
        training = EmulatedForward(device, titanx, "alexnet-forward", 128)  # type: ignore[arg-type]
        assert steps_seen(tmp_path / "run", training, batch_of(torch.empty(128, 1)), 2) == 2
        assert queued == [(pytest.approx(70e6, rel=1e-4), 33)] * 2
        assert titanx.step_ns("alexnet-forward-backward", 128) == pytest.approx(244e6, rel=1e-4)
        with pytest.raises(DeviceOutOfMemory):
            EmulatedForward(EmulatedDevice(titanx.spec()), titanx, "alexnet-forward", 10_000)


RANDOM = np.random.default_rng
LABEL = np.asarray(3)


class TestFolder:
    def test_classes_are_numbered_by_name_alike_in_every_split_and_label_photographs(self, tmp_path: Path) -> None:
        photographs(tmp_path / "set" / "train", zebra=2, ant=1)
        data = open_folder(tmp_path / "set" / "train", (), "train")
        assert data.class_names == ("ant", "zebra")
        assert [int(data.targets(i)) for i in range(3)] == [0, 1, 1]
        assert data.path(0) == tmp_path / "set" / "train" / "ant" / "0.jpg"
        assert isinstance(data, PhotoFiles)
        assert data.describe()["stand_in"] is None
        with pytest.raises(DataError, match=r"no val/ or test/ folder to evaluate on"):
            open_folder(tmp_path / "set" / "train", (), "test")
        photographs(tmp_path / "set" / "val", zebra=1)
        test = open_folder(tmp_path / "set", (), "test")
        assert (test.class_names, int(test.targets(0))) == (data.class_names, 1)

    def test_a_bad_file_is_named_and_left_out(self, tmp_path: Path) -> None:
        photographs(tmp_path, ant=3)
        whole = (tmp_path / "ant" / "1.jpg").read_bytes()
        (tmp_path / "ant" / "1.jpg").write_bytes(whole[: len(whole) // 2])
        (tmp_path / "ant" / "2.jpg").write_bytes(b"")
        data = open_folder(tmp_path, ())
        assert len(data) == 1
        (notice,) = data.notices()
        assert notice.startswith("image corrupt: 2, left out; first: ")
        assert "1.jpg" in notice

    def test_a_limit_draws_from_all_classes_the_same_way_whatever_the_seed(self, tmp_path: Path) -> None:
        photographs(tmp_path, ant=12, bee=12)
        first, again = (
            convnets.SCENARIO.open_data(DataRequest(folder=tmp_path, net="alexnet", limit=10, seed=seed))
            for seed in (0, 7)
        )
        assert first.names.tolist() == again.names.tolist()
        assert set(first.labels.tolist()) == {0, 1}

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda at: None, "does not exist"),
            (lambda at: at.mkdir(), "holds no photographs"),
            (lambda at: at.write_text("x"), "is not a folder"),
            (lambda at: photographs(at / "val", ant=1), "has no train"),
        ],
    )
    def test_a_folder_that_is_no_set_is_one_message(
        self, tmp_path: Path, make: Callable[[Path], object], message: str
    ) -> None:
        make(tmp_path / "set")
        with pytest.raises(DataError, match=message):
            open_folder(tmp_path / "set", ())


class TestStandIn:
    def test_a_set_made_into_a_folder_leaves_nothing_beside_it_and_stays_when_made_again(self, tmp_path: Path) -> None:
        said: list[tuple[int, int]] = []
        made: list[dict[Path, int]] = []
        for _ in range(2):
            scenario("convnets").make_data(tmp_path / "photos", 5, 3, lambda done, of: said.append((done, of)))
            made.append({file: file.stat().st_mtime_ns for file in (tmp_path / "photos").rglob("*.jpg")})
        assert made[0] == made[1]
        assert said[-1] == (5, 5)
        assert [file.name for file in tmp_path.iterdir()] == ["photos"]
        data = open_folder(tmp_path / "photos", ())
        assert len(data) == 16  # four in the training split, each four times
        assert "composed by whyidle" in str(data.describe()["stand_in"])
        assert len(open_folder(tmp_path / "photos", (), "test")) == 1
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "mine.txt").write_text("mine")
        with pytest.raises(DataError, match="does not hold the stand-in"):
            labelled_photos(tmp_path / "other", tmp_path / "composed", 5)
        assert not (tmp_path / "composed").exists()


class TestCrops:
    image = RANDOM(0).integers(0, 255, (40, 50, 3)).astype(np.uint8)

    def test_a_crop_lies_within_and_comes_from_everywhere(self) -> None:
        places = np.stack([*np.indices((40, 50)), np.zeros((40, 50))], axis=2).astype(np.uint8)
        corners = set()
        for seed in range(200):
            cut, label = Crop(38)(places, LABEL, RANDOM(seed))
            top, left, _ = cut[0, 0].tolist()
            np.testing.assert_array_equal(cut, places[top : top + 38, left : left + 38])
            assert label is LABEL
            corners.add((top, left))
        assert len(corners) == 3 * 13

    def test_middles_mirrors_and_contrasts(self) -> None:
        cut, _ = Crop(30, anywhere=False)(self.image, LABEL, RANDOM(0))
        np.testing.assert_array_equal(cut, self.image[5:35, 10:40])
        # Where no part fits.
        assert RandomResizedCrop(24, area=(1.0, 1.0))._box(200, 20, RANDOM(0)) == (86, 0, 113, 20)
        mirrored = [np.array_equal(Mirror()(self.image, LABEL, RANDOM(s))[0], self.image[:, ::-1]) for s in range(200)]
        assert 70 < sum(mirrored) < 130
        planes, _ = StandardiseEach(63.0, (0.2, 1.8))(self.image, LABEL, RANDOM(0))
        assert (planes.dtype, planes.shape) == (np.float32, (3, 40, 50))
        assert (planes.mean(), planes.std()) == (pytest.approx(0, abs=1e-5), pytest.approx(1, abs=1e-4))
        made = [StandardiseEach(contrast=(c, c))(self.image, LABEL, RANDOM(0))[0] for c in (1.0, 2.0)]
        spread = [planes.std(axis=(1, 2)) / abs(planes.mean(axis=(1, 2))) for planes in made]
        np.testing.assert_allclose(spread[1] / spread[0], 2, rtol=1e-3)

    def test_a_resized_crop_has_its_size_and_areas_are_spread(self) -> None:
        stage = RandomResizedCrop(24)
        boxes = np.array([stage._box(50, 40, RANDOM(seed)) for seed in range(300)])
        wide, tall = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
        shares = wide * tall / 2000
        assert 0.06 < shares.min() < 0.15
        assert shares.max() > 0.85
        assert (boxes[:, 2] <= 50).all()
        assert (boxes[:, 3] <= 40).all()
        assert 0.6 < (wide / tall).min() < (wide / tall).max() < 1.5
        assert stage(self.image, LABEL, RANDOM(1))[0].shape == (24, 24, 3)


class TestScenario:
    study = scenario("convnets")

    @pytest.mark.parametrize("augment", [False, True])
    @pytest.mark.parametrize(("net", "side"), [("alexnet", 224), ("inception_v3", 299), ("cifar10", 24)])
    def test_samples_have_the_size_of_the_net(self, tmp_path: Path, net: str, side: int, augment: bool) -> None:
        folder = photographs(tmp_path / "set", ant=2, bee=2)
        data = self.study.open_data(DataRequest(folder=folder, net=net, augment=augment))
        batch = make_batch(data, [0, 3], 0, Settings(2), worker=0)
        assert batch.inputs.shape == (2, 3, side, side)
        assert batch.inputs.dtype == torch.float32
        assert batch.targets.tolist() == [0, 1]

    @pytest.mark.skipif(unavailable("dali-cpu") is not None, reason="DALI is not installed")
    @pytest.mark.parametrize("net", ["alexnet", "inception_v3", "cifar10"])
    def test_dali_makes_the_same_samples_and_augments_to_the_same_size(self, tmp_path: Path, net: str) -> None:
        folder = photographs(tmp_path / "set", ant=4)
        settings = Settings(4, workers=1, shuffle=False)
        made = []
        for augment in (False, True):
            data = self.study.open_data(DataRequest(folder=folder, net=net, augment=augment))
            loader = factory("dali-cpu")(data, settings, BatchCopier(CpuDevice()))
            (batch,) = loader.epoch(0)
            loader.close()
            made.append(batch)
        plain = make_batch(
            self.study.open_data(DataRequest(folder=folder, net=net)), [0, 1, 2, 3], 0, settings, worker=0
        )
        assert (made[0].inputs - plain.inputs).abs().mean() < 0.02
        assert made[0].targets.tolist() == plain.targets.tolist()
        assert made[1].inputs.shape == plain.inputs.shape
        assert (made[1].inputs - plain.inputs).abs().mean() > 0.1

    def test_cifar_in_its_binary_version_is_taken_as_it_is(self, tmp_path: Path) -> None:
        records = RANDOM(0).integers(0, 255, (6, 3073)).astype(np.uint8)
        records[:, 0] = [0, 1, 2, 3, 4, 9]
        (tmp_path / "cifar-10-batches-bin").mkdir()
        for number in range(1, 6):
            (tmp_path / "cifar-10-batches-bin" / f"data_batch_{number}.bin").write_bytes(records.tobytes())
        data = self.study.open_data(DataRequest(folder=tmp_path, net="cifar10", limit=4))
        assert len(data) == 4
        image = make_sample(data, 2, 0, Settings(1)).image
        plain = records[2, 1:].reshape(3, 32, 32)[:, 4:28, 4:28].astype(np.float32)
        np.testing.assert_allclose(image, (plain - plain.mean()) / plain.std(), atol=1e-4)
        with pytest.raises(DataError, match="already holds CIFAR-10 as raw records"):
            self.study.open_data(DataRequest(folder=tmp_path, net="cifar10", store="lmdb"))
        model = self.study.build("cifar10", data)
        self.study.loss(model, make_batch(data, [0, 1], 0, Settings(2), worker=0)).backward()
        assert len(self.study.optimizer(model, "cifar10", 2).param_groups) == 2

    def test_the_stand_in_is_found_and_labelled(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(convnets, "COMPOSED_IMAGES", 5)
        data = self.study.open_data(DataRequest(folder=self.study.find_data("alexnet", print), net="alexnet"))
        assert isinstance(data, ImageFolder)
        assert data.describe()["stand_in"]
