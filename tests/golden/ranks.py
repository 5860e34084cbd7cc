"""Recordings of jobs of several ranks: healthy ones, late ranks, ranks and hosts that are missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import support.recent_runs as recent_runs
from support.jobs import Rank, record
from support.planted_runs import H200
from whyidle.record.run import SampledDevice, note_devices, update_run
from whyidle.scenarios.planted import MS

OWN = {"command": ["torchrun", "train.py"], "torch": "2.9.0"}


def _job(at: Path, ranks: list[Rank], steps: int = 100, device: str = "emulated", **info: object) -> Path:
    record(at / "run", ranks, steps, device=device)
    update_run(at / "run", OWN | info)
    return at / "run"


def healthy(at: Path) -> None:
    _job(at, [Rank(workers=2)] * 4)


def late_for_data(at: Path) -> None:
    _job(at, [Rank(), Rank(fetch_ns=21 * MS), Rank(fetch_ns=2 * MS)])


def late_for_host(at: Path) -> None:
    _job(at, [Rank(host_ns=20 * MS), Rank()], device="cpu")


def late_for_boundary(at: Path) -> None:
    pauses = np.where(np.arange(100) % 10 == 9, 300 * MS, 0)
    _job(at, [Rank(boundary_ns=pauses), Rank()])


def late_for_computing(at: Path) -> None:
    _job(at, [Rank(), Rank(forward_ns=23 * MS)], device="cuda")


def late_in_turn(at: Path) -> None:
    turns = [np.where(np.arange(120) // 4 % 3 == rank, 25 * MS, MS) for rank in range(3)]
    _job(at, [Rank(fetch_ns=fetch) for fetch in turns], 120)


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


def exchange(at: Path) -> None:
    told = {"ms": 6.0, "bytes": 400_000_000, "gb_per_s": 12.0, "interconnect": "pcie3", "way": "ring"}
    device = {"kind": "emulated", "title": "emulated V100", "name": "emulated:v100", "count": 2}
    update_run(_job(at, [Rank()] * 2, exchange=told), {"device": device})


def accumulated(at: Path) -> None:
    _job(at, [Rank(every=4), Rank(every=4, fetch_ns=6 * MS)], 160)


def many(at: Path) -> None:
    _job(at, [Rank(fetch_ns=(21 if n == 17 else 1) * MS) for n in range(20)], 60)


def on_gpus(at: Path) -> None:
    """Two ranks with a GPU each, workers, epochs, garbage collections and reading calls."""
    recent_runs.training(at / "run", seed=1, seconds=8)
    update_run(at / "run", OWN | {"device": recent_runs.ON_GPUS["device"] | {"title": H200["title"]}})
    note_devices(at / "run", [SampledDevice(0, "NVIDIA H200"), SampledDevice(1, "NVIDIA H200")], "570.86.15")


BUILDERS: dict[str, Callable[[Path], None]] = {
    "ranks-healthy": healthy,
    "ranks-late-for-data": late_for_data,
    "ranks-late-for-host": late_for_host,
    "ranks-late-for-boundary": late_for_boundary,
    "ranks-late-for-computing": late_for_computing,
    "ranks-late-in-turn": late_in_turn,
    "ranks-missing": missing_rank,
    "ranks-exchange": exchange,
    "ranks-accumulated": accumulated,
    "ranks-many": many,
    "ranks-on-gpus": on_gpus,
    "ranks-two-hosts": two_hosts,
}
