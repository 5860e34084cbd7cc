"""The scenario of costs: its nets as Keras counts them, its data, real and made, and what its experiments train."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from whyidle.devices.cpu import CpuDevice
from whyidle.errors import DataError
from whyidle.pipelines.assemble import make_batch
from whyidle.pipelines.protocol import Settings
from whyidle.scenarios.cost import data as cost_data
from whyidle.scenarios.cost import nets as cost_nets
from whyidle.scenarios.cost.study import SCENARIO
from whyidle.scenarios.datasets import cifar, reviews, text
from whyidle.scenarios.datasets.arrays import Arrays
from whyidle.scenarios.evaluation import MOST_CLASSES, classified
from whyidle.scenarios.scenario import DataRequest

PARAMETERS = {
    ("mnist-mlp", 0): 669_706,
    ("mnist-cnn", 0): 1_199_882,
    ("cifar10-cnn", 0): 1_250_858,
    ("imdb-fasttext", 1000): 1000 * 50 + 51,
    ("imdb-bilstm", 20_000): 2_658_945,
    ("imdb-bilstm-unfused", 20_000): 2_658_945,
    ("lstm-text", 57): 102_585,
}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's cache, and no set that the system has."""
    monkeypatch.setattr(cost_data, "user_cache_dir", lambda _: str(tmp_path / "cache"))
    monkeypatch.setattr(cost_data, "_system_mnist", lambda _: None)
    monkeypatch.setattr(text, "_docstrings", lambda: "A text of which every letter follows another, and so on. " * 40)


def trust(monkeypatch: pytest.MonkeyPatch, module: Any, archive: Path) -> None:
    """Take an archive for the published one."""
    monkeypatch.setattr(module, "ARCHIVE_MD5", hashlib.md5(archive.read_bytes()).hexdigest())


def data_of(net: str, **more: Any) -> Any:
    return SCENARIO.open_data(DataRequest(folder=cost_data.stand_in_folder(), net=net, **{"limit": 64, **more}))


def test_nets_have_as_many_trained_parameters_as_the_study_says() -> None:
    for (net, symbols), number in PARAMETERS.items():
        model = cost_nets.build(net, symbols)
        assert sum(each.numel() for each in model.parameters() if each.requires_grad) == number, net


def test_outputs_are_judged_and_learning_rates_decay_as_keras_has_it() -> None:
    # One output a sample is judged as two classes.
    said, targets = torch.tensor([2.0, -1.0]), torch.tensor([1, 1])
    two = cost_nets.classes(said)
    assert two.argmax(1).tolist() == [1, 0]
    assert torch.nn.functional.cross_entropy(two, targets) == pytest.approx(float(cost_nets.loss(said, targets)))
    model = torch.nn.Linear(2, 1)
    optimizer = cost_nets.optimizer(model, "text-generator")
    for _ in range(100):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.001 / (1 + 1e-4 * 100))


@pytest.mark.parametrize("net", cost_nets.NETS)
def test_every_net_takes_its_stand_in_data_and_a_small_step_lowers_its_loss(net: str) -> None:
    torch.manual_seed(0)
    data = data_of(net)
    assert data.describe()["stand_in"]
    batch = make_batch(data, range(8), 0, Settings(8), 0)
    model = SCENARIO.build(net, data).eval()  # dropout off: losses of the same net
    optimizer = SCENARIO.optimizer(model, net, 8)
    for group in optimizer.param_groups:
        group["lr"] = 1e-5
    before = SCENARIO.loss(model, batch)
    before.backward()
    optimizer.step()
    with torch.no_grad():
        assert float(SCENARIO.loss(model, batch)) < float(before.detach())


def test_the_unfused_lstm_computes_what_a_cell_step_by_step_does() -> None:
    torch.manual_seed(0)
    lstm = cost_nets.UnfusedLstm(3, 5)
    inputs = torch.randn(2, 7, 3)
    state = cell = torch.zeros(2, 5)
    for step in inputs.unbind(1):
        gates = step @ lstm.kernel + state @ lstm.recurrent + lstm.bias
        enter, forget, new, leave = gates.chunk(4, 1)
        hard = [(0.2 * gate + 0.5).clamp(0, 1) for gate in (enter, forget, leave)]
        cell = hard[1] * cell + hard[0] * new.tanh()
        state = hard[2] * cell.tanh()
    torch.testing.assert_close(lstm(inputs), state)
    assert lstm.bias.detach().reshape(4, 5).tolist() == [[0.0] * 5, [1.0] * 5, [0.0] * 5, [0.0] * 5]


