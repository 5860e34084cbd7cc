"""Recordings of jobs of several ranks: healthy ones, late ranks, ranks and hosts that are missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import support.recent_runs as recent_runs
from golden.singles import Part, devices, info, part, recording
from support.jobs import Rank, record
from support.planted_runs import H200
from whyidle.record.run import SampledDevice, update_run
from whyidle.scenarios.planted import MS

OWN = {"command": ["torchrun", "train.py"], "torch": "2.9.0"}


def job(ranks: list[Rank], steps: int = 100, device: str = "emulated") -> Part:
    return recording(part(record, ranks, steps, device=device), info(**OWN))


def missing_rank(at: Path) -> None:
    """Of four ranks one recorded no step, and one was killed."""
    record(at / "run", {0: Rank(), 1: Rank(), 2: Rank(steps=40)}, 100, world_size=4)
    update_run(at / "run", OWN)
    next((at / "run").glob("step-1-*.rec")).unlink()


def two_hosts(at: Path) -> None:
    """Each host has a folder and a clock of its own."""
    ranks = [Rank(), Rank(), Rank(host="beta", fetch_ns=9 * MS), Rank(host="beta")]
    record(at / "job", ranks, 120, shifts={"beta": 10**15}, drifts={"beta": 2e-5}, apart=True, device="emulated")
    for host in ("alpha", "beta"):
        update_run(at / "job" / host, OWN)


TURNS = [np.where(np.arange(120) // 4 % 3 == rank, 25 * MS, MS) for rank in range(3)]
PAUSES = np.where(np.arange(100) % 10 == 9, 300 * MS, 0)
EXCHANGE = {"ms": 6.0, "bytes": 400_000_000, "gb_per_s": 12.0, "interconnect": "pcie3", "way": "ring"}
V100S = {"kind": "emulated", "title": "emulated V100", "name": "emulated:v100", "count": 2}
BUILDERS: dict[str, Part] = {
    "ranks-healthy": job([Rank(workers=2)] * 4),
    "ranks-late-for-data": job([Rank(), Rank(fetch_ns=21 * MS), Rank(fetch_ns=2 * MS)]),
    "ranks-late-for-host": job([Rank(host_ns=20 * MS), Rank()], device="cpu"),
    "ranks-late-for-boundary": job([Rank(boundary_ns=PAUSES), Rank()]),
    "ranks-late-for-computing": job([Rank(), Rank(forward_ns=23 * MS)], device="cuda"),
    "ranks-late-in-turn": job([Rank(fetch_ns=fetch) for fetch in TURNS], 120),
    "ranks-missing": missing_rank,
    "ranks-exchange": recording(
        part(record, [Rank()] * 2, 100, device="emulated"), info(**OWN, exchange=EXCHANGE, device=V100S)
    ),
    "ranks-accumulated": job([Rank(every=4), Rank(every=4, fetch_ns=6 * MS)], 160),
    "ranks-many": job([Rank(fetch_ns=(21 if n == 17 else 1) * MS) for n in range(20)], 60),
    # Two ranks with a GPU each, workers, epochs, garbage collections and reading calls.
    "ranks-on-gpus": recording(
        part(recent_runs.training, seed=1, seconds=8),
        info(**OWN, device=recent_runs.ON_GPUS["device"] | {"title": H200["title"]}),
        devices([SampledDevice(0, "NVIDIA H200"), SampledDevice(1, "NVIDIA H200")], "570.86.15"),
    ),
    "ranks-two-hosts": two_hosts,
}
