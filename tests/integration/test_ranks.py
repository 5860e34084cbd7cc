"""Two ranks that average their gradients over gloo, recorded by `whyidle run`: who waits for whom, and for what."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm
from runs import report, run
from whyidle.commands.main import main

TRAIN = """
import os, sys, time, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SLOW, FOR, STEPS = int(sys.argv[1]), sys.argv[2], 60

class Samples(Dataset):
    def __init__(self, sleep):
        self.sleep = sleep
    def __len__(self):
        return 2 * 4 * STEPS
    def __getitem__(self, index):
        time.sleep(self.sleep)
        return torch.full((16,), float(index % 7))

def train(rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    slow = rank == SLOW
    data = Samples({"data": 0.011 if slow else 0.001, "none": 0.005}.get(FOR, 0.001))
    sampler = DistributedSampler(data, 2, rank, shuffle=False)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    for batch in loader:
        if slow and FOR == "forward":
            time.sleep(0.04)
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()
        if slow and FOR == "host":
            time.sleep(0.04)
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
LATE_MS = 40.0


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


def spawned(folder: Path, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """By the program itself, which is started warm."""
    bare = {k: v for k, v in environment().items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return warm.run(folder, sys.executable, program, *arguments, env=bare)


def check(found: dict[str, Any], slow: int, part: str) -> None:
    assert found["run"]["ranks"] == 2
    late = {entry["rank"]: entry["late_ms"] for entry in found["ranks_detail"]}
    waits = {entry["rank"]: entry["waits_ms"] for entry in found["ranks_detail"]}
    assert LATE_MS / 2 < late[slow] < 2 * LATE_MS
    assert LATE_MS / 2 < waits[1 - slow] < 2 * LATE_MS
    assert late[1 - slow] == 0
    assert found["verdict"]["cause"] == "rank.straggler"
    assert f"for rank {slow}" in found["verdict"]["title"]
    assert part in found["verdict"]["title"]


def test_the_rank_the_others_wait_for_is_found_with_what_it_was_late_for(tmp_path: Path, program: Path) -> None:
    program.write_text(TRAIN)  # the compiler and all
    done = run(tmp_path / "run", *torchrun(program, "1", "data"), env=environment())
    assert done.returncode == 0, done.stderr
    found = report(tmp_path / "run")
    check(found, 1, "because of data (input.serial)")
    assert found["window"]["steps"] + found["window"]["warmup_steps"] == 60
    # Each rank trains on four samples a step; the job's throughput is that of both.
    rates = [entry["window"]["samples_per_s"] for entry in found["ranks_detail"]]
    assert found["window"]["samples_per_s"] == pytest.approx(sum(rates), rel=0.1)
    assert "Ranks" in done.stderr


def test_two_ranks_that_are_equally_slow_have_no_straggler(tmp_path: Path, program: Path) -> None:
    done = spawned(tmp_path / "run", program, "-1", "none", "fork")
    assert done.returncode == 0, done.stderr
    found = report(tmp_path / "run")
    assert found["run"]["ranks"] == 2
    assert "rank.straggler" not in {f["cause"] for f in [found["verdict"], *found["findings"]]}
    assert max(entry["late_ms"] for entry in found["ranks_detail"]) < LATE_MS / 8


def test_ranks_that_a_program_spawns_itself_are_ranks_too(tmp_path: Path, program: Path) -> None:
    done = spawned(tmp_path / "run", program, "1", "forward", "spawn")
    assert done.returncode == 0, done.stderr
    check(report(tmp_path / "run"), 1, "because of code between the fetch and the backward pass")


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
            )
            for rank in range(2)
        ]
        assert [node.wait(120) for node in nodes] == [0, 0]
    part = "because of other work of its training loop"
    check(report(tmp_path / "job"), 0, part)
    alone = report(tmp_path / "job" / "node1")
    assert "ranks_detail" not in alone
    assert any("1 of the job's 2 ranks were recorded; rank 0 is missing" in n for n in alone["quality"]["notes"])
    capsys.readouterr()
    assert main(["report", "--json", *(str(tmp_path / "job" / f"node{rank}") for rank in (1, 0))]) == 0
    check(json.loads(capsys.readouterr().out), 0, part)
