"""The study of Fashion-MNIST and its nets, as Keras has them; IDX sets as they lie, and downloads, whole or refused."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from support.idx_files import NAMES, idx, make_set, write
from whyidle.errors import DataError, WhyidleError
from whyidle.pipelines.affine import Affine
from whyidle.pipelines.assemble import make_batch
from whyidle.pipelines.protocol import Settings
from whyidle.scenarios.datasets.fetch import fetch
from whyidle.scenarios.datasets.idx import FASHION_MNIST, MNIST, IdxImages
from whyidle.scenarios.fashion_mnist import nets as fashion_nets
from whyidle.scenarios.fashion_mnist.nets import NETS, build
from whyidle.scenarios.fashion_mnist.study import SCENARIO
from whyidle.scenarios.scenario import DataRequest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_set(tmp_path / "set")


def opened(folder: Path, net: str = "cnn5", **rest: Any) -> Any:
    return SCENARIO.open_data(DataRequest(folder=folder, net=net, **rest))


class TestData:
    def test_four_fifths_train_the_rest_validates_and_a_limit_takes_the_beginning(self, folder: Path) -> None:
        train, held_back = opened(folder), opened(folder, split="validation")
        assert (len(train), len(held_back), len(opened(folder, split="test"))) == (48, 12, 20)
        images = [image.tobytes() for part in (train, held_back) for image in part.images]
        assert len(set(images)) == 60
        few = opened(folder, limit=7)
        assert len(few) == len(opened(folder, split="test", limit=7)) == 7
        assert np.array_equal(few.images, train.images[:7])

    def test_pixels_are_standardised_or_for_the_two_smallest_nets_shares_of_the_highest_level(
        self, folder: Path
    ) -> None:
        train = opened(folder)
        inputs = make_batch(train, range(48), 0, Settings(48, shuffle=False), 0).inputs
        assert (inputs.shape, inputs.dtype) == ((48, 1, 28, 28), torch.float32)
        assert float(inputs.mean()) == pytest.approx(0, abs=1e-4)
        assert float(inputs.std(correction=0)) == pytest.approx(1, abs=1e-4)
        assert opened(folder, split="test").stages == train.stages
        batch = make_batch(opened(folder, "cnn1"), range(8), 0, Settings(8), 0)
        assert 0 <= float(batch.inputs.min()) < float(batch.inputs.max()) <= 1
        assert batch.targets.dtype == torch.int64

    def test_all_outputs_name_the_set_and_that_it_is_not_the_published_one(self, folder: Path) -> None:
        plain, augmented = opened(folder), opened(folder, augment=True)
        told = {"samples": 48, "unit": "image", "set": f"{folder}, not Fashion-MNIST", "test": 20}
        assert plain.describe() | told == plain.describe() == augmented.describe()
        assert len(plain.notices()) == 4
        assert augmented.stages == (Affine(), *plain.stages)

    def test_what_is_wrong_is_said_before_a_training(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(WhyidleError, match=r"no split 'dev'\. Choose train, validation or test"):
            opened(folder, split="dev")
        with pytest.raises(DataError, match="has no train-images-idx3-ubyte"):
            opened(tmp_path)


@pytest.mark.parametrize("net", NETS)
def test_nets_are_keras_with_its_defaults_and_as_many_parameters_as_it_printed(net: str) -> None:
    torch.manual_seed(0)
    model = build(net)
    # Keras counts the running means and variances of batch norm too.
    kept = [*model.parameters(), *(each for name, each in model.named_buffers() if "running" in name)]
    total = sum(each.numel() for each in kept)
    assert {"cnn5": 8_457_322, "mlp": 468_874}.get(net, total) == total
    assert model.eval()(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert not any(isinstance(part, nn.Softmax) for part in model.modules())
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            assert (part.momentum, part.eps) == (pytest.approx(0.01), 1e-3)
        if isinstance(part, nn.Conv2d | nn.Linear):
            assert part.bias is not None
            assert not part.bias.any()
            inputs, outputs = nn.init._calculate_fan_in_and_fan_out(part.weight)
            limit = (6 / (inputs + outputs)) ** 0.5
            assert 0.8 * limit < float(part.weight.detach().abs().max()) <= limit
    adam = fashion_nets.adam(build(net)).defaults
    assert (adam["lr"], adam["betas"], adam["eps"]) == (1e-3, (0.9, 0.999), 1e-8)


IMAGES, LABELS = NAMES["train"]


def md5_of(folder: Path, suffix: str = "") -> dict[str, str]:
    def of(name: str) -> str:
        return hashlib.md5((folder / f"{name}{suffix}").read_bytes(), usedforsecurity=False).hexdigest()

    return {name: of(name) for pair in NAMES.values() for name in pair}


@pytest.mark.parametrize(
    ("inner", "suffix"), [("", ""), ("raw", ".gz"), ("FashionMNIST/raw", ""), ("FashionMNIST", "")]
)
def test_flat_or_as_torchvision_has_it_packed_or_not(tmp_path: Path, inner: str, suffix: str) -> None:
    make_set(tmp_path / inner, suffix=suffix)
    data = IdxImages.open(FASHION_MNIST, tmp_path)
    assert len(data) == 60
    assert data.images.shape == (60, 28, 28)
    assert [int(data.targets(index)) for index in (0, 9, 10)] == [0, 9, 0]
    assert len(IdxImages.open(FASHION_MNIST, tmp_path, "test")) == 20


def test_the_published_files_go_without_a_word_and_others_are_named(tmp_path: Path) -> None:
    folder = make_set(tmp_path / "plain")
    which = replace(FASHION_MNIST, title="Own", content_md5=md5_of(folder))  # as if it had been published
    for there in (folder, make_set(tmp_path / "packed", suffix=".gz")):
        same = IdxImages.open(which, there)
        assert (same.title, list(same.notices())) == ("Own", [])
    write(folder / IMAGES, idx(np.zeros((60, 28, 28), np.uint8)))
    other = IdxImages.open(which, folder)
    assert other.title == f"{folder}, not Own"
    [notice] = other.notices()
    assert str(folder / IMAGES) in notice
    assert "is not the published file of Own" in notice


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (IMAGES, b"\x00\x00\x08", "does not begin as an IDX file of bytes in 3 dimensions: 000008 instead of 00000803"),
        (IMAGES, idx(np.zeros((60, 28), np.uint8)), "in 3 dimensions: 00000802"),
        (LABELS, idx(np.zeros((60, 1, 1), np.uint8)), "in 1 dimensions"),
        (IMAGES, idx(np.zeros((60, 28, 28), np.uint8)) + b"x", "has more bytes than it should"),
        (IMAGES, idx(np.zeros((59, 28, 28), np.uint8)), "59 images and"),
        (LABELS, idx(np.full(60, 10, np.uint8)), "has the label 10"),
        (IMAGES, idx(np.zeros((60, 32, 30), np.uint8)), "has images of 32 x 30; those of Fashion-MNIST are 28 x 28"),
    ],
)
def test_a_file_that_contradicts_itself_or_its_partner_is_refused(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    make_set(tmp_path)
    write(tmp_path / name, content)
    with pytest.raises(DataError) as caught:
        IdxImages.open(FASHION_MNIST, tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


def test_the_first_whole_set_of_this_machine_comes_before_a_download(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"has no {IMAGES}, nor has raw/ or MNIST/raw/ in it"):
        IdxImages.open(MNIST, tmp_path)
    half, whole = make_set(tmp_path / "half"), make_set(tmp_path / "whole", suffix=".gz")
    (half / NAMES["test"][1]).unlink()
    assert replace(FASHION_MNIST, places=(tmp_path / "absent", half, whole)).find(print) == whole
    assert replace(FASHION_MNIST, places=(half,)).installed() is None


def test_a_download_goes_to_the_cache_and_says_so(tmp_path: Path, cache_folder: Path) -> None:
    server = make_set(tmp_path / "server", suffix=".gz")
    which = replace(FASHION_MNIST, places=(), mirrors=(f"{server.as_uri()}/",), md5=md5_of(server, ".gz"))
    said: list[str] = []
    folder = which.find(said.append)
    assert folder.is_relative_to(cache_folder)
    assert len(said) == 4
    assert len(IdxImages.open(which, folder)) == 60
    said.clear()
    assert which.find(said.append) == folder
    assert said == []


@pytest.mark.skipif(not FASHION_MNIST.places[0].is_dir(), reason="Fashion-MNIST is not on this machine")
def test_debians_copy_is_the_published_set() -> None:
    data = IdxImages.open(FASHION_MNIST, FASHION_MNIST.places[0], "test")
    assert (len(data), data.title, list(data.notices())) == (10_000, "Fashion-MNIST", [])
    assert np.bincount(data.labels).tolist() == [1000] * 10


CONTENT = bytes(range(256)) * 20
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, suffix: str) -> None:
    file = make_set(tmp_path, suffix=suffix) / f"{IMAGES}{suffix}"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"is cut off|ended before") as caught:
        IdxImages.open(FASHION_MNIST, tmp_path)
    for said in (str(file), FASHION_MNIST.mirrors[0]):
        assert said in str(caught.value)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An address with the whole file, half of it, and another; of files, which are opened as those of the web are."""
    folder = tmp_path_factory.mktemp("server")
    for name, content in (("whole", CONTENT), ("cut-off", CONTENT[:1000]), ("other", CONTENT[::-1])):
        (folder / name).write_bytes(content)
    return folder.as_uri()


