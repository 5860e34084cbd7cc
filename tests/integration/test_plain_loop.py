"""Ordinary PyTorch loops, observed through the hooks and analysed: steps, parts and settings as they were."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from support.crafted import analysis_of_run, facts_of_run
from support.own_clock import assert_told_apart, stamps
from whyidle.capture.recording import recording
from whyidle.record.run import open_run
from whyidle.record.schema import HOST, STEP
from whyidle.report.contract import run as contract


class Clock:
    """What the training does, by its own stamps."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, int, int]] = []

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        begin = time.monotonic_ns()
        yield
        self.spans.append((what, begin, time.monotonic_ns()))


class Data(Dataset[torch.Tensor]):
    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), float(index))


class Drawing(Sampler[int]):
    """Takes its time over each sample: in the training's own process, whoever makes the batches."""

    def __init__(self, samples: int, clock: Clock, what: str = "input") -> None:
        self.samples, self.clock, self.what = samples, clock, what

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[int]:
        for index in range(self.samples):
            with self.clock(self.what):
                time.sleep(0.001)
            yield index


def train(loader: DataLoader[torch.Tensor], clock: Clock, epochs: int = 1, validation: bool = False) -> None:
    net = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    for _ in range(epochs):
        for batch in loader:
            loss = net(batch).square().mean()
            with clock("compute"):
                time.sleep(0.001)
            loss.backward()
            optimizer.step()
            with clock("host"):
                time.sleep(0.002)
                optimizer.zero_grad()
        if validation:
            with torch.no_grad():
                for batch in DataLoader(Data(12), 4, sampler=Drawing(12, clock, "boundary")):
                    net(batch)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_loops_time_is_told_apart_as_by_its_own_clock(tmp_path: Path, workers: int) -> None:
    clock = Clock()
    loader = DataLoader(Data(96), 4, sampler=Drawing(96, clock), num_workers=workers, persistent_workers=workers > 0)
    with recording(tmp_path / "run", "cpu", sampler=False):
        train(loader, clock, epochs=2, validation=True)
    analysis = analysis_of_run(tmp_path / "run")
    facts = analysis.facts
    assert facts.window.count + facts.window.warmup_steps == 48
    assert facts.samples == 4 * facts.window.count
    assert_told_apart(facts, stamps(clock.spans))
    report = contract.report(analysis)
    assert report["input"]["workers"] == workers
    assert (report["breakdown"]["boundary_pct"] or 0) > 0


def test_gradient_accumulation_makes_a_step_of_each_batch(tmp_path: Path) -> None:
    clock = Clock()
    with recording(tmp_path / "run", "cpu", sampler=False):
        train(DataLoader(Data(160), 4, sampler=Drawing(160, clock)), clock, every=4)
    facts = facts_of_run(tmp_path / "run")
    assert facts.window.count + facts.window.warmup_steps == 40
    # What comes after an optimizer step is the host's, and no computing.
    assert_told_apart(facts, stamps(clock.spans))


def test_a_recording_has_its_sampler_and_says_how_it_ended(tmp_path: Path) -> None:
    loader = DataLoader(Data(80), batch_size=4)
    epochs, until = 0, time.monotonic() + 240
    with pytest.raises(ZeroDivisionError), recording(tmp_path / "run", "cpu"):
        while not len(open_run(tmp_path / "run").records(HOST)):
            assert time.monotonic() < until, "the sampler never began"
            train(loader, Clock())
            epochs += 1
        raise ZeroDivisionError
    run = open_run(tmp_path / "run")
    assert run.info["ended"]["status"] == "failed"
    facts = facts_of_run(tmp_path / "run")
    assert facts.window.count + facts.window.warmup_steps == 20 * epochs
    assert facts.sampled.cpu_budget > 0
    # Everything is as it was: the same loop again leaves nothing behind.
    before = len(run.records(STEP))
    train(loader, Clock())
    assert len(open_run(tmp_path / "run").records(STEP)) == before
