"""Computing that takes longer than it need: each cause at several sizes, alone and together, and where it is none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.crafted import add, add_events, amend, evidence, facts_of_run, found, steps_of, train_on_cpu
from whyidle.analyse.causes.claim import Piece
from whyidle.analyse.causes.divided import pieces_of
from whyidle.analyse.intervals import covered
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.facts import Facts
from whyidle.devices.conditions import Conditions
from whyidle.devices.emulated import EmulatedSpec
from whyidle.record.reader import Records
from whyidle.record.run import open_run
from whyidle.record.schema import DEVICE, NOT_MEASURED, EventKind, StepFlag
from whyidle.scenarios.planted import MS, START, Step, train

SEVERITIES = [0.12, 0.3, 0.6]
COMPUTE = 10 * MS
STEPS = 200
ODD = range(15, STEPS, 10)
GB = 10**9


def computing(folder: Path, odd_ns: int = 0, odd: Iterable[int] = ODD, fetch_ns: int = 0, **how: int) -> Path:
    """Steps of 10 ms, of which some compute so much longer."""
    longer = set(odd)
    plan = [
        Step(fetch_ns=fetch_ns, compute_ns=COMPUTE + (odd_ns if n in longer else 0), sync=True, **how)
        for n in range(STEPS)
    ]
    train(folder, [plan])
    return folder


def each_odd(share: float) -> int:
    """What every tenth step takes longer, for so much of the time."""
    return round(10 * COMPUTE * share / (1 - share))


def shapes(folder: Path, new: Iterable[int] = ODD, looked_at: bool = True) -> None:
    """The batches of some steps are the first of their shape."""
    first = set(new)

    def change(steps: Records) -> None:
        for step in steps if looked_at else ():
            step["flags"] |= StepFlag.SHAPE_KNOWN | (StepFlag.NEW_SHAPE if int(step["step"]) in first else 0)
            step["flags"] |= 1000 << StepFlag.ELEMENTS_SHIFT

    amend(folder, change)


def retries(folder: Path, steps: Iterable[int] = ODD) -> None:
    """The allocator tried again in some steps, and was asked right after each."""
    ends = steps_of(folder)["step_end_ns"]
    add_events(
        folder,
        [(int(ends[n]), EventKind.ALLOCATOR_RETRIES, count, NOT_MEASURED) for count, n in enumerate(steps, 1)],
    )


def looks(folder: Path, *states: dict[str, float], utilisation_pct: float | None = None) -> None:
    """Looks at the device, the states in turns, every 50 ms; utilisation in windows of the same length."""
    end = int(steps_of(folder)["step_end_ns"].max())
    rows = []
    for number, t in enumerate(range(START, end, 50 * MS)):
        rows.append({"t_ns": t, "device": 0} | states[number % len(states)])
        if utilisation_pct is not None:
            rows.append({"t_ns": t, "device": 0, "window_ns": 50 * MS, "utilisation_pct": utilisation_pct})
    add(folder, DEVICE, rows)


def clocked(mhz: float, reasons: int, most: float = 1500) -> dict[str, float]:
    return {"sm_clock_mhz": round(mhz), "sm_clock_max_mhz": most, "throttle_reasons": reasons}


def shares(folder: Path) -> dict[str | None, float]:
    return {cause: finding.share for cause, finding in found(folder).items()}


@pytest.mark.parametrize("share", SEVERITIES)
def test_new_shapes_that_take_longer_have_their_share(tmp_path: Path, share: float) -> None:
    folder = computing(tmp_path / "run", each_odd(share))
    shapes(folder)
    finding = found(folder)["device.shape_churn"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert f"at {len(ODD)} of 195 steps, the longest" in finding.title
    # The same steps, and nobody looked at the shapes: slow steps, of which nothing is known.
    unknown = computing(tmp_path / "unknown", each_odd(share))
    assert facts_of_run(unknown).shape_churn is None
    assert shares(unknown) == {}


def test_shapes_that_are_new_and_no_slower_are_no_finding(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run")
    shapes(folder)
    assert shares(folder) == {}
    # A third longer may be a third larger.
    larger = computing(tmp_path / "larger", COMPUTE // 3, range(10, STEPS, 2))
    shapes(larger, range(10, STEPS, 2))
    assert shares(larger) == {}


def lengths(folder: Path, drawn: list[int], power: float = 1.0, first_ms: float = 0.0, sized: bool = True) -> Path:
    """Batches of these lengths, 20 ms for a hundred; the first of each length takes so much longer."""
    steps, seen = [], set()
    for length in drawn:
        new = length not in seen
        seen.add(length)
        flags = StepFlag.SHAPE_KNOWN | (StepFlag.NEW_SHAPE if new else 0)
        flags |= 8 * length << StepFlag.ELEMENTS_SHIFT if sized else 0
        end = 1 + 20 * (length / 100) ** power + (first_ms if new else 0)
        steps.append({"fetch": 0.5, "gap": 0.1, "end": end, "flags": flags})
    return train_on_cpu(folder, steps)


def drawn(kind: str, count: int = 300) -> list[int]:
    source = np.random.default_rng(0)
    of = {
        "lognormal": lambda: np.exp(source.normal(4.5, 0.8, count)).clip(5, 1024),
        "pareto": lambda: (64 * (1 + source.pareto(1.2, count))).clip(64, 2048),
        "mostly 128": lambda: np.where(source.random(count) < 0.8, 128, source.integers(200, 512, count)),
    }[kind]
    return [int(length) for length in of()]


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("kind", ["lognormal", "pareto", "mostly 128"])
def test_batches_of_unusual_lengths_are_new_and_long_and_no_finding(tmp_path: Path, kind: str, power: float) -> None:
    folder = lengths(tmp_path / "run", drawn(kind), power)
    flags = steps_of(folder)["flags"]
    assert np.mean((flags & StepFlag.NEW_SHAPE) != 0) > 0.15
    assert facts_of_run(folder).shape_churn is None
    assert shares(folder) == {}


def test_what_new_shapes_take_beyond_their_size_is_found_among_lengths_that_vary(tmp_path: Path) -> None:
    many = drawn("mostly 128")
    folder = lengths(tmp_path / "run", many, first_ms=600)
    steps = steps_of(folder)[5:]
    true = int(((steps["flags"] & StepFlag.NEW_SHAPE) != 0).sum()) * 600 * MS
    true_share = true / float((steps["step_end_ns"] - steps["fetch_begin_ns"]).sum())
    # Of the longest ones size might explain a part: less is found than there is, never more.
    assert 0.6 * true_share < shares(folder)["device.shape_churn"] <= true_share
    # Where nobody told the sizes, new shapes are not told from large ones; the compiler's own time is.
    unsized = lengths(tmp_path / "unsized", many, first_ms=600, sized=False)
    assert shares(unsized) == {}
    begins = steps_of(unsized)["forward_begin_ns"][10:60:5].tolist()
    add_events(unsized, [(begin, EventKind.COMPILE, 0, begin + 15 * MS) for begin in begins])
    compiled = facts_of_run(unsized).shape_churn
    assert compiled is not None
    assert (compiled.hit, compiled.total_ns) == (10, pytest.approx(150 * MS, rel=0.01))


@pytest.mark.parametrize("share", SEVERITIES)
def test_compiling_anew_is_named_where_every_step_has_a_new_shape(tmp_path: Path, share: float) -> None:
    folder = train_on_cpu(tmp_path / "run", [{"flags": StepFlag.SHAPE_KNOWN | StepFlag.NEW_SHAPE}] * 60)
    begins = steps_of(folder)["forward_begin_ns"].tolist()
    add_events(folder, [(begin, EventKind.COMPILE, 0, begin + round(share * 100 * MS)) for begin in begins])
    finding = found(folder)["device.shape_churn"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert "compiler" in finding.title
    assert "dynamic=True" in finding.next[0].change


@pytest.mark.parametrize("share", SEVERITIES)
def test_compiling_before_a_step_can_compute_counts_too(tmp_path: Path, share: float) -> None:
    """The device idles meanwhile: the time is the host's, and its cause the shapes."""
    wait = each_odd(share)
    plan = [Step(fetch_ns=0, sync=True, before_ns=wait if n in ODD else 0) for n in range(STEPS)]
    train(tmp_path / "run", [plan])
    shapes(tmp_path / "run")
    begins = steps_of(tmp_path / "run")["fetch_end_ns"]
    add_events(tmp_path / "run", [(int(begins[n]), EventKind.COMPILE, 0, int(begins[n]) + wait) for n in ODD])
    assert shares(tmp_path / "run") == {"device.shape_churn": pytest.approx(share, abs=0.02)}