@pytest.mark.parametrize("first", [[], ["absent", "cut-off", "other"]])
def test_a_file_is_there_once_its_checksum_is_right_from_the_first_mirror_that_has_it(
    server: str, tmp_path: Path, first: list[str]
) -> None:
    said: list[str] = []
    target = tmp_path / "set" / "file.gz"
    asked = [f"{server}/{name}" for name in (*first, "whole")]
    assert fetch(asked, target, md5=MD5, say=said.append) == target
    assert target.read_bytes() == CONTENT
    assert said[-1] == f"Downloading {server}/whole"
    assert [path.name for path in target.parent.iterdir()] == ["file.gz"]
    # What is there is not fetched again.
    assert fetch(["file:///nowhere"], target, sha256=SHA256, say=said.append).read_bytes() == CONTENT


@pytest.mark.parametrize(("bad", "why"), [("absent", "No such file"), ("cut-off", "its md5 is")])
def test_a_bad_download_leaves_nothing_and_says_where_to_put_the_file(
    server: str, tmp_path: Path, bad: str, why: str
) -> None:
    with pytest.raises(DataError) as caught:
        fetch([f"{server}/{bad}"], tmp_path / "file.gz", md5=MD5, say=print)
    assert "\n" not in str(caught.value)
    for part in (why, f"{server}/{bad}", f"put the file (md5 {MD5}) into {tmp_path}", "--data"):
        assert part in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_fetched_is_told_and_what_is_there_left_alone(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(CONTENT[:-1])
    with pytest.raises(DataError, match=f"is cut off or another file: its md5 is .*the published one's {MD5}"):
        fetch([f"{server}/whole"], tmp_path / "file", md5=MD5, say=print)
    assert (tmp_path / "file").read_bytes() == CONTENT[:-1]
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch([f"{server}/whole"], tmp_path / "file" / "within", md5=MD5, say=print)
    with pytest.raises(ValueError, match="no checksum"):
        fetch([], tmp_path / "other", say=print)
    # Where apt is, the package of the set is named.
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(DataError, match=r"`apt install dataset-fashion-mnist` .* Or put the file \(md5"):
        replace(FASHION_MNIST, mirrors=()).download(tmp_path, print)
