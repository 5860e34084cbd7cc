"""What steps tell of the shapes of their batches."""

from __future__ import annotations

import contextlib
from collections import UserDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from support.hooked import Recording, ahead, learn, recording, sized
from whyidle.capture.hooks import parts
from whyidle.record.schema import StepFlag

Pair = namedtuple("Pair", "image label")


def given(batches: list[Any]) -> DataLoader[Any]:
    """A loader that hands over these, as they are."""
    return DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch)  # type: ignore[arg-type]


def train_on(folder: Path, batches: list[Any]) -> Recording:
    """Train once on each of these."""
    weight = torch.ones(1, requires_grad=True)
    with recording(folder) as made:
        for _ in given(batches):
            weight.square().sum().backward()  # type: ignore[no-untyped-call]
    return made


def nested(length: int) -> Any:
    return (["text", 3], {"deep": [{"er": torch.ones(2, length)}]})


SPARSE = torch.eye(3).to_sparse()
MANY = [torch.ones(1)] * parts.MOST_TENSORS


@pytest.mark.usefixtures("either_path")
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
    made = train_on(tmp_path, batches)
    assert made.shapes == told
    assert [int(f) >> StepFlag.ELEMENTS_SHIFT & StepFlag.MOST_ELEMENTS for f in made.done()["flags"]] == elements
    assert made.flagged(StepFlag.FIRST_OF_EPOCH) == [True] + [False] * (len(batches) - 1)


def test_when_too_many_shapes_were_seen_nothing_is_said_any_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MOST_SEEN", 3)
    assert train_on(tmp_path, sized(1, 2, 1, 3, 1, 4)).shapes == "nnkn--"


def test_a_mode_of_the_program_does_not_see_that_shapes_are_looked_at(tmp_path: Path) -> None:
    class Counting(torch.overrides.TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Counting.calls += 1
            return func(*args, **(kwargs or {}))

    weight = torch.ones(1, requires_grad=True)
    seen = []
    for around in (contextlib.nullcontext(), recording(tmp_path)):
        Counting.calls = 0
        with around, Counting():
            for _ in given(sized(3, 4)):
                torch.autograd.backward(weight * 2)
        seen.append(Counting.calls)
    assert seen[0] == seen[1]


def test_shapes_are_those_of_the_batch_trained_where_one_is_held_back(tmp_path: Path) -> None:
    net = torch.nn.LazyLinear(1)
    with recording(tmp_path) as made:
        for batches in (sized(4, 4, 4, 4), [torch.ones(rows, 4) for rows in (2, 2, 3, 2, 5)]):
            for batch in ahead(given(batches)):
                learn(net, batch)
    assert made.samples == [2, 2, 2, 2, 2, 2, 3, 2, 5]
    assert made.shapes == "nkkkkknkn"


def test_either_loader_of_a_step_may_bring_a_new_shape(tmp_path: Path) -> None:
    net = torch.nn.Linear(4, 1)
    unlabelled = given([torch.ones(n, 4) for n in (2, 2, 3, 3)])
    with recording(tmp_path) as made:
        for first, second in zip(given([torch.ones(2, 4)] * 4), unlabelled, strict=True):
            learn(net, torch.cat([first, second]))
    assert made.shapes == "nknk"
