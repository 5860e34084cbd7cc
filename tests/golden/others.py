"""Tunings, a process that was watched from outside, jobs of several ranks, and pairs of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import support.recent_runs as recent_runs
from golden.singles import Part, devices, info, part, recording
from support.crafted import add, amend
from support.jobs import Rank, record
from support.loader_clock import SPECS
from support.pairs import SOME, ahead, crowded, noisy
from support.planted_runs import Making, hosted, looked, serial, trained, until
from support.planted_stacks import plant_log
from support.simulated_bench import SimulatedBench, biased, plan_of, predicts
from support.stacks import BACKWARD, FETCH, LIB, NEXT, TORCH, WORKER, record_threads, stack
from support.tuned import ADVICE, BEST, NOW, RESULT, SLOWER, trial
from whyidle.analyse.attached.trainers import SeenThread
from whyidle.record.run import ProcessStates, SampledDevice, create_run, update_run, write_states
from whyidle.record.schema import HOST, LoaderFlag
from whyidle.record.stacks import Call
from whyidle.record.tuning import LoaderSettings
from whyidle.report.contract import tuning as tune_json
from whyidle.scenarios.planted import MS, START, Step
from whyidle.tune.result import SearchEnd, Tuning, keep
from whyidle.tune.search import search
from whyidle.tune.training import TrialFailed

BEGAN = "2026-01-01T00:00:00"


def kept(result: Tuning | Callable[[], Tuning] | None, stretch: bool = False, **asked: Any) -> Part:
    """A tuning's folder. `stretch`: with what it recorded before it changed anything."""

    def build(at: Path) -> None:
        folder = at / "tuned"
        folder.mkdir()
        told = result() if callable(result) else result
        command = {"command": ["python", "train.py"]} | asked
        keep(folder, command, BEGAN, None if told is None else tune_json.tuning(told))
        if stretch:
            hosted(serial(folder / "first-stretch", 60, 20, Making()), 1.0, 4)

    return build


@cache
def _searched(interrupt_after: int | None, seed: int) -> Tuning:
    spec = SPECS["constant"]
    fails = {LoaderSettings(5, 1): TrialFailed("no space in /dev/shm", out_of_memory=True)}
    bench = SimulatedBench(spec, seed, 0.03, 0.005, fails=fails, interrupt_after=interrupt_after)
    found = search(bench, predicts(biased(spec)), plan_of(spec, 60.0), lambda progress: None)
    known = {name: getattr(RESULT, name) for name in ("what", "device", "steps")}
    return replace(found, batch_size=spec.batch_size, **known)


H200 = {"kind": "emulated", "name": "emulated:h200", "title": "emulated H200", "count": 1}
THREADS = trial(LoaderSettings(0, pipeline="threads"), 700.0, 690.0)
NO_CHANGE = replace(RESULT, best=NOW, speedup=1.0, speedup_low=1.0, speedup_high=1.0)
TUNINGS: dict[str, Part] = {
    "tuned-script": kept(replace(RESULT, batch=ADVICE, notes=("the loss was not a number once",)), stretch=True),
    "tuned-scenario": kept(
        replace(
            RESULT,
            trials=(NOW, SLOWER, THREADS, BEST),
            **{"what": "ssd, vgg", "scenario": "ssd", "device": H200, "starts": 3},
        ),
        scenario="ssd",
        notices=["image corrupt: 3, left out"],
    ),
    "tuned-for-nothing": kept(
        replace(
            NO_CHANGE,
            headroom=0.01,
            ended=SearchEnd.NOTHING_TO_GAIN,
            because="a loader that takes no time would gain 1 %",
            trials=(NOW,),
            binding_constraint=None,
        )
    ),
    "tuned-in-noise": kept(
        replace(
            NO_CHANGE,
            speedup_low=None,
            speedup_high=None,
            ended=SearchEnd.TOO_NOISY,
            because="blocks of one setting differ by 40 %",
            noise=0.4,
            batch=replace(ADVICE, loader_bound=False),
        )
    ),
    "tuned-by-a-search": kept(partial(_searched, None, 1)),
    # By Ctrl-C, with a result.
    "tuned-until-stopped": kept(partial(_searched, 4, 2)),
    # Without a result.
    "tuned-and-killed": kept(None, stretch=True),
}

# A process that was watched from outside.

