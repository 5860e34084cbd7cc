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
from support.hooked import learn, recording
from whyidle.analyse.run.analysis import warnings_of
from whyidle.capture.hooks.loader_facts import DataSets
from whyidle.devices.cpu import CpuDevice

pytestmark = pytest.mark.usefixtures("either_path")

MS = 1_000_000
STEPS = 20
"""Of an epoch."""


class Timed(CpuDevice):
    """A processor whose clock stands still but for what is said to take time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 10**9
        self.now = lambda: self.now_ns  # type: ignore[assignment, misc]


class Rows(Dataset[torch.Tensor]):
    """Each sample takes 10 ms."""

    def __init__(self, samples: int, clock: Timed) -> None:
        self.samples, self.clock = samples, clock

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        self.clock.now_ns += 10 * MS
        return torch.ones(4)


class Trained:
    """A program that trains with a batch of one sample, and evaluates."""

    def __init__(self, folder: Path) -> None:
        self.clock = Timed()
        self.net = torch.nn.Linear(4, 1)
        self.training = DataLoader(Rows(STEPS, self.clock), 1)
        self.folder = folder

    def trains(self) -> None:
        for batch in self.training:
            learn(self.net, batch)
            self.clock.now_ns += 10 * MS

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


@pytest.fixture
def program(tmp_path: Path) -> Trained:
    return Trained(tmp_path)


def test_a_validation_counts_and_the_test_and_prediction_behind_it_are_shown_apart(program: Trained) -> None:
    checked, tested, predicted = program.rows(5), program.rows(30), program.rows(20)
    with recording(program.folder, device=program.clock):
        for _ in range(3):
            program.trains()
            program.evaluates(checked)
        program.evaluates(tested)
        program.evaluates(predicted)
    assert program.behind_ms() == (50, 500)
    notes = warnings_of(facts_of_run(program.folder / "run"))
    (said,) = [note for note in notes if note.startswith("After the training")]
    assert "2 passes" in said
    assert "0.50 s" in said


@pytest.mark.parametrize("left_early", [True, False])
def test_the_first_pass_after_the_only_epoch_is_its_validation(program: Trained, left_early: bool) -> None:
    checked, tested = program.rows(5), program.rows(30)
    with recording(program.folder, device=program.clock):
        program.trains()
        program.evaluates(checked, most=3 if left_early else 99)
        program.evaluates(tested)
    assert program.behind_ms() == (30 if left_early else 50, 300)


def test_a_test_behind_several_epochs_without_validation_is_none_of_the_training(program: Trained) -> None:
    tested = program.rows(30)
    with recording(program.folder, device=program.clock):
        for _ in range(2):
            program.trains()
        program.evaluates(tested)
    assert program.behind_ms() == (0, 300)


def test_what_comes_behind_a_test_is_no_training_either_unless_it_trains(program: Trained) -> None:
    checked, tested = program.rows(5), program.rows(30)
    with recording(program.folder, device=program.clock):
        for _ in range(2):
            program.trains()
            program.evaluates(checked)
        program.evaluates(tested)
        program.evaluates(checked)
    assert program.behind_ms() == (50, 350)


def test_a_training_that_goes_on_after_a_test_has_it_between_its_steps(program: Trained) -> None:
    checked, tested = program.rows(5), program.rows(30)
    with recording(program.folder, device=program.clock):
        for _ in range(2):
            program.trains()
            program.evaluates(tested)
        program.trains()
        program.evaluates(tested)
        program.evaluates(checked)
    assert program.behind_ms() == (300, 50)


def test_a_loader_and_a_data_set_made_anew_for_each_pass_are_still_the_validation(program: Trained) -> None:
    tested = program.rows(30)
    with recording(program.folder, device=program.clock):
        for _ in range(3):
            program.trains()
            program.evaluates(program.rows(5))
            gc.collect()
        program.evaluates(tested)
    assert program.behind_ms() == (50, 300)


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
    kept: list[Any] = [Rows(3, Timed()), Rows(3, Timed())]
    assert [sets.number_of(each) for each in kept] == [3, 4]
    del kept[0]
    gc.collect()
    assert sets.number_of(Rows(4, Timed())) == 5
    assert sets.number_of(Rows(3, Timed())) == 3


def test_a_list_is_known_by_its_looks_and_not_kept() -> None:
    sets = DataSets()
    assert sets.number_of([1, 2]) == sets.number_of([3, 4])
    assert sets.number_of([1]) == 2