@pytest.mark.parametrize("share", SEVERITIES)
def test_retries_of_the_allocator_have_their_share(tmp_path: Path, share: float) -> None:
    folder = computing(tmp_path / "run", each_odd(share), range(60, 180, 10))
    assert shares(folder) == {}
    retries(folder, range(60, 180, 10))
    true = 12 * each_odd(share) / (12 * each_odd(share) + 195 * COMPUTE)
    finding = found(folder)["device.memory_pressure"]
    assert finding.share == pytest.approx(true, abs=0.02)
    assert evidence(finding)["retries of the allocator"] == 12
    assert "expandable_segments" in finding.next[0].change


@pytest.mark.parametrize(("each_ns", "every"), [(8 * MS, 4), (10 * MS, 2)])
def test_retries_all_the_time_are_the_slowest_steps(tmp_path: Path, each_ns: int, every: int) -> None:
    odd = range(7, STEPS, every)
    folder = computing(tmp_path / "run", each_ns, odd)
    retries(folder, odd)
    true = each_ns / every / (each_ns / every + COMPUTE)
    assert shares(folder) == {"device.memory_pressure": pytest.approx(true, abs=0.02)}
    # All steps alike: what they would take without retries is not known.
    same = computing(tmp_path / "same")
    retries(same, odd)
    assert shares(same) == {}