@pytest.mark.parametrize(("classes", "told"), [(MOST_CLASSES, True), (MOST_CLASSES + 1, False)])
def test_of_very_many_classes_there_is_an_accuracy_and_no_confusion(classes: int, told: bool) -> None:
    labels = np.arange(12) % 4
    data = Arrays(np.zeros((12, 1), np.float32), labels, "image", None)

    def third(inputs: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.full((len(inputs),), 2), classes).float()

    found = classified(third, data, CpuDevice())
    assert (found["accuracy"], found["samples"]) == (0.25, 12)
    assert ("confusion" in found) is told
    if told:
        assert [found["confusion"][row][2] for row in range(4)] == [3, 3, 3, 3]


def test_a_text_of_ones_own_is_read_in_windows_each_with_the_character_that_follows(tmp_path: Path) -> None:
    file, whole = tmp_path / "mine.txt", "the quick brown fox " * 10
    file.write_text(whole.title())
    asked = DataRequest(folder=file, net="lstm-text")
    data: Any = SCENARIO.open_data(asked)
    assert "".join(data.alphabet[at] for at in data.decode(data.read(2), 2)) == whole[6:46]
    assert data.alphabet[int(data.targets(2))] == whole[46]
    assert (data.describe()["stand_in"], data.describe()["files"]) == (None, ["mine.txt"])
    with pytest.raises(DataError, match="mnist-mlp needs one with mnist"):
        SCENARIO.open_data(DataRequest(folder=file, net="mnist-mlp"))
    file.write_text("short")
    with pytest.raises(DataError, match=r"has 5 characters\. Name a text of more than 40"):
        SCENARIO.open_data(asked)
    with pytest.raises(DataError, match="holds out no text"):
        data_of("lstm-text", split="test")


def test_a_named_folder_without_the_set_is_refused_not_replaced_by_a_stand_in(tmp_path: Path) -> None:
    for net, said in (
        ("mnist-cnn", "has no train-images"),
        ("cifar10-cnn", "holds no CIFAR-10"),
        ("imdb-bilstm", "holds no reviews"),
        ("text-generator", "holds no .txt file"),
    ):
        with pytest.raises(DataError, match=said):
            SCENARIO.open_data(DataRequest(folder=tmp_path, net=net))
    with pytest.raises(DataError, match="does not exist"):
        SCENARIO.open_data(DataRequest(folder=tmp_path / "none", net="mnist-cnn"))


def cifar_file(count: int, label: int) -> bytes:
    return b"".join(bytes([label]) + bytes([n % 256]) * 3072 for n in range(count))


def cifar_folder(folder: Path) -> Path:
    (folder / "cifar10" / cifar.FOLDER).mkdir(parents=True)
    for part in cifar.PARTS.values():
        for number, name in enumerate(part):
            (folder / "cifar10" / cifar.FOLDER / name).write_bytes(cifar_file(3, number))
    return folder


def test_cifar_is_read_from_files_and_from_the_archive_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cifar_folder(tmp_path)
    opened = SCENARIO.open_data(DataRequest(folder=folder, net="cifar10-cnn", limit=14))
    assert opened.describe()["stand_in"] is None
    assert len(opened) == 14
    assert [int(opened.targets(at)) for at in (0, 3, 13)] == [0, 1, 4]
    assert opened.decode(opened.read(4), 4).tolist() == [[[1] * 32] * 32] * 3
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / cifar.ARCHIVE, "w:gz") as tar:
        tar.add(folder / "cifar10" / cifar.FOLDER, cifar.FOLDER)
    with pytest.raises(DataError, match="its md5 is"):
        cifar.open_cifar(packed, "train")
    trust(monkeypatch, cifar, packed / cifar.ARCHIVE)
    assert np.array_equal(cifar.open_cifar(packed, "train").rows[:14], opened.rows)


def test_a_part_of_cifar_or_of_the_reviews_is_no_published_set(tmp_path: Path) -> None:
    images = cifar.open_cifar(cifar_folder(tmp_path) / "cifar10", "test")
    assert images.describe()["set"] == f"{tmp_path / 'cifar10'}, not CIFAR-10"
    [notice] = images.notices()
    assert "with 10000 images per file: test_batch.bin has 3." in notice
    imdb_folder(tmp_path)
    some = SCENARIO.open_data(DataRequest(folder=tmp_path, net="imdb-bilstm", limit=4))
    assert some.describe()["set"] == f"{tmp_path / 'imdb'}, not IMDb's reviews"
    assert ["aclImdb/train/neg has 3, not 12500" in each for each in some.notices()] == [True, False]


