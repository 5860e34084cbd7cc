"""Fetches from iterators that are no torch DataLoader, and steps that no fetch opens."""

from __future__ import annotations

import sys
import threading
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from support.hooked import Net
from whyidle.capture.hooks.install import Hooks, install
from whyidle.capture.hooks.samples import samples_of
from whyidle.capture.imports import Imports
from whyidle.capture.session import Session
from whyidle.devices.cpu import CpuDevice
from whyidle.record.reader import Records
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, NOT_MEASURED, PAUSE, STEP, EventKind, PauseKind, StepFlag


class Recording:
    """A real one, of the thread that makes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = create_run(folder, {})
        self.session = Session(self.folder, CpuDevice())
        self.hooks: Hooks = install(self.session, CpuDevice())

    def done(self) -> Records:
        self.hooks.remove()
        self.session.finish()
        return open_run(self.folder).records(STEP)

    def pauses(self) -> int:
        return int((open_run(self.folder).records(PAUSE)["what"] == PauseKind.FETCH).sum())

    def boundaries(self) -> int:
        return int((open_run(self.folder).records(EVENT)["what"] == EventKind.BOUNDARY).sum())

    def notices(self) -> str:
        return (self.folder / "training-notices.txt").read_text()


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    made = Recording(tmp_path / "run")
    yield made
    made.done()


EPOCH_ITERATOR = """
from threading import Thread
from queue import Queue

class EpochIterator(Thread):
    def __init__(self, loader, order):
        super().__init__(daemon=True)
        self.order, self.output_queue, self.closed = order, Queue(2), False
        self.start()

    def run(self):
        import torch
        for slot, _ in enumerate(self.order):
            self.output_queue.put((slot, (torch.ones(6, 3), torch.zeros(6))))
        self.output_queue.put(None)

    def __next__(self):
        result = self.output_queue.get()
        if result is None:
            self.close()
            raise StopIteration()
        return result[1]

    def __iter__(self):
        return self

    def close(self):
        self.closed = True
"""
LOADER = """
from .epoch_iterator import EpochIterator

class Loader:
    def __iter__(self):
        return EpochIterator(self, [0, 1, 2, 3])

    def __len__(self):
        return 4
"""


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to write stand-ins of libraries to, importable by their names."""
    folder = tmp_path / "libraries"
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("ffcv", "spdl"):
            del sys.modules[name]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for package in path.relative_to(folder).parents[:-1]:
            (folder / package / "__init__.py").touch()
        path.write_text(text)


def test_a_loader_of_the_shape_of_ffcvs_is_seen_once_it_is_imported(recording: Recording, libraries: Path) -> None:
    write(libraries, ffcv__loader__epoch_iterator=EPOCH_ITERATOR, ffcv__loader__loader=LOADER)
    module = __import__("ffcv.loader.loader", fromlist=["Loader"])
    net, loader, checks = Net(), module.Loader(), module.Loader()
    for _ in range(2):
        for x, _y in loader:
            net.learn(x)
        with torch.no_grad():
            for x, _y in checks:
                net.model(x)
    original = module.Loader.__iter__.__wrapped__
    steps = recording.done()
    assert steps["samples"].tolist() == [6] * 8
    assert steps["epoch"].tolist() == [0] * 4 + [1] * 4
    assert (steps["fetch_end_ns"] > steps["fetch_begin_ns"]).all()
    assert recording.boundaries() == 2
    assert module.Loader.__iter__ is original


def test_a_library_of_another_shape_is_left_alone_with_one_notice(recording: Recording, libraries: Path) -> None:
    write(
        libraries, ffcv__loader__epoch_iterator=EPOCH_ITERATOR.replace("__next__", "get"), ffcv__loader__loader=LOADER
    )
    __import__("ffcv.loader.loader")
    assert recording.notices().count("The iterators of FFCV differ from those that whyidle knows") == 1


def test_what_a_library_iterates_over_itself_is_no_fetch(recording: Recording) -> None:
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
    assert recording.done()["samples"].tolist() == [4] * 3 + [1] * 12 + [6] * 2


def test_a_generator_in_the_place_of_a_librarys_can_be_closed_and_fails_as_it_does(recording: Recording) -> None:
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


def test_a_web_loader_that_only_hands_on_keeps_its_data_loaders_settings(recording: Recording) -> None:
    wds = pytest.importorskip("webdataset")
    net = Net()
    dataset = TensorDataset(torch.ones(12, 3))
    for (x,) in wds.WebLoader(dataset, batch_size=4, num_workers=0):
        net.learn(x)
    for (x,) in wds.WebLoader(dataset, batch_size=4).unbatched().batched(3):
        net.learn(x)
    assert recording.done()["samples"].tolist() == [4] * 3 + [3] * 4
    events = open_run(recording.folder).records(EVENT)
    assert events["value"][events["what"] == EventKind.LOADER_WORKERS].tolist() == [0]


def test_fetches_of_another_thread_do_not_count_as_the_trainings(recording: Recording) -> None:
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
    assert recording.done()["samples"].tolist() == [2] * 5


