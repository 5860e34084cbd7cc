"""What sampler and host tell about a window, and the sentences about what is missing there or cannot be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.crafted import analysis_of_run, records_of, steps_of
from support.planted_stacks import DECODING, FETCHING, FORWARD, WAITING, WORKER
from support.planted_stacks import look as look_at
from whyidle.analyse.run.resource_usage import Sampled, sampled
from whyidle.analyse.run.sampler_quality import quality_notes
from whyidle.analyse.run.unsampled_steps import disagreeing
from whyidle.analyse.run.window import Window
from whyidle.record.reader import Records
from whyidle.record.schema import DEVICE, HOST, STEP, StepFlag, ThreadState
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


HEALTHY_HOST = records_of(HOST, looks(tree_cpu_ns=S, sampler_cpu_ns=S // 100))
HEALTHY_DEVICE = records_of(DEVICE, states(utilisation_pct=90.0, memory_used_bytes=5 * GB))


def notes(device: Records = HEALTHY_DEVICE, host: Records = HEALTHY_HOST, **how: Any) -> tuple[str, ...]:
    of = how.pop("window", window())
    how = {"device_kind": "cuda", "foreign_cpus": None} | how
    return quality_notes(sampled(of, device, host), of, **how)


def test_a_healthy_window_has_nothing_to_say() -> None:
    assert notes(foreign_cpus=0.1) == ()


def test_no_sample_at_all_is_one_sentence_and_no_figure() -> None:
    none_host, none_device = HEALTHY_HOST[:0], HEALTHY_DEVICE[:0]
    seen = sampled(window(), none_device, none_host)
    assert notes(none_device, none_host) == (
        "The sampler recorded nothing in this window: utilisation and CPU figures are missing.",
    )
    assert (seen.samples, seen.host_samples, seen.device_samples) == (0, 0, 0)
    figures = {name: value for name, value in vars(seen).items() if not name.endswith("samples")}
    assert set(figures.values()) == {None}


def test_a_sampler_that_stopped_early_says_how_much_is_left_out() -> None:
    until = BEGIN + 12 * S
    host = records_of(HOST, looks(end=until))
    device = records_of(DEVICE, states(end=until, utilisation_pct=90.0))
    assert notes(device, host) == (
        "The sampler's last sample came 18 s before the end of the window of 30 s: its means leave out what was after.",
    )


def test_a_sampler_that_began_late_says_so() -> None:
    host = records_of(HOST, looks(begin=BEGIN + 5 * S))
    assert notes(host=host) == (
        "The sampler's first sample came 5 s into the 30 s of the window: its means leave out what was before.",
    )


def test_the_last_second_of_a_run_may_be_unseen() -> None:
    host = records_of(HOST, looks(end=END - 3 * S // 2))
    device = records_of(DEVICE, states(end=END - 3 * S // 2, utilisation_pct=90.0))
    assert notes(device, host) == ()


def test_a_gpu_whose_figures_end_while_the_host_s_go_on_says_so() -> None:
    rows = states(utilisation_pct=90.0) + states(end=BEGIN + 10 * S, device=1, utilisation_pct=40.0)
    assert notes(records_of(DEVICE, rows)) == (
        "Samples of the accelerator ended 21 s before the end of the window of 30 s: utilisation is the mean of the "
        "part before.",
    )


def test_a_gpu_that_was_never_sampled_is_missing_not_idle() -> None:
    nothing = HEALTHY_DEVICE[:0]
    assert sampled(window(), nothing, HEALTHY_HOST).utilisation_pct is None
    assert notes(nothing) == (
        "The sampler recorded no accelerator in this window: utilisation and device memory are missing.",
    )
    assert notes(nothing, device_kind="cpu") == ()


@pytest.mark.parametrize(("late", "said"), [(7, False), (9, True)])
def test_late_samples_are_told_above_five_percent(late: int, said: bool) -> None:
    rows = [row | {"late_ns": 150_000_000 if n < late else 90_000_000} for n, row in enumerate(looks())]
    sentence = (
        f"{100 * late / 150:.0f} % of the samples came more than 0.1 s late: the host was too busy to sample on time."
    )
    assert notes(host=records_of(HOST, rows)) == ((sentence,) if said else ())


@pytest.mark.parametrize(("steal", "said"), [(4.9, False), (7.0, True)])
def test_steal_is_told_from_five_percent_on(steal: float, said: bool) -> None:
    host = records_of(HOST, [row | {"steal_pct": steal} for row in looks()])
    sentence = "The hypervisor took 7 % of the CPU: timings vary from run to run."
    assert notes(host=host) == ((sentence,) if said else ())


def test_foreign_load_is_told_from_a_third_of_a_cpu_on() -> None:
    assert notes(foreign_cpus=1.26) == ("Other programs on this machine used 1.3 CPUs meanwhile.",)
    assert notes(foreign_cpus=0.29) == ()
    assert notes(foreign_cpus=None) == ()


def test_a_throttled_cgroup_is_told_with_its_quota() -> None:
    host = records_of(HOST, [row | {"cpus": 1500} for row in looks(throttled_us=200_000)])
    assert notes(host=host) == (
        "The CPU quota of 1.5 CPUs stopped the job for 6.0 s, summed over CPUs: waits include that, whatever they wait "
        "for.",
    )
    assert notes(host=records_of(HOST, looks(throttled_us=5_000))) == ()
    assert sampled(window(), HEALTHY_DEVICE, HEALTHY_HOST).throttled_s is None


def test_a_sampler_that_costs_much_says_so_itself() -> None:
    seen = sampled(window(), HEALTHY_DEVICE, HEALTHY_HOST)
    assert seen.sampler_cpus == pytest.approx(0.01)
    host = records_of(HOST, looks(sampler_cpu_ns=S // 8))
    assert notes(host=host) == ("The sampler itself used 12 % of a CPU.",)


def shared(processes: int, **memory: int) -> Records:
    """A GPU whose processes were looked at every 20 s."""
    rows = states(memory_used_bytes=memory.pop("used"))
    for row in rows[5::20]:
        row |= {"processes": processes} | memory
    return records_of(DEVICE, rows)


def test_others_on_the_gpu_are_told_with_bounds_of_what_they_hold() -> None:
    """6, 3 and 1 GB in three processes, and the training's allocator holds 2.5: whichever of them it is, the others
    hold 4 GB at least and 7.5 at most."""
    device = shared(3, used=10 * GB, processes_bytes=10 * GB, largest_process_bytes=6 * GB)
    assert notes(device, window=window(reserved=5 * GB // 2)) == (
        "2 other processes had a context on the GPU, with 4.0 to 7.5 GB of its memory: utilisation counts their "
        "kernels as well, and steps may have waited for them.",
    )


def test_bounds_that_are_not_known_are_left_out() -> None:
    told = shared(2, used=10 * GB, processes_bytes=10 * GB, largest_process_bytes=6 * GB)
    untold = shared(2, used=10 * GB)
    beginning = "1 other process had a context on the GPU"
    assert notes(told)[0].startswith(beginning + ", with 4.0 GB of its memory at least: ")
    assert notes(untold, window=window(reserved=9 * GB))[0].startswith(
        beginning + ", with 1.0 GB of its memory at most: "
    )
    assert notes(untold)[0].startswith(beginning + ": ")


def test_the_training_alone_on_its_gpu_is_not_another() -> None:
    device = shared(1, used=6 * GB, processes_bytes=6 * GB, largest_process_bytes=6 * GB)
    assert notes(device, window=window(reserved=5 * GB)) == ()
    two_ranks = shared(2, used=6 * GB, processes_bytes=6 * GB, largest_process_bytes=3 * GB)
    assert notes(two_ranks, own_processes=2) == ()


def test_memory_that_no_listed_process_explains_is_told() -> None:
    """In a container the driver may list nobody but the training, or nobody at all."""
    sentence = (
        "15.0 GB of the GPU's memory were in use beyond what torch held: by a process that the driver does not show "
        "here, or by libraries beside torch's allocator."
    )
    assert notes(shared(1, used=20 * GB), window=window(reserved=5 * GB)) == (sentence,)
    assert notes(records_of(DEVICE, states(memory_used_bytes=20 * GB)), window=window(reserved=5 * GB)) == (sentence,)


def test_memory_is_compared_with_what_the_training_held_at_that_time() -> None:
    of = window(reserved=0)
    of.steps["memory_bytes"] = np.where(np.arange(30) < 15, 2 * GB, 12 * GB)
    used = [
        {"t_ns": BEGIN + n * S + S // 2, "device": 0, "memory_used_bytes": (3 if n < 16 else 13) * GB}
        for n in range(30)
    ]
    assert sampled(of, records_of(DEVICE, used), HEALTHY_HOST).beyond_training_bytes == 1 * GB


def test_memory_beyond_the_training_s_is_not_guessed_with_several_devices() -> None:
    rows = states(memory_used_bytes=20 * GB) + states(device=1, memory_used_bytes=20 * GB)
    assert sampled(window(reserved=GB), records_of(DEVICE, rows), HEALTHY_HOST).beyond_training_bytes is None


def test_a_recording_from_before_these_fields_claims_no_memory_of_others() -> None:
    """Slots that a record did not use yet hold zeros."""
    device = shared(2, used=5 * GB, processes_bytes=0, largest_process_bytes=0)
    assert sampled(window(), device, HEALTHY_HOST).others_least_bytes is None


def clocked(power_capped: float, thermal: float, device: int = 0) -> list[dict[str, Any]]:
    """States with cumulative counters that rise so many percent of the time."""
    return [
        row | {"power_capped_ns": round(n * S * power_capped / 100), "thermal_ns": 7 * S + round(n * S * thermal / 100)}
        for n, row in enumerate(states(device=device))
    ]


def test_clocks_held_down_are_told_of_the_worst_device() -> None:
    device = records_of(DEVICE, clocked(30, 0) + clocked(2, 12.5, device=1))
    seen = sampled(window(), device, HEALTHY_HOST)
    assert (seen.power_capped_pct, seen.thermal_pct) == (pytest.approx(30), pytest.approx(12.5))
    assert notes(device) == (
        "Temperature held the GPU's clocks down for 12 % of the time: computing took longer.",
        "The power cap held the GPU's clocks down for 30 % of the time: computing took longer.",
    )
    assert notes(records_of(DEVICE, clocked(9, 0.5))) == ()


def test_counters_that_restarted_are_not_a_share() -> None:
    rows = clocked(30, 0)
    rows[-1]["power_capped_ns"] = 0
    rows[0]["power_capped_ns"] = 5 * S
    seen = sampled(window(), records_of(DEVICE, rows), HEALTHY_HOST)
    assert seen.power_capped_pct is None
    assert sampled(window(), HEALTHY_DEVICE, HEALTHY_HOST).thermal_pct is None


def test_gpm_windows_weigh_by_their_length_and_name_it() -> None:
    rows = [
        {"t_ns": BEGIN + 1 * S, "device": 0, "window_ns": 200_000_000, "sm_active_pct": 80.0},
        {"t_ns": BEGIN + 2 * S, "device": 0, "window_ns": 600_000_000, "sm_active_pct": 40.0},
        {"t_ns": BEGIN + 3 * S, "device": 0, "window_ns": 200_000_000, "sm_active_pct": 80.0},
        {"t_ns": BEGIN + 3 * S, "device": 0, "window_ns": 170_000_000, "utilisation_pct": 100.0},
        {"t_ns": BEGIN + 3 * S, "device": 0, "memory_used_bytes": 1},
    ]
    seen = sampled(window(), records_of(DEVICE, rows), HEALTHY_HOST)
    assert (seen.sm_active_pct, seen.sm_active_window_ms) == (pytest.approx(56), 200)
    assert (seen.utilisation_pct, seen.utilisation_window_ms) == (100, 170)


def test_rates_of_a_window_that_the_driver_does_not_name_have_no_window() -> None:
    seen = sampled(window(), HEALTHY_DEVICE, HEALTHY_HOST)
    assert (seen.utilisation_pct, seen.utilisation_window_ms) == (90, None)


def test_notes_come_from_the_figures_alone() -> None:
    """Figures of unknown origin, as a comparison may hold them, are enough."""
    seen: Sampled = replace(sampled(window(), HEALTHY_DEVICE, HEALTHY_HOST), steal_pct=9.0, late_samples_pct=20.0)
    said = quality_notes(seen, window(), device_kind="cuda", foreign_cpus=None)
    assert [s.split(" of ")[0] for s in said] == ["20 %", "The hypervisor took 9 %"]


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


def of_looks(run: Path) -> list[str]:
    return [note for note in analysis_of_run(run).notes if "looks at stacks" in note]


def test_few_looks_that_failed_are_not_worth_a_word(trained: Path) -> None:
    some: Seen = lambda n, _: None if n % 10 == 0 else FORWARD  # noqa: E731
    assert of_looks(looked(trained, some, some)) == []


def test_many_looks_that_failed_are_told_with_their_share(trained: Path) -> None:
    third: Seen = lambda n, _: None if n % 3 == 0 else FORWARD  # noqa: E731
    (note,) = of_looks(looked(trained, third, third))
    assert "64 of 189 looks at stacks of the training failed (34 %)" in note
    # As many while it waits: nothing is told too low.
    assert "ran in" not in note


def test_looks_that_fail_while_a_thread_runs_make_running_look_rare(trained: Path) -> None:
    (note,) = of_looks(looked(trained, lambda n, _: None if n % 3 == 0 else FORWARD, lambda *_: FETCHING))
    assert "32 of 189 looks at stacks of the training failed (17 %)" in note
    assert "The training ran in 50 % of all of them and in 39 % of those that succeeded" in note


def test_those_at_workers_are_told_by_themselves(trained: Path) -> None:
    looked(trained, lambda *_: FORWARD, lambda *_: FETCHING)
    (note,) = of_looks(looked(trained, lambda n, _: None if n % 2 else DECODING, lambda *_: WAITING, WORKER))
    assert "47 of 189 looks at stacks of the workers failed (25 %)" in note
    assert "The workers ran in 50 % of all of them and in 33 % of those that succeeded" in note


def test_the_part_of_the_step_in_which_most_failed_is_named(trained: Path) -> None:
    steps = steps_of(trained)

    def seen(_: int, at: int) -> CallStack | None:
        fetched = (steps["fetch_begin_ns"] <= at) & (at < steps["fetch_end_ns"])
        return FETCHING if fetched.any() else None

    look_at(trained, range(START, START + 2 * S, 5 * MS + 1), seen)
    (note,) = of_looks(trained)
    assert "190 of 379 looks at stacks of the training failed (50 %)" in note
    assert note.endswith("Of those between optimizer and fetch 190 of 190 failed.")
