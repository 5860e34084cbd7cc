"""Fetches from iterators that are no torch DataLoader, and steps that no fetch opens."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from support.hooked import Net, Recording, data, recording
from whyidle.capture.imports import Imports
from whyidle.record.schema import EventKind, StepFlag


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Recording]:
    with recording(tmp_path) as begun:
        yield begun


EPOCH_ITERATOR = """
from threading import Thread
import torch

class EpochIterator(Thread):
    def __init__(self, loader, order):
        super().__init__(daemon=True)
        self.left = iter(order)

    def __next__(self):
        next(self.left)
        return torch.ones(6, 3), torch.zeros(6)

    def __iter__(self):
        return self
"""
LOADER = """
from .epoch_iterator import EpochIterator

class Loader:
    def __iter__(self):
        return EpochIterator(self, [0, 1, 2, 3])
"""


@pytest.fixture
def ffcv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports a stand-in for FFCV's loader, whose iterators give batches by a method of this name."""
    folder = tmp_path / "libraries/ffcv/loader"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "libraries"))

    def imported(method: str) -> Any:
        for each in (folder, folder.parent):
            (each / "__init__.py").touch()
        (folder / "epoch_iterator.py").write_text(EPOCH_ITERATOR.replace("__next__", method))
        (folder / "loader.py").write_text(LOADER)
        return importlib.import_module("ffcv.loader.loader")

    yield imported
    for name in [name for name in sys.modules if name.split(".")[0] == "ffcv"]:
        del sys.modules[name]


def test_a_loader_of_the_shape_of_ffcvs_is_seen_once_it_is_imported(
    made: Recording, ffcv: Callable[[str], Any]
) -> None:
    module = ffcv("__next__")
    net, loader, checks = Net(), module.Loader(), module.Loader()
    for _ in range(2):
        net.learns(x for x, _y in loader)
        net.evaluate(x for x, _y in checks)
    original = module.Loader.__iter__.__wrapped__
    steps = made.done()
    assert steps["samples"].tolist() == [6] * 8
    assert steps["epoch"].tolist() == [0] * 4 + [1] * 4
    assert (steps["fetch_end_ns"] > steps["fetch_begin_ns"]).all()
    assert len(made.values(EventKind.BOUNDARY)) == 2
    assert module.Loader.__iter__ is original


def test_a_library_of_another_shape_is_left_alone_with_one_notice(made: Recording, ffcv: Callable[[str], Any]) -> None:
    ffcv("get")
    said = "The iterators of FFCV differ from those that whyidle knows"
    assert [note for note in made.notices if said in note] == made.notices[:1]


def test_what_a_library_iterates_over_itself_is_no_fetch(made: Recording) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    net = Net()
    table = datasets.Dataset.from_dict({"x": [[1.0, 2.0, 3.0]] * 12})
    table = table.map(lambda row: {"x": [v + 1 for v in row["x"]]}).with_format("torch")
    assert type(stand_in := iter(table)) is not stand_in.__class__
    for batch in table.iter(batch_size=4):
        net.learn(batch["x"])
    for row in table:
        net.learn(row["x"])
    for batch in DataLoader(table, batch_size=6):
        net.learn(batch["x"])
    assert made.samples == [4] * 3 + [1] * 12 + [6] * 2


def test_a_generator_in_the_place_of_a_librarys_can_be_closed_and_fails_as_it_does(made: Recording) -> None:
    datasets = pytest.importorskip("datasets")

    def rows() -> Iterator[dict[str, float]]:
        yield {"x": 1.0}
        raise KeyError("theirs")

    iterator = iter(datasets.IterableDataset.from_generator(rows))
    next(iterator)
    with pytest.raises(Exception, match="theirs"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
    other = iter(datasets.IterableDataset.from_generator(rows))
    other.close()
    assert list(other) == []


def test_a_web_loader_that_only_hands_on_keeps_its_data_loaders_settings(made: Recording) -> None:
    wds = pytest.importorskip("webdataset")
    net = Net()
    dataset = TensorDataset(torch.ones(12, 3))
    for (x,) in wds.WebLoader(dataset, batch_size=4, num_workers=0):
        net.learn(x)
    for (x,) in wds.WebLoader(dataset, batch_size=4).unbatched().batched(3):
        net.learn(x)
    assert made.samples == [4] * 3 + [3] * 4
    assert made.values(EventKind.LOADER_WORKERS) == [0]


def test_fetches_of_another_thread_do_not_count_as_the_trainings(made: Recording) -> None:
    nodes = pytest.importorskip("torchdata.nodes")

    def drain() -> None:
        for _ in nodes.Loader(nodes.IterableWrapper([torch.ones(2, 3)] * 5)):
            pass

    net = Net()
    for x in nodes.Loader(nodes.IterableWrapper([torch.ones(2, 3)] * 5)):
        thread = threading.Thread(target=drain)
        thread.start()
        thread.join()
        net.learn(x)
    assert made.samples == [2] * 5


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_forward_pass_ahead_of_the_fetch_is_known_and_no_other_work_is_taken_for_one(
    made: Recording, ahead: bool, scaled: bool, accumulated: int
) -> None:
    net, logged = Net(), torch.zeros((), requires_grad=True)
    batches = iter(data(60, 5))
    (x,) = next(batches)
    for number in range(11):
        if ahead:
            loss = net.model(x).square().mean()
        (x,) = next(batches)
        if not ahead:
            loss = net.model(x).square().mean()
        if scaled:
            loss = loss / 2
        loss.backward()
        if number % accumulated == 0:
            net.optimizer.step()
            net.optimizer.zero_grad()
        if not ahead:
            logged = logged + loss  # grows a graph too, as careless logging does
    after = made.flagged(StepFlag.FORWARD_AFTER)
    # The last step has no fetch after it.
    assert after[:-1] == [ahead] * (len(after) - 1)
    assert len(after) >= 10


def test_metrics_of_outputs_are_no_forward_pass_ahead_where_the_model_was_called_behind_the_fetch(
    made: Recording,
) -> None:
    """They make more nodes of the graph than a small net's forward pass."""
    net = Net()
    for (x,) in data(60, 5):
        outputs = net.model(x)
        outputs.square().mean().backward()
        net.optimizer.step()
        net.optimizer.zero_grad()
        _ = [row.detach() for row in outputs.softmax(1) for _ in range(8)] + [outputs[n] for n in range(5)]
    after = made.flagged(StepFlag.FORWARD_AFTER)
    # In the first steps it is not known yet which module the model is.
    assert len(after) >= 10
    assert not any(after[4:])


def test_a_callback_waits_for_an_import_and_survives_its_absence() -> None:
    imports, seen = Imports(), []
    imports.when("json", lambda module: seen.append(module.__name__))
    imports.when("colorsys", lambda module: seen.append(module.__name__))
    imports.when("no_such_module_at_all", lambda module: seen.append(module.__name__))
    sys.modules.pop("colorsys", None)
    import colorsys

    with pytest.raises(ModuleNotFoundError):
        __import__("no_such_module_at_all")
    imports.forget()
    assert seen == ["json", "colorsys"]
    assert isinstance(colorsys, ModuleType)
    assert imports not in sys.meta_path