def test_without_a_loader_steps_are_taken_from_one_optimizer_step_to_the_next(recording: Recording) -> None:
    net = Net()
    for _ in range(10):
        for _ in range(2):
            net.model(torch.ones(4, 3)).mean().backward()
        net.optimizer.step()
    steps = recording.done()
    assert len(steps) == 7
    assert (steps["fetch_end_ns"] == NOT_MEASURED).all()
    assert (steps["samples"] == NOT_MEASURED).all()
    assert (steps["optimizer_end_ns"] > steps["backward_begin_ns"]).all()
    assert steps["fetch_begin_ns"][1:].tolist() == steps["step_end_ns"][:-1].tolist()
    assert recording.notices().count("sees no loader") == 1


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_forward_pass_ahead_of_the_fetch_is_known_and_no_other_work_is_taken_for_one(
    recording: Recording, ahead: bool, scaled: bool, accumulated: int
) -> None:
    net, logged = Net(), torch.zeros((), requires_grad=True)
    batches = iter(DataLoader(TensorDataset(torch.ones(60, 3)), batch_size=5))
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
    flags = recording.done()["flags"]
    # The last step has no fetch after it.
    assert ((flags[:-1] & StepFlag.FORWARD_AFTER) != 0).tolist() == [ahead] * (len(flags) - 1)
    assert len(flags) >= 10


def test_metrics_of_outputs_are_no_forward_pass_ahead_where_the_model_was_called_behind_the_fetch(
    recording: Recording,
) -> None:
    """They make more nodes of the graph than a small net's forward pass."""
    net = Net()
    for (x,) in DataLoader(TensorDataset(torch.ones(60, 3)), batch_size=5):
        outputs = net.model(x)
        outputs.square().mean().backward()
        net.optimizer.step()
        net.optimizer.zero_grad()
        _ = [row.detach() for row in outputs.softmax(1) for _ in range(8)] + [outputs[n] for n in range(5)]
    flags = recording.done()["flags"]
    # In the first steps it is not known yet which module the model is.
    assert len(flags) >= 10
    assert not (flags[4:] & StepFlag.FORWARD_AFTER).any()


def test_of_several_optimizers_the_last_in_turn_ends_a_step_without_a_loader(recording: Recording) -> None:
    ones, others = Net(), Net()
    for _ in range(10):
        ones.learn(torch.ones(4, 3))
        others.learn(torch.ones(4, 3))
    for _ in range(40):
        ones.learn(torch.ones(4, 3))
    # The third optimizer step is the first's: the fourth begins the steps. The second one's end is noticed later.
    steps = recording.done()
    assert len(steps) == 8 + (40 - 16)


def test_a_loader_that_comes_later_takes_over(recording: Recording) -> None:
    net = Net()
    for _ in range(5):
        net.learn(torch.ones(4, 3))
    for (x,) in DataLoader(TensorDataset(torch.ones(12, 3)), batch_size=3):
        net.learn(x)
    for _ in range(5):
        net.learn(torch.ones(4, 3))
    steps = recording.done()
    assert steps["samples"].tolist() == [NOT_MEASURED] * 2 + [3] * 4 + [NOT_MEASURED] * 2


def test_a_validation_iterator_that_is_kept_trains_nothing(recording: Recording) -> None:
    net, training = Net(), DataLoader(TensorDataset(torch.ones(60, 3)), batch_size=3)
    checks = iter(DataLoader(TensorDataset(torch.ones(60, 3)), batch_size=4))
    for number, (x,) in enumerate(training):
        net.learn(x)
        if number % 2 == 1:
            with torch.no_grad():
                net.model(next(checks)[0])
    assert recording.done()["samples"].tolist() == [3] * 20


def test_a_second_fetch_in_the_midst_of_a_step_is_waiting_too(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whyidle.capture.loop_detector.state.ADJACENT_NS", 0)
    net = Net()
    others = iter(DataLoader(TensorDataset(torch.ones(100, 3)), batch_size=5))
    for number, (x,) in enumerate(DataLoader(TensorDataset(torch.ones(30, 3)), batch_size=3)):
        net.learn(torch.cat([x, next(others)[0]]) if number else x)
    assert recording.done()["samples"].tolist() == [3] * 10
    assert recording.pauses() == 9


Pair = namedtuple("Pair", "names x")


@dataclass
class Batch:
    names: list[str]
    x: torch.Tensor


@pytest.mark.parametrize(
    "batch",
    [
        Pair(["a", "b"], torch.ones(2, 3)),
        Batch(["a", "b"], torch.ones(2, 3)),
        {"names": ["a", "b"], "inner": {"x": torch.ones(2, 3)}},
        [["a", "b"], torch.ones(2)],
        ["a", "b"],
    ],
    ids=["namedtuple", "dataclass", "dict", "list", "texts"],
)
def test_samples_are_counted_in_batches_of_any_shape(batch: Any) -> None:
    assert samples_of(batch) == 2


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
