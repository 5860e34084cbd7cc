"""What sampler and host tell about a window, and the sentences about what is missing there or cannot be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.crafted import add_events, analysis_of_run, facts_of_run, records_of, steps_of, train_on_cpu
from support.planted_stacks import DECODING, FETCHING, FORWARD, WAITING, WORKER
from support.planted_stacks import look as look_at
from whyidle.analyse.run.resource_usage import Sampled, quality_notes, sampled
from whyidle.analyse.run.stall_breakdown import disagreeing
from whyidle.analyse.run.window import Window
from whyidle.record.reader import Records
from whyidle.record.schema import DEVICE, HOST, NOT_MEASURED, STEP, EventKind, StepFlag, ThreadState
from whyidle.record.stacks import CallStack
from whyidle.scenarios.planted import MS, START, Step, train

S = 1_000_000_000
BEGIN, END = 100 * S, 130 * S
GB = 10**9


def window(reserved: int | None = None) -> Window:
    """30 s of steps of 1 s, each with so much memory reserved."""
    memory = {} if reserved is None else {"memory_bytes": reserved}
    steps = records_of(STEP, ({"step": n, "step_end_ns": BEGIN + (n + 1) * S} | memory for n in range(30)))
    return Window(BEGIN, END, steps, 0, steps)


def looks(begin: int = BEGIN, end: int = END, period: int = S // 5, **rates: float) -> list[dict[str, Any]]:
    """Looks at the host; `rates` are counters and how much they rise a second."""
    stamps = range(begin, end, period)
    return [
        {"t_ns": t, "late_ns": 0} | {name: round(rate * (t - begin) / S) for name, rate in rates.items()}
        for t in stamps
    ]


def states(begin: int = BEGIN, end: int = END, device: int = 0, **values: float) -> list[dict[str, Any]]:
    return [{"t_ns": t, "device": device} | values for t in range(begin, end, S)]


def hosts(begin: int = BEGIN, end: int = END, each: dict[str, Any] | None = None, **rates: float) -> Records:
    return records_of(HOST, [row | (each or {}) for row in looks(begin, end, **rates)])


def devices(*rows: list[dict[str, Any]]) -> Records:
    return records_of(DEVICE, [row for some in rows for row in some])


def shared(processes: int, used: int = 10, **memory: int) -> Records:
    """A GPU whose processes were looked at every 20 s."""
    rows = states(memory_used_bytes=used * GB)
    for row in rows[5::20]:
        row |= {"processes": processes} | memory
    return devices(rows)


def clocked(power_capped: float, thermal: float, device: int = 0) -> list[dict[str, Any]]:
    """States with cumulative counters that rise so many percent of the time."""
    return [
        row | {"power_capped_ns": round(n * S * power_capped / 100), "thermal_ns": 7 * S + round(n * S * thermal / 100)}
        for n, row in enumerate(states(device=device))
    ]


def late(count: int) -> Records:
    rows = [row | {"late_ns": 150_000_000 if n < count else 90_000_000} for n, row in enumerate(looks())]
    return records_of(HOST, rows)


HEALTHY_HOST = hosts(tree_cpu_ns=S, sampler_cpu_ns=S // 100)
HEALTHY_DEVICE = devices(states(utilisation_pct=90.0, memory_used_bytes=5 * GB))
NO_HOST, NO_DEVICE = HEALTHY_HOST[:0], HEALTHY_DEVICE[:0]
CUT = END - 3 * S // 2
LARGEST = {"processes_bytes": 10 * GB, "largest_process_bytes": 6 * GB}
ALONE = {"processes_bytes": 6 * GB, "largest_process_bytes": 6 * GB}
USED, OTHER = states(utilisation_pct=90.0), states(device=1, utilisation_pct=40.0)
HELD = states(memory_used_bytes=20 * GB)
GPU = " had a context on the GPU"


def seen_of(device: Records = HEALTHY_DEVICE, host: Records = HEALTHY_HOST, of: Window | None = None) -> Sampled:
    return sampled(of or window(), device, host)


@pytest.mark.parametrize(
    ("said", "device", "host", "how"),
    [
        ("", None, None, {"foreign_cpus": 0.1}),
        ("recorded nothing in this window: utilisation and CPU figures are missing.", NO_DEVICE, NO_HOST, {}),
        (
            "last sample came 18 s before the end of the window of 30 s",
            devices(USED[:12]),
            hosts(end=BEGIN + 12 * S),
            {},
        ),
        ("first sample came 5 s into the 30 s of the window", None, hosts(begin=BEGIN + 5 * S), {}),
        ("", devices(states(end=CUT, utilisation_pct=90.0)), hosts(end=CUT), {}),  # the last second may be unseen
        ("Samples of the accelerator ended 21 s before the end of the window", devices(USED, OTHER[:10]), None, {}),
        ("no accelerator in this window: utilisation and device memory are missing.", NO_DEVICE, None, {}),
        ("", NO_DEVICE, None, {"device_kind": "cpu"}),
        ("", None, late(7), {}),
        ("6 % of the samples came more than 0.1 s late", None, late(9), {}),
        ("", None, hosts(each={"steal_pct": 4.9}), {}),
        ("The hypervisor took 7 % of the CPU", None, hosts(each={"steal_pct": 7.0}), {}),
        ("Other programs on this machine used 1.3 CPUs meanwhile.", None, None, {"foreign_cpus": 1.26}),
        ("", None, None, {"foreign_cpus": 0.29}),
        ("of 1.5 CPUs stopped the job for 6.0 s, summed", None, hosts(each={"cpus": 1500}, throttled_us=200_000), {}),
        ("", None, hosts(throttled_us=5_000), {}),
        ("The sampler itself used 12 % of a CPU.", None, hosts(sampler_cpu_ns=S // 8), {}),
        # 6, 3 and 1 GB in three processes, and the training's allocator holds 2.5: the others hold 4 at least.
        (f"2 other processes{GPU}, with 4.0 GB of its memory at least:", shared(3, **LARGEST), None, {"reserved": 2.5}),
        # Bounds that are not known are left out.
        (f"1 other process{GPU}, with 4.0 GB of its memory at least:", shared(2, **LARGEST), None, {}),
        (f"1 other process{GPU}: utilisation counts their kernels as well", shared(2), None, {}),
        ("", shared(1, 6, **ALONE), None, {"reserved": 5}),
        ("", shared(2, 6, **ALONE | {"largest_process_bytes": 3 * GB}), None, {"own_processes": 2}),
        # In a container the driver may list nobody but the training, or nobody at all.
        ("15.0 GB of the GPU's memory were in use beyond what torch held", shared(1, 20), None, {"reserved": 5}),
        ("15.0 GB of the GPU's memory were in use beyond", devices(HELD), None, {"reserved": 5}),
        ("The power cap held the GPU's clocks down for 30 % of the time", devices(clocked(30, 0)), None, {}),
        ("Temperature held the GPU's clocks down for 12 % of the time", devices(clocked(2, 12.5)), None, {}),
        ("", devices(clocked(9, 0.5)), None, {}),
    ],
)
def test_what_is_missing_or_cannot_be_trusted_is_said(
    said: str, device: Records | None, host: Records | None, how: dict[str, Any]
) -> None:
    usual: dict[str, Any] = {"device_kind": "cuda", "foreign_cpus": nan}
    reserved = how.get("reserved")
    of = window(reserved and round(reserved * GB))
    seen = sampled(of, HEALTHY_DEVICE if device is None else device, HEALTHY_HOST if host is None else host)
    notes = quality_notes(seen, of, **usual | {name: value for name, value in how.items() if name != "reserved"})
    assert len(notes) == (said != "")
    assert said in "".join(notes)


def test_no_sample_at_all_is_no_figure() -> None:
    seen = seen_of(NO_DEVICE, NO_HOST)
    assert all(map(math.isnan, vars(seen).values()))


def with_windows() -> Sampled:
    lengths = ((1, 200, "sm_active_pct", 80.0), (2, 600, "sm_active_pct", 40.0), (3, 200, "sm_active_pct", 80.0))
    rows = [
        {"t_ns": BEGIN + at * S, "device": 0, "window_ns": ms * 1_000_000, name: value}
        for at, ms, name, value in (*lengths, (3, 170, "utilisation_pct", 100.0))
    ]
    return seen_of(devices([*rows, {"t_ns": BEGIN + 3 * S, "device": 0, "memory_used_bytes": 1}]))


def beyond() -> Sampled:
    """Memory is compared with what the training held at that time."""
    of = window(reserved=0)
    of.steps["memory_bytes"] = np.where(np.arange(30) < 15, 2 * GB, 12 * GB)
    used = [{"t_ns": BEGIN + n * S + S // 2, "memory_used_bytes": (3 if n < 16 else 13) * GB} for n in range(30)]
    return seen_of(devices([{"device": 0} | row for row in used]), of=of)


def restarted() -> Sampled:
    rows = clocked(30, 0)
    rows[-1]["power_capped_ns"] = 0
    rows[0]["power_capped_ns"] = 5 * S
    return seen_of(devices(rows))


TWO = devices(*(states(device=device, memory_used_bytes=20 * GB) for device in (0, 1)))


@pytest.mark.parametrize(
    ("seen", "figures"),
    [
        (seen_of(), {"utilisation_pct": 90, "utilisation_window_ms": nan, "sampler_cpus": 0.01}),
        (seen_of(), {"throttled_s": nan, "thermal_pct": nan}),
        (seen_of(NO_DEVICE), {"utilisation_pct": nan}),
        (beyond(), {"beyond_training_bytes": GB}),
        # With several devices memory is not guessed.
        (seen_of(TWO, of=window(reserved=GB)), {"beyond_training_bytes": nan}),
        # Slots that an older record did not use hold zeros.
        (seen_of(shared(2, 5, processes_bytes=0, largest_process_bytes=0)), {"others_least_bytes": nan}),
        (
            seen_of(devices(clocked(30, 0), clocked(2, 12.5, device=1))),
            {"power_capped_pct": 30, "thermal_pct": 12.5},
        ),
        # Counters that restarted are not a share.
        (restarted(), {"power_capped_pct": nan}),
        # Windows weigh by their length and name it.
        (with_windows(), {"sm_active_pct": 56, "sm_active_window_ms": 200}),
        (with_windows(), {"utilisation_pct": 100, "utilisation_window_ms": 170}),
    ],
)
def test_figures_are_of_what_was_seen_and_else_none(seen: Sampled, figures: dict[str, float | None]) -> None:
    assert {name: getattr(seen, name) for name in figures} == pytest.approx(figures, nan_ok=True)


def test_steps_whose_stamps_contradict_the_device_are_counted_of_the_window_alone() -> None:
    """The device says that it was done when each batch was asked for, and its stamps that it was so half a second
    later."""
    drained = StepFlag.DRAINED_KNOWN | StepFlag.DRAINED_AT_ENTRY | StepFlag.DRAINED_AT_EXIT
    asked = [BEGIN + n * S for n in range(30)]
    stamps = ({"fetch_begin_ns": at, "fetch_end_ns": at, "device_end_ns": at + 3 * S // 2} for at in asked)
    steps = records_of(STEP, ({"step": n, "flags": drained} | each for n, each in enumerate(stamps)))
    warmup = 5
    assert disagreeing(Window(BEGIN, END, steps[warmup:], warmup, steps)) == len(steps) - warmup


Seen = Callable[[int, int], CallStack | None]


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A training of 2 s that fetches for half of each step, and does something else after it."""
    train(tmp_path / "run", [[Step(fetch_ns=10 * MS, host_ns=10 * MS) for _ in range(100)]])
    return tmp_path / "run"


