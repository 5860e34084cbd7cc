"""What steps tell of the shapes of their batches."""

from __future__ import annotations

import contextlib
from collections import UserDict, namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from support.hooked import learn, recording, shapes, sized
from whyidle.capture.hooks import shapes as shapes_module
from whyidle.capture.steps import Thinning
from whyidle.record.run import open_run
from whyidle.record.schema import STEP, StepFlag

Pair = namedtuple("Pair", "image label")


def train_on(folder: Path, batches: list[Any], thinning: Thinning | None = None) -> str:
    """Train once on each of these, as a loader hands them over; what is said of their shapes."""
    weight = torch.ones(1, requires_grad=True)
    with recording(folder, thinning):
        for _ in DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch):  # type: ignore[arg-type]
            weight.square().sum().backward()  # type: ignore[no-untyped-call]
    return shapes(folder)


def nested(length: int) -> Any:
    return (["text", 3], {"deep": [{"er": torch.ones(2, length)}]})


SPARSE = torch.eye(3).to_sparse()
MANY = [torch.ones(1)] * shapes_module.MOST_TENSORS


@pytest.mark.parametrize(
    ("batches", "told", "elements"),
    [
        (sized(3, 3, 5, 3, 7, 7, 5), "nknknkk", [6, 6, 10, 6, 14, 14, 10]),
        ([[a, torch.ones(2, 2)] for a in sized(3, 5, 3)], "nnk", [10, 14, 10]),
        ([torch.ones(3), torch.ones(3).int(), torch.ones(3)], "nnk", [3, 3, 3]),
        ([torch.ones(1).expand(2**33), torch.ones(3)], "nn", [StepFlag.MOST_ELEMENTS, 3]),
        ([{"ids": a, "name": "x"} for a in sized(3, 4, 3)], "nnk", [6, 8, 6]),
        ([Pair(torch.ones(1), a) for a in sized(3, 4, 3)], "nnk", [7, 9, 7]),
        ([UserDict({"x": a}) for a in sized(3, 4, 3)], "nnk", [6, 8, 6]),
        ([nested(3), nested(4), nested(3)], "nnk", [6, 8, 6]),
        ([torch.nn.Parameter(a) for a in sized(3, 4, 3)], "nnk", [6, 8, 6]),
        ([["text"], torch.ones(3), np.ones(3)], "-n-", [0, 3, 0]),
        ([SPARSE, [torch.ones(3), SPARSE], torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])], "---", [0] * 3),
        ([[*MANY, torch.ones(n)] for n in (1, 2, 3)], "nkk", [len(MANY)] * 3),
    ],
)
def test_steps_tell_whether_their_batch_has_a_new_shape_and_how_many_elements(
    tmp_path: Path, batches: list[Any], told: str, elements: list[int]
) -> None:
    assert train_on(tmp_path, batches) == told
    flags = open_run(tmp_path / "run").records(STEP)["flags"]
    assert [int(f) >> StepFlag.ELEMENTS_SHIFT & StepFlag.MOST_ELEMENTS for f in flags] == elements
    assert [bool(f & StepFlag.FIRST_OF_EPOCH) for f in flags] == [True] + [False] * (len(flags) - 1)


def test_when_too_many_shapes_were_seen_nothing_is_said_any_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes_module, "MOST_SEEN", 3)
    assert train_on(tmp_path, sized(1, 2, 1, 3, 1, 4)) == "nnkn--"


def test_a_mode_of_the_program_does_not_see_that_shapes_are_looked_at(tmp_path: Path) -> None:
    class Counting(torch.overrides.TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Counting.calls += 1
            return func(*args, **(kwargs or {}))

    weight = torch.ones(1, requires_grad=True)
    loader: Any = DataLoader(sized(3, 4), batch_size=None, collate_fn=lambda batch: batch)  # type: ignore[arg-type]
    seen = []
    for folder in (None, tmp_path):
        Counting.calls = 0
        with recording(folder) if folder else contextlib.nullcontext(), Counting():
            for _ in loader:
                torch.autograd.backward(weight * 2)
        seen.append(Counting.calls)
    assert seen[0] == seen[1]


def test_shapes_are_those_of_the_batch_trained_where_one_is_held_back(tmp_path: Path) -> None:
    def one_behind(batches: Any) -> Iterator[Any]:
        iterator = iter(batches)
        held = next(iterator)
        for batch in iterator:
            yield held
            held = batch
        yield held

    net = torch.nn.LazyLinear(1)
    loader: Any = DataLoader(sized(4, 4, 4, 4), batch_size=None)  # type: ignore[arg-type]
    ragged: Any = [torch.ones(rows, 4) for rows in (2, 2, 3, 2, 5)]
    with recording(tmp_path):
        for data in (loader, DataLoader(ragged, batch_size=None)):
            for batch in one_behind(data):
                learn(net, batch)
    samples = open_run(tmp_path / "run").records(STEP)["samples"].tolist()
    assert samples == [2, 2, 2, 2, 2, 2, 3, 2, 5]
    assert shapes(tmp_path) == "nkkkkknkn"


def test_either_loader_of_a_step_may_bring_a_new_shape(tmp_path: Path) -> None:
    net = torch.nn.Linear(4, 1)
    labelled: Any = DataLoader([torch.ones(2, 4)] * 4, batch_size=None)  # type: ignore[arg-type]
    unlabelled: Any = DataLoader([torch.ones(n, 4) for n in (2, 2, 3, 3)], batch_size=None)  # type: ignore[arg-type]
    with recording(tmp_path):
        for first, second in zip(labelled, unlabelled, strict=True):
            learn(net, torch.cat([first, second]))
    assert shapes(tmp_path) == "nknk"
