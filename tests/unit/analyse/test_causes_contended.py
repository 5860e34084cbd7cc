"""Others on the device: told from what the training, its loader and its validation do there themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.crafted import add, facts_of_run, found, steps_of
from support.device_runs import COMPUTE, SEVERITIES, STEPS, computing, shares
from support.planted_runs import looked
from whyidle.analyse.causes.claim import Piece
from whyidle.analyse.causes.divided import pieces_of
from whyidle.analyse.intervals import covered
from whyidle.analyse.run.facts import Facts
from whyidle.devices.conditions import Conditions
from whyidle.devices.emulated import EmulatedSpec
from whyidle.record.schema import DEVICE
from whyidle.scenarios.planted import MS, START, Step, train


def emulated(folder: Path, conditions: Conditions, fetch_ns: int = 0) -> Path:
    """A training on a device under such conditions, whose driver says so and counts what really ran."""
    spec = EmulatedSpec("test", "Test", 10**12, 10e9, 5e9, conditions=conditions)
    train(folder, [[Step(fetch_ns=fetch_ns, sync=True)] * STEPS], spec=spec)
    own = facts_of_run(folder).parts.stepping_share
    busy = own + (1 - own) * conditions.others
    looked(folder, conditions.state(0), utilisation_pct=100 * busy)
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
    looked(steady, {"processes": 2}, utilisation_pct=98.0)
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
    looked(folder, {"processes": 2, "utilisation_pct": 90.0})
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
