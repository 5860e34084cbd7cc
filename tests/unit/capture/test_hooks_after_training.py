"""What belongs to a training behind its last step: a validation does, a test and a prediction do not."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from support.crafted import facts_of_run
from support.hooked import Clocked, learn, recording
from whyidle.analyse.run.analysis import warnings_of
from whyidle.capture.hooks.loader_facts import DataSets

pytestmark = pytest.mark.usefixtures("either_path")

MS = 1_000_000
STEPS = 20
"""Of an epoch."""


class Rows(Dataset[torch.Tensor]):
    """Each sample takes 10 ms."""

    def __init__(self, samples: int, clock: Clocked) -> None:
        self.samples, self.clock = samples, clock

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        self.clock.take(10)
        return torch.ones(4)


class Trained:
    """A program that trains with a batch of one sample, and evaluates."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clocked()
        self.net = torch.nn.Linear(4, 1)
        self.training = DataLoader(Rows(STEPS, self.clock), 1)
        self.folder = folder

    def trains(self) -> None:
        for batch in self.training:
            learn(self.net, batch)
            self.clock.take(10)

    def rows(self, samples: int) -> DataLoader[torch.Tensor]:
        return DataLoader(Rows(samples, self.clock), 1)

    def evaluates(self, loader: Iterable[torch.Tensor], most: int = 99) -> None:
        with torch.no_grad():
            for number, batch in enumerate(loader, 1):
                self.net(batch)
                if number == most:
                    break

    def behind_ms(self) -> tuple[int, int]:
        """Time of the window behind its last step, and what is shown apart."""
        window = facts_of_run(self.folder / "run").window
        behind = window.end_ns - int(window.steps["step_end_ns"].max())
        after = window.after
        return behind // MS, 0 if after is None else (after.end_ns - after.begin_ns) // MS


@pytest.mark.parametrize(
    ("passes", "behind_ms"),
    [
        ("tvtvtvep", (50, 500)),  # the test and the prediction behind a validation
        ("tve", (50, 300)),  # the first pass after the only epoch is its validation
        ("twe", (30, 300)),
        ("tte", (0, 300)),
        ("tvtvev", (50, 350)),
        ("tetetev", (300, 50)),  # a training that goes on after a test
        ("tntntne", (50, 300)),
    ],
)
def test_a_validation_counts_and_a_test_and_a_prediction_do_not(
    tmp_path: Path, passes: str, behind_ms: tuple[int, int]
) -> None:
    program = Trained(tmp_path)
    checked, tested, predicted = program.rows(5), program.rows(30), program.rows(20)
    with recording(tmp_path, device=program.clock):
        for each in passes:
            match each:
                case "t":
                    program.trains()
                case "v" | "w":
                    program.evaluates(checked, most=99 if each == "v" else 3)
                case "n":  # a loader and a data set made anew for each pass
                    program.evaluates(program.rows(5))
                    gc.collect()
                case _:
                    program.evaluates(tested if each == "e" else predicted)
    assert program.behind_ms() == behind_ms
    said = [note for note in warnings_of(facts_of_run(tmp_path / "run")) if note.startswith("After the training")]
    assert [f"{behind_ms[1] / 1000:.2f} s" in note for note in said] == [True]
    assert ("2 passes" in said[0]) == (passes in ("tvtvtvep", "tvtvev"))


class Printed:
    """As data sets of `datasets`: what is made of one in the same way has the same fingerprint."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint

    def __len__(self) -> int:
        raise RuntimeError("is not to be asked")


def test_a_data_set_is_known_again_by_itself_by_its_fingerprint_and_by_its_looks_once_it_is_gone() -> None:
    sets = DataSets()
    one, other = Printed("a"), Printed("b")
    assert [sets.number_of(one), sets.number_of(other), sets.number_of(one)] == [1, 2, 1]
    assert sets.number_of(Printed("a")) == 1
    kept: list[Any] = [Rows(3, Clocked()), Rows(3, Clocked())]
    assert [sets.number_of(each) for each in kept] == [3, 4]
    del kept[0]
    gc.collect()
    assert sets.number_of(Rows(4, Clocked())) == 5
    assert sets.number_of(Rows(3, Clocked())) == 3
    assert sets.number_of([1, 2]) == sets.number_of([3, 4])