def test_retries_that_cost_nothing_are_no_finding(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run")
    retries(folder)
    assert shares(folder) == {}


def test_retries_before_the_window_are_the_warm_ups(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run", 500 * MS, range(4))
    retries(folder, range(4))
    assert facts_of_run(folder).memory_pressure is None


@pytest.mark.parametrize("share", SEVERITIES)
@pytest.mark.parametrize("reason", [0x20, 0x40, 0x8])
def test_clocks_held_down_by_heat_or_hardware_have_their_share(tmp_path: Path, share: float, reason: int) -> None:
    folder = computing(tmp_path / "run")
    looks(folder, clocked(1500 * (1 - share), reason))
    finding = found(folder)["device.throttled"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert f"{1500 * (1 - share):.0f} instead of 1500 MHz" in finding.title


def test_the_share_of_the_time_counts_and_so_does_the_clock_it_has_otherwise(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run")
    looks(folder, clocked(1300, 0), clocked(650, 0x20))
    finding = found(folder)["device.throttled"]
    assert finding.share == pytest.approx(0.25, abs=0.02)
    assert "650 instead of 1300 MHz for 49 %" in finding.title


def test_heat_that_the_driver_only_counts_is_seen(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run")
    end = int(steps_of(folder)["step_end_ns"].max())
    add(
        folder,
        DEVICE,
        [
            {"t_ns": t, "device": 0, "sm_clock_mhz": 900, "sm_clock_max_mhz": 1500, "thermal_ns": t - START}
            for t in range(START, end, 50 * MS)
        ],
    )
    assert shares(folder) == {"device.throttled": pytest.approx(0.4, abs=0.02)}


@pytest.mark.parametrize(
    "states",
    [
        # Full clocks; slow without a reason; idle; at the power cap all the time and near its highest clock.
        [clocked(1500, 0)],
        [clocked(900, 0)],
        [clocked(300, 0x1)],
        [clocked(1350, 0x4)],
        [{"throttle_reasons": 0x20}],
    ],
)
def test_clocks_that_are_as_they_should_be_or_unknown_are_no_finding(
    tmp_path: Path, states: list[dict[str, float]]
) -> None:
    folder = computing(tmp_path / "run")
    looks(folder, *states)
    assert shares(folder) == {}


def test_a_power_cap_counts_when_it_takes_much_or_comes_and_goes(tmp_path: Path) -> None:
    low = computing(tmp_path / "low")
    looks(low, clocked(1050, 0x4))
    assert shares(low) == {"device.throttled": pytest.approx(0.3, abs=0.02)}
    assert "the power cap" in found(low)["device.throttled"].title
    changing = computing(tmp_path / "changing")
    looks(changing, clocked(1500, 0), clocked(1500, 0), clocked(1230, 0x4))
    assert shares(changing) == {"device.throttled": pytest.approx(0.06, abs=0.01)}


@pytest.mark.parametrize("free", [1, 5, 15])
@pytest.mark.parametrize("most", [1500, 1700])
def test_a_few_looks_free_of_a_usual_power_cap_do_not_make_it_a_brake(tmp_path: Path, free: int, most: float) -> None:
    """A card at its power cap under full load, and now and then at its highest clock under less."""
    folder = computing(tmp_path / "run")
    looks(folder, *[clocked(0.86 * most, 0x4, most)] * (40 - free), *[clocked(most, 0, most)] * free)
    assert shares(folder) == {}
    # Free most of the time, and hardly faster then.
    hardly = computing(tmp_path / "hardly")
    looks(hardly, *[clocked(0.93 * most, 0x4, most)] * 10, *[clocked(most, 0, most)] * 30)
    assert shares(hardly) == {}


def emulated(folder: Path, conditions: Conditions, fetch_ns: int = 0) -> Path:
    """A training on a device under such conditions, whose driver says so and counts what really ran."""
    spec = EmulatedSpec("test", "Test", 10**12, 10e9, 5e9, conditions=conditions)
    train(folder, [[Step(fetch_ns=fetch_ns, sync=True)] * STEPS], spec=spec)
    own = facts_of_run(folder).parts.stepping_share
    busy = own + (1 - own) * conditions.others
    looks(folder, conditions.state(0), utilisation_pct=100 * busy)
    return folder


@pytest.mark.parametrize("share", SEVERITIES)
def test_others_on_the_device_have_the_share_of_the_computing_they_take(tmp_path: Path, share: float) -> None:
    folder = emulated(tmp_path / "run", Conditions(others=share, processes=2), fetch_ns=10 * MS)
    true = facts_of_run(folder).parts.share("compute") * share
    assert found(folder)["device.contended"].share == pytest.approx(true, abs=0.02)
    assert found(folder)["device.contended"].confidence < 0.8


def test_others_that_do_nothing_or_cannot_be_told_are_no_finding(tmp_path: Path) -> None:
    idle = emulated(tmp_path / "idle", Conditions(processes=2), fetch_ns=10 * MS)
    assert "device.contended" not in found(idle)
    # The training leaves the device no idle time to tell others by.
    full = emulated(tmp_path / "full", Conditions(others=0.5, processes=2))
    assert "device.contended" not in found(full)
    # Kernels of its own outside the steps, as of a loader on the device: nobody else is there.
    alone = emulated(tmp_path / "alone", Conditions(others=0.5, processes=1), fetch_ns=10 * MS)
    assert "device.contended" not in found(alone)


def evaluating(folder: Path, compute_ns: int, boundary_ns: int, every: int, fetch_ns: int = 0) -> Path:
    """A training that validates on the device after every so many steps."""
    plan = [
        Step(fetch_ns=fetch_ns, compute_ns=compute_ns, sync=True, boundary_ns=boundary_ns if n % every == 0 else 0)
        for n in range(1, 301)
    ]
    train(folder, [plan])
    return folder


def busy_when(folder: Path, *busy: tuple[str, float], processes: int = 2, window_ns: int = 50 * MS) -> None:
    """Utilisation windows in which kernels ran while the steps computed, and for a share of other times."""
    parts = facts_of_run(folder).parts
    steps = steps_of(folder)
    ends = np.arange(START + window_ns, int(steps["step_end_ns"].max()), window_ns)
    shares = dict(busy)
    own = covered(parts.computing, ends - window_ns, ends) / window_ns
    outside = covered(parts.outside, ends - window_ns, ends) / window_ns
    ran = own + shares.get("outside", 0.0) * outside + shares.get("idle", 0.0) * (1 - own - outside)
    add(
        folder,
        DEVICE,
        [
            {"t_ns": t, "device": 0, "window_ns": window_ns, "utilisation_pct": 100 * part}
            for t, part in zip(ends.tolist(), ran.tolist(), strict=True)
        ],
    )
    add(folder, DEVICE, [{"t_ns": START + 200 * MS, "device": 0, "processes": processes}])


@pytest.mark.parametrize(("boundary_ms", "every"), [(150, 30), (50, 40), (400, 40)])
@pytest.mark.parametrize("fetch_ns", [0, 5 * MS])
def test_validation_on_the_device_is_nobody_elses_kernels(
    tmp_path: Path, boundary_ms: int, every: int, fetch_ns: int
) -> None:
    folder = evaluating(tmp_path / "run", COMPUTE, boundary_ms * MS, every, fetch_ns)
    busy_when(folder, ("outside", 1.0))
    assert "device.contended" not in found(folder)
    # The driver's windows all alike, and nearly full.
    steady = evaluating(tmp_path / "steady", COMPUTE, boundary_ms * MS, every)
    looks(steady, {"processes": 2}, utilisation_pct=98.0)
    assert "device.contended" not in found(steady)


@pytest.mark.parametrize("share", [0.2, 0.4, 0.7])
def test_others_beside_a_training_that_validates_keep_their_share(tmp_path: Path, share: float) -> None:
    folder = evaluating(tmp_path / "run", COMPUTE, 400 * MS, 40, fetch_ns=8 * MS)
    busy_when(folder, ("outside", 1.0), ("idle", share))
    true = facts_of_run(folder).parts.share("compute") * share
    assert found(folder)["device.contended"].share == pytest.approx(true, abs=0.02)


def test_windows_that_all_touch_validation_say_nothing(tmp_path: Path) -> None:
    folder = evaluating(tmp_path / "run", COMPUTE, 50 * MS, 4, fetch_ns=8 * MS)
    busy_when(folder, ("outside", 1.0), ("idle", 0.6), window_ns=100 * MS)
    assert facts_of_run(folder).sampled.gpu_processes == 2
    assert "device.contended" not in found(folder)


def test_windows_of_unknown_length_cannot_be_placed(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run", fetch_ns=10 * MS)
    looks(folder, {"processes": 2, "utilisation_pct": 90.0})
    assert "device.contended" not in found(folder)


def contended_ns(facts: Facts) -> float:
    return pieces_of(facts)[Piece.CONTENDED]


def test_kernels_of_this_jobs_own_processes_and_loaders_are_not_others(tmp_path: Path) -> None:
    folder = emulated(tmp_path / "run", Conditions(others=0.5, processes=2), fetch_ns=10 * MS)
    facts = facts_of_run(folder)
    assert contended_ns(facts) > 0
    assert contended_ns(replace(facts, other_processes=1)) == 0
    assert contended_ns(replace(facts, set_workers=4, starts_python=True)) == 0
    assert contended_ns(replace(facts, set_workers=4, starts_python=False)) > 0
    # A loader that is not torch's may use the GPU.
    assert contended_ns(replace(facts, device_kind="cuda", set_workers=None)) == 0
    assert contended_ns(replace(facts, device_kind="cuda", set_workers=0)) > 0


def test_slow_clocks_and_others_share_the_computing(tmp_path: Path) -> None:
    conditions = Conditions(sm_clock=0.6, throttle_reasons=0x40, others=0.4, processes=3)
    folder = emulated(tmp_path / "run", conditions, fetch_ns=20 * MS)
    computed = facts_of_run(folder).parts.share("compute")
    seen = shares(folder)
    assert seen["device.contended"] == pytest.approx(0.4 * computed, abs=0.02)
    assert seen["device.throttled"] == pytest.approx(0.6 * computed * 0.4, abs=0.02)


def test_a_few_very_slow_steps_are_the_shapes_and_the_rest_the_clocks(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run", each_odd(0.5))
    shapes(folder)
    looks(folder, clocked(1050, 0x20))
    seen = shares(folder)
    assert seen["device.shape_churn"] == pytest.approx(0.5, abs=0.02)
    assert seen["device.throttled"] == pytest.approx(0.5 * 0.3, abs=0.02)
    assert sum(share for cause, share in seen.items()) <= facts_of_run(folder).parts.share("compute") + 1e-9


def running(folder: Path, share: float) -> None:
    """The training's thread runs so much of its time outside fetches and calls."""

    def change(steps: Records) -> None:
        own = steps["step_end_ns"] - steps["fetch_begin_ns"]
        steps["cpu_ns"] = (share * own).astype("i8")

    amend(folder, change)


@pytest.mark.parametrize("share", [0.2, 0.3, 0.6])
def test_utilisation_far_below_the_steps_span_is_slow_launching(tmp_path: Path, share: float) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=0)] * STEPS])
    running(tmp_path / "run", 0.95)
    looks(tmp_path / "run", {}, utilisation_pct=100 * (1 - share))
    finding = found(tmp_path / "run")["host.launch"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert finding.confidence <= 0.5


@pytest.mark.parametrize(("thread", "utilisation"), [(0.95, 90), (0.3, 50), (0.95, None)])
def test_a_busy_device_an_idle_host_or_no_figures_are_no_slow_launching(
    tmp_path: Path, thread: float, utilisation: float | None
) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=0)] * STEPS])
    running(tmp_path / "run", thread)
    looks(tmp_path / "run", {}, utilisation_pct=utilisation)
    assert shares(tmp_path / "run") == {}