def looked(run: Path, runs: Seen, waits: Seen, process: int | None = None) -> Path:
    """Looks every 10 ms, in turn while the thread runs and while it waits."""
    for first, seen, state in ((START, runs, ThreadState.RUNS), (START + 10 * MS, waits, ThreadState.FILE)):
        look_at(run, range(first, START + 2 * S, 20 * MS), seen, process, state=state)
    return run


def failing(every: int, seen: CallStack = FORWARD) -> Seen:
    """Sees this, but for every n-th look; the fetch where none fails."""
    return lambda n, _: FETCHING if not every else seen if n % every else None


@pytest.mark.parametrize(
    ("runs", "waits", "process", "failed"),
    [
        (failing(6), failing(6), None, ""),
        (failing(3), failing(3), None, "64 of 189 stack samples of the training failed"),
        (failing(2), failing(0), None, "47 of 189 stack samples of the training failed"),
        (
            lambda n, _: None if n % 2 else DECODING,
            lambda *_: WAITING,
            WORKER,
            "47 of 189 stack samples of the workers",
        ),
    ],
)
def test_looks_of_which_many_failed_are_told_with_what_that_does_to_shares(
    trained: Path, runs: Seen, waits: Seen, process: int | None, failed: str
) -> None:
    if process is not None:
        looked(trained, lambda *_: FORWARD, lambda *_: FETCHING)
    told = [note for note in analysis_of_run(looked(trained, runs, waits, process)).notes if "stack samples" in note]
    assert failed in "".join(told)
    assert ["running lines take a larger share" in note for note in told] == [True] * (failed != "")