WAIT = stack(NEXT, f"{TORCH}/utils/data/dataloader.py:_try_get_data", f"{LIB}/queue.py:Queue.get")
FORWARD = stack(f"{TORCH}/nn/modules/module.py:Module._call_impl", "/home/me/model.py:Net.forward", text="return a + b")
READING = stack(text="total += loss.item()")
MAKING = stack(WORKER, FETCH, "/home/me/data.py:__getitem__", "/x/PIL/Image.py:Image.convert")
READ = stack(WORKER, FETCH, "/home/me/data.py:__getitem__", text="data = open(path, 'rb').read()")
IDLE = stack(WORKER, f"{LIB}/multiprocessing/queues.py:Queue.get")


def _attached(at: Path, threads: list[SeenThread], states: list[ProcessStates], **info: Any) -> Path:
    told = {"attach": {"pid": 7, "seconds": 20.0}, "command": ["python", "train.py"], "ended": {"status": "ok"}}
    device = {"device": {"kind": "cpu", "title": "a processor"}}
    run = create_run(at / "run", told | device | info)
    record_threads(run, threads, {state.pid: state.parent for state in states})
    write_states(run, states)
    return run


def _host_looks(run: Path, used: float) -> None:
    add(
        run,
        HOST,
        [
            {
                "t_ns": START + n * 200 * MS,
                "late_ns": 0,
                "cpus": 8000,
                "machine_busy_pct": 40.0,
                "steal_pct": 0.0,
                "tree_cpu_ns": round(used * n * 200 * MS),
                "main_cpu_ns": round(0.4 * n * 200 * MS),
            }
            for n in range(100)
        ],
    )


