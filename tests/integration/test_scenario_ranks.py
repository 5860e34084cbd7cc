"""Trials of several ranks: what they share, what they add up to, and how they end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.crafted import analysis_of_run
from support.terminals import alive
from whyidle.analyse.cells.comparison import Cell, RunRow
from whyidle.matrix.trial import TrialOutcome, TrialServer
from whyidle.record.run import open_run, processes
from whyidle.record.schema import STEP
from whyidle.scenarios.trial import TrialSpec

SCENARIO = '''
"""Numbers to be told even from odd; every loss writes down which samples it is of, and what the net is then."""

import json, os

import numpy as np
import torch

from whyidle.scenarios.scenario import Scenario

SAMPLES = 5001


class Numbers:
    stages = ()
    def __init__(self, samples):
        self.samples = samples
    def __len__(self):
        return self.samples
    def read(self, index):
        return np.int64(index).tobytes()
    def decode(self, data, index):
        return np.frombuffer(data, np.int64).astype(np.float32) % np.arange(2, 10, dtype=np.float32)
    def targets(self, index):
        return np.array(index % 2, np.int64)
    def describe(self):
        return {"samples": self.samples, "unit": "number", "stand_in": None}
    def notices(self):
        return ()


class Parity(Scenario):
    name, study, question, data = "parity", "none", "none", "none"
    nets = cpu_nets = ("fashion-cnn4", "ssd512")
    batch_sizes = (8,)

    def find_data(self, net, say):
        raise NotImplementedError
    def open_data(self, request):
        self.folder = request.folder
        return Numbers(request.limit or SAMPLES)
    def build(self, net, data):
        # `model.note` is asked for of what several ranks train together.
        net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        net.note = self.note
        return net
    def note(self, batch):
        line = {"indices": batch.indices, "net": sum(float(p.detach().abs().sum()) for p in self.model.parameters())}
        with open(self.folder / f"rank-{os.environ['RANK']}.jsonl", "a") as log:
            log.write(json.dumps(line) + "\\n")
    def loss(self, model, batch):
        self.model = model
        model.note(batch)
        if (self.folder / "fail").exists() and os.environ["RANK"] == "1":
            raise ValueError("no such number")
        return super().loss(model, batch)


SCENARIO = Parity()
'''


@pytest.fixture(scope="module")
def server() -> TrialServer:
    return TrialServer("whyidle.scenarios.trial:run_trial")


Trial = Callable[..., tuple[TrialOutcome, Path]]


@pytest.fixture
def trial(server: TrialServer, tmp_path: Path) -> Iterator[Trial]:
    """Runs one; gives how it ended, and its folder."""
    (tmp_path / "parity.py").write_text(SCENARIO)
    made = []

    def run(on_tick: Callable[[Path], None] = lambda _: None, **variant: Any) -> tuple[TrialOutcome, Path]:
        folder = tmp_path / f"run{len(made)}"
        made.append(folder)
        options = {"net": "fashion-cnn4", "pipeline": "naive", "batch_size": 4, "device": "cpu", "ranks": 2}
        spec = TrialSpec(
            scenario=str(tmp_path / "parity.py"), data=str(tmp_path), folder=str(folder), **(options | variant)
        )
        return server.run(folder, spec, {"trial": {"scenario": "parity"}}, lambda: on_tick(folder)), folder

    yield run
    for folder in made:
        assert not any(alive(process.pid) for process in processes(folder)), "a rank was left running"


def logged(folder: Path, rank: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder.parent / f"rank-{rank}.jsonl").read_text().splitlines()]


def steps_run(folder: Path) -> int:
    return min((len(open_run(folder).records(STEP, (p.rank, p.pid))) for p in processes(folder)), default=0)


def test_two_ranks_share_the_data_and_train_one_net(trial: Trial) -> None:
    outcome, folder = trial(limit=165, epochs=2, workers=1, pipeline="workers")
    assert outcome == TrialOutcome("ok", None)
    ranks = [logged(folder, 0), logged(folder, 1)]
    assert [len(steps) for steps in ranks] == [40, 40]
    for epoch in (slice(0, 20), slice(20, 40)):
        seen = [index for steps in ranks for step in steps[epoch] for index in step["indices"]]
        assert len(seen) == len(set(seen)) == 160
    # Each net sees other samples, and yet they stay one: their gradients are averaged.
    assert [step["net"] for step in ranks[0]] == [step["net"] for step in ranks[1]]
    assert len({step["net"] for step in ranks[0]}) > 35

    job = analysis_of_run(folder)
    assert [part.rank for part in job.ranks] == [0, 1]
    cell = Cell("workers", 4, "ok", None, (RunRow(str(folder), 0, job),))
    assert cell.samples_per_s.value == job.job.samples_per_s


def test_a_rank_that_is_killed_ends_the_others_and_is_named(trial: Trial) -> None:
    killed: list[int] = []

    def kill(folder: Path) -> None:
        if not killed and steps_run(folder) > 5:
            killed.append(next(p.pid for p in processes(folder) if p.rank == 1))
            with suppress(ProcessLookupError):
                os.kill(killed[0], signal.SIGKILL)

    outcome, _ = trial(kill, iterations=1_000_000)
    assert outcome.status == "failed"
    assert outcome.error.startswith("rank 1 was killed by SIGKILL")


def test_a_rank_that_fails_ends_the_others_and_says_why(trial: Trial, tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    outcome, folder = trial(iterations=1_000_000)
    assert (outcome.status, outcome.error) == ("failed", "rank 1: ValueError: no such number")
    assert "no such number" in (folder / "output.txt").read_text()