def test_broken_files_are_named_and_pickles_refused(tmp_path: Path) -> None:
    folder = cifar_folder(tmp_path) / "cifar10"
    second = folder / cifar.FOLDER / "data_batch_2.bin"
    for content, said in (
        (cifar_file(3, 1)[:-5], "data_batch_2.bin is cut off"),
        (cifar_file(3, 77), "it has the label 77"),
        (None, "data_batch_2.bin is missing"),
    ):
        second.unlink() if content is None else second.write_bytes(content)
        with pytest.raises(DataError, match=said):
            cifar.open_cifar(folder, "train")
    pickled = tmp_path / "pickled" / "cifar-10-batches-py"
    pickled.mkdir(parents=True)
    (pickled / "data_batch_1").write_bytes(b"x")
    with pytest.raises(DataError, match="pickles"):
        cifar.open_cifar(tmp_path / "pickled", "train")
    (imdb_folder(tmp_path / "empty") / "imdb" / "aclImdb" / "train" / "pos" / "1_9.txt").write_text("")
    with pytest.raises(DataError, match=r"1_9.txt has no words"):
        reviews.open_reviews(tmp_path / "empty" / "imdb", "train")
    for name, content, said in (
        ("imdb.npz", b"", "pickles"),
        (reviews.ARCHIVE, b"half of it", "is cut off or another file"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=said):
            reviews.open_reviews(tmp_path, "train")


def test_the_studys_augmentation_moves_and_mirrors_and_changes_no_level() -> None:
    image = np.arange(3 * 32 * 32, dtype=np.uint16).reshape(3, 32, 32)
    made = [cifar.ShiftAndMirror()(image, np.asarray(0), np.random.default_rng(seed))[0] for seed in range(200)]
    assert {each.shape for each in made} == {image.shape}
    assert {int(each[0, 16, 16]) // 32 - 16 for each in made} == {-3, -2, -1, 0, 1, 2, 3}


def imdb_folder(folder: Path) -> Path:
    for split in ("train", "test"):
        for name, said in (("pos", "Good good film.<br />Liked it!"), ("neg", "bad film, bad; hated it")):
            place = folder / "imdb" / "aclImdb" / split / name
            place.mkdir(parents=True)
            for number in range(3):
                (place / f"{number}_9.txt").write_text(said)
    return folder


def test_reviews_are_numbered_as_keras_numbers_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = imdb_folder(tmp_path)
    data = SCENARIO.open_data(DataRequest(folder=folder, net="imdb-bilstm"))
    assert data.describe()["stand_in"] is None
    # Packed, too.
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed" / reviews.ARCHIVE, "w:gz") as tar:
        tar.add(folder / "imdb" / "aclImdb", "aclImdb")
    trust(monkeypatch, reviews, tmp_path / "packed" / reviews.ARCHIVE)
    packed, unpacked = (reviews.open_reviews(place, "test") for place in (tmp_path / "packed", folder / "imdb"))
    assert np.array_equal(packed.words, unpacked.words)
    assert np.array_equal(packed.labels, unpacked.labels)
    row = data.decode(data.read(0), 0)
    words = row[row > 0].tolist()
    assert words[0] == reviews.BEGIN
    assert row[: 100 - len(words)].tolist() == [0] * (100 - len(words))
    # Counted in training: bad, film, good and it six times each, hated and liked three times.
    good, bad = [1, 6, 6, 5, 9, 7], [1, 4, 5, 4, 8, 7]
    assert words == (good if int(data.targets(0)) else bad)
    assert sorted(int(data.targets(at)) for at in range(6)) == [0, 0, 0, 1, 1, 1]


def test_bigrams_of_the_training_reviews_follow_the_words() -> None:
    def of(*rows: list[int]) -> reviews.Reviews:
        words = np.array([word for row in rows for word in row], np.int32)
        return reviews.Reviews(words, np.cumsum([len(row) for row in rows]), np.zeros(len(rows), np.int64), None)

    train, test = of([1, 5, 6], [1, 5, 5]), of([1, 5, 7])
    data = reviews.with_bigrams(train, train, 8)
    # Known pairs in order: (1, 5), (5, 5), (5, 6).
    assert data.rows.tolist() == [[0, 0, 0, 1, 5, 6, 20001, 20003], [0, 0, 0, 1, 5, 5, 20001, 20002]]
    assert data.describe()["symbols"] == 20_004
    assert reviews.with_bigrams(test, train, 4).rows.tolist() == [[1, 5, 7, 20001]]
    assert reviews.with_bigrams(test, of([1]), 4).rows.tolist() == [[0, 1, 5, 7]]