def attached_workers(at: Path) -> None:
    """Two workers that decode all the time."""
    threads = [
        SeenThread(7, 7, Counter({WAIT: 110, BACKWARD: 50, FORWARD: 30, READING: 10})),
        SeenThread(8, 8, Counter({MAKING: 150, READ: 45, IDLE: 5})),
        SeenThread(9, 9, Counter({MAKING: 160, READ: 36, IDLE: 4})),
        SeenThread(7, 12, Counter({stack(f"{LIB}/threading.py:wait"): 200})),
    ]
    second = 10**9
    training: dict[str, Any] = {"cpu_ns": 8 * second, "main_cpu_ns": 7 * second, "main_queue_ns": second // 5}
    making: dict[str, Any] = {"cpu_ns": 19 * second, "main_cpu_ns": 19 * second, "main_queue_ns": second // 2}
    read: dict[str, Any] = {"read_bytes": 10**8, "read_chars": 4 * 10**9}
    seen: dict[str, Any] = {"seconds": 20.0, "looks": 200}
    states = [
        ProcessStates(7, 1, "python", "python train.py", states={"R": 80, "S": 120}, **seen, **training),
        *(
            ProcessStates(pid, 7, "pt_data_worker", "python train.py", states={"R": 190}, **seen, **making, **read)
            for pid in (8, 9)
        ),
        ProcessStates(10, 7, "python", "python -m sampler", states={"S": 200}, ours=True, **seen),
    ]
    _host_looks(_attached(at, threads, states), 2.3)


def attached_syncs(at: Path) -> None:
    """On a GPU, a loop that reads its loss; few looks, some of which failed."""
    threads = [SeenThread(7, 7, Counter({READING: 40, BACKWARD: 12, FORWARD: 8}), missed=6)]
    states = [ProcessStates(7, 1, "python", "python train.py", None, 20.0, 80, {"R": 70, "S": 10})]
    device = {"kind": "cuda", "title": "NVIDIA H200", "count": 1}
    run = _attached(at, threads, states, device=device, notices=["the driver tells nothing of processes"])
    _host_looks(run, 1.0)


ATTACHED: dict[str, Part] = {
    "attached-workers": attached_workers,
    "attached-syncs": attached_syncs,
    "attached-nothing": lambda at: _attached(at, [], []),
}

# Jobs of several ranks: healthy ones, late ranks, ranks and hosts that are missing.

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
RANKS: dict[str, Part] = {
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
        info(**OWN, device=recent_runs.ON_GPUS["device"] | {"title": "NVIDIA H200"}),
        devices([SampledDevice(0, "NVIDIA H200"), SampledDevice(1, "NVIDIA H200")], "570.86.15"),
    ),
    "ranks-two-hosts": two_hosts,
}

# Pairs of runs.


def pair(a: dict[str, Any], b: dict[str, Any]) -> Part:
    """Noisy runs by their seeds."""

    def build(at: Path) -> None:
        for name, how in (("a", a), ("b", b)):
            noisy(at / name, **(how | {"rng": SOME(how["rng"])}))

    return build


def slower_line(at: Path) -> None:
    """A log that takes more of each step; its line moved, and so did the folder of the program."""
    for name, seed, every in (("a", 1, 10), ("b", 2, 4)):
        run = noisy(at / name, SOME(seed), compute_ms=20 if name == "a" else 30)
        plant_log(run, until(run), every, Call("log", f"/home/me/{name}/logs.py", seed, "history.append(loss)  # <b>"))


def several_a_side(at: Path) -> None:
    for number in range(3):
        noisy(at / f"a{number}", SOME(10 + number), steps=120)
        noisy(at / f"b{number}", SOME(20 + number), fetch_ms=12, steps=120)


def crowded_pair(at: Path) -> None:
    """Other programs used the CPUs beside the second one."""
    crowded(at / "a", SOME(5), busy_pct=20.0, running=0.95)
    crowded(at / "b", SOME(6), fetch_ms=14, compute_ms=26, running=0.6)


def ahead_pair(at: Path) -> None:
    """On a device with a queue, in epochs."""
    for name, seed, every, pause_ms in (("a", 7, 10, 0.0), ("b", 8, 1, 80.0)):
        ahead(at / name, SOME(seed), read_every=every, pause_ms=pause_ms)
        amend(at / name, lambda steps: steps["cpu_ns"].fill(MS))
        update_run(at / name, {"trial": None, "command": ["python", "train.py"]})


def jobs_pair(at: Path) -> None:
    record(at / "a", [Rank(), Rank()], 120)
    record(at / "b", [Rank(), Rank(fetch_ns=9 * MS)], 120)
    for name in ("a", "b"):
        update_run(at / name, {"command": ["torchrun", "train.py"]})


def devices_pair(at: Path) -> None:
    """Which cannot be told apart by times: one device is emulated."""
    noisy(at / "a", SOME(9), steps=80)
    trained(at / "b", [[Step(fetch_ns=5 * MS)] * 80])


CODE = {"revision": "0123456789abcdef0123456789abcdef01234567", "branch": "main", "changed": False}
OTHER_CODE = {"revision": "fedcba9876543210fedcba9876543210fedcba98", "branch": "faster", "changed": True}
PAIRS: dict[str, tuple[Part, tuple[str, ...]]] = {
    "diff-slower-loader": (
        pair(
            {"rng": 1, "workers": 4, "flags": 0},
            {"rng": 2, "fetch_ms": 16, "workers": 2, "flags": LoaderFlag.PIN_MEMORY},
        ),
        ("a", "b"),
    ),
    "diff-slower-line": (slower_line, ("a", "b")),
    "diff-equal": (pair({"rng": 1}, {"rng": 2}), ("a", "b")),
    # Other code, another torch, another batch.
    "diff-faster-computing": (
        pair(
            {"rng": 3, "code": CODE, "torch": "2.8.0"},
            {"rng": 4, "compute_ms": 12, "code": OTHER_CODE, "torch": "2.9.0", "samples": 16},
        ),
        ("a", "b"),
    ),
    "diff-several-a-side": (several_a_side, ("--a", "a0", "a1", "a2", "--b", "b0", "b1", "b2")),
    "diff-crowded": (crowded_pair, ("a", "b")),
    "diff-ahead": (ahead_pair, ("a", "b")),
    "diff-jobs": (jobs_pair, ("a", "b")),
    "diff-devices": (devices_pair, ("a", "b")),
}


STEP = Step(
    fetch_ns=3 * MS, copy_bytes=10_000_000, pinned=False, sync_within=True, within_ns=MS, sync=True, host_ns=2 * MS
)


def limited_run(run: Path, fetch_ms: int = 3) -> Path:
    """A step: 3 ms for data, a pageable copy of 2, computing 10 with a reading call, 2 of the loop's."""
    trained(run, [[*[replace(STEP, fetch_ns=fetch_ms * MS)] * 39, Step(boundary_ns=40 * MS)]] * 2)
    return looked(run, {"memory_used_bytes": 10**9}, utilisation_pct=60.0)


def limited_runs(at: Path) -> None:
    """A run to be held to limits, one to compare it with, one too short, and one that was killed."""
    limited_run(at / "run")
    limited_run(at / "slower", 6)
    trained(at / "short", [[STEP] * 20])
    trained(at / "killed", [[STEP] * 60], ended=None)
    trained(at / "nothing", [])
    noisy(at / "noisy", SOME(1), run_noise=0.0)
    noisy(at / "noisier", SOME(2), run_noise=0.0, fetch_ms=10.8)


def limits(at: Path) -> None:
    """The same, with limits that a file tells."""
    limited_runs(at)
    (at / "pyproject.toml").write_text("[tool.whyidle.check]\nmax-stall = 90\nforbid = ['copy']\nmin-steps = 30\n")