def test_slow_launching_leaves_the_clocks_their_part(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=0)] * STEPS])
    running(tmp_path / "run", 0.95)
    looks(tmp_path / "run", clocked(1050, 0x20), utilisation_pct=60)
    seen = shares(tmp_path / "run")
    assert seen["host.launch"] == pytest.approx(0.4, abs=0.02)
    assert seen["device.throttled"] == pytest.approx(0.6 * 0.3, abs=0.02)


def test_notes_do_not_repeat_what_a_finding_says(tmp_path: Path) -> None:
    said = {}
    for name, clock in (("held", 900), ("free", 1499)):
        folder = computing(tmp_path / name)
        end = int(steps_of(folder)["step_end_ns"].max())
        add(
            folder,
            DEVICE,
            [
                {"t_ns": t, "device": 0, "thermal_ns": t - START} | clocked(clock, 0x20)
                for t in range(START, end, 50 * MS)
            ],
        )
        info = {"device": {"kind": "cuda", "title": "a GPU"}}
        said[name] = [n for n in analyse(_as(folder, info)).notes if "clocks" in n]
    assert said["held"] == []
    assert len(said["free"]) == 1


def _as(folder: Path, info: dict[str, object]) -> object:
    run = open_run(folder)
    run.info.update(info)
    return run
