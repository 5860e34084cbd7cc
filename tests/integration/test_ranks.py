"""Two ranks that average their gradients over gloo, recorded by `whyidle run`: who waits for whom, and for what."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import support.warm as warm
from support.runs import report, run
from whyidle.commands.main import main

TRAIN = """
import json, os, sys, time, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SLOW, FOR, STEPS, LATE = int(sys.argv[1]), sys.argv[2], 45, 0.12

class Samples(Dataset):
    def __init__(self, sleep):
        self.sleep = sleep
    def __len__(self):
        return 2 * 4 * STEPS
    def __getitem__(self, index):
        time.sleep(self.sleep)
        return torch.full((16,), float(index % 7))

class Late(nn.Module):
    def forward(self, x):
        time.sleep(LATE)
        return x

def train(rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    slow = rank == SLOW
    data = Samples(LATE / 4 if slow and FOR == "data" else 0)
    arrived = []
    sampler = DistributedSampler(data, 2, rank, shuffle=False)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    late = Late() if slow and FOR == "forward" else nn.Identity()
    net = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), late, nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    for batch in loader:
        if slow and FOR == "stage":
            time.sleep(LATE)
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        arrived.append(time.monotonic_ns())
        loss.backward()
        optimizer.step()
        if slow and FOR == "host":
            time.sleep(LATE)
    with open(f"arrived-{rank}.json", "w") as file:
        json.dump(arrived, file)
    dist.destroy_process_group()

if __name__ == "__main__":
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
    else:
        torch.multiprocessing.start_processes(train, nprocs=2, start_method=sys.argv[3])
"""
WITHOUT_COMPILER = """
import sys, torch

class Compiler:
    def __init__(self, **known):
        self.__dict__.update(known)
    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Compiler()
    def __call__(self, *_, **__):
        return Compiler()

torch._dynamo = sys.modules["torch._dynamo"] = Compiler(disable=lambda function, *_, **__: function)
"""
"""As that of `runs`, and what DistributedDataParallel asks it for besides: whether anything is compiled."""
STEPS = 45


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(WITHOUT_COMPILER + TRAIN)
    return path


def port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    return dict(os.environ) | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port()} | more


def torchrun(program: Path, *arguments: str) -> list[str | Path]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port()]
    return [*launch, program, *arguments]


def check(found: dict[str, Any], where: Path, slow: int, part: str) -> None:
    """That a report says of two ranks what their programs, which wrote down when they came to each step's gradients,
    say of the same steps; the one that is late sleeps for a hundred times what a step takes."""
    assert found["run"]["ranks"] == 2
    ranks = found["ranks_detail"]
    late = {entry["rank"]: entry["late_ms"] for entry in ranks}
    waits = {entry["rank"]: entry["waits_ms"] for entry in ranks}
    arrived = np.array([json.loads((where / f"arrived-{rank}.json").read_text()) for rank in range(2)])
    warm_up = max(entry["window"]["warmup_steps"] for entry in ranks)
    truth = float((arrived[slow] - arrived[1 - slow])[warm_up:].mean()) / 1e6
    assert late[slow] == pytest.approx(truth, rel=0.2)
    assert waits[1 - slow] == pytest.approx(truth, rel=0.2)
    assert late[1 - slow] == 0
    assert found["verdict"]["cause"] == "rank.straggler"
    assert f"for rank {slow}" in found["verdict"]["title"]
    assert part in found["verdict"]["title"]


@pytest.mark.slow
def test_the_rank_the_others_wait_for_is_found_with_what_it_was_late_for(tmp_path: Path, program: Path) -> None:
    program.write_text(TRAIN)  # the compiler and all
    done = run(tmp_path / "run", *torchrun(program, "1", "data"), env=environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = report(tmp_path / "run")
    check(found, tmp_path, 1, "because of data (input.")
    assert found["window"]["steps"] + found["window"]["warmup_steps"] == STEPS
    # Each rank trains on four samples a step; the job's throughput is that of both.
    rates = [entry["window"]["samples_per_s"] for entry in found["ranks_detail"]]
    assert found["window"]["samples_per_s"] == pytest.approx(sum(rates), rel=0.2)
    assert "ranks" in done.stderr


FORWARD, STAGE = "because of code between the fetch and the backward pass", "because of other work of its training loop"


@pytest.mark.parametrize(
    ("method", "late", "because"),
    [
        ("fork", "forward", FORWARD),
        pytest.param("spawn", "forward", FORWARD, marks=pytest.mark.slow),
        pytest.param("fork", "stage", STAGE, id="before the model is called"),
    ],
)
def test_ranks_that_a_program_starts_itself_are_ranks_too(
    tmp_path: Path, program: Path, method: str, late: str, because: str
) -> None:
    bare = {k: v for k, v in environment().items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    done = warm.run(tmp_path / "run", sys.executable, program, "1", late, method, env=bare, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = report(tmp_path / "run")
    check(found, tmp_path, 1, because)
    assert found["window"]["steps"] + found["window"]["warmup_steps"] == STEPS


@pytest.mark.slow
def test_hosts_record_into_folders_of_their_own_and_are_reported_together(
    tmp_path: Path, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = environment(WORLD_SIZE="2")
    with Path(os.devnull).open("r+") as nothing:
        nodes = [
            warm.Process(
                "trainings",
                "recorded",
                ["run", "--no-live", "--out", str(tmp_path / "job" / f"node{rank}"), "--"]
                + [sys.executable, str(program), "0", "host"],
                (nothing.fileno(), nothing.fileno(), nothing.fileno()),
                env=shared | {"RANK": str(rank), "LOCAL_RANK": "0"},
                cwd=tmp_path,
            )
            for rank in range(2)
        ]
        assert [node.wait() for node in nodes] == [0, 0]
    part = "because of other work of its training loop"
    check(report(tmp_path / "job"), tmp_path, 0, part)
    alone = report(tmp_path / "job" / "node1")
    assert "ranks_detail" not in alone
    assert any("1 of the job's 2 ranks were recorded; rank 0 is missing" in n for n in alone["quality"]["notes"])
    capsys.readouterr()
    assert main(["report", "--json", *(str(tmp_path / "job" / f"node{rank}") for rank in (1, 0))]) == 0
    check(json.loads(capsys.readouterr().out), tmp_path, 0, part)