KNOWN, NEW = StepFlag.SHAPE_KNOWN, StepFlag.SHAPE_KNOWN | StepFlag.NEW_SHAPE
ELEMENTS = 1000 << StepFlag.ELEMENTS_SHIFT


def fetches_only(short_ms: float = 0.1, learns: bool = False) -> dict[str, float]:
    """A "step" that fetches a batch for 10 ms and computes next to nothing."""
    flags = KNOWN | ELEMENTS | (StepFlag.OPTIMIZER if learns else 0)
    return {"end": 10 + short_ms, "gap": 0, "flags": flags}


def computes(ms: float = 500, new: bool = True) -> dict[str, float]:
    return {"end": 10 + ms, "gap": 0, "flags": (NEW if new else KNOWN) | ELEMENTS | StepFlag.OPTIMIZER}


@pytest.mark.parametrize(
    ("steps", "doubted"),
    [
        *((([fetches_only()] * (n - 1) + [computes()]) * (160 // n), True) for n in (2, 4, 16)),
        # Steps that learn only beyond what tuning explains.
        ([fetches_only(2.5, learns=True), computes()] * 40, False),
        ([fetches_only(0.1, learns=True), computes()] * 40, True),
        # A single one may be anything.
        ([computes(1, new=False)] * 99 + [computes(5000)], False),
    ],
)
def test_steps_of_which_some_only_fetch_for_others_are_doubted_and_no_cause_is_made_of_them(
    tmp_path: Path, steps: list[dict[str, float]], doubted: bool
) -> None:
    analysis = analysis_of_run(train_on_cpu(tmp_path / "run", steps))
    assert analysis.facts is not None
    said = analysis.facts.doubtful
    assert ("steps compute a 5000th of what the others do" in said) == (said in analysis.notes) == doubted
    assert bool(said) == doubted
    assert not doubted or "device.shape_churn" not in {finding.cause for finding in analysis.findings}


def test_what_the_compiler_took_is_no_reason_to_doubt(tmp_path: Path) -> None:
    folder = train_on_cpu(tmp_path / "run", ([computes(1, new=False)] * 9 + [computes(5000)]) * 10)
    assert facts_of_run(folder).doubtful
    spans = [(int(step["fetch_end_ns"]), int(step["step_end_ns"])) for step in steps_of(folder)[9::10]]
    add_events(folder, [(begin, EventKind.COMPILE, NOT_MEASURED, end) for begin, end in spans])
    facts = facts_of_run(folder)
    assert facts.doubtful == ""
    assert facts.shape_churn is not None
